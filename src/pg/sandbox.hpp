// Other people's code inside our transactions.
#pragma once

#include "pg/subtransaction.hpp"

#include <type_traits>

namespace outbox::pg {

namespace detail {

void in_sandbox(Oid role, void (*body)(const void*), const void* state);

} // namespace detail

// Runs `body` with the rights of this role and read-only, in a subtransaction that is rolled back
// whatever comes of it: settings, locks, cursors, notifications, nothing stays but an advisory lock
// of the session. Returns the error that ended it, in the caller's memory, or nullptr. Call inside
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

// What `body` sets does not stay either.
template <typename Body>
auto with_guc_nest_level(Body&& body)
{
    const int level = NewGUCNestLevel();
    const auto result = body();
    AtEOXact_GUC(false, level);
    return result;
}

// From now on so many milliseconds may pass before what runs is canceled.
void start_time_limit(int milliseconds);
void end_time_limit();

// Was it the limit that canceled what ran last?
bool has_time_limit_expired();

// Does this error mean that somebody wants the whole statement to end?
bool is_query_cancel(const ErrorData& error);

} // namespace outbox::pg
