// Conversion of jsonb to the JSON values of core/json.
#pragma once

#include "core/json/json_tree.hpp"
#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// Converts a jsonb to a tree in UTF-8. The tree refers to the jsonb and to memory of the current
// context. Returns std::nullopt if the jsonb has more than schema::max_depth levels.
std::optional<json::Value> to_json_value(Jsonb* payload);

} // namespace outbox
