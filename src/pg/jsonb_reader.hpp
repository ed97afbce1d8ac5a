// Reads jsonb in place. JsonbIterator copies each value, which takes as long as most processing of
// the value.
#pragma once

#include "pg/postgres.hpp"

#include <string_view>

namespace outbox::pg {

// A key or a value in a container, in the memory of the jsonb.
struct JsonbEntry {
    JEntry entry;
    std::string_view bytes;

    uint32 type() const { return entry & JENTRY_TYPEMASK; }
    bool is_container() const { return JBE_ISCONTAINER(entry); }

    // Returns the container in place. The caller has checked is_container().
    const JsonbContainer* container() const
    {
        return reinterpret_cast<const JsonbContainer*>(aligned());
    }

    // Returns the text of a number, palloc'd. The caller has checked type().
    char* number_text() const
    {
        return DatumGetCString(
            DirectFunctionCall1(numeric_out, PointerGetDatum(reinterpret_cast<void*>(aligned()))));
    }

private:
    // Containers and numbers are aligned to four bytes; strings are not.
    uintptr_t aligned() const { return INTALIGN(bytes.data()); }
};

// Iterates over the entries of a container. In an object all keys precede all values.
struct JsonbEntryReader {
    const JEntry* next_entry;
    const char* base; // start of the container's data
    uint32 offset;    // of the next entry, from base

    // Returns the next entry. The caller knows that there is one.
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

// Returns a reader at the first entry of a container.
inline JsonbEntryReader entries_of(const JsonbContainer* container)
{
    const uint32 count = JsonContainerSize(container);
    const uint32 entries = JsonContainerIsObject(container) ? 2 * count : count;
    return {container->children, reinterpret_cast<const char*>(container->children + entries), 0};
}

} // namespace outbox::pg
