// Regular expressions translated for the server. The result is read here as the server's manual
// describes it, and must have no syntax that ECMA-262 does not have.
#include "core/schema/regex_translate.hpp"

#include "fuzz.hpp"

#include <stdexcept>

namespace outbox::fuzz {

class Reader {
public:
    explicit Reader(std::string_view pattern) : left_(pattern) {}

    void read()
    {
        must(!left_.starts_with("***"), "no pattern has a director in front");
        must(!left_.starts_with("(?") || is_group(left_), "no pattern has options in front");
        while (!left_.empty())
            read_one();
    }

private:
    static bool is_group(std::string_view text)
    {
        return std::ranges::any_of(
            std::initializer_list<std::string_view>{"(?:", "(?=", "(?!", "(?<=", "(?<!"},
            [&](std::string_view known) { return text.starts_with(known); });
    }

    void read_one()
    {
        if (left_[0] == '(') {
            must(!left_.starts_with("(?") || is_group(left_), "groups are of a known kind");
            left_.remove_prefix(1);
        } else if (left_[0] == '\\') {
            read_escape("dDwWsSfnrtvyYu");
        } else if (left_[0] == '[') {
            read_bracket();
        } else {
            must(left_[0] != '.', "a dot is translated to a class");
            left_.remove_prefix(1);
        }
    }

    void read_escape(std::string_view letters)
    {
        must(left_.size() > 1, "no escape ends with the pattern");
        const char c = left_[1];
        const bool is_alphanumeric =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        must(!is_alphanumeric || letters.find(c) != std::string_view::npos,
             "escapes have the same meaning in the server");
        left_.remove_prefix(2);
        if (c != 'u')
            return;
        const std::string digits(left_.substr(0, 4));
        must(digits.size() == 4 &&
                 digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos,
             "\\u has four digits");
        left_.remove_prefix(4);
    }

    void read_bracket()
    {
        left_.remove_prefix(left_.starts_with("[^") ? 2 : 1);
        must(!left_.starts_with(']'), "a bracket expression is not empty");
        while (!left_.starts_with(']')) {
            must(!left_.empty(), "a bracket expression is closed");
            must(left_[0] != '[', "a bracket expression has no named class");
            if (left_[0] == '\\')
                read_escape("dDwWsSfnrtvbu");
            else
                left_.remove_prefix(1);
        }
        left_.remove_prefix(1);
    }

    std::string_view left_;
};

void try_one(std::string_view input)
{
    std::string translated;
    try {
        translated = to_postgres_regex(input);
    } catch (const std::invalid_argument& error) {
        must(*error.what() != '\0', "a refusal has a reason");
        return;
    }
    Reader(translated).read();
    if (input.find_first_of("\\[(.") == std::string_view::npos)
        must(translated == input, "a pattern with the same meaning is unchanged");
}

} // namespace outbox::fuzz
