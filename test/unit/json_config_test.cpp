#include "sink/config/json_config.hpp"

#include "sink_config_cases.hpp"

#include <gtest/gtest.h>

namespace {

using namespace std::string_literals;
using outbox::sink::JsonConfig;
using Pairs = JsonConfig::Pairs;
using Texts = std::vector<std::string>;

// Message of the error that `body` throws; its SQLSTATE must be 22023.
template <typename Body>
std::string refusal(Body body)
{
    const std::optional<outbox::Error> error = outbox::sink::test::thrown_by(body);
    if (!error)
        return "accepted";
    EXPECT_STREQ(error->sqlstate(), "22023");
    return error->what();
}

TEST(JsonConfig, MustBeAnObject)
{
    EXPECT_TRUE(JsonConfig::parse("{}").keys().empty());
    EXPECT_EQ(JsonConfig::parse(R"( {"b": 1, "a": {"x": null}} )").keys(), (Texts{"a", "b"}));
    for (const char* json : {"[]", "null", "1", "\"url\"", "true"})
        EXPECT_EQ(refusal([&] { JsonConfig::parse(json); }), "config must be a JSON object")
            << json;
}

TEST(JsonConfig, MustBeJson)
{
    for (const std::string& json :
         {""s, " "s, "{"s, "{}}"s, "{'a': 1}"s, "{\"a\": }"s, "{\"a\": 1,}"s, "{\"a\": 1e999}"s,
          "{\"a\": \"\xFF\"}"s, "{\"a\": \"\xC3\"}"s, "{\"a\": \"\n\"}"s, "{\"a\": NaN}"s,
          "// comment\n{}"s}) {
        const std::string message = refusal([&] { JsonConfig::parse(json); });
        EXPECT_TRUE(message.starts_with("config is not valid JSON")) << json << ": " << message;
    }
}

TEST(JsonConfig, NoErrorRepeatsAValue)
{
    for (const char* json : {R"({"secret": "hunter2)", R"({"secret": "hunter2" x})",
                             R"({"secret": hunter2})", R"(["hunter2"])"})
        EXPECT_EQ(refusal([&] { JsonConfig::parse(json); }).find("hunter2"), std::string::npos);
}

TEST(JsonConfig, HasNoNul)
{
    for (const char* json :
         {R"({"a": "x\u0000y"})", R"({"a\u0000": 1})", R"({"a": {"b": ["\u0000"]}})"})
        EXPECT_EQ(refusal([&] { JsonConfig::parse(json); }),
                  "config must not contain NUL characters");
    EXPECT_EQ(refusal([] { JsonConfig::parse("{}\0, what else?"s); }),
              "config must not contain NUL characters");
}

TEST(JsonConfig, DeepNestingDoesNotOverflowTheStack)
{
    const std::string message = "config is nested too deeply";
    const std::string arrays(5'000'000, '[');
    EXPECT_EQ(refusal([&] { JsonConfig::parse(arrays); }), message);
    EXPECT_EQ(refusal([&] { JsonConfig::parse("{\"a\": " + arrays); }), message);
    std::string objects;
    for (int i = 0; i < 1'000'000; ++i)
        objects += "{\"a\":";
    EXPECT_EQ(refusal([&] { JsonConfig::parse(objects); }), message);
    EXPECT_NO_THROW(JsonConfig::parse(R"({"a": [[[[1]]]]})"));
}

TEST(JsonConfig, AnErrorAboutAnUnknownKeyListsTheKnownKeys)
{
    constexpr std::string_view known[] = {"url", "method", "timeout"};
    const JsonConfig config = JsonConfig::parse(R"({"url": "x", "timeuot": 1})");
    try {
        config.refuse_unknown(known);
        ADD_FAILURE();
    } catch (const outbox::Error& error) {
        EXPECT_STREQ(error.sqlstate(), "22023");
        EXPECT_STREQ(error.what(), "unknown key \"timeuot\" in config");
        EXPECT_EQ(error.hint(), "Known keys are url, method, timeout.");
    }
    EXPECT_NO_THROW(JsonConfig::parse(R"({"url": 1, "method": 2})").refuse_unknown(known));
    EXPECT_NO_THROW(JsonConfig::parse("{}").refuse_unknown({}));
}

TEST(JsonConfig, AbsentKeysHaveNoValue)
{
    const JsonConfig config = JsonConfig::parse("{}");
    EXPECT_FALSE(config.has("a"));
    EXPECT_FALSE(config.text("a"));
    EXPECT_FALSE(config.integer("a", 0, 1));
    EXPECT_FALSE(config.number("a", 0, 1));
    EXPECT_FALSE(config.boolean("a"));
    EXPECT_TRUE(config.text_map("a").empty());
    EXPECT_TRUE(config.text_list("a").empty());
    EXPECT_TRUE(config.all_as_text().empty());
}

