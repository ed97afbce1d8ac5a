#include "sink/config/redact_encoded.hpp"

#include "sink/format/encoding.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace outbox::sink {

namespace {

// Length in characters from which base64 of a secret is not a coincidence.
constexpr std::size_t min_base64_length = 8;

// HTML entity and the character that it stands for.
struct Entity {
    std::string_view text;
    char meaning;
};

constexpr Entity entities[] = {
    {"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},    {"&quot;", '"'}, {"&#34;", '"'},
    {"&#39;", '\''}, {"&#x27;", '\''}, {"&apos;", '\''}, {"&#x2F;", '/'}, {"&#47;", '/'},
};
constexpr std::size_t max_escape_length = 6; // of &quot;

// Returns true if `digits` are two hex digits, upper or lower case, that encode the byte `wanted`.
bool is_hex_of(std::string_view digits, char wanted)
{
    unsigned value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    return digits.size() == 2 && error == std::errc{} && end == digits.data() + 2 &&
           value == static_cast<unsigned char>(wanted);
}

char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns how many bytes at the start of the text encode this character: literally, in other case,
// or escaped for JSON, URLs or HTML; 0 if none do.
std::size_t encoded_char_length(std::string_view text, char wanted)
{
    if (text.starts_with("\\u00") && is_hex_of(text.substr(4, 2), wanted))
        return 6;
    if (text.starts_with('%') && is_hex_of(text.substr(1, 2), wanted))
        return 3;
    for (const Entity& entity : entities)
        if (entity.meaning == wanted && text.starts_with(entity.text))
            return entity.text.size();
    if (text.size() > 1 && text[0] == '\\' && text[1] == wanted)
        return 2;
    return !text.empty() && ascii_lower(text[0]) == ascii_lower(wanted) ? 1 : 0;
}

// Returns true if the text, which is not empty, may be an escape that was cut: it begins like one
// and is shorter than the longest.
bool is_truncated_escape(std::string_view text)
{
    return text.size() < max_escape_length && std::string_view("\\%&").find(text[0]) != text.npos;
}

// Returns how many bytes at the start of the text encode the secret, or encode a prefix of it that
// ends with the text; 0 if none do.
std::size_t encoded_length(std::string_view text, std::string_view secret)
{
    std::size_t length = 0;
    for (std::size_t i = 0; i < secret.size(); ++i) {
        const std::string_view rest = text.substr(length);
        const std::size_t next = encoded_char_length(rest, secret[i]);
        if (next == 0 && i >= min_secret_bytes && (rest.empty() || is_truncated_escape(rest)))
            return text.size();
        if (next == 0)
            return 0;
        length += next;
    }
    return length;
}

// Sets marked[at] and the following, `length` in all.
void mark(std::vector<bool>& marked, std::size_t at, std::size_t length)
{
    std::fill_n(marked.begin() + static_cast<std::ptrdiff_t>(at), length, true);
}

// Marks literal occurrences of `wanted`, and its longest prefix of at least min_length that ends
// the text.
void mark_text(std::string_view text, std::string_view wanted, std::size_t min_length,
               std::vector<bool>& marked)
{
    for (auto at = text.find(wanted); at != text.npos; at = text.find(wanted, at + 1))
        mark(marked, at, wanted.size());
    const std::size_t max_length = std::min(wanted.size(), text.size());
    for (std::size_t length = max_length; length >= min_length; --length)
        if (text.ends_with(wanted.substr(0, length))) {
            mark(marked, text.size() - length, length);
            return;
        }
}

// Returns the base64 of a secret that has `before` (0 to 2) bytes in front of it in its group of
// three. Characters that also encode bits of the surrounding bytes are left out.
std::string base64_at_offset(std::string_view secret, std::size_t before)
{
    constexpr std::size_t mixed[] = {0, 2, 3};
    std::vector<unsigned char> bytes(before + secret.size());
    std::ranges::copy(secret, bytes.begin() + static_cast<std::ptrdiff_t>(before));
    const std::size_t whole = bytes.size() * 8 / 6;
    return to_base64(bytes).substr(mixed[before], whole - mixed[before]);
}

} // namespace

void mark_encoded_secret(std::string_view text, std::string_view secret, std::vector<bool>& marked)
{
    if (secret.size() < min_secret_bytes)
        return;
    mark_text(text, secret, min_secret_bytes, marked);
    for (std::size_t at = 0; at < text.size(); ++at)
        if (const std::size_t length = encoded_length(text.substr(at), secret))
            mark(marked, at, length);
    for (std::size_t before = 0; before < 3; ++before) {
        std::string encoded = base64_at_offset(secret, before);
        if (encoded.size() < min_base64_length)
            continue;
        mark_text(text, encoded, min_base64_length, marked);
        // base64url
        std::ranges::replace(encoded, '+', '-');
        std::ranges::replace(encoded, '/', '_');
        mark_text(text, encoded, min_base64_length, marked);
    }
}

} // namespace outbox::sink
