#include "core/schema/normalize.hpp"

#include "core/error.hpp"
#include "core/json/json_pointer.hpp"
#include "core/schema/regex_translate.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

namespace outbox::schema {

namespace {

constexpr const char* draft_7 = "json-schema.org/draft-07/schema";
constexpr const char* draft_2020 = "json-schema.org/draft/2020-12/schema";

[[noreturn]] void invalid(const std::string& pointer, const std::string& what,
                          const std::string& hint = {})
{
    throw Error("22023", "json_schema is invalid at #" + pointer + ": " + what, {}, hint);
}

std::string below(const std::string& pointer, std::string_view name)
{
    std::string result = pointer;
    json::append_to_pointer(result, name);
    return result;
}

bool is_schema(const Json& json)
{
    return json.is_object() || json.is_boolean();
}

bool is_list_of_names(const Json& json)
{
    return json.is_array() &&
           std::ranges::all_of(json, [](const Json& name) { return name.is_string(); }) &&
           std::set<Json>(json.begin(), json.end()).size() == json.size();
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names)
{
    return std::ranges::find(names, name) != names.end();
}

bool is_type(const Json& json)
{
    return json.is_string() &&
           is_one_of(json.get<std::string>(),
                     {"null", "boolean", "integer", "number", "string", "array", "object"});
}

// In a URI's fragment, %25 is a %.
std::string percent_decoded(std::string_view text)
{
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned char code = 0;
        const std::string_view digits = text.substr(i + 1, 2);
        const char* const end = digits.data() + digits.size();
        // Without the sign and the blanks that strtol would take for part of the number.
        if (text[i] == '%' && digits.size() == 2 &&
            std::from_chars(digits.data(), end, code, 16).ptr == end) {
            result += static_cast<char>(code);
            i += 2;
            continue;
        }
        result += text[i];
    }
    return result;
}

// What was percent-encoded may be any bytes.
bool is_text(const std::string& bytes)
{
    try {
        (void)Json(bytes).dump();
        return true;
    } catch (const Json::type_error&) {
        return false;
    }
}

// valijson takes a whole number of 64 bits for a negative one. As a double it is what it was.
Json without_64_bits(Json value)
{
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)
        return value.get<double>();
    if (value.is_structured())
        for (Json& part : value)
            part = without_64_bits(std::move(part));
    return value;
}

// Where a subschema is applied, and how deep it lies.
struct Place {
    std::string pointer;
    int depth;
    int definition;  // the one that it is part of; -1 for the root
    bool same_value; // as that definition, not to a part of it
};

class Normaliser {
public:
    Normaliser(const Json& document, Match match) : document_(document), match_(match) {}

    Form run()
    {
        read_dialect();
        Form form;
        form.root = schema(document_, {"", 0, -1, true});
        // References lead to more of them.
        for (std::size_t i = 0; i < targets_.size(); ++i) {
            const std::string pointer = targets_[i];
            form.definitions.push_back(
                schema(resolve(pointer), {pointer, 0, static_cast<int>(i), true}));
        }
        refuse_loops();
        return form;
    }

private:
    void read_dialect()
    {
        if (!document_.is_object() || !document_.contains("$schema"))
            return;
        std::string uri =
            document_["$schema"].is_string() ? document_["$schema"].get<std::string>() : "";
        if (uri.ends_with('#'))
            uri.pop_back();
        is_draft_7_ =
            uri == std::string("http://") + draft_7 || uri == std::string("https://") + draft_7;
        is_2020_ = uri == std::string("https://") + draft_2020;
        if (!is_draft_7_ && !is_2020_)
            invalid("/$schema", "this dialect is not known",
                    std::string("Known are http://") + draft_7 + "# and https://" + draft_2020 +
                        ".");
    }

