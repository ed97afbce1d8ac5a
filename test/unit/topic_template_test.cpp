#include "sink/kafka/topic_template.hpp"

#include "sink_config_cases.hpp"

#include <gtest/gtest.h>

namespace {

using namespace outbox::sink;
using namespace std::string_literals;

std::string topic(std::string_view text, const Event& event = {})
{
    std::string name = "what was there before";
    TopicTemplate::parse(text).apply(event, name);
    return name;
}

Event make_event()
{
    Event event;
    event.aggregate_type = "order";
    event.event_type = "order.created";
    event.tenant_id = -7;
    return event;
}

std::string refusal(std::string_view text)
{
    return test::refusal([&] { TopicTemplate::parse(text); });
}

TEST(Topic, MayBeAPlainName)
{
    for (const std::string& name :
         {"a"s, "shop.orders"s, "A-Z_0.9"s, "..."s, "__consumer"s, std::string(249, 'x')})
        EXPECT_EQ(topic(name, make_event()), name);
}

TEST(Topic, MayHaveFieldsOfTheEvent)
{
    EXPECT_EQ(topic("{aggregate_type}", make_event()), "order");
    EXPECT_EQ(topic("{event_type}", make_event()), "order.created");
    EXPECT_EQ(topic("{tenant_id}", make_event()), "-7");
    EXPECT_EQ(topic("shop.{aggregate_type}.v1", make_event()), "shop.order.v1");
    EXPECT_EQ(topic("{tenant_id}{tenant_id}-{event_type}{aggregate_type}", make_event()),
              "-7-7-order.createdorder");
}

TEST(Topic, BracesInAFieldAreNotExpanded)
{
    Event event = make_event();
    event.aggregate_type = "{event_type}";
    EXPECT_EQ(topic("x.{aggregate_type}", event), "x.{event_type}");
}

TEST(Topic, UnknownFieldsAreRefused)
{
    for (const char* text : {"{}", "{payload}", "a{Aggregate_Type}", "{ aggregate_type}", "{",
                             "a.{", "{aggregate_type", "{aggregate_type}{", "{{aggregate_type}}",
                             "{aggregate_id}", "{event_type.}"}) {
        EXPECT_NE(refusal(text).find("\"topic\" has an unknown field"), std::string::npos) << text;
        EXPECT_NE(refusal(text).find("{aggregate_type}, {event_type} and {tenant_id}"),
                  std::string::npos);
    }
}

TEST(Topic, InvalidCharactersAreRefused)
{
    for (const char* text : {"a b", "a/b", "é", "a}", "}", "{event_type}}", "{event_type}:x", "a\n",
                             "a,b", "$x", "a*"})
        EXPECT_NE(refusal(text).find("outside of braces"), std::string::npos) << text;
    EXPECT_NE(refusal(std::string_view("a\0", 2)), "");
}

TEST(Topic, InvalidNamesAreRefused)
{
    for (const std::string& text :
         {""s, "."s, ".."s, std::string(250, 'x'), std::string(250, 'x') + "{tenant_id}"})
        EXPECT_NE(refusal(text).find("1 to 249"), std::string::npos) << text;
}

// Only the event decides whether these are valid names.
TEST(Topic, TheTextAroundAFieldNeedNotBeAValidName)
{
    for (const char* text : {".{event_type}", "{event_type}", "..{tenant_id}"})
        EXPECT_EQ(refusal(text), "") << text;
    EXPECT_EQ(refusal(std::string(249, 'x') + "{tenant_id}"), "");
}

TEST(ProblemWithTopic, ValidNamesHaveNoProblem)
{
    for (const std::string& name : {"a"s, "..."s, "A-z_0.9"s, std::string(249, 'x')})
        EXPECT_EQ(problem_with_topic(name), std::nullopt) << name;
}

TEST(ProblemWithTopic, AnInvalidNameIsRefusedWithTheReason)
{
    for (const char* name : {"", ".", ".."})
        EXPECT_EQ(problem_with_topic(name), "a topic must have a name");
    EXPECT_NE(problem_with_topic(std::string(250, 'x')).value_or("").find("has 250 bytes"),
              std::string::npos);
    for (const std::string& name : {"a b"s, "a/b"s, "é"s, "a\n"s, "{x}"s, "a\0"s, "a\x7f"s})
        EXPECT_NE(problem_with_topic(name).value_or("").find("characters other than"),
                  std::string::npos)
            << name;
}

} // namespace
