// Transactions of a background worker.
#pragma once

#include "extension/owner_spi.hpp"
#include "pg/exceptions.hpp"

#include <optional>
#include <string>

namespace outbox {

// Is this process waiting for a commit to be confirmed, perhaps by a standby that is away? Whoever
// wants it to end must then interrupt it.
extern volatile sig_atomic_t is_waiting_for_commit;

namespace detail {

void begin_transaction(const char* activity);
void commit_transaction(bool waits_for_flush);
void roll_back_transaction();

} // namespace detail

// Limits that a database sets to statements and transactions are not for its workers.
void disable_timeouts();

// Does this database have the extension?
bool is_extension_installed();

// Does a commit return when it is durable, or before?
enum class CommitMode { durable, asynchronous };

// Why a transaction was rolled back.
struct Rollback {
    int sqlstate;
    std::string message;
};

// Runs `body` in a transaction of its own, as the owner of the log. Returns nothing if it was
// committed. `activity` is what pg_stat_activity shows.
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
