#include "core/schema/validator.hpp"

#include "core/error.hpp"
#include "json_builder.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <stdexcept>

namespace outbox::schema {

namespace {

bool match(std::string_view pattern, std::string_view text)
{
    return std::regex_search(std::string(text), std::regex(std::string(pattern)));
}

int pauses;

void pause()
{
    if (++pauses > 10000)
        throw std::runtime_error("for ever");
}

// "" if the payload is valid, otherwise the violated rule and its path.
std::string status(const std::string& schema, const std::string& payload)
{
    json::Builder builder;
    pauses = 0;
    const auto violation = CompiledSchema(schema, {match, pause}).validate(builder.build(payload));
    return violation ? violation->rule + " at \"" + violation->pointer + "\"" : "";
}

std::string refusal(const std::string& schema)
{
    try {
        const CompiledSchema compiled(schema, {match, pause});
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

std::string at(const std::string& place, const std::string& what)
{
    return "json_schema is invalid at #" + place + ": " + what;
}

std::string levels(int count, const std::string& begin, const std::string& middle,
                   const std::string& end)
{
    std::string result;
    for (int i = 0; i < count; ++i)
        result += begin;
    result += middle;
    for (int i = 0; i < count; ++i)
        result += end;
    return result;
}

} // namespace

struct Rule {
    const char* schema;
    const char* fits;
    const char* does_not;
    const char* status;
};

class SchemaRule : public testing::TestWithParam<Rule> {};

TEST_P(SchemaRule, IsCheckedAndNamedInTheViolation)
{
    EXPECT_EQ(status(GetParam().schema, GetParam().fits), "");
    EXPECT_EQ(status(GetParam().schema, GetParam().does_not), GetParam().status);
}

INSTANTIATE_TEST_SUITE_P(
    All, SchemaRule,
    testing::Values(
        Rule{R"({"type": "object"})", "{}", "[]", R"(type at "")"},
        Rule{R"({"properties": {"a": {"type": "integer"}}})", R"({"a": 1})", R"({"a": 1.5})",
             R"(type at "/a")"},
        Rule{R"({"properties": {"a": {"type": "integer"}}})", R"({"a": 1})", R"({"a": "1"})",
             R"(type at "/a")"},
        Rule{R"({"type": ["string", "null"]})", "null", "1", R"(type at "")"},
        Rule{R"({"properties": {"a/b~c": {"type": "null"}}})", R"({"a/b~c": null})",
             R"({"a/b~c": 1})", R"(type at "/a~1b~0c")"},
        Rule{R"({"required": ["a"]})", R"({"a": null})", R"({"b": 1})", R"(required at "")"},
        Rule{R"({"properties": {"a": true, "b": false}})", R"({"a": 1})", R"({"b": 1})",
             R"(properties at "")"},
        Rule{R"({"properties": {"a": {}}, "additionalProperties": false})", R"({"a": 1})",
             R"({"a": 1, "b": 2})", R"(additionalProperties at "")"},
        Rule{R"({"additionalProperties": {"type": "string"}})", R"({"a": ""})", R"({"a": 1})",
             R"(type at "/a")"},
        Rule{R"({"enum": [1, "a", {"b": [2]}]})", R"({"b": [2]})", R"({"b": [3]})",
             R"(enum at "")"},
        Rule{R"({"const": {"$ref": "x"}})", R"({"$ref": "x"})", "1", R"(const at "")"},
        Rule{R"({"enum": [[18446744073709551615]]})", "[18446744073709551615]", "[-1]",
             R"(enum at "")"},
        Rule{R"({"const": 18446744073709551615})", "18446744073709551615", "-1", R"(const at "")"},
        Rule{R"({"multipleOf": 18446744073709551615})", "18446744073709551615",
             "9223372036854775807", R"(multipleOf at "")"},
        Rule{R"({"minimum": 1})", "1", "0", R"(minimum at "")"},
        Rule{R"({"maximum": 1})", "1", "1.5", R"(maximum at "")"},
        Rule{R"({"exclusiveMinimum": 1})", "2", "1", R"(exclusiveMinimum at "")"},
        Rule{R"({"exclusiveMaximum": 1})", "0", "1", R"(exclusiveMaximum at "")"},
        Rule{R"({"multipleOf": 0.1})", "0.3", "0.35", R"(multipleOf at "")"},
        Rule{R"({"multipleOf": 7})", R"("8")", "7.5", R"(multipleOf at "")"},
        Rule{R"({"minLength": 2})", R"("äö")", R"("ä")", R"(minLength at "")"},
        Rule{R"({"maxLength": 2})", R"("äö")", R"("äöü")", R"(maxLength at "")"},
        Rule{R"({"pattern": "^a+$"})", R"("aaa")", R"("ab")", R"(pattern at "")"},
        Rule{R"({"items": {"type": "string"}})", R"(["a"])", R"(["a", 1])", R"(type at "/1")"},
        Rule{R"({"minItems": 1})", "[1]", "[]", R"(minItems at "")"},
        Rule{R"({"maxItems": 1})", "[1]", "[1, 2]", R"(maxItems at "")"},
        Rule{R"({"uniqueItems": true})", "[1, 2]", "[1, 1]", R"(uniqueItems at "")"},
        Rule{R"({"contains": {"const": 1}})", "[0, 1]", "[0]", R"(contains at "")"},
        Rule{R"({"items": [{"type": "null"}], "additionalItems": {"type": "string"}})",
             R"([null, "a"])", "[null, 1]", R"(type at "/1")"},
        Rule{R"({"items": [{"type": "null"}], "additionalItems": false})", "[null]", "[null, 1]",
             R"(additionalItems at "")"},
        Rule{R"({"prefixItems": [{"type": "null"}], "items": {"type": "string"}})",
             R"([null, "a"])", "[null, 1]", R"(type at "/1")"},
        Rule{R"({"minProperties": 1})", R"({"a": 1})", "{}", R"(minProperties at "")"},
        Rule{R"({"maxProperties": 0})", "{}", R"({"a": 1})", R"(maxProperties at "")"},
        Rule{R"({"propertyNames": {"pattern": "^a"}})", R"({"ab": 1})", R"({"b": 1})",
             R"(schema at "")"},
        Rule{R"({"dependencies": {"a": ["b"]}})", R"({"b": 1})", R"({"a": 1})",
             R"(required at "")"},
        Rule{
            R"({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"a": {"minProperties": 3}}})",
            R"({"a": 1, "b": 2, "c": 3})", R"({"a": 1, "b": 2})", R"(minProperties at "")"},
        Rule{R"({"allOf": [{"minimum": 1}, {"maximum": 2}]})", "2", "3", R"(maximum at "")"},
        Rule{R"({"anyOf": [{"minimum": 2}, {"maximum": 0}]})", "3", "1", R"(anyOf at "")"},
        Rule{R"({"oneOf": [{"minimum": 1}, {"minimum": 2}]})", "1", "3", R"(oneOf at "")"},
        Rule{R"({"not": {"type": "string"}})", "1", R"("a")", R"(not at "")"},
        Rule{R"({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 1}})", "1",
             R"("")", R"(minLength at "")"},
        Rule{R"({"definitions": {"a b": {"type": "string"}}, "$ref": "#/definitions/a%20b"})",
             R"("a")", "1", R"(type at "")"},
        Rule{R"({"$defs": {"a": {"type": "string"}}, "properties": {"b": {"$ref": "#/$defs/a"}}})",
             R"({"b": "a"})", R"({"b": 1})", R"(type at "/b")"},
        Rule{R"({"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a", "minLength": 2})",
             R"("ab")", R"("a")", R"(minLength at "")"},
        Rule{
            R"({"properties": {"$ref": {"type": "string"}, "enum": {"$ref": "#/properties/$ref"}}})",
            R"({"$ref": "a", "enum": "b"})", R"({"enum": 1})", R"(type at "/enum")"},
        Rule{R"({"properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}},
                 "required": ["value"]})",
             R"({"value": 1, "next": {"value": 2, "next": {"value": 3}}})",
             R"({"value": 1, "next": {"value": 2, "next": {}}})", R"(required at "/next/next")"},
        Rule{R"({"format": "date"})", R"("no date")", "1", ""},
        Rule{
            R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}]})",
            "[null]", "[1]", R"(type at "/0")"},
        Rule{R"({"$schema": "https://json-schema.org/draft/2020-12/schema",
                 "prefixItems": [{"type": "null"}]})",
             "[null, 1]", "[1]", R"(type at "/0")"}));

