// Builds the JSON trees of core/json from text.
#pragma once

#include "core/json/json_tree.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace outbox::json {

class Builder {
public:
    const Value& build(const std::string& text) { return take(nlohmann::json::parse(text)); }

    const Value& take(const nlohmann::json& json)
    {
        roots_.push_back(value_of(json));
        return roots_.back();
    }

private:
    Value value_of(const nlohmann::json& json)
    {
        using Kind = Value::Kind;
        Value value;
        if (json.is_boolean()) {
            value.kind = Kind::boolean;
            value.boolean = json.get<bool>();
        } else if (is_integer(json)) {
            value.kind = Kind::integer;
            value.integer = json.get<std::int64_t>();
        } else if (json.is_number()) {
            value.kind = Kind::number;
            value.number = json.get<double>();
        } else if (json.is_string()) {
            const std::string_view text = keep(json.get<std::string>());
            value.kind = Kind::string;
            value.text = text.data();
            value.count = text.size();
        } else if (json.is_array()) {
            std::vector<Value> elements;
            for (const auto& element : json)
                elements.push_back(value_of(element));
            elements_.push_back(std::move(elements));
            value.kind = Kind::array;
            value.elements = elements_.back().data();
            value.count = elements_.back().size();
        } else if (json.is_object()) {
            std::vector<Member> members;
            for (const auto& [name, member] : json.items())
                members.push_back({keep(name), value_of(member)});
            std::ranges::sort(members, is_before_in_jsonb, &Member::name);
            members_.push_back(std::move(members));
            value.kind = Kind::object;
            value.members = members_.back().data();
            value.count = members_.back().size();
        }
        return value;
    }

    // As jsonb does: true if the value is integral and fits 64 bits, in any notation.
    static bool is_integer(const nlohmann::json& json)
    {
        constexpr double beyond = 9223372036854775808.0;
        if (json.is_number_unsigned())
            return json.get<std::uint64_t>() <= INT64_MAX;
        if (!json.is_number_float())
            return json.is_number_integer();
        const auto number = json.get<double>();
        return number == std::trunc(number) && number >= -beyond && number < beyond;
    }

    std::string_view keep(std::string text)
    {
        strings_.push_back(std::move(text));
        return strings_.back();
    }

    std::deque<Value> roots_;
    std::deque<std::vector<Value>> elements_;
    std::deque<std::vector<Member>> members_;
    std::deque<std::string> strings_;
};

} // namespace outbox::json
