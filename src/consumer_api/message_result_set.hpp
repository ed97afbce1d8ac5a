// Messages as the result of an SQL function.
#pragma once

#include "claim/claim.hpp"

namespace outbox {

// The columns are id, tracking_id, tenant_id, aggregate_type, aggregate_id, event_type,
// event_version, payload, metadata, trace_id, occurred_at and attempts, followed by lock_token and
// locked_until where the function has them.
class ResultSetReceiver final : public MessageReceiver {
public:
    explicit ResultSetReceiver(FunctionCallInfo fcinfo);

    void receive(const Message& message, const Delivery& delivery) override;

private:
    ReturnSetInfo* result_;
};

// The argument if it is one that a claim can have, or outbox.batch_size.
int batch_size_argument(std::optional<Datum> batch_size, const char* name = "batch_size");

} // namespace outbox
