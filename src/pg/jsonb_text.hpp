#pragma once

#include "pg/postgres.hpp"

#include <string_view>

namespace outbox::pg {

// The very text that a cast to text gives, for less: strings are copied in one piece where nothing
// in them has to be escaped.
std::string_view jsonb_to_text(const Jsonb* json);

} // namespace outbox::pg