    const Json& resolve(const std::string& pointer) const
    {
        const Json* at = &document_;
        const std::vector<std::string> steps = json::parse_pointer(pointer).value();
        for (const std::string& step : steps) {
            const bool is_index =
                at->is_array() && !step.empty() && step.size() < 7 &&
                (step.size() == 1 || step.front() != '0') &&
                std::ranges::all_of(step, [](char c) { return c >= '0' && c <= '9'; });
            if (at->is_object() && at->contains(step))
                at = &(*at)[step];
            else if (is_index && std::stoul(step) < at->size())
                at = &(*at)[std::stoul(step)];
            else
                invalid(pointer, "a $ref leads here, where nothing is");
        }
        return *at;
    }

    Json reference(const Json& given, const Place& place)
    {
        return {{"$ref", definitions_at + std::to_string(target(given, place))}};
    }

    // The number of what a $ref refers to.
    int target(const Json& reference, const Place& place)
    {
        const std::string where = below(place.pointer, "$ref");
        if (!reference.is_string())
            invalid(where, "it must be a string");
        const std::string uri = reference.get<std::string>();
        if (!uri.starts_with('#'))
            invalid(where, "it refers to another document, and none is ever fetched",
                    "Copy what it refers to into $defs and use \"#/$defs/…\".");
        const std::string pointer = percent_decoded(std::string_view(uri).substr(1));
        if (!json::parse_pointer(pointer) || !is_text(pointer))
            invalid(where, "it must be # and a JSON pointer", "For example \"#/$defs/address\".");
        const auto known = std::ranges::find(targets_, pointer);
        const auto number = static_cast<int>(known - targets_.begin());
        if (known == targets_.end())
            targets_.push_back(pointer);
        if (place.same_value)
            leads_to_[place.definition].insert(number);
        return number;
    }

    // A definition that is applied to a value in order to be applied to the same value would never
    // end.
    void refuse_loops() const
    {
        std::set<int> done;
        for (std::size_t i = 0; i < targets_.size(); ++i) {
            std::set<int> path;
            follow(static_cast<int>(i), path, done);
        }
    }

    void follow(int definition, std::set<int>& path, std::set<int>& done) const
    {
        if (done.contains(definition))
            return;
        if (!path.insert(definition).second)
            invalid(targets_[static_cast<std::size_t>(definition)],
                    "it refers to itself without end");
        if (path.size() > max_depth)
            invalid(targets_[static_cast<std::size_t>(definition)],
                    "more than " + std::to_string(max_depth) + " references follow each other");
        if (const auto next = leads_to_.find(definition); next != leads_to_.end())
            for (const int other : next->second)
                follow(other, path, done);
        path.erase(definition);
        done.insert(definition);
    }

    Json schema(const Json& given, Place place)
    {
        if (++place.depth > max_depth)
            invalid(place.pointer,
                    "it is nested more than " + std::to_string(max_depth) + " levels deep");
        if (given.is_boolean())
            return given;
        if (!given.is_object())
            invalid(place.pointer, "a schema must be an object or a boolean");
        // Draft 7 has nothing beside a reference.
        if (given.contains("$ref") && is_draft_7_)
            return reference(given["$ref"], place);
        Json result = Json::object();
        for (const auto& [key, value] : given.items())
            keyword(result, key, value, place);
        join_arrays(result, given, place);
        join_conditions(result);
        // A reference alone.
        if (given.contains("$ref") && result.size() == 1 && result["allOf"].size() == 1)
            return result["allOf"][0];
        return result;
    }

    Json part(const Json& given, const Place& place, std::string_view name, bool same_value)
    {
        return schema(given, {below(place.pointer, name), place.depth, place.definition,
                              place.same_value && same_value});
    }

    // Each kind of keyword has one function, which says whether it knows the keyword.
    void keyword(Json& result, const std::string& key, const Json& value, const Place& place)
    {
        if (is_one_of(key, {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
                            "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "minContains",
                            "maxContains", "patternProperties"}))
            invalid(below(place.pointer, key), "this keyword is not supported",
                    key == "patternProperties"
                        ? "Use propertyNames with a pattern, and additionalProperties."
                        : "");
        if (key == "$ref")
            result["allOf"].push_back(reference(value, place));
        else if (!annotation(key, value, place) && !assertion(result, key, value, place) &&
                 !applicator(result, key, value, place) && !members(result, key, value, place) &&
                 !dependency(result, key, value, place))
            return; // unknown ones mean nothing
    }

