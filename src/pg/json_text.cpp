// Mirrors JsonbToCString() and escape_json().
#include "pg/json_text.hpp"

namespace outbox::pg {

namespace {

bool has_to_be_escaped(char c)
{
    return static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\\';
}

void put_escaped(StringInfo out, char c)
{
    switch (c) {
    case '\b':
        appendStringInfoString(out, "\\b");
        break;
    case '\f':
        appendStringInfoString(out, "\\f");
        break;
    case '\n':
        appendStringInfoString(out, "\\n");
        break;
    case '\r':
        appendStringInfoString(out, "\\r");
        break;
    case '\t':
        appendStringInfoString(out, "\\t");
        break;
    case '"':
    case '\\':
        appendStringInfoChar(out, '\\');
        appendStringInfoChar(out, c);
        break;
    default:
        appendStringInfo(out, "\\u%04x", static_cast<unsigned>(c));
    }
}

void put_string(StringInfo out, const char* text, int length)
{
    const char* const end = text + length;
    appendStringInfoCharMacro(out, '"');
    while (text < end) {
        const char* piece = text;
        while (text < end && !has_to_be_escaped(*text))
            ++text;
        appendBinaryStringInfo(out, piece, static_cast<int>(text - piece));
        if (text < end)
            put_escaped(out, *text++);
    }
    appendStringInfoCharMacro(out, '"');
}

void put_scalar(StringInfo out, const JsonbValue& value)
{
    switch (value.type) {
    case jbvNull:
        appendBinaryStringInfo(out, "null", 4);
        break;
    case jbvString:
        put_string(out, value.val.string.val, value.val.string.len);
        break;
    case jbvNumeric:
        appendStringInfoString(out, DatumGetCString(DirectFunctionCall1(
                                        numeric_out, NumericGetDatum(value.val.numeric))));
        break;
    case jbvBool:
        if (value.val.boolean)
            appendBinaryStringInfo(out, "true", 4);
        else
            appendBinaryStringInfo(out, "false", 5);
        break;
    default:
        elog(ERROR, "unknown jsonb scalar type");
    }
}

} // namespace

std::string_view to_json_text(const Jsonb* json)
{
    StringInfoData out;
    initStringInfo(&out);
    enlargeStringInfo(&out, static_cast<int>(VARSIZE(json)));
    JsonbIterator* at = JsonbIteratorInit(const_cast<JsonbContainer*>(&json->root));
    const bool is_scalar = JB_ROOT_IS_SCALAR(json);
    bool is_first = true; // in its container, or behind its key
    const auto separate = [&] {
        if (!is_first)
            appendBinaryStringInfo(&out, ", ", 2);
    };
    JsonbValue value;
    for (;;) {
        switch (JsonbIteratorNext(&at, &value, false)) {
        case WJB_BEGIN_ARRAY:
        case WJB_BEGIN_OBJECT:
            separate();
            if (!is_scalar)
                appendStringInfoCharMacro(&out, value.type == jbvArray ? '[' : '{');
            is_first = true;
            break;
        case WJB_KEY:
            separate();
            put_string(&out, value.val.string.val, value.val.string.len);
            appendBinaryStringInfo(&out, ": ", 2);
            is_first = true;
            break;
        case WJB_VALUE:
        case WJB_ELEM:
            separate();
            put_scalar(&out, value);
            is_first = false;
            break;
        case WJB_END_ARRAY:
            if (!is_scalar)
                appendStringInfoCharMacro(&out, ']');
            is_first = false;
            break;
        case WJB_END_OBJECT:
            appendStringInfoCharMacro(&out, '}');
            is_first = false;
            break;
        case WJB_DONE:
            return {out.data, static_cast<std::size_t>(out.len)};
        }
    }
}

} // namespace outbox::pg
