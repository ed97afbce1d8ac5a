// A second implementation of JSON Schema, as simple as possible: literally by the drafts, on the
// unmodified schema.
#pragma once

#include "core/schema/regex_translate.hpp"
#include "fuzz.hpp"

#include <nlohmann/json.hpp>

#include <cmath>

namespace outbox::fuzz {

// A substring instead of a regular expression, which shows as well which pattern is matched with
// which text.
inline bool match(std::string_view pattern, std::string_view text)
{
    return text.find(pattern) != std::string_view::npos;
}

class SchemaOracle {
public:
    using Json = nlohmann::json;

    explicit SchemaOracle(const Json& document) : document_(document)
    {
        is_draft_7_ = document.is_object() && document.contains("$schema") &&
                      document["$schema"].get<std::string>().find("draft-07") != std::string::npos;
    }

    // True if the value is valid; std::nullopt if the check takes too long.
    std::optional<bool> fits(const Json& value)
    {
        const bool verdict = fits(document_, value);
        return steps_ < max_steps ? std::make_optional(verdict) : std::nullopt;
    }

private:
    static constexpr int max_steps = 20'000;

    bool fits(const Json& schema, const Json& value)
    {
        if (++steps_ >= max_steps)
            return false;
        if (schema.is_boolean())
            return schema.get<bool>();
        if (schema.contains("$ref")) {
            if (!fits(resolve(schema["$ref"]), value))
                return false;
            if (is_draft_7_)
                return true;
        }
        for (const auto& [key, of] : schema.items())
            if (!fits_keyword(schema, key, of, value))
                return false;
        return fits_arrays(schema, value) && fits_properties(schema, value) &&
               fits_condition(schema, value);
    }

    const Json& resolve(const std::string& reference) const
    {
        std::string pointer;
        for (std::size_t i = 1; i < reference.size(); ++i) {
            const std::string digits = reference.substr(i + 1, 2);
            if (reference[i] == '%' && matches(digits, "[0-9a-fA-F]{2}")) {
                pointer += static_cast<char>(std::stoi(digits, nullptr, 16));
                i += 2;
            } else {
                pointer += reference[i];
            }
        }
        return document_.at(Json::json_pointer(pointer));
    }

    static bool is_integer(const Json& value)
    {
        constexpr double beyond = 9223372036854775808.0; // integers here have 64 bits
        if (value.is_number_integer())
            return !value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX;
        if (!value.is_number())
            return false;
        const auto number = value.get<double>();
        return number == std::floor(number) && number >= -beyond && number < beyond;
    }

    static bool is_of_type(const Json& type, const Json& value)
    {
        if (type.is_array())
            return std::ranges::any_of(type,
                                       [&](const Json& one) { return is_of_type(one, value); });
        const auto name = type.get<std::string>();
        return name == "integer"  ? is_integer(value)
               : name == "number" ? value.is_number()
                                  : name == value.type_name();
    }

    static bool is_equal(const Json& a, const Json& b)
    {
        if (a.is_number() && b.is_number())
            return a.get<double>() == b.get<double>();
        if (!a.is_structured() || a.type() != b.type() || a.size() != b.size())
            return a == b;
        if (a.is_array())
            return std::ranges::equal(a, b, is_equal);
        return std::ranges::all_of(a.items(), [&](const auto& member) {
            return b.contains(member.key()) && is_equal(member.value(), b[member.key()]);
        });
    }

    static bool is_unique(const Json& array)
    {
        for (std::size_t i = 0; i < array.size(); ++i)
            for (std::size_t j = 0; j < i; ++j)
                if (is_equal(array[i], array[j]))
                    return false;
        return true;
    }

    static bool has_all(const Json& names, const Json& object)
    {
        return std::ranges::all_of(
            names, [&](const Json& name) { return object.contains(name.get<std::string>()); });
    }

    std::size_t count_fitting(const Json& schemas, const Json& value)
    {
        return static_cast<std::size_t>(std::ranges::count_if(
            schemas, [&](const Json& schema) { return fits(schema, value); }));
    }