    static bool annotation(const std::string& key, const Json& value, const Place& place)
    {
        if (is_one_of(key, {"title", "description", "$comment", "format", "$anchor"})) {
            if (!value.is_string())
                invalid(below(place.pointer, key), "it must be a string");
            return true;
        }
        if (!is_one_of(key, {"$id", "$schema"}))
            return false;
        if (!place.pointer.empty())
            invalid(below(place.pointer, key), "it is allowed at the top only");
        if (!value.is_string())
            invalid(below(place.pointer, key), "it must be a string");
        return true;
    }

    bool assertion(Json& result, const std::string& key, const Json& value,
                   const Place& place) const
    {
        const std::string where = below(place.pointer, key);
        if (key == "type") {
            const bool is_list = value.is_array() && !value.empty() &&
                                 std::ranges::all_of(value, is_type) && is_list_of_names(value);
            if (!is_type(value) && !is_list)
                invalid(where, "it must be a type, or a list of different types",
                        "Types are null, boolean, integer, number, string, array and object.");
            result[key] = value;
            if (is_list && value.size() == 1)
                result[key] = value[0];
            else if (is_list)
                std::sort(result[key].begin(), result[key].end());
        } else if (key == "enum") {
            if (!value.is_array() || value.empty())
                invalid(where, "it must be a list with at least one value");
            result[key] = without_64_bits(value);
        } else if (key == "const") {
            result["const"] = without_64_bits(value);
        } else if (key == "multipleOf") {
            if (!value.is_number() || value.get<double>() <= 0)
                invalid(where, "it must be a number above 0");
            result[multiple_keyword] = without_64_bits(value);
        } else if (is_one_of(key, {"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"})) {
            if (!value.is_number())
                invalid(where, "it must be a number");
            result[key] = value.get<double>();
        } else if (is_one_of(key, {"maxLength", "minLength", "maxItems", "minItems",
                                   "maxProperties", "minProperties"})) {
            result[key] = size(value, where);
        } else if (key == "uniqueItems") {
            if (!value.is_boolean())
                invalid(where, "it must be true or false");
            if (value.get<bool>())
                result[key] = true;
        } else if (key == "pattern") {
            result[pattern_keyword] = pattern(value, where);
        } else if (key == "required") {
            if (!is_list_of_names(value))
                invalid(where, "it must be a list of different names");
            if (!value.empty())
                result[key] = value;
        } else {
            return false;
        }
        return true;
    }

    static std::int64_t size(const Json& value, const std::string& where)
    {
        constexpr double greatest = 1e15;
        const double number = value.is_number() ? value.get<double>() : -1;
        if (number < 0 || number > greatest || number != std::floor(number))
            invalid(where, "it must be an integer, and not negative");
        return static_cast<std::int64_t>(number);
    }

    std::string pattern(const Json& value, const std::string& where) const
    {
        if (!value.is_string())
            invalid(where, "it must be a string");
        try {
            std::string result = to_server_pattern(value.get<std::string>());
            (void)match_(result, "");
            return result;
        } catch (const std::exception& error) {
            invalid(where, error.what(), "Most of ECMA-262 works; repetitions are up to 255.");
        }
    }

    bool applicator(Json& result, const std::string& key, const Json& value, const Place& place)
    {
        if (is_one_of(key, {"allOf", "anyOf", "oneOf"})) {
            const std::string where = below(place.pointer, key);
            if (!value.is_array() || value.empty())
                invalid(where, "it must be a list with at least one schema");
            const Place list = {where, place.depth, place.definition, place.same_value};
            for (std::size_t i = 0; i < value.size(); ++i)
                result[key].push_back(part(value[i], list, std::to_string(i), true));
        } else if (is_one_of(key, {"not", "if", "then", "else"})) {
            result[key] = part(value, place, key, true);
        } else if (is_one_of(key, {"additionalProperties", "propertyNames", "contains"})) {
            result[key] = part(value, place, key, false);
        } else {
            return false;
        }
        return true;
    }

