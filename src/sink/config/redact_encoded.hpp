#pragma once

#include <string_view>
#include <vector>

namespace outbox::sink {

// Shorter secrets are not redacted: they would match almost any text. In bytes.
inline constexpr std::size_t min_secret_bytes = 4;

// Sets marked[i] for each byte of `text` that belongs to the secret: literally, in other case,
// escaped for JSON, URLs or HTML, or in base64, because receivers echo requests in such forms. At
// the end of the text a prefix of the secret counts, because the text may have been cut there.
void mark_encoded_secret(std::string_view text, std::string_view secret, std::vector<bool>& marked);

} // namespace outbox::sink
