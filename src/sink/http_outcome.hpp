#pragma once

#include "sink/verdict.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox::sink {

Verdict judge_status(long http_status);

// How long a Retry-After asks to wait: seconds, or a date in one of the three forms of RFC 9110. At
// most an hour, so that a receiver with a wrong clock cannot stop the sink; nothing if it is
// neither.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::int64_t now_unix_seconds);

} // namespace outbox::sink
