#include "core/schema/event_name_lint.hpp"

#include <gtest/gtest.h>

namespace outbox {

namespace {

std::string doubt(std::string_view name)
{
    return lint_event_name(name).value_or("");
}

} // namespace

TEST(EventName, SaysWhatHasHappenedToWhat)
{
    for (const char* name :
         {"OrderConfirmed", "InvoicePaid", "order.confirmed", "order_shipped.v2", "SKURemoved",
          "com.example.order-line.cancelled", "PaymentMethodSet", "ChangeRequestApproved",
          "MailSent", "KøbGennemførted", "OrderV2Shipped"})
        EXPECT_EQ(doubt(name), "") << name;
}

TEST(EventName, IsNoCommand)
{
    EXPECT_EQ(doubt("ConfirmOrder"), R"(it is a command: it begins with "confirm")");
    EXPECT_EQ(doubt("send_mail"), R"(it is a command: it begins with "send")");
    EXPECT_EQ(doubt("CancelOrder.v1"), R"(it is a command: it begins with "cancel")");
}

TEST(EventName, IsNotVague)
{
    for (const char* name : {"OrderUpdated", "OrderChanged", "order.modified", "CustomerEdited"})
        EXPECT_NE(doubt(name).find("does not say what has happened"), std::string::npos) << name;
}

TEST(EventName, EndsWithAVerbInThePastTense)
{
    for (const char* name : {"OrderConfirmation", "Order", "OrderEvent", "NewsFeed", "UserNeed"})
        EXPECT_EQ(doubt(name), "it does not end with a verb in the past tense") << name;
    EXPECT_EQ(doubt("Confirmed"), "it does not say to what it has happened");
    EXPECT_EQ(doubt("---"), "it has no words");
    EXPECT_EQ(doubt(""), "it has no words");
}

} // namespace outbox
