#include "sink/config/secrets.hpp"

#include "sink/format/encoding.hpp"
#include "sink_config_cases.hpp"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using namespace outbox::sink;
using namespace outbox::sink::test;
using namespace std::string_literals;

TEST(Secrets, AreReadFromLinesOfNameAndValue)
{
    const Secrets secrets = Secrets::parse("# comment\n"
                                           "\n"
                                           "  \t \r\n"
                                           "plain=value\n"
                                           "  spaced.name-1_X \t=  a value with = and # in it  \r\n"
                                           "quoted = \"  kept  \"\n"
                                           "inner = say \"hi\"\n"
                                           "  # another\n"
                                           "empty = \"\"\n"
                                           "last = no newline");
    const std::pair<const char*, const char*> expected[] = {
        {"plain", "value"},     {"spaced.name-1_X", "a value with = and # in it"},
        {"quoted", "  kept  "}, {"inner", "say \"hi\""},
        {"empty", ""},          {"last", "no newline"}};
    for (const auto& [name, value] : expected) {
        ASSERT_NE(secrets.find(name), nullptr) << name;
        EXPECT_EQ(*secrets.find(name), value);
    }
    EXPECT_EQ(secrets.find("PLAIN"), nullptr);
    EXPECT_EQ(secrets.find(""), nullptr);
    EXPECT_EQ(Secrets::parse("").find("plain"), nullptr);
}

TEST(Secrets, ABadLineIsNamedByItsNumberAlone)
{
    for (const std::string& line :
         {"hunter2"s, "= hunter2"s, "na me = hunter2"s, "näme = hunter2"s, "hunter2 ="s,
          "hunter2 =  \t"s, "a = \"hunter2"s, "a = \""s, "a = hun\0ter2"s, "a = hun\x01ter2"s,
          "a = hunter2\x7F"s, "good = hunter2"s, "[hunter2]"s,
          std::string(64, 'n') + " = hunter2"}) {
        const auto [sqlstate, text] =
            error_of([&] { Secrets::parse("good = 1\n\n# c\n" + line + "\nmore = 2\n"); });
        EXPECT_EQ(sqlstate, "F0000") << line;
        EXPECT_NE(text.find("line 4"), std::string::npos) << text;
        EXPECT_EQ(text.find("hunter2"), std::string::npos) << text;
    }
    EXPECT_NO_THROW(Secrets::parse(std::string(63, 'n') + " = x"));
}

TEST(Secrets, ResolveReplacesEveryReference)
{
    const Secrets secrets = Secrets::parse("a = 1\nb.c-D_2 = two\nnested = ${secret:a}\n");
    EXPECT_EQ(secrets.resolve(""), "");
    EXPECT_EQ(secrets.resolve("nothing $ here {a}"), "nothing $ here {a}");
    EXPECT_EQ(secrets.resolve("${secret:a}"), "1");
    EXPECT_EQ(secrets.resolve("x${secret:a}${secret:b.c-D_2}y${secret:a}z"), "x1twoy1z");
    EXPECT_EQ(secrets.resolve("$${secret:a}}"), "$1}");
    EXPECT_EQ(secrets.resolve("${secret:nested}"), "${secret:a}");
}

TEST(Secrets, AnErrorNamesTheUnknownSecret)
{
    const auto [sqlstate, text] =
        error_of([] { Secrets::parse("a = hunter2").resolve("${secret:a} ${secret:b}"); });
    EXPECT_EQ(sqlstate, "42704");
    EXPECT_NE(text.find("\"b\""), std::string::npos);
    EXPECT_EQ(text.find("hunter2"), std::string::npos);
}

