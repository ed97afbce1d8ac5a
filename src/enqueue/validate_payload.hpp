// Checks events against the event catalog.
#pragma once

#include "enqueue/event_arguments.hpp"
#include "extension/guc.hpp"

namespace outbox {

namespace detail {

// Does the check while outbox.catalog_mode is not off.
void check_against_catalog(const EventArguments& arguments, Event& event);

} // namespace detail

// Checks that the event's type and version are registered in event_types, which is cached per
// backend, its payload against the schema, and for PII fields. Depending on outbox.catalog_mode and
// outbox.pii_mode, does nothing, raises an error or a warning, or removes PII fields from
// event.payload.
inline void check_against_catalog(const EventArguments& arguments, Event& event)
{
    if (settings::catalog_mode != settings::catalog_off)
        detail::check_against_catalog(arguments, event);
}

} // namespace outbox
