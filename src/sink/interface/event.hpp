#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace outbox::sink {

// Facts that the relay counts when an event is delivered. Sinks only pass them through.
struct EventStats {
    std::uint16_t type = 0; // slot number of the event type in the shared counters
    std::uint32_t bytes = 0;
    std::int64_t occurred_at = 0; // TimestampTz: microseconds since 2000

    bool operator==(const EventStats&) const = default;
};

// A message of the log in plain C++, copied out of the server's memory. All text is UTF-8.
struct Event {
    std::int64_t id = 0;    // position in the log
    std::int64_t token = 0; // fencing token of the batch that has the message
    std::string tracking_id;
    std::int64_t tenant_id = 0;
    std::string aggregate_type;
    std::string aggregate_id;
    std::string event_type;
    int event_version = 1;
    std::string payload; // JSON, sent byte for byte

    // CloudEvents extension attributes: the metadata keys that the sink's config names.
    std::vector<std::pair<std::string, std::string>> attributes;

    // Trace fields, unchecked, from the metadata and from outbox_messages.trace_id.
    std::string traceparent;
    std::string trace_id;
    std::string span_id;

    std::int64_t occurred_at = 0; // microseconds since 1970
    int attempts = 0;
    EventStats event_stats;

    bool operator==(const Event&) const = default;

    // Resets all members, but keeps the allocated memory of the strings. The structured binding
    // names every member, so that a new member fails to compile until it is reset here as well:
    // data of one event must not appear in the next.
    void clear() noexcept
    {
        auto& [number, batch, tracking, tenant, type, aggregate, kind, version, body, pairs, trace,
               trace_number, span, time, tries, count] = *this;
        for (std::string* text :
             {&tracking, &type, &aggregate, &kind, &body, &trace, &trace_number, &span})
            text->clear();
        pairs.clear();
        number = batch = tenant = time = 0;
        version = 1;
        tries = 0;
        count = {};
    }

    // Approximate memory in bytes, for the limits on claimed events.
    std::size_t size() const noexcept
    {
        std::size_t bytes = sizeof(Event) + tracking_id.size() + aggregate_type.size() +
                            aggregate_id.size() + event_type.size() + payload.size() +
                            traceparent.size() + trace_id.size() + span_id.size();
        for (const auto& [name, value] : attributes)
            bytes += sizeof(attributes[0]) + name.size() + value.size();
        return bytes;
    }
};

} // namespace outbox::sink
