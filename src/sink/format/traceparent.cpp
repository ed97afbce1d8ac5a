#include "sink/format/traceparent.hpp"

#include "sink/format/encoding.hpp"

#include <algorithm>

namespace outbox::sink {

namespace {

constexpr std::size_t trace_digits = 32;
constexpr std::size_t span_digits = 16;

// Offsets in 00-<32 hex>-<16 hex>-<2 hex>.
constexpr std::size_t trace_at = 3;
constexpr std::size_t span_at = 36;
constexpr std::size_t flags_at = 53;
constexpr std::size_t length = 55;

// Limit in bytes, because the value becomes a header and later versions may be of any length.
constexpr std::size_t max_length = 512;

bool is_lower_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool is_hex(char c)
{
    return is_lower_hex(c) || (c >= 'A' && c <= 'F');
}

bool all_lower_hex(std::string_view text)
{
    return std::all_of(text.begin(), text.end(), is_lower_hex);
}

bool all_zero(std::string_view text)
{
    return text.find_first_not_of('0') == std::string_view::npos;
}

// Returns true for exactly `digits` hex digits, upper or lower case, that are not all 0.
bool is_id(std::string_view text, std::size_t digits)
{
    return text.size() == digits && std::all_of(text.begin(), text.end(), is_hex) &&
           !all_zero(text);
}

bool is_visible(char c)
{
    return c > ' ' && c < 0x7F;
}

// Returns the last 16 hex digits of a UUID, in lower case and without dashes; empty if it has
// fewer. If all are 0, which no span may be, the last one becomes 1.
std::string span_from(std::string_view tracking_id)
{
    std::string digits;
    for (const char c : tracking_id)
        if (is_hex(c))
            digits += c;
    if (digits.size() < span_digits)
        return {};
    std::string span = ascii_lower(digits.substr(digits.size() - span_digits));
    if (all_zero(span))
        span.back() = '1';
    return span;
}

} // namespace

bool is_traceparent(std::string_view text)
{
    if (text.size() < length || text.size() > max_length)
        return false;
    const std::string_view version = text.substr(0, 2);
    const std::string_view trace = text.substr(trace_at, trace_digits);
    const std::string_view span = text.substr(span_at, span_digits);
    const std::string_view rest = text.substr(length);
    if (text[trace_at - 1] != '-' || text[span_at - 1] != '-' || text[flags_at - 1] != '-')
        return false;
    if (!all_lower_hex(version) || !all_lower_hex(trace) || !all_lower_hex(span) ||
        !all_lower_hex(text.substr(flags_at, 2)))
        return false;
    if (version == "ff" || all_zero(trace) || all_zero(span))
        return false;
    if (rest.empty())
        return true;
    return version != "00" && rest[0] == '-' && std::all_of(rest.begin(), rest.end(), is_visible);
}

std::optional<std::string> traceparent_from(const TraceFields& trace)
{
    for (const std::string_view given : {trace.traceparent, trace.trace_id})
        if (is_traceparent(given))
            return std::string(given);
    if (!is_id(trace.trace_id, trace_digits))
        return std::nullopt;
    const std::string span = is_id(trace.span_id, span_digits) ? ascii_lower(trace.span_id)
                                                               : span_from(trace.tracking_id);
    if (span.empty())
        return std::nullopt;
    return "00-" + ascii_lower(trace.trace_id) + "-" + span + "-01";
}

} // namespace outbox::sink
