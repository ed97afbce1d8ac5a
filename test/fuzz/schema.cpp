// JSON Schemas: results of the validator, checked against a second implementation.
#include "core/schema/validator.hpp"

#include "../unit/json_builder.hpp"
#include "json_mutator.hpp"
#include "schema_oracle.hpp"

namespace outbox::fuzz {

using Json = nlohmann::json;

std::span<const char* const> snippets()
{
    static constexpr const char* all[] = {
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "2.5",
        "1.0",
        "1e300",
        "9223372036854775807",
        "\"\"",
        "\"a\"",
        "\"äö\"",
        "[]",
        "{}",
        "[1, 2]",
        R"({"a": 1})",
        R"({"b": "a"})",
        R"({"a": {"b": []}})",
        R"({"type": "integer"})",
        R"({"type": "number"})",
        R"({"type": ["string", "null"]})",
        R"({"type": "object"})",
        R"({"type": "array"})",
        R"({"enum": [1, "a"]})",
        R"({"const": {"a": [1.0]}})",
        R"({"minimum": 1})",
        R"({"maximum": 1})",
        R"({"exclusiveMinimum": 1})",
        R"({"exclusiveMaximum": 2.5})",
        R"({"multipleOf": 0.5})",
        R"({"minLength": 1})",
        R"({"maxLength": 2})",
        R"({"pattern": "a"})",
        R"({"minItems": 1})",
        R"({"maxItems": 1})",
        R"({"uniqueItems": true})",
        R"({"contains": {"const": 1}})",
        R"({"items": {"type": "integer"}})",
        R"({"items": [{"type": "null"}]})",
        R"({"additionalItems": false})",
        R"({"prefixItems": [{"const": 1}]})",
        R"({"required": ["a"]})",
        R"({"properties": {"a": {"type": "integer"}}})",
        R"({"properties": {"b": false}})",
        R"({"additionalProperties": false})",
        R"({"additionalProperties": {"type": "string"}})",
        R"({"propertyNames": {"maxLength": 1}})",
        R"({"minProperties": 1})",
        R"({"maxProperties": 1})",
        R"({"dependencies": {"a": ["b"]}})",
        R"({"dependentRequired": {"a": ["b"]}})",
        R"({"dependentSchemas": {"a": {"required": ["b"]}}})",
        R"({"allOf": [{"minimum": 0}]})",
        R"({"anyOf": [{"type": "string"}, {"minimum": 0}]})",
        R"({"oneOf": [{"type": "integer"}, {"minimum": 0}]})",
        R"({"not": {"type": "null"}})",
        R"({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"type": "array"}})",
        R"({"$ref": "#"})",
        R"({"$ref": "#/$defs/x"})",
        R"({"$defs": {"x": {"type": "string"}}})",
        R"({"definitions": {"x": {"items": {"$ref": "#"}}}})",
        R"({"$ref": "#/definitions/x"})",
        R"({"$schema": "http://json-schema.org/draft-07/schema#"})",
        R"({"$schema": "https://json-schema.org/draft/2020-12/schema"})",
    };
    return all;
}

constexpr int max_pauses = 2000;
int pauses;

struct TooLong {};

void pause()
{
    if (++pauses > max_pauses)
        throw TooLong();
}

// True if the value is valid; std::nullopt if the check takes too long.
std::optional<bool> is_valid_or_too_long(const schema::CompiledSchema& compiled,
                                         const json::Value& value)
{
    pauses = 0;
    try {
        return !compiled.validate(value);
    } catch (const TooLong&) {
        return std::nullopt;
    }
}

// An input is a schema and values, separated by form feeds.
void try_one(std::string_view input)
{
    const std::string_view text = input.substr(0, input.find('\f'));
    input.remove_prefix(std::min(text.size() + 1, input.size()));
    const Json schema = Json::parse(text, nullptr, false);
    std::optional<schema::CompiledSchema> compiled;
    if (const auto error = error_of([&] {
            compiled.emplace(text, schema::Callbacks{match, pause});
        })) {
        must(is_one_of(error->sqlstate(), {"22023", "54000"}), "a bad schema is a bad value");
        return;
    }
    must(!schema.is_discarded(), "a schema is JSON");
    while (!input.empty()) {
        const std::string_view payload = input.substr(0, input.find('\f'));
        input.remove_prefix(std::min(payload.size() + 1, input.size()));
        const Json value = Json::parse(payload, nullptr, false);
        if (value.is_discarded())
            continue;
        json::Builder builder;
        const json::Value& tree = builder.take(value);
        const auto said = is_valid_or_too_long(*compiled, tree);
        if (!said)
            continue;
        must(SchemaOracle(schema).fits(value).value_or(*said) == *said,
             "the validator and the oracle agree");
    }
}

} // namespace outbox::fuzz
