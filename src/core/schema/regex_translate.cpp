#include "core/schema/regex_translate.hpp"

#include <cctype>
#include <stdexcept>

namespace outbox {

namespace {

// Translates one pattern. Its functions throw std::invalid_argument with the reason.
class RegexTranslator {
public:
    explicit RegexTranslator(std::string_view pattern) : in_(pattern) {}

    // Returns the pattern in the server's syntax. Call once.
    std::string translate()
    {
        // The directors ***: and ***= would select another syntax for the rest of the pattern.
        if (in_.starts_with("***"))
            raise_unsupported("*** at its beginning");
        while (at_ < in_.size())
            translate_one();
        return std::move(out_);
    }

private:
    [[noreturn]] static void raise_unsupported(const std::string& what)
    {
        throw std::invalid_argument("a pattern with " + what + " is not supported");
    }

    // Returns the next character and moves past it. Throws at the end of the pattern.
    char next()
    {
        if (at_ == in_.size())
            throw std::invalid_argument("the pattern is not complete");
        return in_[at_++];
    }

    // Translates one character, or the construct that it begins, into `out_`.
    void translate_one()
    {
        const char c = next();
        switch (c) {
        case '\\':
            translate_escape(false);
            break;
        case '[':
            translate_bracket();
            break;
        case '.':
            out_ += "[^\\n\\r\\u2028\\u2029]";
            break;
        case '(':
            translate_group();
            break;
        default:
            out_ += c;
        }
    }

    // Translates the beginning of a group, whose ( was read. Throws for a named group and for
    // options.
    void translate_group()
    {
        out_ += '(';
        if (at_ == in_.size() || in_[at_] != '?')
            return;
        for (const std::string_view known : {"?:", "?=", "?!", "?<=", "?<!"})
            if (in_.substr(at_).starts_with(known)) {
                out_ += known;
                at_ += known.size();
                return;
            }
        raise_unsupported("a named group or with options");
    }

    // Translates a bracket expression, whose [ was read, up to its ].
    void translate_bracket()
    {
        out_ += '[';
        if (at_ < in_.size() && in_[at_] == '^')
            out_ += in_[at_++];
        if (at_ < in_.size() && in_[at_] == ']')
            raise_unsupported("an empty []");
        for (char c = next(); c != ']'; c = next()) {
            if (c == '\\')
                translate_escape(true);
            else if (c == '[')
                out_ += "\\["; // literal: the server would begin a class such as [:alpha:]
            else
                out_ += c;
        }
        out_ += ']';
    }

    // Translates an escape, whose backslash was read. In a bracket, \b is a backspace and \B
    // throws. Throws std::invalid_argument for all letters and digits not listed here, such as \c
    // and \1.
    void translate_escape(bool in_bracket)
    {
        const char c = next();
        switch (c) {
        case 'd':
        case 'D':
        case 'w':
        case 'W':
        case 's':
        case 'S':
        case 'f':
        case 'n':
        case 'r':
        case 't':
        case 'v':
            out_ += {'\\', c};
            return;
        case 'b':
            out_ += in_bracket ? "\\b" : "\\y"; // backspace inside brackets, else a word boundary
            return;
        case 'B':
            if (in_bracket)
                break;
            out_ += "\\Y";
            return;
        case 'x':
            out_ += "\\u00";
            copy_hex_digits(2);
            return;
        case 'u':
            out_ += "\\u";
            copy_hex_digits(4);
            return;
        default:
            if (std::isalnum(static_cast<unsigned char>(c)))
                break;
            out_ += {'\\', c};
            return;
        }
        raise_unsupported(std::string("the escape \\") + c);
    }

    // Appends the next `count` characters. Throws if one is no hex digit.
    void copy_hex_digits(int count)
    {
        for (; count > 0; --count) {
            const char c = next();
            if (!std::isxdigit(static_cast<unsigned char>(c)))
                throw std::invalid_argument("\\x and \\u need two and four hex digits");
            out_ += c;
        }
    }

    std::string_view in_;
    std::size_t at_ = 0;
    std::string out_;
};

} // namespace

std::string to_postgres_regex(std::string_view pattern)
{
    return RegexTranslator(pattern).translate();
}

} // namespace outbox
