#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace outbox::sink {

// What its relay wants to know of an event when it has arrived. Nothing to a sink.
struct EventStats {
    std::uint16_t type = 0;
    std::uint32_t bytes = 0;
    std::int64_t occurred_at = 0; // as the server counts

    bool operator==(const EventStats&) const = default;
};

// A message of the log as a sink sees it. All text is UTF-8.
struct Event {
    std::int64_t id = 0;
    std::int64_t token = 0; // the batch it was claimed in
    std::string tracking_id;
    std::int64_t tenant_id = 0;
    std::string aggregate_type;
    std::string aggregate_id;
    std::string event_type;
    int event_version = 1;
    std::string payload; // JSON, byte for byte what goes out

    // Metadata that the sink's config names: CloudEvents extension attributes.
    std::vector<std::pair<std::string, std::string>> attributes;

    // As the metadata and the column have them: none of these need be valid.
    std::string traceparent;
    std::string trace_id;
    std::string span_id;

    std::int64_t occurred_at = 0; // microseconds since 1970
    int attempts = 0;
    EventStats event_stats;

    bool operator==(const Event&) const = default;

    // As new, but for the memory that its text had. All of it is named, lest something of one event
    // gets into another.
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

    // The memory that it takes, roughly, for limits on what is in flight.
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
