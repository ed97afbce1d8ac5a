// Takes parts out of a payload.
#pragma once

#include "core/json/json_pointer.hpp"
#include "pg/postgres.hpp"

#include <span>

namespace outbox {

// The payload, which is an object or an array, without what the paths point to.
Jsonb* jsonb_without_paths(Jsonb* payload, std::span<const json::PathPattern> paths);

} // namespace outbox
