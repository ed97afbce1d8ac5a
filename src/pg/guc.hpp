// The outbox.* settings: each has one variable, here, and one description, in guc.cpp.
#pragma once

#include <cstdint>
#include <optional>

namespace outbox::settings {

extern int dedup_window;     // seconds
extern int max_payload_size; // bytes
extern char* source;

// What outbox.tenant_id says; nothing when it is not set.
std::optional<std::int64_t> tenant_id() noexcept;

void define();

} // namespace outbox::settings
