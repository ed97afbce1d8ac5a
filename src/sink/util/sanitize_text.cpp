#include "sink/util/sanitize_text.hpp"

#include <cstddef>

namespace outbox::sink {

namespace {

// Returns the bytes of the valid UTF-8 character at the start of the text; 0 if there is none.
std::size_t character_length(std::string_view text)
{
    const auto byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
    const unsigned first = byte(0);
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return continues(1) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        // Refuses overlong forms and surrogates.
        const bool fits = !(first == 0xE0 && byte(1) < 0xA0) && !(first == 0xED && byte(1) > 0x9F);
        return fits && continues(1) && continues(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const bool fits = !(first == 0xF0 && byte(1) < 0x90) && !(first == 0xF4 && byte(1) > 0x8F);
        return fits && continues(1) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

// Returns true for controls of ASCII and Latin-1, separators of lines and paragraphs, and
// bidirectional controls. `character` is one valid UTF-8 character.
bool is_control(std::string_view character)
{
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1)
        return first < 0x20 || first == 0x7F;
    // U+0080 to U+009F, line and paragraph separators, and bidirectional controls.
    return (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0) ||
           character == "\xD8\x9C" ||
           (character >= "\xE2\x80\x8E" && character <= "\xE2\x80\x8F") ||
           (character >= "\xE2\x80\xA8" && character <= "\xE2\x80\xAE") ||
           (character >= "\xE2\x81\xA6" && character <= "\xE2\x81\xA9");
}

} // namespace

std::string sanitize_text(std::string_view text)
{
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t length = character_length(text);
        if (length == 0) {
            out += '?';
        } else if (is_control(text.substr(0, length))) {
            out += ' ';
        } else {
            out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    while (!out.empty() && out.back() == ' ')
        out.pop_back();
    return out;
}

} // namespace outbox::sink
