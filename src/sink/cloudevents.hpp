#pragma once

#include "sink/event.hpp"

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

// One event, or in batch format at least one.
Rendered render(std::span<const Event* const> events, Format format, std::string_view source);

} // namespace outbox::sink
