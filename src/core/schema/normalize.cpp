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

// Throws outbox::Error with SQLSTATE 22023.
[[noreturn]] void raise_invalid(const std::string& pointer, const std::string& what,
                                const std::string& hint = {})
{
    throw Error("22023", "json_schema is invalid at #" + pointer + ": " + what, {}, hint);
}

std::string pointer_below(const std::string& pointer, std::string_view name)
{
    std::string result = pointer;
    json::append_to_pointer(result, name);
    return result;
}

bool is_schema(const Json& json)
{
    return json.is_object() || json.is_boolean();
}

// Returns true for an array of strings that are all different.
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

std::string percent_decoded(std::string_view text)
{
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned char code = 0;
        const std::string_view digits = text.substr(i + 1, 2);
        const char* const end = digits.data() + digits.size();
        // std::from_chars, because strtol would accept a sign and leading blanks.
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

// Returns true for valid UTF-8: percent-encoding can yield any bytes.
bool is_valid_utf8(const std::string& bytes)
{
    try {
        (void)Json(bytes).dump();
        return true;
    } catch (const Json::type_error&) {
        return false;
    }
}

// Converts integers above INT64_MAX, also nested, to doubles: valijson would see them as negative.
Json uint64_as_double(Json value)
{
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)
        return value.get<double>();
    if (value.is_structured())
        for (Json& part : value)
            part = uint64_as_double(std::move(part));
    return value;
}

// Location of a subschema, and the value that it is applied to.
struct SchemaLocation {
    std::string pointer;
    int depth;
    int definition;  // number of the definition that contains it; -1: the root
    bool same_value; // applied to the same value as that definition, not to a part of it
};

class Normalizer {
public:
    Normalizer(const Json& document, RegexMatch match) : document_(document), match_(match) {}

    NormalizedSchema normalize()
    {
        read_dialect();
        NormalizedSchema normalized;
        normalized.root = normalize_schema(document_, {"", 0, -1, true});
        // Normalizing a target can add targets.
        for (std::size_t i = 0; i < targets_.size(); ++i) {
            const std::string pointer = targets_[i];
            normalized.definitions.push_back(normalize_schema(
                resolve_pointer(pointer), {pointer, 0, static_cast<int>(i), true}));
        }
        check_for_loops();
        return normalized;
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
            raise_invalid("/$schema", "this dialect is not known",
                          std::string("Use http://") + draft_7 + "# or https://" + draft_2020 +
                              ".");
    }

