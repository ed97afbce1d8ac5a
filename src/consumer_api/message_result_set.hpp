// Returns messages as the result set of an SQL function.
#pragma once

#include "claim/claim.hpp"

namespace outbox {

// Stores messages in the function's tuplestore. The columns are id, tracking_id, tenant_id,
// aggregate_type, aggregate_id, event_type, event_version, payload, metadata, trace_id, occurred_at
// and attempts, followed by lock_token and locked_until if the function declares them.
class ResultSetReceiver final : public MessageReceiver {
public:
    // Creates the tuplestore. Raises an error if the function is called where no set is allowed.
    explicit ResultSetReceiver(FunctionCallInfo fcinfo);

    void receive(const Message& message, const Delivery& delivery) override;

private:
    ReturnSetInfo* result_;
};

// Returns the argument, or outbox.batch_size for NULL. Raises invalid_parameter_value if it is out
// of range; `name` is for the message.
int batch_size_argument(std::optional<Datum> batch_size, const char* name = "batch_size");

} // namespace outbox
