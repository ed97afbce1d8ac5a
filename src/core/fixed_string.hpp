// A text of limited length in memory of its own: it outlives what it was taken from, and a longjmp
// may pass over it.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

namespace outbox {

template <std::size_t size>
class FixedString {
public:
    FixedString() = default;
    explicit FixedString(std::string_view text) // UTF-8, of which no character is cut in two
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
