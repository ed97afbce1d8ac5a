// Runs code in a subtransaction, to catch its errors.
#pragma once

#include "pg/postgres.hpp"

#include <type_traits>

namespace outbox::pg {

enum class SubxactEnd { committed, rolled_back };

namespace detail {

// Runs `body` with `state`, its closure, in a subtransaction. Returns the error, or nullptr.
ErrorData* in_subtransaction(SubxactEnd end, void (*body)(const void*), const void* state);

} // namespace detail

// Runs `body` in a subtransaction, which is rolled back after an error, or always if `end` says so.
// Returns the error, in the caller's memory context, or nullptr. `body` must itself restore the
// role and close SPI.
template <typename Body>
ErrorData* in_subtransaction(Body&& body, SubxactEnd end = SubxactEnd::committed)
{
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_trivially_destructible_v<Plain>, "a longjmp crosses this frame");
    return detail::in_subtransaction(
        end, [](const void* state) { (*static_cast<const Plain*>(state))(); }, &body);
}

} // namespace outbox::pg
