#include "core/json/json_pointer.hpp"

#include "json_builder.hpp"

#include <gtest/gtest.h>

namespace outbox::json {

using Steps = std::vector<std::string>;

TEST(JsonPointer, IsParsedAsInRfc6901)
{
    EXPECT_EQ(parse_pointer(""), Steps());
    EXPECT_EQ(parse_pointer("/"), Steps{""});
    EXPECT_EQ(parse_pointer("/a~1b/m~0n/0/ "), (Steps{"a/b", "m~n", "0", " "}));
    EXPECT_EQ(parse_pointer("/~01"), Steps{"~1"});
    EXPECT_FALSE(parse_pointer("a"));
    EXPECT_FALSE(parse_pointer("/~"));
    EXPECT_FALSE(parse_pointer("/~2"));
}

TEST(JsonPointer, IsFormattedAsItIsParsed)
{
    std::string pointer;
    append_to_pointer(pointer, "a/b");
    append_to_pointer(pointer, "m~n");
    EXPECT_EQ(pointer, "/a~1b/m~0n");
}

TEST(PathPattern, FindsEveryValueItMatches)
{
    Builder builder;
    const Value& value = builder.build(
        R"({"a": {"b": null}, "list": [{"c": 1}, 2], "": 3, "10": 4, "*": {"x": 5}})");
    const auto finds = [&](const char* pointer) {
        return PathPattern(*parse_pointer(pointer)).matches_anything_in(value);
    };
    for (const char* pointer :
         {"/a", "/a/b", "/list/1", "/list/0/c", "/list/*/c", "/", "/10", "/*/x", "/*/0"})
        EXPECT_TRUE(finds(pointer)) << pointer;
    for (const char* pointer : {"/b", "/a/c", "/a/b/c", "/list/2", "/list/01", "/list/-",
                                "/list/1/c", "/list/*/d", "/*/y"})
        EXPECT_FALSE(finds(pointer)) << pointer;
}

} // namespace outbox::json
