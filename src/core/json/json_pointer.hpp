// JSON pointers (RFC 6901), and patterns of them that are matched against a JSON value.
#pragma once

#include "core/json/json_tree.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::json {

// Splits a pointer into its unescaped names and indexes. Returns std::nullopt if it is malformed.
std::optional<std::vector<std::string>> parse_pointer(std::string_view pointer);

// Appends one name to a pointer, escaped.
void append_to_pointer(std::string& pointer, std::string_view name);

// A pointer in which the step * matches every member and every element.
class PathPattern {
public:
    explicit PathPattern(std::vector<std::string> steps) : steps_(std::move(steps)) {}

    // Number of steps.
    std::size_t length() const { return steps_.size(); }

    // Return true if the given step, less than length(), matches the member or the element.
    bool matches_member(std::size_t step, std::string_view name) const;
    bool matches_element(std::size_t step, std::size_t index) const;

    // Returns true if the steps from `step` on, applied to `value`, lead to at least one value.
    bool matches_anything_in(const Value& value, std::size_t step = 0) const;

private:
    std::vector<std::string> steps_;
};

} // namespace outbox::json
