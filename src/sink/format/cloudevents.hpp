#pragma once

#include "sink/format/encoding.hpp"
#include "sink/interface/event.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox::sink {

enum class HttpFormat {
    binary,     // CloudEvents attributes in headers, the payload is the body
    structured, // attributes and payload in one JSON object
    batch,      // an array of such objects
    raw,        // the payload alone
};

// The one attribute that is a number.
inline constexpr std::string_view version_attribute = "eventversion";

// A request but for what is fresh on each attempt: webhook-timestamp and webhook-signature.
struct RenderedRequest {
    std::string body;
    std::vector<std::string> headers; // "Name: value"
    std::string id;                   // webhook-id, the same on every retry
};

// Calls visit(name, value) for each attribute of an event, in the order in which they go
// out. The views are good until it returns. CloudEvents has no empty values: such an attribute is
// absent.
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

// Throws 22023 if these keys of the metadata cannot be names of attributes.
void check_metadata_keys(const std::vector<std::string>& names);

// The event's trace, if it has one.
std::optional<std::string> traceparent_of(const Event& event);

// One event, or in batch format at least one.
RenderedRequest render_request(std::span<const Event* const> events, HttpFormat format,
                               std::string_view source);

} // namespace outbox::sink
