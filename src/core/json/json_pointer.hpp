// JSON pointers, RFC 6901, and what they find in a tree.
#pragma once

#include "core/json/json_tree.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::json {

// The names and indexes that a pointer is made of. Nothing if it is none.
std::optional<std::vector<std::string>> parse_pointer(std::string_view pointer);

// Adds one more name to a pointer.
void append_to_pointer(std::string& pointer, std::string_view name);

// A pointer in which * stands for every member and every element.
class PathPattern {
public:
    explicit PathPattern(std::vector<std::string> steps) : steps_(std::move(steps)) {}

    std::size_t length() const { return steps_.size(); }
    bool matches_member(std::size_t step, std::string_view name) const;
    bool matches_element(std::size_t step, std::size_t index) const;

    // Is there anything that it points to?
    bool matches_anything_in(const Value& value, std::size_t step = 0) const;

private:
    std::vector<std::string> steps_;
};

} // namespace outbox::json