TEST(Schema, DraftSevenIgnoresKeywordsBesideAReference)
{
    EXPECT_EQ(status(R"({"$schema": "http://json-schema.org/draft-07/schema", "properties":
                         {"a": {"$ref": "#/definitions/s", "minLength": 2}},
                         "definitions": {"s": {"type": "string"}}})",
                     R"({"a": ""})"),
              "");
}

TEST(Schema, AnInvalidSchemaIsRefusedWithItsProblem)
{
    EXPECT_EQ(refusal("3"), at("", "a schema must be an object or a boolean"));
    EXPECT_EQ(refusal(R"({"properties": {"a": {"type": "strng"}}})"),
              at("/properties/a/type", "it must be a type, or a list of different types"));
    EXPECT_EQ(refusal(R"({"type": ["string", "string"]})"),
              at("/type", "it must be a type, or a list of different types"));
    EXPECT_EQ(refusal(R"({"properties": []})"),
              at("/properties", "it must be an object whose members are schemas"));
    EXPECT_EQ(refusal(R"({"$defs": {"unused": 1}})"),
              at("/$defs/unused", "a schema must be an object or a boolean"));
    EXPECT_EQ(refusal(R"({"required": "a"})"),
              at("/required", "it must be a list of different names"));
    EXPECT_EQ(refusal(R"({"enum": []})"), at("/enum", "it must be a list with at least one value"));
    EXPECT_EQ(refusal(R"({"minLength": -1})"),
              at("/minLength", "it must be an integer, and not negative"));
    EXPECT_EQ(refusal(R"({"maxItems": 1.5})"),
              at("/maxItems", "it must be an integer, and not negative"));
    EXPECT_EQ(refusal(R"({"multipleOf": 0})"), at("/multipleOf", "it must be a number above 0"));
    EXPECT_EQ(refusal(R"({"allOf": []})"),
              at("/allOf", "it must be a list with at least one schema"));
    EXPECT_EQ(refusal(R"({"dependencies": {"a": 1}})"),
              at("/dependencies/a", "it must be a schema or a list of different names"));
    for (const std::string key : {"$ref", "$id", "title", "$comment", "pattern"})
        EXPECT_EQ(refusal("{\"" + key + "\": 1}"), at("/" + key, "it must be a string"));
    for (const std::string key : {"minimum", "exclusiveMaximum"})
        EXPECT_EQ(refusal("{\"" + key + "\": \"1\"}"), at("/" + key, "it must be a number"));
    EXPECT_EQ(refusal(R"({"uniqueItems": 1})"), at("/uniqueItems", "it must be true or false"));
    EXPECT_EQ(refusal(R"({"dependencies": []})"), at("/dependencies", "it must be an object"));
    EXPECT_EQ(refusal(R"({"prefixItems": {}})"),
              at("/prefixItems", "it must be a list with at least one schema"));
    EXPECT_EQ(refusal(R"({"patternProperties": {}})"),
              at("/patternProperties", "this keyword is not supported"));
    EXPECT_EQ(refusal(R"({"$schema": "http://json-schema.org/draft-04/schema#"})"),
              at("/$schema", "this dialect is not known"));
    EXPECT_EQ(refusal(R"({"properties": {"a": {"$id": "x"}}})"),
              at("/properties/a/$id", "it is allowed at the top only"));
    EXPECT_EQ(refusal(R"~({"pattern": "(?<name>a)"})~"),
              at("/pattern", "a pattern with a named group or with options is not supported"));
    EXPECT_NE(refusal(R"~({"pattern": "a)"})~"), "");
    EXPECT_EQ(refusal(R"({"maximum": 1)" + std::string(400, '0') + "}"),
              at("", "it has a number that is too large"));
    EXPECT_EQ(refusal("{\"title\": \"\xFF\"}"), at("", "it is not JSON in UTF-8"));
    EXPECT_EQ(refusal('"' + std::string(max_size, 'a') + '"'),
              "json_schema is too large: at most 1048576 bytes are allowed");
}

