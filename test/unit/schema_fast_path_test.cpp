#include "core/schema/fast_path.hpp"
#include "core/schema/validator.hpp"

#include "json_builder.hpp"

#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include <gtest/gtest.h>

#include <random>

namespace outbox::schema {

namespace {

using Json = nlohmann::json;

std::mt19937 chance(4711);

int any(int count)
{
    return std::uniform_int_distribution<int>(0, count - 1)(chance);
}

const char* const names[] = {"a", "b", "cc", "d"};

Json some_schema(int depth);

Json some_value(int depth)
{
    switch (any(depth > 0 ? 7 : 5)) {
    case 0:
        return nullptr;
    case 1:
        return any(2) == 0;
    case 2:
        return any(5) - 1;
    case 3:
        return any(8) / 2.0 - 1;
    case 4:
        return Json::array({"", "a", "ab", "äöü"})[static_cast<std::size_t>(any(4))];
    case 5: {
        Json array = Json::array();
        for (int i = any(3); i > 0; --i)
            array.push_back(some_value(depth - 1));
        return array;
    }
    default: {
        Json object = Json::object();
        for (int i = any(4); i > 0; --i)
            object[names[any(4)]] = some_value(depth - 1);
        return object;
    }
    }
}

void add_keyword(Json& schema, int depth)
{
    const char* const types[] = {"null",   "boolean", "integer", "number",
                                 "string", "array",   "object"};
    switch (any(depth > 0 ? 14 : 8)) {
    case 0:
        schema["type"] = types[any(7)];
        break;
    case 1:
        schema["type"] = {types[any(7)], types[any(7)]};
        break;
    case 2:
        schema["enum"] = {some_value(1), some_value(0), some_value(0)};
        break;
    case 3:
        schema["minLength"] = any(3);
        schema["maxLength"] = any(4);
        break;
    case 4:
        schema["minimum"] = any(3);
        schema["exclusiveMaximum"] = any(4);
        break;
    case 5:
        schema["exclusiveMinimum"] = any(3) - 1;
        schema["maximum"] = any(4);
        break;
    case 6:
        schema["required"] = {names[any(4)]};
        break;
    case 7:
        schema["minItems"] = any(2);
        schema["maxItems"] = any(4);
        break;
    case 8:
    case 9:
        for (int i = any(4); i > 0; --i)
            schema["properties"][names[any(4)]] = some_schema(depth - 1);
        break;
    case 10:
        schema["additionalProperties"] = some_schema(depth - 1);
        break;
    case 11:
        schema["items"] = some_schema(depth - 1);
        break;
    case 12:
        schema["allOf"] = {some_schema(depth - 1), some_schema(depth - 1)};
        break;
    default:
        schema["anyOf"] = {some_schema(depth - 1), some_schema(depth - 1)};
    }
}

Json some_schema(int depth)
{
    if (any(12) == 0)
        return any(3) > 0;
    Json schema = Json::object();
    for (int i = any(3); i >= 0; --i)
        add_keyword(schema, depth);
    return schema;
}

} // namespace

TEST(FastPathValidator, SaysYesOnlyWhereValijsonDoes)
{
    constexpr int schemas = 4000;
    constexpr int values = 20;
    int both = 0;
    int valijson_alone = 0;
    for (int i = 0; i < schemas; ++i) {
        const Json text = some_schema(3);
        valijson::Schema schema;
        valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
        parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(text), schema);
        for (int j = 0; j < values; ++j) {
            const std::string payload = some_value(3).dump();
            json::Builder builder;
            const json::Value& value = builder.build(payload);
            const bool fits = valijson::Validator(valijson::Validator::kStrongTypes)
                                  .validate(schema, json::Adapter(value), nullptr);
            const bool glance = FastPathValidator::fits(value, schema);
            ASSERT_TRUE(fits || !glance) << text << " " << payload;
            both += fits && glance ? 1 : 0;
            valijson_alone += fits && !glance ? 1 : 0;
        }
    }
    // And it does say yes.
    EXPECT_GT(both, 5 * valijson_alone);
}

} // namespace outbox::schema
