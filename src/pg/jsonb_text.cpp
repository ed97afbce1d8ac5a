// Mirrors JsonbToCString() and escape_json().
#include "pg/jsonb_text.hpp"

#include "pg/jsonb_reader.hpp"
#include "pg/palloc_vector.hpp"

#include <cstring>

namespace outbox::pg {

namespace {

// ---- writing

// Makes room for `bytes` and a terminating zero. Returns the end of the text.
char* reserve(StringInfo out, std::size_t bytes)
{
    if (static_cast<std::size_t>(out->maxlen - out->len) <= bytes)
        enlargeStringInfo(out, static_cast<int>(bytes));
    return out->data + out->len;
}

// Appends text without a terminating zero.
void append(StringInfo out, std::string_view text)
{
    std::memcpy(reserve(out, text.size()), text.data(), text.size());
    out->len += static_cast<int>(text.size());
}

bool needs_escape(char c)
{
    return static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\\';
}

// Returns the length of the prefix that needs no escape. Tests eight bytes at a time: the high bit
// of a byte in `found` is set if it is a quote, a backslash or a control character.
std::size_t count_unescaped(std::string_view text)
{
    constexpr uint64 ones = 0x0101010101010101;
    constexpr uint64 high_bits = ones * 0x80;
    const auto has_zero = [](uint64 bytes) { return (bytes - ones) & ~bytes; };
    std::size_t at = 0;
    for (; at + sizeof(uint64) <= text.size(); at += sizeof(uint64)) {
        uint64 bytes;
        std::memcpy(&bytes, text.data() + at, sizeof(bytes));
        const uint64 found = (has_zero(bytes ^ ones * '"') | has_zero(bytes ^ ones * '\\') |
                              ((bytes - ones * ' ') & ~bytes)) &
                             high_bits;
        if (found != 0)
            break;
    }
    while (at < text.size() && !needs_escape(text[at]))
        ++at;
    return at;
}

// Appends the escape of one character.
void append_escaped(StringInfo out, char c)
{
    switch (c) {
    case '\b':
        append(out, "\\b");
        break;
    case '\f':
        append(out, "\\f");
        break;
    case '\n':
        append(out, "\\n");
        break;
    case '\r':
        append(out, "\\r");
        break;
    case '\t':
        append(out, "\\t");
        break;
    case '"':
        append(out, "\\\"");
        break;
    case '\\':
        append(out, "\\\\");
        break;
    default:
        appendStringInfo(out, "\\u%04x", static_cast<unsigned>(c));
    }
}

// Appends a JSON string with quotes and escapes.
void append_string(StringInfo out, std::string_view text)
{
    append(out, "\"");
    for (;;) {
        const std::size_t unescaped = count_unescaped(text);
        append(out, text.substr(0, unescaped));
        if (unescaped == text.size())
            break;
        append_escaped(out, text[unescaped]);
        text.remove_prefix(unescaped + 1);
    }
    append(out, "\"");
}

// A container whose entries are being written.
struct OpenContainer {
    JsonbEntryReader keys; // of an object
    JsonbEntryReader values;
    uint32 remaining;
    bool is_object;
    bool is_scalar; // a top-level scalar is stored as an array of one, and written without brackets
    bool is_first = true;
};

// Returns readers at the first key and value of a container. Appends nothing.
OpenContainer open_container(const JsonbContainer* container)
{
    OpenContainer top;
    top.remaining = JsonContainerSize(container);
    top.is_object = JsonContainerIsObject(container);
    top.is_scalar = JsonContainerIsScalar(container);
    top.keys = top.values = entries_of(container);
    if (top.is_object)
        top.values.skip(top.remaining);
    return top;
}

// Appends a value that is no container.
void append_scalar(StringInfo out, const JsonbEntry& value)
{
    switch (value.type()) {
    case JENTRY_ISNULL:
        append(out, "null");
        break;
    case JENTRY_ISSTRING:
        append_string(out, value.bytes);
        break;
    case JENTRY_ISNUMERIC:
        append(out, value.number_text());
        break;
    case JENTRY_ISBOOL_TRUE:
        append(out, "true");
        break;
    case JENTRY_ISBOOL_FALSE:
        append(out, "false");
        break;
    default:
        elog(ERROR, "unknown jsonb scalar type");
    }
}

} // namespace

// Uses an explicit stack: nested jsonb that one session could enqueue must not exceed another
// process's max_stack_depth.
std::string_view jsonb_to_text(const Jsonb* json)
{
    StringInfoData out;
    initStringInfo(&out);
    enlargeStringInfo(&out, static_cast<int>(VARSIZE(json)));
    PallocVector<OpenContainer> stack;
    const auto enter_container = [&](const JsonbContainer* container) {
        stack.push(open_container(container));
        const OpenContainer& top = stack[stack.size() - 1];
        if (!top.is_scalar)
            append(&out, top.is_object ? "{" : "[");
    };
    enter_container(&json->root);
    while (!stack.empty()) {
        OpenContainer& top = stack[stack.size() - 1];
        if (top.remaining == 0) {
            if (!top.is_scalar)
                append(&out, top.is_object ? "}" : "]");
            stack.set_size(stack.size() - 1);
            continue;
        }
        if (!top.is_first)
            append(&out, ", ");
        top.is_first = false;
        --top.remaining;
        if (top.is_object) {
            append_string(&out, top.keys.next().bytes);
            append(&out, ": ");
        }
        const JsonbEntry value = top.values.next();
        if (value.is_container())
            enter_container(value.container());
        else
            append_scalar(&out, value);
    }
    return {out.data, static_cast<std::size_t>(out.len)};
}

} // namespace outbox::pg
