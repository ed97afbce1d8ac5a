#include "core/json/json_pointer.hpp"

#include <algorithm>
#include <charconv>

namespace outbox::json {

namespace {

constexpr std::string_view any = "*";

// Decodes ~0 and ~1. Returns std::nullopt if a ~ is followed by anything else.
std::optional<std::string> unescape(std::string_view step)
{
    std::string result;
    for (std::size_t i = 0; i < step.size(); ++i) {
        if (step[i] != '~') {
            result += step[i];
            continue;
        }
        ++i;
        if (i == step.size() || (step[i] != '0' && step[i] != '1'))
            return std::nullopt;
        result += step[i] == '0' ? '~' : '/';
    }
    return result;
}

} // namespace

std::optional<std::vector<std::string>> parse_pointer(std::string_view pointer)
{
    std::vector<std::string> steps;
    while (!pointer.empty()) {
        if (pointer.front() != '/')
            return std::nullopt;
        pointer.remove_prefix(1);
        const std::size_t end = std::min(pointer.find('/'), pointer.size());
        auto step = unescape(pointer.substr(0, end));
        if (!step)
            return std::nullopt;
        steps.push_back(std::move(*step));
        pointer.remove_prefix(end);
    }
    return steps;
}

void append_to_pointer(std::string& pointer, std::string_view name)
{
    pointer += '/';
    for (const char c : name) {
        if (c == '~')
            pointer += "~0";
        else if (c == '/')
            pointer += "~1";
        else
            pointer += c;
    }
}

bool PathPattern::matches_member(std::size_t step, std::string_view name) const
{
    return steps_[step] == any || steps_[step] == name;
}

bool PathPattern::matches_element(std::size_t step, std::size_t index) const
{
    const std::string& text = steps_[step];
    if (text == any)
        return true;
    std::size_t wanted = 0;
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, wanted);
    // RFC 6901 allows no leading zeros in an index.
    return error == std::errc{} && at == end && wanted == index &&
           (text.size() == 1 || text.front() != '0');
}

bool PathPattern::matches_anything_in(const Value& value, std::size_t step) const
{
    if (step == steps_.size())
        return true;
    if (value.kind == Value::Kind::object) {
        if (steps_[step] != any) {
            const Member* member = value.find(steps_[step]);
            return member != nullptr && matches_anything_in(member->value, step + 1);
        }
        return std::ranges::any_of(value.object(), [&](const Member& member) {
            return matches_anything_in(member.value, step + 1);
        });
    }
    if (value.kind != Value::Kind::array)
        return false;
    for (std::size_t i = 0; i < value.count; ++i)
        if (matches_element(step, i) && matches_anything_in(value.elements[i], step + 1))
            return true;
    return false;
}

} // namespace outbox::json
