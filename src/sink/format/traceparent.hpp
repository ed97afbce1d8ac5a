#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outbox::sink {

// Returns true if the text is a traceparent of W3C Trace Context. Versions above 00 may be longer.
bool is_traceparent(std::string_view text);

// Trace fields of an event, unchecked.
struct TraceFields {
    std::string_view traceparent;
    std::string_view trace_id;
    std::string_view span_id;
    std::string_view tracking_id;
};

// Returns the first valid one of: the traceparent; the trace_id, if it has the form of a
// traceparent; a traceparent made of a trace_id of 32 hex digits and the span_id. Without a valid
// span_id the span is the end of the tracking id, which is the same on every retry. std::nullopt:
// none is valid.
std::optional<std::string> traceparent_from(const TraceFields& trace);

} // namespace outbox::sink
