#pragma once

#include "sink/interface/delivery_result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox::sink {

DeliveryStatus classify_http_status(long http_status);

// The status in the first line of an answer; nothing if the line is none of HTTP's.
std::optional<long> parse_status_line(std::string_view line);

// How long a Retry-After asks to wait: seconds, or a date in one of the three forms of RFC 9110. At
// most an hour, so that a receiver with a wrong clock cannot stop the sink; nothing if it is
// neither.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::int64_t now_unix_seconds);

} // namespace outbox::sink
