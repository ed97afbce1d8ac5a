// Whether an event is one that the catalog knows, and looks like one.
#pragma once

#include "extension/guc.hpp"
#include "log/event.hpp"

namespace outbox {

namespace detail {

void check_against_catalog(const EventArguments& arguments, Event& event);

} // namespace detail

// As outbox.catalog_mode and outbox.pii_mode say: may raise an error, and take parts out of the
// payload.
inline void check_against_catalog(const EventArguments& arguments, Event& event)
{
    if (settings::catalog_mode != settings::catalog_off)
        detail::check_against_catalog(arguments, event);
}

} // namespace outbox
