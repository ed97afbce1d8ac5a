// Mirrors JsonbToCString() and escape_json().
#include "pg/jsonb_text.hpp"

#include "pg/jsonb_reader.hpp"
#include "pg/palloc_vector.hpp"

#include <cstring>

namespace outbox::pg {

namespace {

// ---- writing

char* make_room(StringInfo out, std::size_t bytes)
{
    if (static_cast<std::size_t>(out->maxlen - out->len) <= bytes)
        enlargeStringInfo(out, static_cast<int>(bytes));
    return out->data + out->len;
}

void put(StringInfo out, std::string_view text)
{
    std::memcpy(make_room(out, text.size()), text.data(), text.size());
    out->len += static_cast<int>(text.size());
}

bool has_to_be_escaped(char c)
{
    return static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\\';
}

// How many of the first bytes stay as they are. Eight at a time: the high bit of each byte says
// whether it is 0 after the subtraction, or below a space.
std::size_t count_plain(std::string_view text)
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
    while (at < text.size() && !has_to_be_escaped(text[at]))
        ++at;
    return at;
}

void put_escaped(StringInfo out, char c)
{
    switch (c) {
    case '\b':
        put(out, "\\b");
        break;
    case '\f':
        put(out, "\\f");
        break;
    case '\n':
        put(out, "\\n");
        break;
    case '\r':
        put(out, "\\r");
        break;
    case '\t':
        put(out, "\\t");
        break;
    case '"':
        put(out, "\\\"");
        break;
    case '\\':
        put(out, "\\\\");
        break;
    default:
        appendStringInfo(out, "\\u%04x", static_cast<unsigned>(c));
    }
}

void put_string(StringInfo out, std::string_view text)
{
    put(out, "\"");
    for (;;) {
        const std::size_t plain = count_plain(text);
        put(out, text.substr(0, plain));
        if (plain == text.size())
            break;
        put_escaped(out, text[plain]);
        text.remove_prefix(plain + 1);
    }
    put(out, "\"");
}

// A container that is being written.
struct Level {
    JsonEntries keys; // of an object
    JsonEntries values;
    uint32 left;
    bool is_object;
    bool is_bare; // a scalar is an array of one, without the brackets
    bool is_first = true;
};

Level open(const JsonbContainer* container)
{
    Level level;
    level.left = JsonContainerSize(container);
    level.is_object = JsonContainerIsObject(container);
    level.is_bare = JsonContainerIsScalar(container);
    level.keys = level.values = children_of(container);
    if (level.is_object)
        level.values.skip(level.left);
    return level;
}

void put_scalar(StringInfo out, const JsonEntry& value)
{
    switch (value.type()) {
    case JENTRY_ISNULL:
        put(out, "null");
        break;
    case JENTRY_ISSTRING:
        put_string(out, value.bytes);
        break;
    case JENTRY_ISNUMERIC:
        put(out, value.digits());
        break;
    case JENTRY_ISBOOL_TRUE:
        put(out, "true");
        break;
    case JENTRY_ISBOOL_FALSE:
        put(out, "false");
        break;
    default:
        elog(ERROR, "unknown jsonb scalar type");
    }
}

} // namespace

// A stack of its own: how deep an event is nested must not depend on who writes it down.
std::string_view to_json_text(const Jsonb* json)
{
    StringInfoData out;
    initStringInfo(&out);
    enlargeStringInfo(&out, static_cast<int>(VARSIZE(json)));
    PallocVector<Level> levels;
    const auto enter = [&](const JsonbContainer* container) {
        levels.push(open(container));
        const Level& level = levels[levels.size() - 1];
        if (!level.is_bare)
            put(&out, level.is_object ? "{" : "[");
    };
    enter(&json->root);
    while (!levels.empty()) {
        Level& level = levels[levels.size() - 1];
        if (level.left == 0) {
            if (!level.is_bare)
                put(&out, level.is_object ? "}" : "]");
            levels.set_size(levels.size() - 1);
            continue;
        }
        if (!level.is_first)
            put(&out, ", ");
        level.is_first = false;
        --level.left;
        if (level.is_object) {
            put_string(&out, level.keys.take().bytes);
            put(&out, ": ");
        }
        const JsonEntry value = level.values.take();
        if (value.is_container())
            enter(value.container());
        else
            put_scalar(&out, value);
    }
    return {out.data, static_cast<std::size_t>(out.len)};
}

} // namespace outbox::pg
