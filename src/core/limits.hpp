#pragma once

#include <cstdint>

namespace outbox::limits {

// Names travel in headers, topics and index keys: short enough for all of them.
inline constexpr int max_name_bytes = 255;

inline constexpr int min_event_version = 1;
inline constexpr int max_event_version = 32767;

inline constexpr std::int64_t default_tenant = 0;

} // namespace outbox::limits