TEST(Schema, OnlyReferencesWithinTheSchemaAreAllowed)
{
    const std::string remote = "references to other documents are not supported";
    EXPECT_EQ(refusal(R"({"$ref": "http://example.com/schema.json"})"), at("/$ref", remote));
    EXPECT_EQ(refusal(R"({"items": {"$ref": "other.json#/a"}})"), at("/items/$ref", remote));
    EXPECT_EQ(refusal(R"({"$ref": "file:///etc/passwd"})"), at("/$ref", remote));
    EXPECT_EQ(refusal(R"({"$defs": {"unused": {"$ref": "http://a"}}})"),
              at("/$defs/unused/$ref", remote));
    EXPECT_EQ(refusal(R"({"$ref": "#/$defs/missing"})"),
              at("/$defs/missing", "a $ref refers to this location, which does not exist"));
    EXPECT_EQ(refusal(R"({"$ref": "#anchor"})"), at("/$ref", "it must be # and a JSON pointer"));
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#/allOf/0"}, "allOf": [{}]})"), "");
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#/allOf/00"}, "allOf": [{}]})"),
              at("/allOf/00", "a $ref refers to this location, which does not exist"));
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#/$defs/50%25"}, "$defs": {"50%": {}}})"), "");
    EXPECT_EQ(refusal(R"({"items": {"$ref": "#/$defs/%+1% 1%"}, "$defs": {"%+1% 1%": {}}})"), "");
}

TEST(Schema, RecursionIsAllowedButReferenceCyclesAreRefused)
{
    const std::string loop = "it refers to itself for the same value";
    EXPECT_EQ(refusal(R"({"$ref": "#"})"), at("", loop));
    EXPECT_EQ(refusal(R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})"), at("", loop));
    EXPECT_EQ(
        refusal(R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}},
                          "$ref": "#/$defs/a"})"),
        at("/$defs/b", loop));
    EXPECT_EQ(refusal(R"({"properties": {"a": {"$ref": "#"}}})"), "");
    EXPECT_EQ(refusal(R"({"items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}})"), "");
}

TEST(Schema, DeepNestingIsRefused)
{
    EXPECT_EQ(refusal(levels(100, R"({"items":)", "{}", "}")), "");
    EXPECT_NE(refusal(levels(1000, R"({"items":)", "{}", "}"))
                  .find("it is nested more than 128 levels deep"),
              std::string::npos);
}

TEST(Schema, EveryReferenceCallsThePauseCallback)
{
    EXPECT_EQ(status(R"({"items": {"$ref": "#"}, "type": "array"})", levels(120, "[", "", "]")),
              "");
    EXPECT_GT(pauses, 100);
    // The number of checks doubles with each level.
    EXPECT_THROW(status(R"({"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}})",
                        levels(120, "[", "", "]")),
                 std::runtime_error);
}

TEST(Schema, AViolationNeverRepeatsTheValue)
{
    json::Builder builder;
    for (const char* schema : {R"({"type": "integer"})", R"({"enum": ["a"]})",
                               R"({"pattern": "a"})", R"({"maxLength": 1})", R"({"const": 1})",
                               R"({"not": {}})", R"({"anyOf": [{"type": "null"}]})"}) {
        const auto violation =
            CompiledSchema(schema, {match, pause}).validate(builder.build(R"("s3cr3t")"));
        ASSERT_TRUE(violation);
        EXPECT_EQ(violation->reason.find("s3cr3t"), std::string::npos) << violation->reason;
    }
}

} // namespace outbox::schema
