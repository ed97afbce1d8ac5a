// Removal of parts of a payload, for outbox.pii_mode = strip.
#pragma once

#include "core/json/json_pointer.hpp"
#include "pg/postgres.hpp"

#include <span>

namespace outbox {

// Returns a copy of the payload, an object or an array, without the values that match a path.
// Allocates in the current context.
Jsonb* jsonb_without_paths(Jsonb* payload, std::span<const json::PathPattern> paths);

} // namespace outbox