TEST(Secrets, AMalformedReferenceIsRefused)
{
    for (const std::string& text :
         {"${secret:"s, "${secret:}"s, "${secret:a"s, "${secret: a}"s, "${secret:a b}"s,
          "${secret:ä}"s, "${secret:a\0}"s, "${secret:a\n}"s, "${secret:${secret:a}}"s,
          "${secret:a} ${secret:"s, "${secret:" + std::string(64, 'n') + "}"}) {
        EXPECT_EQ(error_of([&] { check_references(text); }).first, "22023") << text;
        EXPECT_EQ(error_of([&] { Secrets::parse("a = 1").resolve(text); }).first, "22023") << text;
        EXPECT_FALSE(is_secret_reference(text));
    }
    for (const char* text : {"", "$", "${", "${secret}", "${other:a}", "a${secret:a}b"})
        EXPECT_NO_THROW(check_references(text)) << text;
}

TEST(Secrets, ReferencesAreRecognized)
{
    EXPECT_TRUE(is_secret_reference("${secret:a}"));
    for (const char* text : {"", "a", "${secret:a} ", " ${secret:a}", "${secret:a}${secret:a}",
                             "${SECRET:a}", "${secret:a}}"})
        EXPECT_FALSE(is_secret_reference(text)) << text;
    for (const char* text : {"${secret:a}", "Bearer ${secret:a}", "${secret:}${secret:a}"})
        EXPECT_TRUE(has_secret_reference(text)) << text;
    for (const char* text : {"", "secret:a", "${secret:", "${secret:}"})
        EXPECT_FALSE(has_secret_reference(text)) << text;
}

