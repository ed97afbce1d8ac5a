#pragma once

#include "sink/format/encoding.hpp"
#include "sink/interface/event.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox::sink {

// Format of an HTTP request.
enum class HttpFormat {
    binary,     // CloudEvents attributes in headers, the payload is the body
    structured, // attributes and payload in one JSON object
    batch,      // an array of such objects
    raw,        // the payload without CloudEvents attributes
};

// CloudEvents attribute with the payload's version; in JSON a number, all others are strings.
inline constexpr std::string_view version_attribute = "eventversion";

// A request without webhook-timestamp and webhook-signature, which differ between attempts.
struct RenderedRequest {
    std::string body;
    std::vector<std::string> headers; // "Name: value"
    std::string id;                   // webhook-id, the same on every retry
};

// Calls visit(name, value) for each CloudEvents attribute of an event, in the order of sending. The
// views are valid during the call only. An attribute with an empty value is left out, because
// CloudEvents does not allow it. traceparent and datacontenttype are not visited.
template <typename Visit>
void visit_attributes(const Event& event, std::string_view source, Visit&& visit)
{
    const auto visit_text = [&](std::string_view name, std::string_view value) {
        if (!value.empty())
            visit(name, value);
    };
    visit_text("specversion", "1.0");
    visit_text("id", event.tracking_id);
    visit_text("type", event.event_type);
    visit_text("source", source);
    visit_text("subject", event.aggregate_type + '/' + event.aggregate_id);
    visit_text("time", format_time(event.occurred_at));
    visit_text("partitionkey", event.aggregate_id);
    visit_text("sequence", format_sequence(event.id));
    visit_text("tenantid", std::to_string(event.tenant_id));
    visit_text(version_attribute, std::to_string(event.event_version));
    for (const auto& [name, value] : event.attributes)
        visit_text(name, value);
}

// Raises 22023 if a metadata key is no valid, free and unique name for a CloudEvents attribute.
void check_metadata_keys(const std::vector<std::string>& names);

// Returns the traceparent made by traceparent_from() of the trace fields and tracking id;
// std::nullopt: the event has no valid trace.
std::optional<std::string> traceparent_of(const Event& event);

// Renders body, headers and id of a request: one event, or in batch format one or more. The result
// depends on the arguments only, so that a retry is byte for byte the same. Raises XX000 for no
// events, for several in another format, and if OpenSSL fails.
RenderedRequest render_request(std::span<const Event* const> events, HttpFormat format,
                               std::string_view source);

} // namespace outbox::sink
