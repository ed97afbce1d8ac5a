#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outbox::sink {

// Is this a traceparent as W3C TraceFields Context has it? Versions to come may be longer.
bool is_traceparent(std::string_view text);

// What is known of an event's trace. None of it need be valid.
struct TraceFields {
    std::string_view traceparent;
    std::string_view trace_id;
    std::string_view span_id;
    std::string_view tracking_id;
};

// The first that is valid: the traceparent, the trace_id if it is one itself, or one made of a
// trace_id of 32 hex digits and a span: the one that is given, or else the end of the tracking id,
// so that it is the same on every retry.
std::optional<std::string> traceparent_from(const TraceFields& trace);

} // namespace outbox::sink
