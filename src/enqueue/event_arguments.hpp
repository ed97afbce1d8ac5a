// Checks the arguments of outbox_enqueue() and outbox_enqueue_many().
#pragma once

#include "extension/argument_checks.hpp"
#include "log/event.hpp"

namespace outbox {

// The arguments as the caller gave them, unchecked. std::nullopt: NULL, or left out.
struct EventArguments {
    int array_index = -1; // of the element in outbox_enqueue_many(); -1 for outbox_enqueue()
    std::optional<Datum> aggregate_type;
    std::optional<Datum> aggregate_id;
    std::optional<Datum> event_type;
    std::optional<Datum> payload;
    std::optional<int64> event_version;
    std::optional<int64> tenant_id;
    std::optional<Datum> metadata;
    std::optional<Datum> trace_id;
    std::optional<TimestampTz> available_at;
    std::optional<Datum> dedup_key;

    // The name of an argument for checks.
    ArgumentName name_of(const char* argument) const { return {argument, array_index}; }

    // Returns the name for messages: payload, or events[7].payload.
    const char* qualified_name(const char* argument) const { return name_of(argument).qualified(); }
};

// Checks every argument, fills in the defaults, by settings of the session for tenant and trace_id,
// and draws a tracking_id. Raises an error for bad input. Reads no table. The event refers to the
// values of the arguments.
Event make_event(const EventArguments& arguments, TimestampTz now);

} // namespace outbox
