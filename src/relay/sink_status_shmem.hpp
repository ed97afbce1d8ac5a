// The state of each sink in shared memory, under ipc::shmem_lock(): written by the relay, read by
// _outbox.sink_states().
#pragma once

#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// One sink of one database.
struct SinkStatus {
    static constexpr std::size_t max_error = 512;

    Oid database;
    int32 consumer;
    std::optional<int64> tenant; // of the sink; nullopt: it serves all tenants
    int32 claimed;               // events claimed and not yet settled
    int32 in_flight;             // requests
    int32 consecutive_failures;
    int64 delivered; // since the relay started
    int64 rejected;
    TimestampTz resume_at;      // end of the back-off; 0: none
    TimestampTz last_error_at;  // 0: no error yet
    char last_error[max_error]; // in UTF-8
};

// Sinks of all databases together. Further sinks work, but are not shown.
inline constexpr int max_sink_statuses = 256;

// Writes the state of a sink of this database, whatever status.database is. Does nothing if all
// entries belong to other sinks.
void publish_sink_status(const SinkStatus& status);

// Removes the state of one sink of this database.
void remove_sink_status(int32 consumer);
// Removes the states of all sinks of this database.
void clear_sink_statuses();

// Requests the shared memory. Call once, in _PG_init() of a preloaded library.
void set_up_sink_statuses();

} // namespace outbox
