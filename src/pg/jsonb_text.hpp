#pragma once

#include "pg/postgres.hpp"

#include <string_view>

namespace outbox::pg {

// Returns the same text as a cast to text, faster: strings without escapes are copied in one piece.
// The result is palloc'd.
std::string_view jsonb_to_text(const Jsonb* json);

} // namespace outbox::pg