TEST(JsonConfig, EachTypeIsRead)
{
    const JsonConfig config = JsonConfig::parse(
        R"({"t": "Euro €", "i": -5, "n": 0.5, "b": false, "o": {"Y": "1", "x": ""}, "l": ["q", "p"]})");
    EXPECT_TRUE(config.has("b"));
    EXPECT_EQ(config.text("t"), "Euro €");
    EXPECT_EQ(config.integer("i", -5, -5), -5);
    EXPECT_EQ(config.number("n", 0.5, 0.5), 0.5);
    EXPECT_EQ(config.number("i", -10, 0), -5.0);
    EXPECT_EQ(config.boolean("b"), false);
    EXPECT_EQ(config.text_map("o"), (Pairs{{"Y", "1"}, {"x", ""}}));
    EXPECT_EQ(config.text_list("l"), (Texts{"q", "p"}));
}

TEST(JsonConfig, AWrongTypeIsRefused)
{
    const std::string key = "config key \"k\" must be ";
    for (const char* value : {"null", "1", "[]", "{}", "true"}) {
        const JsonConfig config = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { config.text("k"); }), key + "a string");
    }
    for (const char* value : {"null", "\"1\"", "[]", "{}", "1"}) {
        const JsonConfig config = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { config.boolean("k"); }), key + "true or false");
    }
    for (const char* value : {"null", "\"a\"", "[]", "{\"a\": 1}", "{\"a\": null}", "1"}) {
        const JsonConfig config = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { config.text_map("k"); }),
                  key + "an object whose values are strings");
    }
    for (const char* value : {"null", "\"a\"", "{}", "[1]", "[\"a\", null]", "1"}) {
        const JsonConfig config = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { config.text_list("k"); }), key + "an array of strings");
    }
}

TEST(JsonConfig, NumbersOutOfRangeAreRefused)
{
    for (const char* value :
         {"0", "11", "1.5", "2.0", "\"5\"", "null", "true", "1e1", "[]", "9223372036854775808",
          "18446744073709551615", "99999999999999999999999999", "-9223372036854775809"}) {
        const JsonConfig config = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { config.integer("k", 1, 10); }),
                  "config key \"k\" must be a whole number from 1 to 10")
            << value;
    }
    const JsonConfig unsigned_only = JsonConfig::parse(R"({"k": 18446744073709551615})");
    EXPECT_NE(refusal([&] { unsigned_only.integer("k", INT64_MIN, INT64_MAX); }), "accepted");
    const JsonConfig extreme =
        JsonConfig::parse(R"({"max": 9223372036854775807, "min": -9223372036854775808})");
    EXPECT_EQ(extreme.integer("max", INT64_MIN, INT64_MAX), INT64_MAX);
    EXPECT_EQ(extreme.integer("min", INT64_MIN, INT64_MAX), INT64_MIN);

    for (const char* value : {"0", "0.09", "600.1", "-1", "1e300", "\"5\"", "null", "true", "{}"}) {
        const JsonConfig config = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { config.number("k", 0.1, 600); }),
                  "config key \"k\" must be a number from 0.1 to 600")
            << value;
    }
}

TEST(JsonConfig, FlatReturnsScalarsAsText)
{
    const JsonConfig config = JsonConfig::parse(
        R"({"a.b": "x", "b": true, "c": false, "d": 10485760, "e": 0.5, "f": -1, "g": ""})");
    EXPECT_EQ(config.all_as_text(), (Pairs{{"a.b", "x"},
                                           {"b", "true"},
                                           {"c", "false"},
                                           {"d", "10485760"},
                                           {"e", "0.5"},
                                           {"f", "-1"},
                                           {"g", ""}}));
    for (const char* value : {"null", "{}", "[]"}) {
        const JsonConfig nested = JsonConfig::parse("{\"k\": "s + value + "}");
        EXPECT_EQ(refusal([&] { nested.all_as_text(); }),
                  "config key \"k\" must be a string, a number or a boolean");
    }
}

TEST(JsonConfig, CopiesShareOneObject)
{
    std::optional<JsonConfig> original = JsonConfig::parse(R"({"a": "b"})");
    const JsonConfig copy = *original;
    original.reset();
    EXPECT_EQ(copy.text("a"), "b");
}

} // namespace
