#include "core/schema/compatibility.hpp"

#include "core/json/json_pointer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

namespace outbox::schema {

namespace {

using Reason = std::optional<std::string>; // std::nullopt: compatible

// Returns the value of a keyword, nullptr if the schema has none.
const Json* find(const Json& schema, const std::string& key)
{
    return schema.is_object() && schema.contains(key) ? &schema[key] : nullptr;
}

bool contains(const Json& list, const Json& value)
{
    return std::ranges::find(list, value) != list.end();
}

// Returns true for limits that a greater value relaxes.
bool is_upper_limit(const std::string& key)
{
    return key.starts_with("max") || key == "exclusiveMaximum";
}

// Returns true for the keywords that begin with min, max or exclusive.
bool is_limit(const std::string& key)
{
    return is_upper_limit(key) || key.starts_with("min") || key == "exclusiveMinimum";
}

class Comparison {
public:
    Comparison(const NormalizedSchema& before, const NormalizedSchema& after)
        : before_(before), after_(after)
    {}

    // Returns the first reason why `new_schema` is incompatible with `old_schema`. `pointer` is
    // their location in the message.
    Reason compare(const Json& old_schema, const Json& new_schema, const std::string& pointer)
    {
        const Json& before = resolve_references(before_, old_schema);
        const Json& after = resolve_references(after_, new_schema);
        // Schemas may be recursive: a pair whose comparison has begun is skipped.
        if (!compared_.insert({&before, &after}).second)
            return std::nullopt;
        if (!before.is_object() || !after.is_object())
            return before == after ? Reason{}
                                   : "at #" + pointer + " one of the schemas is a boolean";
        std::set<std::string> keys;
        for (const Json* schema : {&before, &after})
            for (const auto& [key, value] : schema->items())
                keys.insert(key);
        for (const std::string& key : keys)
            if (auto reason = compare_keyword(key, before, after, pointer))
                return reason;
        return std::nullopt;
    }

private:
    // Returns the definition that the schema refers to, nullptr if it is not a reference.
    static const Json* definition_of(const NormalizedSchema& normalized, const Json& schema)
    {
        const Json* reference = find(schema, "$ref");
        if (reference == nullptr || !reference->is_string())
            return nullptr;
        const auto& text = reference->get_ref<const std::string&>();
        if (!text.starts_with(definitions_prefix))
            return nullptr;
        const std::size_t number =
            std::strtoul(text.c_str() + std::strlen(definitions_prefix), nullptr, 10);
        return number < normalized.definitions.size() ? &normalized.definitions[number] : nullptr;
    }

    // Follows references to a schema that is not a reference. The loop ends, because normalize()
    // rejects circular references.
    static const Json& resolve_references(const NormalizedSchema& normalized, const Json& schema)
    {
        const Json* at = &schema;
        while (const Json* next = definition_of(normalized, *at))
            at = next;
        return *at;
    }

    // Compares two values by structure. References are the same if their definitions are, whatever
    // their numbers.
    bool is_same(const Json& old_value, const Json& new_value)
    {
        const Json& before = resolve_references(before_, old_value);
        const Json& after = resolve_references(after_, new_value);
        if (!before.is_structured() || before.type() != after.type() ||
            before.size() != after.size())
            return before == after;
        if (!same_.insert({&before, &after}).second)
            return true;
        if (before.is_array())
            return std::ranges::equal(before, after,
                                      [&](const Json& a, const Json& b) { return is_same(a, b); });
        return std::ranges::all_of(before.items(), [&](const auto& member) {
            const Json* other = find(after, member.key());
            return other != nullptr && is_same(member.value(), *other);
        });
    }

