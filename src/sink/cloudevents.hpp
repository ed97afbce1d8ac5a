#pragma once

#include "sink/event.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace outbox::sink {

enum class Format {
    binary,     // CloudEvents attributes in headers, the payload is the body
    structured, // attributes and payload in one JSON object
    batch,      // an array of such objects
    raw,        // the payload alone
};

// A request but for what is fresh on each attempt: webhook-timestamp and webhook-signature.
struct Rendered {
    std::string body;
    std::vector<std::string> headers; // "Name: value"
    std::string id;                   // webhook-id, the same on every retry
};

struct Attribute {
    std::string_view name;
    std::string value;
    bool is_integer = false;
};

// The attributes of an event, in the order in which they go out.
std::vector<Attribute> attributes_of(const Event& event, std::string_view source);

// Throws 22023 if these keys of the metadata cannot be names of attributes.
void check_metadata_keys(const std::vector<std::string>& names);

// The event's trace, if it has one.
std::optional<std::string> traceparent_of(const Event& event);

// One event, or in batch format at least one.
Rendered render(std::span<const Event* const> events, Format format, std::string_view source);

} // namespace outbox::sink
