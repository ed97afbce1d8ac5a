// Changes of JSON Schemas: a value that is valid for the old schema is valid for a compatible new
// one.
#include "core/schema/compatibility.hpp"

#include "../unit/json_builder.hpp"
#include "core/schema/validator.hpp"
#include "json_mutator.hpp"
#include "schema_oracle.hpp"

#include <cstring>

namespace outbox::fuzz {

using Json = nlohmann::json;

std::span<const char* const> snippets()
{
    static constexpr const char* all[] = {
        "null",
        "true",
        "false",
        "1",
        "2.5",
        "\"a\"",
        "[]",
        "{}",
        "[1, 2]",
        R"({"a": 1})",
        R"({"b": "a"})",
        R"({"type": "integer"})",
        R"({"type": ["string", "null"]})",
        R"({"type": "object"})",
        R"({"enum": [1, "a"]})",
        R"({"enum": [1, "a", null]})",
        R"({"minimum": 1})",
        R"({"maximum": 2})",
        R"({"exclusiveMinimum": 0})",
        R"({"multipleOf": 2})",
        R"({"maxLength": 2})",
        R"({"pattern": "a"})",
        R"({"minItems": 1})",
        R"({"uniqueItems": true})",
        R"({"contains": {"const": 1}})",
        R"({"items": {"type": "integer"}})",
        R"({"items": [{"type": "null"}]})",
        R"({"required": ["a"]})",
        R"({"properties": {"a": {"type": "integer"}}})",
        R"({"properties": {"b": {"minimum": 1}}})",
        R"({"properties": {"new": {"type": "string"}}})",
        R"({"additionalProperties": false})",
        R"({"additionalProperties": {"type": "string"}})",
        R"({"maxProperties": 1})",
        R"({"allOf": [{"minimum": 0}]})",
        R"({"anyOf": [{"type": "string"}, {"minimum": 0}]})",
        R"({"not": {"type": "null"}})",
        R"({"if": {"type": "string"}, "then": {"minLength": 1}})",
        R"({"$ref": "#"})",
        R"({"$ref": "#/$defs/x"})",
        R"({"$defs": {"x": {"minimum": 1}}})",
        R"({"$defs": {"x": {"properties": {"a": {"$ref": "#"}}}}})",
        R"({"$ref": "#/$defs/y"})",
        R"({"$defs": {"y": {"$ref": "#/$defs/x"}}})",
    };
    return all;
}

int pauses;

struct TooLong {};

void pause()
{
    if (++pauses > 2000)
        throw TooLong();
}

bool fits(const std::string& schema, const Json& value)
{
    pauses = 0;
    json::Builder builder;
    const schema::CompiledSchema compiled(schema, {match, pause});
    return !compiled.validate(builder.take(value));
}

std::optional<schema::NormalizedSchema> form_of(std::string_view text)
{
    std::optional<schema::NormalizedSchema> form;
    (void)error_of([&] { form = schema::normalize(text, match); });
    return form;
}

// A place in both schemas, with references resolved.
struct Place {
    const schema::NormalizedSchema& old_form;
    const schema::NormalizedSchema& new_form;
    const Json& old_one;
    const Json& new_one;

    static const Json& follow(const schema::NormalizedSchema& form, const Json& schema)
    {
        const Json* at = &schema;
        while (at->is_object() && at->contains("$ref"))
            at = &form.definitions.at(std::stoul(
                at->at("$ref").get<std::string>().substr(std::strlen(schema::definitions_prefix))));
        return *at;
    }

    static const Json* find(const Json& schema, const std::string& key)
    {
        return schema.is_object() && schema.contains(key) ? &schema.at(key) : nullptr;
    }

    static const Json* find_property(const Json& schema, const std::string& name)
    {
        const Json* properties = find(schema, "properties");
        return properties == nullptr ? nullptr : find(*properties, name);
    }

    Place at(const Json& before, const Json& after) const
    {
        return {old_form, new_form, follow(old_form, before), follow(new_form, after)};
    }
};

// A new property may have any schema, because old values are assumed not to have it: removes it.
void forget_new(Json& value, const Place& place)
{
    const auto go_on = [&](Json& part, const Json* before, const Json* after) {
        if (before != nullptr && after != nullptr)
            forget_new(part, place.at(*before, *after));
    };
    if (value.is_array())
        for (Json& part : value)
            go_on(part, Place::find(place.old_one, "items"), Place::find(place.new_one, "items"));
    if (!value.is_object())
        return;
    const Json* old_others = Place::find(place.old_one, "additionalProperties");
    const Json* new_others = Place::find(place.new_one, "additionalProperties");
    const bool was_open =
        old_others == nullptr || *old_others == true || *old_others == Json::object();
    for (auto member = value.begin(); member != value.end();) {
        const Json* before = Place::find_property(place.old_one, member.key());
        const Json* after = Place::find_property(place.new_one, member.key());
        if (before == nullptr && after != nullptr && was_open) {
            member = value.erase(member);
            continue;
        }
        go_on(*member, before != nullptr ? before : old_others,
              after != nullptr ? after : new_others);
        ++member;
    }
}

void try_one(std::string_view input)
{
    const auto [before, after, payload] = split<3>(input, '\f');
    for (const std::string_view text : {before, after, payload})
        if (Json::parse(text, nullptr, false).is_discarded())
            return;
    const auto old_form = form_of(before);
    const auto new_form = form_of(after);
    if (!old_form || !new_form)
        return;
    must(!schema::find_breaking_change(*old_form, *old_form), "an unchanged schema is compatible");
    const auto reason = schema::find_breaking_change(*old_form, *new_form);
    must(!reason || !reason->empty(), "an incompatible change has a reason");
    if (reason)
        return;
    Json value = Json::parse(payload);
    const Place none = {*old_form, *new_form, old_form->root, new_form->root};
    forget_new(value, none.at(none.old_one, none.new_one));
    try {
        must(!fits(std::string(before), value) || fits(std::string(after), value),
             "a value of the old schema is valid for the new one");
    } catch (const TooLong&) {
        return;
    }
}

} // namespace outbox::fuzz
