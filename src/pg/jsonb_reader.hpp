// Reading jsonb where it lies. The server's iterator copies every value first, which takes as long
// as most of what is done with them.
#pragma once

#include "pg/postgres.hpp"

#include <string_view>

namespace outbox::pg {

// A key or a value in a container.
struct JsonbEntry {
    JEntry entry;
    std::string_view bytes;

    uint32 type() const { return entry & JENTRY_TYPEMASK; }
    bool is_container() const { return JBE_ISCONTAINER(entry); }

    const JsonbContainer* container() const
    {
        return reinterpret_cast<const JsonbContainer*>(aligned());
    }

    // Of a number, in memory of their own.
    char* number_text() const
    {
        return DatumGetCString(
            DirectFunctionCall1(numeric_out, PointerGetDatum(reinterpret_cast<void*>(aligned()))));
    }

private:
    // What is not text begins at a multiple of four.
    uintptr_t aligned() const { return INTALIGN(bytes.data()); }
};

// The entries of a container are in one array: in that of an object all keys come first.
struct JsonbEntryReader {
    const JEntry* next_entry;
    const char* base; // offsets count from here
    uint32 offset;    // of the next one

    JsonbEntry next()
    {
        const JEntry entry = *next_entry++;
        const uint32 start = offset;
        JBE_ADVANCE_OFFSET(offset, entry);
        return {entry, {base + start, offset - start}};
    }

    void skip(uint32 count)
    {
        for (; count > 0; --count)
            JBE_ADVANCE_OFFSET(offset, *next_entry++);
    }
};

inline JsonbEntryReader entries_of(const JsonbContainer* container)
{
    const uint32 count = JsonContainerSize(container);
    const uint32 entries = JsonContainerIsObject(container) ? 2 * count : count;
    return {container->children, reinterpret_cast<const char*>(container->children + entries), 0};
}

} // namespace outbox::pg