    // Returns a reason if the change of this keyword is incompatible. One of the schemas may lack
    // it.
    Reason compare_keyword(const std::string& key, const Json& before, const Json& after,
                           const std::string& pointer)
    {
        const Json* old_value = find(before, key);
        const Json* new_value = find(after, key);
        const auto reason = [&](const std::string& what) {
            return Reason("at #" + pointer + " " + what);
        };
        if (key == "properties")
            return compare_properties(before, after, pointer);
        if (key == "required")
            return compare_required(before, after, pointer);
        if (key == "additionalProperties" && is_open(new_value) &&
            (is_open(old_value) || *old_value == false))
            return std::nullopt;
        if (new_value == nullptr) {
            const bool was_limit = is_limit(key) || key == pattern_keyword ||
                                   key == multiple_keyword || key == "uniqueItems";
            return was_limit ? Reason{} : reason("the keyword " + key + " was removed");
        }
        if (old_value == nullptr)
            return reason("there is a new keyword " + name_of(key));
        if (is_limit(key)) {
            const bool is_wider =
                is_upper_limit(key) ? *new_value >= *old_value : *new_value <= *old_value;
            return is_wider ? Reason{} : reason(key + " is narrower");
        }
        if (key == "enum") {
            const bool has_all = std::ranges::all_of(
                *old_value, [&](const Json& value) { return contains(*new_value, value); });
            return has_all ? Reason{} : reason("enum has lost a value");
        }
        if (key == "additionalProperties" ||
            (key == "items" && !old_value->is_array() && !new_value->is_array()))
            return compare(*old_value, *new_value, pointer + "/" + key);
        return is_same(*old_value, *new_value) ? Reason{} : reason(name_of(key) + " has changed");
    }

    // Returns true if additionalProperties allows every property.
    static bool is_open(const Json* additional)
    {
        return additional == nullptr || *additional == true || *additional == Json::object();
    }

    // Returns the JSON Schema name of a normalized keyword.
    static std::string name_of(const std::string& key)
    {
        return key == pattern_keyword ? "pattern" : key == multiple_keyword ? "multipleOf" : key;
    }

    // Returns a reason if a property was removed or has an incompatible schema. A new property is
    // compared with the old additionalProperties.
    Reason compare_properties(const Json& before, const Json& after, const std::string& pointer)
    {
        static const Json none = Json::object();
        const Json* given = find(before, "properties");
        const Json& old_ones = given == nullptr ? none : *given;
        given = find(after, "properties");
        const Json& new_ones = given == nullptr ? none : *given;
        for (const auto& [name, schema] : old_ones.items()) {
            std::string where = pointer + "/properties";
            json::append_to_pointer(where, name);
            const Json* now = find(new_ones, name);
            if (now == nullptr)
                return "at #" + where + " the property was removed";
            if (auto reason = compare(schema, *now, where))
                return reason;
        }
        // additionalProperties was the schema of each property that had none of its own.
        const Json* others = find(before, "additionalProperties");
        if (others == nullptr || !others->is_object() || others->empty())
            return std::nullopt;
        for (const auto& [name, schema] : new_ones.items()) {
            std::string where = pointer + "/properties";
            json::append_to_pointer(where, name);
            if (!old_ones.contains(name))
                if (auto reason = compare(*others, schema, where))
                    return reason;
        }
        return std::nullopt;
    }

    // Returns a reason if a name was added to `required` or removed from it.
    static Reason compare_required(const Json& old_schema, const Json& new_schema,
                                   const std::string& pointer)
    {
        static const Json none = Json::array();
        const Json* given = find(old_schema, "required");
        const Json& before = given == nullptr ? none : *given;
        given = find(new_schema, "required");
        const Json& after = given == nullptr ? none : *given;
        for (const Json& name : after)
            if (!contains(before, name))
                return "at #" + pointer + " the property \"" + name.get<std::string>() +
                       "\" is now required";
        for (const Json& name : before)
            if (!contains(after, name))
                return "at #" + pointer + " the property \"" + name.get<std::string>() +
                       "\" is no longer required";
        return std::nullopt;
    }

    const NormalizedSchema& before_;
    const NormalizedSchema& after_;
    std::set<std::pair<const Json*, const Json*>> compared_;
    std::set<std::pair<const Json*, const Json*>> same_;
};

} // namespace

std::optional<std::string> find_breaking_change(const NormalizedSchema& before,
                                                const NormalizedSchema& after)
{
    return Comparison(before, after).compare(before.root, after.root, "");
}

} // namespace outbox::schema
