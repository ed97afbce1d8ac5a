// What fails in a subtransaction leaves the rest of the transaction as it was.
#pragma once

#include "pg/postgres.hpp"

#include <type_traits>

namespace outbox::pg {

enum class SubxactEnd { committed, rolled_back };

namespace detail {

ErrorData* in_subtransaction(SubxactEnd end, void (*body)(const void*), const void* state);

} // namespace detail

// Runs `body` in a subtransaction, which is undone if it raises an error. Returns that error, in
// the caller's memory, or nullptr. What `body` opens it closes: a role, a connection to SPI.
template <typename Body>
ErrorData* in_subtransaction(Body&& body, SubxactEnd end = SubxactEnd::committed)
{
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_trivially_destructible_v<Plain>, "a longjmp crosses this frame");
    return detail::in_subtransaction(
        end, [](const void* state) { (*static_cast<const Plain*>(state))(); }, &body);
}

} // namespace outbox::pg
