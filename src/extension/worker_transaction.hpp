// Transactions of a background worker.
#pragma once

#include "extension/owner_spi.hpp"
#include "pg/exceptions.hpp"

#include <optional>
#include <string>

namespace outbox {

// True while this process waits for a durable commit, possibly for a synchronous standby. Only
// ProcDiePending ends that wait, so the SIGTERM handler sets it then.
extern volatile sig_atomic_t is_waiting_for_commit;

namespace detail {

// Starts a transaction with an active snapshot. pg_stat_activity.query shows `activity`.
void begin_transaction(const char* activity);
// Commits, asynchronously unless `waits_for_flush`. After SIGTERM it does not wait for a
// synchronous standby; if such a wait was interrupted, the process exits.
void commit_transaction(bool waits_for_flush);
// Aborts the transaction and restores synchronous_commit.
void roll_back_transaction();

} // namespace detail

// Sets statement_timeout and transaction_timeout to 0 in this worker, whatever the database or role
// has set.
void disable_timeouts();

// Returns true if the current database has the extension. Runs a transaction of its own; throws
// ServerError.
bool is_extension_installed();

// durable: commit as synchronous_commit says. asynchronous: commit without waiting for the flush.
enum class CommitMode { durable, asynchronous };

// The error that rolled a transaction back.
struct Rollback {
    int sqlstate;
    std::string message;
};

// Runs `body` in a transaction of its own, in the role that owns the log. Returns std::nullopt
// after the commit, or the error. pg_stat_activity.query shows `activity`.
template <typename Body>
[[nodiscard]] std::optional<Rollback> in_transaction(const char* activity, Body&& body,
                                                     CommitMode mode = CommitMode::durable)
{
    std::optional<Rollback> rollback;
    try {
        pg::guarded_call([&] {
            detail::begin_transaction(activity);
            as_owner(body);
            detail::commit_transaction(mode == CommitMode::durable);
        });
    } catch (const pg::ServerError& error) {
        rollback = {error.sqlstate(), error.what()};
    } catch (const std::exception& error) {
        rollback = {ERRCODE_INTERNAL_ERROR, error.what()};
    }
    if (rollback)
        pg::guarded_call([] { detail::roll_back_transaction(); });
    return rollback;
}

} // namespace outbox
