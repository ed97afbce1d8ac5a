#include "core/schema/compatibility.hpp"

#include <gtest/gtest.h>

namespace outbox::schema {

namespace {

bool match(std::string_view, std::string_view)
{
    return true;
}

std::string status(const std::string& before, const std::string& after)
{
    return find_breaking_change(normalize(before, match), normalize(after, match)).value_or("");
}

std::string property(const std::string& schema)
{
    return R"({"properties": {"a": )" + schema + "}}";
}

} // namespace

TEST(SchemaChange, AdditionsAndWiderLimitsAreCompatible)
{
    EXPECT_EQ(status("{}", "{}"), "");
    EXPECT_EQ(status("true", "true"), "");
    EXPECT_EQ(status(R"({"title": "a", "format": "date"})", R"({"description": "b"})"), "");
    EXPECT_EQ(status(property("{}"), R"({"properties": {"a": {}, "b": {"type": "string"}}})"), "");
    EXPECT_EQ(status(R"({"type": "object"})", R"({"type": "object", "properties": {"b": {}}})"),
              "");
    EXPECT_EQ(status(property(R"({"enum": [1, 2]})"), property(R"({"enum": [2, 3, 1]})")), "");
    EXPECT_EQ(status(property(R"({"minimum": 1, "maxLength": 3})"),
                     property(R"({"minimum": 0, "maxLength": 4})")),
              "");
    EXPECT_EQ(
        status(property(R"({"minimum": 1, "pattern": "a", "multipleOf": 2, "uniqueItems": true})"),
               property("{}")),
        "");
    EXPECT_EQ(status(R"({"additionalProperties": false})", "{}"), "");
    EXPECT_EQ(status("{}", R"({"additionalProperties": true})"), "");
    EXPECT_EQ(status(R"({"items": {"minimum": 1}})", R"({"items": {}})"), "");
    EXPECT_EQ(status(R"({"type": ["string", "null"]})", R"({"type": ["null", "string"]})"), "");
    EXPECT_EQ(status(R"({"type": ["string"]})", R"({"type": "string"})"), "");
}

TEST(SchemaChange, ReferencesAreFollowed)
{
    const std::string before = R"({"properties": {"a": {"$ref": "#/$defs/s"}, "x": {"anyOf":
        [{"$ref": "#/$defs/s"}, {"type": "null"}]}}, "$defs": {"s": {"type": "string"}}})";
    // Other names of definitions, in another order, and one more.
    EXPECT_EQ(status(before, R"({"properties": {"a": {"$ref": "#/definitions/t"}, "0": {"$ref":
        "#/definitions/new"}, "x": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "definitions": {"t": {"type": "string"}, "new": {"type": "null"}}})"),
              "");
    EXPECT_EQ(status(before, R"({"properties": {"a": {"$ref": "#/$defs/s"}, "x": {"anyOf":
        [{"$ref": "#/$defs/s"}, {"type": "null"}]}}, "$defs": {"s": {"type": "number"}}})"),
              "at #/properties/a type has changed");
    const std::string list = R"({"properties": {"next": {"$ref": "#"}, "a": {"minimum": 1}}})";
    EXPECT_EQ(status(list, R"({"properties": {"next": {"$ref": "#"}, "a": {"minimum": 0}}})"), "");
    EXPECT_EQ(status(list, R"({"properties": {"next": {"$ref": "#"}, "a": {"minimum": 2}}})"),
              "at #/properties/a minimum is narrower");
}

TEST(SchemaChange, AnIncompatibleChangeIsNamedWithItsPath)
{
    EXPECT_EQ(status(property("{}"), "{}"), "at #/properties/a the property was removed");
    EXPECT_EQ(status(property(R"({"type": "number"})"), property(R"({"type": "integer"})")),
              "at #/properties/a type has changed");
    EXPECT_EQ(
        status(property(R"({"type": "string"})"), property(R"({"type": ["string", "null"]})")),
        "at #/properties/a type has changed");
    EXPECT_EQ(status(property(R"({"type": "string"})"), property("{}")),
              "at #/properties/a the keyword type was removed");
    EXPECT_EQ(status(property("{}"), property(R"({"type": "string"})")),
              "at #/properties/a there is a new keyword type");
    EXPECT_EQ(status("{}", R"({"required": ["a"]})"), "at # the property \"a\" is now required");
    EXPECT_EQ(status(R"({"required": ["a"]})", "{}"),
              "at # the property \"a\" is no longer required");
    EXPECT_EQ(status(property(R"({"enum": [1, 2]})"), property(R"({"enum": [1]})")),
              "at #/properties/a enum has lost a value");
    EXPECT_EQ(status(property(R"({"enum": [1, 2]})"), property("{}")),
              "at #/properties/a the keyword enum was removed");
    EXPECT_EQ(status("{}", R"({"additionalProperties": false})"),
              "at # there is a new keyword additionalProperties");
    EXPECT_EQ(status(R"({"additionalProperties": {"type": "string"}})", "{}"),
              "at # the keyword additionalProperties was removed");
    EXPECT_EQ(
        status(
            R"({"additionalProperties": {"type": "string"}})",
            R"({"additionalProperties": {"type": "string"}, "properties": {"b": {"type": "null"}}})"),
        "at #/properties/b type has changed");
    EXPECT_EQ(status(R"({"maxItems": 3})", R"({"maxItems": 2})"), "at # maxItems is narrower");
    EXPECT_EQ(status("{}", R"({"maxItems": 3})"), "at # there is a new keyword maxItems");
    EXPECT_EQ(status(R"({"pattern": "a"})", R"({"pattern": "b"})"), "at # pattern has changed");
    EXPECT_EQ(status(R"({"items": {"minimum": 1}})", R"({"items": {"minimum": 2}})"),
              "at #/items minimum is narrower");
    EXPECT_EQ(status(R"({"anyOf": [{"minimum": 2}]})", R"({"anyOf": [{"minimum": 1}]})"),
              "at # anyOf has changed");
    EXPECT_EQ(status("true", "false"), "at # one of the schemas is a boolean");
}

} // namespace outbox::schema
