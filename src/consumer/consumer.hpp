// A consumer: its filter, its retry policy and its progress.
#pragma once

#include "core/cursor.hpp"
#include "core/retry_policy.hpp"
#include "log/log_scan.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox {

// The messages that a consumer reads. An empty list matches everything.
struct Filter {
    std::span<const Datum> event_types;
    std::span<const Datum> aggregate_types;
    std::optional<int64> tenant_id;

    bool matches(const Message& message) const;
};

// The payload version that a consumer asks for, of one event type.
struct WantedVersion {
    static constexpr int as_stored = 0; // no upcasting

    std::string_view event_type;
    int version;
};

// A row of _outbox.consumers.
struct Consumer {
    int32 id;
    bool is_sink; // claimed from by the relay only
    bool ordered;
    int32 consumer_partitions;
    bool paused;
    bool fair; // tenants take turns
    Filter filter;
    RetryPolicy retry_policy;
    std::span<const WantedVersion> wanted_versions; // other types: the latest version

    // Returns the consumer partition of the message's aggregate.
    int32 consumer_partition_of(const Message& message) const;
};

// A consumer's progress, from its newest batch.
struct Progress {
    Cursor cursor;
    std::span<const int64> open_tokens; // open batches when it was inserted
};

// A consumer as of one snapshot.
struct ConsumerState {
    Consumer consumer;
    Progress progress;
    bool has_retries;     // _outbox.retries has a row of the consumer
    bool has_due_retries; // such a row is due, though an open batch may have it
};

// Reads a consumer by name, with its newest batch and its next retry, with a new snapshot and
// without locks on rows. Raises undefined_object if it does not exist, or belongs to another tenant
// than the session's. Call inside as_owner(); the result lives as long as SPI is connected.
ConsumerState read_consumer(Datum name);

// Returns the name. Raises null_value_not_allowed for NULL. Does not look the consumer up.
Datum checked_consumer_name(std::optional<Datum> name);

// Returns the consumer partition of an aggregate: a hash, modulo the number of partitions.
int32 consumer_partition_of(Datum aggregate_type, Datum aggregate_id, int32 consumer_partitions);

} // namespace outbox
