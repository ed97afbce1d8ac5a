// Transactions of a background worker.
#pragma once

#include "extension/owner_spi.hpp"
#include "pg/exceptions.hpp"

#include <optional>
#include <string>

namespace outbox::pg {

// Is this process waiting for a commit to be confirmed, perhaps by a standby that is away? Whoever
// wants it to end must then interrupt it.
extern volatile sig_atomic_t is_committing;

namespace detail {

void begin(const char* activity);
void commit(bool waits);
void roll_back();

} // namespace detail

// Limits that a database sets to statements and transactions are not for its workers.
void lift_time_limits();

// Does this database have the extension?
bool is_installed();

// Does a commit return when it is durable, or before?
enum class Commit { durable, soon };

// Why a transaction was rolled back.
struct Rollback {
    int sqlstate;
    std::string message;
};

// Runs `body` in a transaction of its own, as the owner of the log. Returns nothing if it was
// committed. `activity` is what pg_stat_activity shows.
template <typename Body>
[[nodiscard]] std::optional<Rollback> in_transaction(const char* activity, Body&& body,
                                                     Commit commit = Commit::durable)
{
    std::optional<Rollback> rollback;
    try {
        call([&] {
            detail::begin(activity);
            as_owner(body);
            detail::commit(commit == Commit::durable);
        });
    } catch (const Error& error) {
        rollback = {error.sqlstate(), error.what()};
    } catch (const std::exception& error) {
        rollback = {ERRCODE_INTERNAL_ERROR, error.what()};
    }
    if (rollback)
        call([] { detail::roll_back(); });
    return rollback;
}

} // namespace outbox::pg
