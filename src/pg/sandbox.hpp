// Runs functions of users inside a transaction of the extension.
#pragma once

#include "pg/subtransaction.hpp"

#include <type_traits>

namespace outbox::pg {

namespace detail {

// Runs `body` in the sandbox, in the current subtransaction. Stops the time limit after an error.
void in_sandbox(Oid role, void (*body)(const void*), const void* state);

} // namespace detail

// Runs `body` as this role, read-only and as a security-restricted operation, in a subtransaction
// that is always rolled back. Settings, locks, cursors and notifications are undone; only session
// advisory locks remain. Returns the error, in the caller's memory context, or nullptr. Call inside
// as_owner().
template <typename Body>
ErrorData* in_sandbox(Oid role, Body&& body)
{
    using Plain = std::remove_reference_t<Body>;
    return in_subtransaction(
        [role, &body] {
            detail::in_sandbox(
                role, [](const void* state) { (*static_cast<const Plain*>(state))(); }, &body);
        },
        SubxactEnd::rolled_back);
}

// Runs `body` in a GUC nest level that is rolled back: settings changed by one call do not reach
// the next call in the same sandbox.
template <typename Body>
auto with_guc_nest_level(Body&& body)
{
    const int level = NewGUCNestLevel();
    const auto result = body();
    AtEOXact_GUC(false, level);
    return result;
}

// Starts a timeout that cancels the running code after so many milliseconds. end_time_limit() stops
// it, and in_sandbox() does after an error.
void start_time_limit(int milliseconds);

// Stops the timeout, and withdraws the query cancel that it has requested.
void end_time_limit();

// Returns true if the time limit that was started last has expired.
bool has_time_limit_expired();

// Returns true if an error from in_sandbox() must end the whole statement: a cancel that is not the
// time limit's, or a serialization failure.
bool is_query_cancel(const ErrorData& error);

} // namespace outbox::pg
