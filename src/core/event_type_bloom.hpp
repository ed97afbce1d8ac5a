#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace outbox {

// Bloom filter of event types with one hash function and 256 bits: the types that a transaction
// enqueues, and the types that a sink wants. intersects() may return true for sets without a common
// type; it never returns false for sets with one. A false positive costs one needless wake-up.
struct EventTypeBloom {
    static constexpr std::size_t word_count = 4;
    std::uint64_t words[word_count] = {};

    // Returns the set of every event type: for a sink without a filter.
    static constexpr EventTypeBloom all() noexcept
    {
        EventTypeBloom set;
        for (std::uint64_t& word : set.words)
            word = ~std::uint64_t{0};
        return set;
    }

    // Sets the bit of an event type.
    constexpr void add(std::string_view event_type) noexcept
    {
        // FNV-1a
        std::uint64_t hash = 14695981039346656037u;
        for (const char c : event_type)
            hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
        hash ^= hash >> 32;
        words[hash / 64 % word_count] |= std::uint64_t{1} << (hash % 64);
    }

    constexpr void add(const EventTypeBloom& other) noexcept
    {
        for (std::size_t i = 0; i < word_count; ++i)
            words[i] |= other.words[i];
    }

    // Returns false only if the sets have no event type in common; true may be a false positive.
    constexpr bool intersects(const EventTypeBloom& other) const noexcept
    {
        for (std::size_t i = 0; i < word_count; ++i)
            if ((words[i] & other.words[i]) != 0)
                return true;
        return false;
    }
};

} // namespace outbox