    bool members(Json& result, const std::string& key, const Json& value, const Place& place)
    {
        const bool is_definition = is_one_of(key, {"definitions", "$defs"});
        if (!is_definition && key != "properties")
            return false;
        const std::string where = below(place.pointer, key);
        if (!value.is_object())
            invalid(where, "it must be an object whose members are schemas");
        const Place list = {where, place.depth, place.definition, false};
        for (const auto& [name, of] : value.items()) {
            Json member = part(of, list, name, false);
            if (!is_definition)
                result[key][name] = std::move(member);
        }
        return true;
    }

    bool dependency(Json& result, const std::string& key, const Json& value, const Place& place)
    {
        if (!is_one_of(key, {"dependencies", "dependentRequired", "dependentSchemas"}))
            return false;
        const std::string where = below(place.pointer, key);
        if (!value.is_object())
            invalid(where, "it must be an object");
        const Place list = {where, place.depth, place.definition, place.same_value};
        for (const auto& [name, of] : value.items()) {
            const bool is_list = is_list_of_names(of);
            if (key == "dependentSchemas"
                    ? !is_schema(of)
                    : !is_list && (key == "dependentRequired" || !is_schema(of)))
                invalid(below(where, name), "it must be a schema or a list of different names");
            Json member = is_list ? Json{{"required", of}} : part(of, list, name, true);
            Json& before = result["dependencies"][name];
            before = before.is_null() ? std::move(member) : Json{{"allOf", {before, member}}};
        }
        return true;
    }

    // items and additionalItems in draft 7 are prefixItems and items in 2020-12.
    void join_arrays(Json& result, const Json& given, const Place& place)
    {
        const auto find = [&](const char* key) {
            return given.contains(key) ? &given[key] : nullptr;
        };
        const Json* first = is_draft_7_ ? nullptr : find("prefixItems");
        const char* first_key = "prefixItems";
        const Json* rest = find("items");
        const char* rest_key = "items";
        if (first == nullptr && rest != nullptr && rest->is_array() && !is_2020_) {
            first = rest;
            first_key = "items";
            rest = find("additionalItems");
            rest_key = "additionalItems";
        }
        if (first != nullptr) {
            const std::string where = below(place.pointer, first_key);
            if (!first->is_array() || first->empty())
                invalid(where, "it must be a list with at least one schema");
            const Place list = {where, place.depth, place.definition, false};
            for (std::size_t i = 0; i < first->size(); ++i)
                result["items"].push_back(part((*first)[i], list, std::to_string(i), false));
        }
        if (rest != nullptr)
            result[first == nullptr ? "items" : "additionalItems"] =
                part(*rest, place, rest_key, false);
    }

    static void join_conditions(Json& result)
    {
        if (!result.contains("if")) {
            result.erase("then");
            result.erase("else");
        } else if (!result.contains("then") && !result.contains("else")) {
            result.erase("if");
        }
    }

    const Json& document_;
    const Match match_;
    bool is_draft_7_ = false;
    bool is_2020_ = false;
    std::vector<std::string> targets_;
    std::map<int, std::set<int>> leads_to_;
};

Json parsed(std::string_view text)
{
    try {
        return Json::parse(text);
    } catch (const Json::out_of_range&) {
        invalid("", "it has a number that is too large");
    } catch (const Json::parse_error&) {
        invalid("", "it is not JSON in UTF-8");
    }
}

} // namespace

Form normalise(std::string_view text, Match match)
{
    if (text.size() > max_size)
        throw Error("54000", "json_schema is too large: at most " + std::to_string(max_size) +
                                 " bytes are allowed");
    return Normaliser(parsed(text), match).run();
}

} // namespace outbox::schema
