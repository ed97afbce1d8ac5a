#include "consumer/aggregate_set.hpp"

#include "pg/datum.hpp"

extern "C" {
#include "utils/hsearch.h"
}

namespace outbox {

namespace {

// A 128-bit hash of the aggregate: wide enough to ignore collisions.
struct AggregateKey {
    uint64 halves[2];
};

AggregateKey aggregate_key_of(const Message& message)
{
    AggregateKey key;
    for (uint64 seed = 0; seed < 2; ++seed) {
        uint64 hash = seed;
        for (const Column column : {col_aggregate_type, col_aggregate_id}) {
            const std::string_view bytes = pg::to_view(message.values[column]);
            hash = DatumGetUInt64(
                hash_any_extended(reinterpret_cast<const unsigned char*>(bytes.data()),
                                  static_cast<int>(bytes.size()), hash));
        }
        key.halves[seed] = hash;
    }
    return key;
}

} // namespace

void AggregateSet::add(const Message& message)
{
    if (table_ == nullptr) {
        HASHCTL shape = {};
        shape.keysize = sizeof(AggregateKey);
        shape.entrysize = sizeof(AggregateKey);
        shape.hcxt = CurrentMemoryContext;
        table_ = hash_create("outbox blocked aggregates", 64, &shape,
                             HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
    }
    const AggregateKey key = aggregate_key_of(message);
    (void)hash_search(table_, &key, HASH_ENTER, nullptr);
}

bool AggregateSet::contains(const Message& message) const
{
    if (table_ == nullptr)
        return false;
    const AggregateKey key = aggregate_key_of(message);
    return hash_search(table_, &key, HASH_FIND, nullptr) != nullptr;
}

} // namespace outbox
