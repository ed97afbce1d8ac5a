// jsonb as plain C++ reads it.
#pragma once

#include "core/json/json_tree.hpp"
#include "pg/postgres.hpp"

#include <optional>

namespace outbox {

// Points into the jsonb and into memory of the current context. Nothing if it is nested more deeply
// than a schema may be.
std::optional<json::Value> to_json_value(Jsonb* payload);

} // namespace outbox
