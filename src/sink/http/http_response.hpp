#pragma once

#include "sink/interface/delivery_result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox::sink {

// Returns what an HTTP status means for the events and for the sink.
DeliveryStatus classify_http_status(long http_status);

// Returns the status of a response's first line; std::nullopt: not a status line of HTTP.
std::optional<long> parse_status_line(std::string_view line);

// Returns the delay of a Retry-After header: seconds, or a date in one of the three forms of RFC
// 9110. At most an hour, so that a receiver with a wrong clock cannot stop the sink. std::nullopt:
// the value is invalid.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::int64_t now_unix_seconds);

} // namespace outbox::sink
