// Reads an event from the bytes of an input: every field that a producer or a table can set.
#pragma once

#include "core/parse_number.hpp"
#include "fuzz.hpp"
#include "sink/format/cloudevents.hpp"

namespace outbox::fuzz {

struct EventInput {
    sink::Event event;
    std::string source;
};

// The server generates tracking ids, so they are always valid.
inline std::string as_uuid(std::string_view text)
{
    std::string uuid = "0192f000-0000-7000-8000-000000000001";
    const bool is_hex = text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    if (is_hex && text.size() <= 12)
        uuid.replace(uuid.size() - text.size(), text.size(), text);
    return uuid;
}

// id|tenant|version|time|uuid|source|aggregate type|aggregate id|event type|traceparent|trace id|
// span id|attribute=value|attribute=value|payload
inline EventInput read_event(std::string_view input)
{
    const auto parts = split<15>(input, '|');
    const auto number = [&](std::size_t i) { return parse_bigint(parts[i]).value_or(0); };
    EventInput made;
    sink::Event& event = made.event;
    event.id = number(0);
    event.tenant_id = number(1);
    event.event_version = static_cast<int>(number(2) % 32768);
    event.occurred_at = number(3);
    event.tracking_id = as_uuid(parts[4]);
    made.source = as_text(parts[5]);
    event.aggregate_type = as_text(parts[6]);
    event.aggregate_id = as_text(parts[7]);
    event.event_type = as_text(parts[8]);
    event.traceparent = as_text(parts[9]);
    event.trace_id = as_text(parts[10]);
    event.span_id = as_text(parts[11]);
    std::vector<std::string> names;
    for (const std::size_t i : {12, 13}) {
        const auto [name, value] = split<2>(parts[i], '=');
        names.emplace_back(name);
        if (error_of([&] { sink::check_metadata_keys(names); }))
            names.pop_back(); // no config accepts this name
        else
            event.attributes.emplace_back(name, as_text(value));
    }
    event.payload = as_text(parts[14]);
    return made;
}

} // namespace outbox::fuzz