    // Returns the value at a pointer into the document. Throws outbox::Error if there is none.
    const Json& resolve_pointer(const std::string& pointer) const
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
                raise_invalid(pointer, "a $ref refers to this location, which does not exist");
        }
        return *at;
    }

    Json make_reference(const Json& given, const SchemaLocation& location)
    {
        return {{"$ref", definitions_prefix + std::to_string(definition_number(given, location))}};
    }

    // Returns the number of the definition that a $ref refers to; adds it to the targets if new.
    int definition_number(const Json& reference, const SchemaLocation& location)
    {
        const std::string where = pointer_below(location.pointer, "$ref");
        if (!reference.is_string())
            raise_invalid(where, "it must be a string");
        const std::string uri = reference.get<std::string>();
        if (!uri.starts_with('#'))
            raise_invalid(where, "references to other documents are not supported",
                          "Copy the definition into $defs and use \"#/$defs/…\".");
        const std::string pointer = percent_decoded(std::string_view(uri).substr(1));
        if (!json::parse_pointer(pointer) || !is_valid_utf8(pointer))
            raise_invalid(where, "it must be # and a JSON pointer",
                          "Use a reference like \"#/$defs/address\".");
        const auto known = std::ranges::find(targets_, pointer);
        const auto number = static_cast<int>(known - targets_.begin());
        if (known == targets_.end())
            targets_.push_back(pointer);
        if (location.same_value)
            leads_to_[location.definition].insert(number);
        return number;
    }

    // Rejects definitions that apply themselves to the same value: validation would not terminate.
    void check_for_loops() const
    {
        std::set<int> done;
        for (std::size_t i = 0; i < targets_.size(); ++i) {
            std::set<int> path;
            visit_references(static_cast<int>(i), path, done);
        }
    }

    void visit_references(int definition, std::set<int>& path, std::set<int>& done) const
    {
        if (done.contains(definition))
            return;
        if (!path.insert(definition).second)
            raise_invalid(targets_[static_cast<std::size_t>(definition)],
                          "it refers to itself for the same value");
        if (path.size() > max_depth)
            raise_invalid(targets_[static_cast<std::size_t>(definition)],
                          "it begins a chain of more than " + std::to_string(max_depth) +
                              " references");
        if (const auto next = leads_to_.find(definition); next != leads_to_.end())
            for (const int other : next->second)
                visit_references(other, path, done);
        path.erase(definition);
        done.insert(definition);
    }

    // Returns the schema normalized, with its subschemas. Can add targets. Throws if it is invalid.
    Json normalize_schema(const Json& given, SchemaLocation location)
    {
        if (++location.depth > max_depth)
            raise_invalid(location.pointer,
                          "it is nested more than " + std::to_string(max_depth) + " levels deep");
        if (given.is_boolean())
            return given;
        if (!given.is_object())
            raise_invalid(location.pointer, "a schema must be an object or a boolean");
        // Draft 7 ignores keywords beside $ref.
        if (given.contains("$ref") && is_draft_7_)
            return make_reference(given["$ref"], location);
        Json result = Json::object();
        for (const auto& [key, value] : given.items())
            add_keyword(result, key, value, location);
        add_items(result, given, location);
        remove_incomplete_conditions(result);
        // A schema with no other constraint than a reference becomes that reference.
        if (given.contains("$ref") && result.size() == 1 && result["allOf"].size() == 1)
            return result["allOf"][0];
        return result;
    }

    Json normalize_subschema(const Json& given, const SchemaLocation& location,
                             std::string_view name, bool same_value)
    {
        return normalize_schema(given, {pointer_below(location.pointer, name), location.depth,
                                        location.definition, location.same_value && same_value});
    }

    // Adds one keyword to `result`; throws if it is not supported, ignores an unknown one. Each of
    // the functions for one kind of keyword returns false for a keyword of another kind.
    void add_keyword(Json& result, const std::string& key, const Json& value,
                     const SchemaLocation& location)
    {
        if (is_one_of(key, {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
                            "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "minContains",
                            "maxContains", "patternProperties"}))
            raise_invalid(pointer_below(location.pointer, key), "this keyword is not supported",
                          key == "patternProperties"
                              ? "Use propertyNames with a pattern, and additionalProperties."
                              : "");
        if (key == "$ref")
            result["allOf"].push_back(make_reference(value, location));
        else if (!check_annotation(key, value, location) &&
                 !add_assertion(result, key, value, location) &&
                 !add_applicator(result, key, value, location) &&
                 !add_members(result, key, value, location) &&
                 !add_dependency(result, key, value, location))
            return; // JSON Schema ignores unknown keywords
    }

    static bool check_annotation(const std::string& key, const Json& value,
                                 const SchemaLocation& location)
    {
        if (is_one_of(key, {"title", "description", "$comment", "format", "$anchor"})) {
            if (!value.is_string())
                raise_invalid(pointer_below(location.pointer, key), "it must be a string");
            return true;
        }
        if (!is_one_of(key, {"$id", "$schema"}))
            return false;
        if (!location.pointer.empty())
            raise_invalid(pointer_below(location.pointer, key), "it is allowed at the top only");
        if (!value.is_string())
            raise_invalid(pointer_below(location.pointer, key), "it must be a string");
        return true;
    }

    bool add_assertion(Json& result, const std::string& key, const Json& value,
                       const SchemaLocation& location) const
    {
        const std::string where = pointer_below(location.pointer, key);
        if (key == "type") {
            const bool is_list = value.is_array() && !value.empty() &&
                                 std::ranges::all_of(value, is_type) && is_list_of_names(value);
            if (!is_type(value) && !is_list)
                raise_invalid(
                    where, "it must be a type, or a list of different types",
                    "Types are null, boolean, integer, number, string, array and object.");
            result[key] = value;
            if (is_list && value.size() == 1)
                result[key] = value[0];
            else if (is_list)
                std::sort(result[key].begin(), result[key].end());
        } else if (key == "enum") {
            if (!value.is_array() || value.empty())
                raise_invalid(where, "it must be a list with at least one value");
            result[key] = uint64_as_double(value);
        } else if (key == "const") {
            result["const"] = uint64_as_double(value);
        } else if (key == "multipleOf") {
            if (!value.is_number() || value.get<double>() <= 0)
                raise_invalid(where, "it must be a number above 0");
            result[multiple_keyword] = uint64_as_double(value);
        } else if (is_one_of(key, {"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"})) {
            if (!value.is_number())
                raise_invalid(where, "it must be a number");
            result[key] = value.get<double>();
        } else if (is_one_of(key, {"maxLength", "minLength", "maxItems", "minItems",
                                   "maxProperties", "minProperties"})) {
            result[key] = read_size(value, where);
        } else if (key == "uniqueItems") {
            if (!value.is_boolean())
                raise_invalid(where, "it must be true or false");
            if (value.get<bool>())
                result[key] = true;
        } else if (key == "pattern") {
            result[pattern_keyword] = translate_pattern(value, where);
        } else if (key == "required") {
            if (!is_list_of_names(value))
                raise_invalid(where, "it must be a list of different names");
            if (!value.empty())
                result[key] = value;
        } else {
            return false;
        }
        return true;
    }

    static std::int64_t read_size(const Json& value, const std::string& where)
    {
        constexpr double max_integer = 1e15;
        const double number = value.is_number() ? value.get<double>() : -1;
        if (number < 0 || number > max_integer || number != std::floor(number))
            raise_invalid(where, "it must be an integer, and not negative");
        return static_cast<std::int64_t>(number);
    }

    std::string translate_pattern(const Json& value, const std::string& where) const
    {
        if (!value.is_string())
            raise_invalid(where, "it must be a string");
        try {
            std::string result = to_postgres_regex(value.get<std::string>());
            (void)match_(result, "");
            return result;
        } catch (const std::exception& error) {
            raise_invalid(where, error.what(),
                          "Use ECMA-262 syntax without backreferences and named groups, and "
                          "repetition counts of at most 255.");
        }
    }

    bool add_applicator(Json& result, const std::string& key, const Json& value,
                        const SchemaLocation& location)
    {
        if (is_one_of(key, {"allOf", "anyOf", "oneOf"})) {
            const std::string where = pointer_below(location.pointer, key);
            if (!value.is_array() || value.empty())
                raise_invalid(where, "it must be a list with at least one schema");
            const SchemaLocation list = {where, location.depth, location.definition,
                                         location.same_value};
            for (std::size_t i = 0; i < value.size(); ++i)
                result[key].push_back(normalize_subschema(value[i], list, std::to_string(i), true));
        } else if (is_one_of(key, {"not", "if", "then", "else"})) {
            result[key] = normalize_subschema(value, location, key, true);
        } else if (is_one_of(key, {"additionalProperties", "propertyNames", "contains"})) {
            result[key] = normalize_subschema(value, location, key, false);
        } else {
            return false;
        }
        return true;
    }

    bool add_members(Json& result, const std::string& key, const Json& value,
                     const SchemaLocation& location)
    {
        const bool is_definition = is_one_of(key, {"definitions", "$defs"});
        if (!is_definition && key != "properties")
            return false;
        const std::string where = pointer_below(location.pointer, key);
        if (!value.is_object())
            raise_invalid(where, "it must be an object whose members are schemas");
        const SchemaLocation list = {where, location.depth, location.definition, false};
        for (const auto& [name, of] : value.items()) {
            Json member = normalize_subschema(of, list, name, false);
            if (!is_definition)
                result[key][name] = std::move(member);
        }
        return true;
    }

    bool add_dependency(Json& result, const std::string& key, const Json& value,
                        const SchemaLocation& location)
    {
        if (!is_one_of(key, {"dependencies", "dependentRequired", "dependentSchemas"}))
            return false;
        const std::string where = pointer_below(location.pointer, key);
        if (!value.is_object())
            raise_invalid(where, "it must be an object");
        const SchemaLocation list = {where, location.depth, location.definition,
                                     location.same_value};
        for (const auto& [name, of] : value.items()) {
            const bool is_list = is_list_of_names(of);
            if (key == "dependentSchemas"
                    ? !is_schema(of)
                    : !is_list && (key == "dependentRequired" || !is_schema(of)))
                raise_invalid(pointer_below(where, name),
                              "it must be a schema or a list of different names");
            Json member =
                is_list ? Json{{"required", of}} : normalize_subschema(of, list, name, true);
            Json& before = result["dependencies"][name];
            before = before.is_null() ? std::move(member) : Json{{"allOf", {before, member}}};
        }
        return true;
    }

    // Maps prefixItems and items of 2020-12 to items and additionalItems of draft 7.
    void add_items(Json& result, const Json& given, const SchemaLocation& location)
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
            const std::string where = pointer_below(location.pointer, first_key);
            if (!first->is_array() || first->empty())
                raise_invalid(where, "it must be a list with at least one schema");
            const SchemaLocation list = {where, location.depth, location.definition, false};
            for (std::size_t i = 0; i < first->size(); ++i)
                result["items"].push_back(
                    normalize_subschema((*first)[i], list, std::to_string(i), false));
        }
        if (rest != nullptr)
            result[first == nullptr ? "items" : "additionalItems"] =
                normalize_subschema(*rest, location, rest_key, false);
    }

    // then and else constrain nothing without if, nor if without them.
    static void remove_incomplete_conditions(Json& result)
    {
        if (!result.contains("if")) {
            result.erase("then");
            result.erase("else");
        } else if (!result.contains("then") && !result.contains("else")) {
            result.erase("if");
        }
    }

    const Json& document_;
    const RegexMatch match_;
    bool is_draft_7_ = false;
    bool is_2020_ = false;
    std::vector<std::string> targets_;
    std::map<int, std::set<int>> leads_to_;
};

Json parse_json(std::string_view text)
{
    try {
        return Json::parse(text);
    } catch (const Json::out_of_range&) {
        raise_invalid("", "it has a number that is too large");
    } catch (const Json::parse_error&) {
        raise_invalid("", "it is not JSON in UTF-8");
    }
}

} // namespace

NormalizedSchema normalize(std::string_view text, RegexMatch match)
{
    if (text.size() > max_size)
        throw Error("54000", "json_schema is too large: at most " + std::to_string(max_size) +
                                 " bytes are allowed");
    return Normalizer(parse_json(text), match).normalize();
}

} // namespace outbox::schema
