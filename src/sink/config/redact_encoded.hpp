#pragma once

#include <string_view>
#include <vector>

namespace outbox::sink {

// Secrets shorter than this are not looked for: little else would be left to read.
inline constexpr std::size_t min_secret_bytes = 4;

// Marks the bytes of a text that are a secret: as it is, or as receivers write down what was sent
// to them, which is in other case, escaped for JSON, URLs or HTML, or as base64. The beginning of a
// secret counts where the text ends, for it may have been cut there.
void mark_encoded_secret(std::string_view text, std::string_view secret, std::vector<bool>& marked);

} // namespace outbox::sink