TEST(Secrets, AreRedactedFromText)
{
    const Secrets secrets =
        Secrets::parse("a = pass\nb = password\nc = word-salad\nd = abc\ne = abab\n");
    const auto redacted = [&](std::string text) {
        secrets.redact(text);
        return text;
    };
    EXPECT_EQ(redacted(""), "");
    EXPECT_EQ(redacted("nothing"), "nothing");
    EXPECT_EQ(redacted("a password, a pass"), "a ***, a ***");
    EXPECT_EQ(redacted("password-salad"), "***"); // two secrets that overlap
    EXPECT_EQ(redacted("ababab!"), "***!");       // a secret that overlaps itself
    EXPECT_EQ(redacted("abc"), "abc");            // shorter than the minimum for redaction
    EXPECT_EQ(redacted("x\0pass\0y"s), "x\0***\0y"s);
    EXPECT_EQ(redacted(std::string(100'000, 'x') + "pass"), std::string(100'000, 'x') + "***");
    std::string text = "pass";
    Secrets::parse("").redact(text);
    EXPECT_EQ(text, "pass");
}

TEST(Secrets, ASigningSecretIsRedactedWithoutItsPrefix)
{
    const Secrets secrets = Secrets::parse("a = whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    const auto redacted = [&](std::string text) {
        secrets.redact(text);
        return text;
    };
    EXPECT_EQ(redacted("not signed with MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw!"),
              "not signed with ***!");
    EXPECT_EQ(redacted("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "***");
    EXPECT_EQ(redacted("whsec_ and more"), "whsec_ and more");
}

TEST(Secrets, AreRedactedWhenEncoded)
{
    const Secrets secrets = Secrets::parse("a = Pa/ss&w\"rd\nb = %25x\\y\nc = abc\n");
    const auto redacted = [&](std::string text) {
        secrets.redact(text);
        return text;
    };
    EXPECT_EQ(redacted("PA/SS&W\"RD"), "***");
    EXPECT_EQ(redacted(R"("Pa\/ss&w\"rd")"), R"("***")");
    EXPECT_EQ(redacted(R"("Pa\u002fss\u0026w\u0022rd")"), R"("***")");
    EXPECT_EQ(redacted("x=Pa%2Fss%26w%22rd&y"), "x=***&y");
    EXPECT_EQ(redacted("x=%50%61%2f%73%73%26%77%22%72%64&y"), "x=***&y");
    EXPECT_EQ(redacted("<b>Pa&#x2F;ss&amp;w&quot;rd</b>"), "<b>***</b>");
    EXPECT_EQ(redacted(R"(%25x\y %2525x\y)"), "*** ***"); // escapes within an encoded secret
    EXPECT_EQ(redacted("Pa/ss, Pa%2"),
              "Pa/ss, Pa%2"); // an incomplete secret; a cut below the minimum
    EXPECT_EQ(redacted("ends in Pa/s"), "ends in ***");     // a secret cut at the end
    EXPECT_EQ(redacted("ends in Pa%2Fs%7"), "ends in ***"); // cut within an escape
    EXPECT_EQ(redacted("ABC %61bc"), "ABC %61bc"); // shorter than the minimum for redaction
}

TEST(Secrets, AreRedactedFromBase64)
{
    const Secrets secrets = Secrets::parse("a = ??~>>password~~\nb = short\n");
    for (const std::string before : {"", "1", "12", "123", "user:"})
        for (const std::string after : {"", "4", "45", "456"}) {
            const std::string whole = before + "??~>>password~~" + after;
            std::string text =
                "Basic " +
                to_base64({reinterpret_cast<const unsigned char*>(whole.data()), whole.size()});
            std::string url = text;
            std::ranges::replace(url, '+', '-');
            std::ranges::replace(url, '/', '_');
            for (std::string* one : {&text, &url}) {
                secrets.redact(*one);
                // The remaining characters also encode bits of the text around the
                // secret.
                EXPECT_NE(one->find("***"), std::string::npos) << *one;
                EXPECT_LE(one->size(), std::string_view("Basic ***").size() + 4 +
                                           (before.size() + after.size()) * 2)
                    << *one;
                EXPECT_EQ(one->find("cGFzc3dv"), std::string::npos) << *one;
            }
        }
    std::string text = "c2hvcnQ="; // too short: its base64 form could occur in any text
    secrets.redact(text);
    EXPECT_EQ(text, "c2hvcnQ=");
}

class SecretsFile : public testing::Test {
protected:
    void SetUp() override
    {
        char name[] = "/tmp/outbox_secrets_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        directory_ = name;
        path_ = directory_ + "/secrets";
    }

    void TearDown() override { std::filesystem::remove_all(directory_); }

    void write(const std::string& text, mode_t mode = 0600)
    {
        std::ofstream(path_) << text;
        ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    }

    void expect_refused(const char* why)
    {
        const auto [sqlstate, text] = error_of([&] { Secrets::load(path_); });
        EXPECT_EQ(sqlstate, "F0000");
        EXPECT_NE(text.find(why), std::string::npos) << text;
        EXPECT_NE(text.find(path_), std::string::npos) << text;
        EXPECT_NE(text.back(), '|') << "an error without a hint";
    }

    std::string directory_;
    std::string path_;
};

TEST_F(SecretsFile, IsRead)
{
    write("a = 1\n" + std::string(200'000, '#') + "\nb = 2\n");
    EXPECT_EQ(Secrets::load(path_).resolve("${secret:a}${secret:b}"), "12");
    write("a = 1", 0400);
    EXPECT_NO_THROW(Secrets::load(path_));
}

TEST_F(SecretsFile, MustExist)
{
    expect_refused("No such file");
}

TEST_F(SecretsFile, MustBePrivate)
{
    for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601, 0644, 0666}) {
        write("a = 1", mode);
        expect_refused("group or world access");
    }
}

TEST_F(SecretsFile, MustNotBeALink)
{
    write("a = 1");
    const std::string link = directory_ + "/link";
    ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
    path_ = link;
    expect_refused("symbolic link");
}

TEST_F(SecretsFile, MustBeAFile)
{
    path_ = directory_;
    expect_refused("not a regular file");
}

TEST_F(SecretsFile, APipeDoesNotBlock)
{
    ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
    expect_refused("not a regular file");
}

TEST_F(SecretsFile, MustBelongToTheServersUser)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can give files away";
    write("a = 1");
    ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
    expect_refused("another user");
}

TEST_F(SecretsFile, MustNotBeHuge)
{
    const std::string mebibyte(1 << 20, '#');
    write(mebibyte);
    EXPECT_NO_THROW(Secrets::load(path_));
    write(mebibyte + "#");
    expect_refused("1 MiB");
}

} // namespace
