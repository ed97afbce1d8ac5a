#include "sink/format/traceparent.hpp"

#include <gtest/gtest.h>

namespace {

using outbox::sink::is_traceparent;
using outbox::sink::traceparent_from;
using namespace std::string_literals;

const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string span = "00f067aa0ba902b7";
const std::string valid = "00-" + trace + "-" + span + "-01";
const std::string tracking_id = "0194266e-7a1b-7c3d-9e4f-0123456789AB";

TEST(Traceparent, ValidValuesFollowW3cTraceContext)
{
    EXPECT_TRUE(is_traceparent(valid));
    EXPECT_TRUE(is_traceparent("00-" + trace + "-" + span + "-00"));
    EXPECT_TRUE(is_traceparent("00-" + trace + "-" + span + "-ff"));
}

TEST(Traceparent, OtherValuesAreInvalid)
{
    const std::string zeros(32, '0');
    for (const std::string& text : {""s,
                                    trace,
                                    "00-" + trace + "-" + span,
                                    valid + "-",
                                    valid + "-00",
                                    valid + "0",
                                    valid + "\r\nX: y",
                                    " " + valid,
                                    valid + " ",
                                    valid + "\0"s,
                                    "00-" + zeros + "-" + span + "-01",
                                    "00-" + trace + "-" + zeros.substr(16) + "-01",
                                    "ff-" + trace + "-" + span + "-01",
                                    "0-" + trace + "-" + span + "-010",
                                    "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01",
                                    "00-" + trace + "-00F067AA0BA902B7-01",
                                    "0A-" + trace + "-" + span + "-01",
                                    "00-" + trace + "-" + span + "-0A",
                                    "00-" + trace + "-" + span + "-g1",
                                    "00_" + trace + "-" + span + "-01",
                                    "00-" + trace + "_" + span + "-01",
                                    "00-" + trace + "-" + span + "_01",
                                    "00-" + trace.substr(1) + "x-" + span + "-01"})
        EXPECT_FALSE(is_traceparent(text)) << text;
}

TEST(Traceparent, ALaterVersionMayBeLonger)
{
    const std::string later = "01-" + trace + "-" + span + "-01";
    EXPECT_TRUE(is_traceparent(later));
    EXPECT_TRUE(is_traceparent(later + "-what-the-future-brings"));
    EXPECT_TRUE(is_traceparent(later + "-"));
    EXPECT_FALSE(is_traceparent(later + "."));
    EXPECT_FALSE(is_traceparent(later + "00"));
    EXPECT_FALSE(is_traceparent(later + "-a\r\nX: y"));
    EXPECT_FALSE(is_traceparent(later + "-a\0b"s));
    EXPECT_FALSE(is_traceparent(later + "-€"));
    EXPECT_FALSE(is_traceparent(later + "-" + std::string(1000, 'a')));
}

TEST(Traceparent, TheTraceparentOfTheMetadataComesFirst)
{
    const std::string other = "00-" + trace + "-" + span + "-00";
    EXPECT_EQ(traceparent_from({valid, other, "", tracking_id}), valid);
    EXPECT_EQ(traceparent_from({"nonsense", other, "", tracking_id}), other);
    EXPECT_EQ(traceparent_from({"", other, "", tracking_id}), other);
}

TEST(Traceparent, IsBuiltFromATraceId)
{
    const std::string made = "00-" + trace + "-9e4f0123456789ab-01";
    EXPECT_EQ(traceparent_from({"", trace, "", tracking_id}), made);
    EXPECT_EQ(traceparent_from({"nonsense", trace, "", tracking_id}), made);
    EXPECT_EQ(traceparent_from({"", "4BF92F3577B34DA6A3CE929D0E0E4736", "", tracking_id}), made);
    EXPECT_TRUE(is_traceparent(made));
}

TEST(Traceparent, UsesTheGivenSpanId)
{
    EXPECT_EQ(traceparent_from({"", trace, span, tracking_id}), "00-" + trace + "-" + span + "-01");
    EXPECT_EQ(traceparent_from({"", trace, "00F067AA0BA902B7", tracking_id}),
              "00-" + trace + "-00f067aa0ba902b7-01");
    for (const char* none : {"0000000000000000", "00f067aa0ba902b", "00f067aa0ba902b7a", "x"})
        EXPECT_EQ(traceparent_from({"", trace, none, tracking_id}),
                  "00-" + trace + "-9e4f0123456789ab-01");
}

TEST(Traceparent, TheSpanIdIsNeverZero)
{
    EXPECT_EQ(traceparent_from({"", trace, "", "00000000-0000-0000-0000-000000000000"}),
              "00-" + trace + "-0000000000000001-01");
}

TEST(Traceparent, IsAbsentWithoutATrace)
{
    EXPECT_FALSE(traceparent_from({"", "", "", tracking_id}));
    EXPECT_FALSE(traceparent_from({"x", "y", "", tracking_id}));
    EXPECT_FALSE(traceparent_from({"", std::string(32, '0'), "", tracking_id}));
    EXPECT_FALSE(traceparent_from({"", trace.substr(1), "", tracking_id}));
    EXPECT_FALSE(traceparent_from({"", trace + "0", "", tracking_id}));
    EXPECT_FALSE(traceparent_from({"", trace.substr(1) + "g", "", tracking_id}));
    EXPECT_FALSE(traceparent_from({"", trace, "", ""}));
}

} // namespace
