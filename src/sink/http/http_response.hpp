#pragma once

#include "sink/interface/delivery_result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox::sink {

// Returns what an HTTP status means: 2xx delivered, 410 endpoint_gone, other 4xx rejected, all
// others unavailable; so are those 4xx that are about credentials, the URL or load, not about the
// events.
DeliveryStatus classify_http_status(long http_status);

// Returns the status of a response's first line, 200 for `HTTP/1.1 200 OK`; std::nullopt: not a
// status line of HTTP.
std::optional<long> parse_status_line(std::string_view line);

// Returns the delay of a Retry-After header: seconds, or a date in one of the three forms of RFC
// 9110. At most an hour, so that a receiver with a wrong clock cannot stop the sink. std::nullopt:
// the value is invalid.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::int64_t now_unix_seconds);

} // namespace outbox::sink
