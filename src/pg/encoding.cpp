#include "pg/encoding.hpp"

#include "core/limits.hpp"

namespace outbox::pg {

Datum error_text_from_utf8(std::string_view text)
{
    const int length = pg_encoding_mbcliplen(PG_UTF8, text.data(), static_cast<int>(text.size()),
                                             limits::max_error_bytes);
    char* copy = pnstrdup(text.data(), static_cast<Size>(length));
    if (GetDatabaseEncoding() != PG_UTF8)
        for (char* at = copy; *at != '\0'; ++at)
            if (IS_HIGHBIT_SET(*at))
                *at = '?';
    return PointerGetDatum(cstring_to_text(copy));
}

char* replace_control_characters(char* text)
{
    for (char* at = text; *at != '\0'; ++at)
        if (static_cast<unsigned char>(*at) < ' ' || *at == 0x7F)
            *at = ' ';
    return text;
}

} // namespace outbox::pg
