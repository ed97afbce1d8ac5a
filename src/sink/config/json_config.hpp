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

// A sink's config: one JSON object. Values are read by key and expected type; one that is absent is
// nothing, or empty. Every error is 22023, and none repeats a value, for it could be a password.
class JsonConfig {
public:
    using Pairs = std::vector<std::pair<std::string, std::string>>;

    static JsonConfig parse(std::string_view json);

    bool has(std::string_view key) const;
    std::vector<std::string> keys() const;
    void refuse_unknown(std::span<const std::string_view> known) const;

    std::optional<std::string> text(std::string_view key) const;
    std::optional<std::int64_t> integer(std::string_view key, std::int64_t min,
                                        std::int64_t max) const;
    std::optional<double> number(std::string_view key, double min, double max) const;
    std::optional<bool> boolean(std::string_view key) const;

    // An object whose values are strings.
    Pairs text_map(std::string_view key) const;

    // An array of strings.
    std::vector<std::string> text_list(std::string_view key) const;

    // All keys but these, every value as text; nothing may be nested.
    Pairs all_as_text(std::span<const std::string_view> except = {}) const;

private:
    // Keeps the JSON library out of everything that includes this file.
    struct Object;

    explicit JsonConfig(std::shared_ptr<const Object> object) : object_(std::move(object)) {}

    std::shared_ptr<const Object> object_;
};

} // namespace outbox::sink
