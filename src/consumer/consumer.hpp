// A consumer: what it wants to read, how it tries again, and where it is.
#pragma once

#include "core/cursor.hpp"
#include "core/retry_policy.hpp"
#include "log/log_scan.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox {

// What a consumer wants to see. Empty lists mean everything.
struct Filter {
    std::span<const Datum> event_types;
    std::span<const Datum> aggregate_types;
    std::optional<int64> tenant_id;

    bool matches(const Message& message) const;
};

// A version of an event type that a consumer asks for.
struct WantedVersion {
    static constexpr int as_stored = 0;

    std::string_view event_type;
    int version;
};

struct Consumer {
    int32 id;
    bool is_sink; // served by the relay, not by callers
    bool ordered;
    int32 consumer_partitions;
    bool paused;
    bool fair; // tenants take turns
    Filter filter;
    RetryPolicy retry_policy;
    std::span<const WantedVersion> wanted_versions; // of other types the latest

    // Which partition a message belongs to: a hash of its aggregate.
    int32 consumer_partition_of(const Message& message) const;
};

// What the newest batch of a consumer says.
struct Progress {
    Cursor cursor;
    std::span<const int64> open_tokens; // batches that were not settled when it was made
};

struct ConsumerState {
    Consumer consumer;
    Progress progress;
    bool has_retries;     // that wait for anything
    bool has_due_retries; // also if they are in hand
};

// All of these inside pg::as_owner(). What they return lives as long as SPI is connected.

// By name, with a snapshot taken now. Raises undefined_object.
ConsumerState read_consumer(Datum name);

// Raises an error if the argument is missing.
Datum checked_consumer_name(std::optional<Datum> name);

int32 consumer_partition_of(Datum aggregate_type, Datum aggregate_id, int32 consumer_partitions);

} // namespace outbox