    // Keywords that are independent of other keywords.
    bool fits_keyword(const Json&, const std::string& key, const Json& of, const Json& value)
    {
        if (key == "type")
            return is_of_type(of, value);
        if (key == "enum")
            return std::ranges::any_of(of, [&](const Json& one) { return is_equal(one, value); });
        if (key == "const")
            return is_equal(of, value);
        if (key == "allOf")
            return count_fitting(of, value) == of.size();
        if (key == "anyOf")
            return count_fitting(of, value) > 0;
        if (key == "oneOf")
            return count_fitting(of, value) == 1;
        if (key == "not")
            return !fits(of, value);
        if (value.is_number())
            return fits_number(key, of, value.get<double>());
        if (value.is_string())
            return fits_string(key, of, value.get<std::string>());
        if (value.is_array())
            return fits_array(key, of, value);
        return !value.is_object() || fits_object(key, of, value);
    }

    static bool fits_number(const std::string& key, const Json& of, double value)
    {
        if (key == "multipleOf") {
            const double times = value / of.get<double>();
            return std::abs(times - std::round(times)) <= 1e-9;
        }
        return key == "maximum"            ? value <= of.get<double>()
               : key == "minimum"          ? value >= of.get<double>()
               : key == "exclusiveMaximum" ? value < of.get<double>()
               : key == "exclusiveMinimum" ? value > of.get<double>()
                                           : true;
    }

    static bool is_within(const std::string& key, const char* least, const char* most,
                          const Json& of, std::size_t size)
    {
        return key == least  ? static_cast<double>(size) >= of.get<double>()
               : key == most ? static_cast<double>(size) <= of.get<double>()
                             : true;
    }

    static bool fits_string(const std::string& key, const Json& of, const std::string& value)
    {
        if (key == "pattern")
            return match(to_postgres_regex(of.get<std::string>()), value);
        return is_within(key, "minLength", "maxLength", of, decode_utf8(value).value().size());
    }

    bool fits_array(const std::string& key, const Json& of, const Json& value)
    {
        if (key == "uniqueItems")
            return of == false || is_unique(value);
        if (key == "contains")
            return std::ranges::any_of(value, [&](const Json& one) { return fits(of, one); });
        return is_within(key, "minItems", "maxItems", of, value.size());
    }

    bool fits_object(const std::string& key, const Json& of, const Json& value)
    {
        if (key == "required")
            return has_all(of, value);
        if (key == "propertyNames")
            return std::ranges::all_of(value.items(),
                                       [&](const auto& member) { return fits(of, member.key()); });
        if (is_one_of(key, {"dependencies", "dependentRequired", "dependentSchemas"}))
            return std::ranges::all_of(of.items(), [&](const auto& member) {
                const Json& then = member.value();
                return !value.contains(member.key()) ||
                       (then.is_array() ? has_all(then, value) : fits(then, value));
            });
        return is_within(key, "minProperties", "maxProperties", of, value.size());
    }

    bool fits_arrays(const Json& schema, const Json& value)
    {
        if (!value.is_array())
            return true;
        const auto find = [&](const char* key) {
            return schema.contains(key) ? &schema[key] : nullptr;
        };
        const Json* first = is_draft_7_ ? nullptr : find("prefixItems");
        const Json* rest = find("items");
        if (first == nullptr && rest != nullptr && rest->is_array()) {
            first = rest;
            rest = find("additionalItems");
        }
        for (std::size_t i = 0; i < value.size(); ++i) {
            const Json* one = first != nullptr && i < first->size() ? &(*first)[i] : rest;
            if (one != nullptr && !fits(*one, value[i]))
                return false;
        }
        return true;
    }

    bool fits_properties(const Json& schema, const Json& value)
    {
        if (!value.is_object())
            return true;
        return std::ranges::all_of(value.items(), [&](const auto& member) {
            if (schema.contains("properties") && schema["properties"].contains(member.key()))
                return fits(schema["properties"][member.key()], member.value());
            return !schema.contains("additionalProperties") ||
                   fits(schema["additionalProperties"], member.value());
        });
    }

    bool fits_condition(const Json& schema, const Json& value)
    {
        if (!schema.contains("if"))
            return true;
        const char* key = fits(schema["if"], value) ? "then" : "else";
        return !schema.contains(key) || fits(schema[key], value);
    }

    const Json& document_;
    bool is_draft_7_ = false;
    int steps_ = 0;
};

} // namespace outbox::fuzz
