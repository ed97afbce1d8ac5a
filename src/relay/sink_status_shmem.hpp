// The board: what each sink is doing, in shared memory, written by the relay and read by operators.
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

struct SinkStatus {
    static constexpr std::size_t max_error = 512;

    Oid database;
    int32 consumer;
    std::optional<int64> tenant; // whose sink it is; nothing: everybody's
    int32 claimed;               // events that were claimed and not yet settled
    int32 in_flight;             // requests
    int32 consecutive_failures;  // in a row
    int64 delivered;             // since the worker started
    int64 rejected;
    TimestampTz resume_at;      // when it is tried again; 0: now
    TimestampTz last_error_at;  // 0: there was none
    char last_error[max_error]; // in UTF-8
};

// There is room for so many sinks; what has none is not shown.
inline constexpr int max_sink_statuses = 256;

// Shows the state of a sink of this database, in place of what was shown of it before.
void publish_sink_status(const SinkStatus& status);

// Shows nothing of this sink any more, or of any sink of this database.
void remove_sink_status(int32 consumer);
void clear_sink_statuses();

void set_up_sink_statuses();

} // namespace outbox
