// A string of limited length, stored inline. It has no destructor, so a longjmp may cross its
// frame, and it does not refer to the text from which it was made.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

namespace outbox {

// Holds up to `size` - 1 bytes and a terminating zero.
template <std::size_t size>
class FixedString {
public:
    FixedString() = default;

    // Copies UTF-8 text; longer text is truncated at the boundary of a character.
    explicit FixedString(std::string_view text)
    {
        std::size_t length = std::min(text.size(), size - 1);
        if (length < text.size())
            while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
                --length;
        std::memcpy(text_, text.data(), length);
        text_[length] = '\0';
    }

    const char* text() const { return text_; }

private:
    char text_[size] = {};
};

} // namespace outbox
