// jsonb as text, written by the relay's own function; a test compares it with the server's output.
#include "pg/jsonb_text.hpp"

#include "pg/exceptions.hpp"

OUTBOX_SQL_FUNCTION(json_text)
{
    return outbox::pg::sql_entry([&] {
        const std::string_view text = outbox::pg::jsonb_to_text(PG_GETARG_JSONB_P(0));
        return PointerGetDatum(
            cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
    });
}
