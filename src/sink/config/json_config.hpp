#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::sink {

// Config of a sink: one JSON object, read by key and expected type. A missing key yields
// std::nullopt or an empty container. Every error is 22023; no message repeats a value, because the
// value could be a password.
class JsonConfig {
public:
    using Pairs = std::vector<std::pair<std::string, std::string>>;

    // Parses one JSON object. Raises 22023 for invalid JSON, NUL characters and deep nesting.
    static JsonConfig parse(std::string_view json);

    // Returns true if the key is there, even if its value is null.
    bool has(std::string_view key) const;
    std::vector<std::string> keys() const;

    // Raises 22023 for a key that is not in `known`; the hint lists the known keys.
    void refuse_unknown(std::span<const std::string_view> known) const;

    // Values by key; std::nullopt: no such key. Each raises 22023 if the value has another type,
    // null among them, or is not within `min` and `max`, inclusive.
    std::optional<std::string> text(std::string_view key) const;
    std::optional<std::int64_t> integer(std::string_view key, std::int64_t min,
                                        std::int64_t max) const;
    std::optional<double> number(std::string_view key, double min, double max) const;
    std::optional<bool> boolean(std::string_view key) const;

    // Value of a key that has an object of strings; empty: no such key. Raises 22023 for other
    // types.
    Pairs text_map(std::string_view key) const;

    // Value of a key that has an array of strings; empty: no such key. Raises 22023 for other
    // types.
    std::vector<std::string> text_list(std::string_view key) const;

    // All keys except the given ones, with scalar values as text. Raises 22023 for null, arrays,
    // objects.
    Pairs all_as_text(std::span<const std::string_view> except = {}) const;

private:
    // Hides the type of the JSON library from files that include this header.
    struct Object;

    explicit JsonConfig(std::shared_ptr<const Object> object) : object_(std::move(object)) {}

    std::shared_ptr<const Object> object_;
};

} // namespace outbox::sink
