#include "pg/key_lock.hpp"

namespace outbox::pg {

namespace {

// Users' advisory locks have 1 or 2 here.
constexpr uint16 our_space = 0x4F42;

LOCKTAG tag_of(uint64 hash)
{
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(hash >> 32),
                         static_cast<uint32>(hash), our_space);
    return tag;
}

} // namespace

void lock_key(uint64 hash)
{
    const LOCKTAG tag = tag_of(hash);
    (void)LockAcquire(&tag, ExclusiveLock, false, false);
}

void unlock_key(uint64 hash)
{
    const LOCKTAG tag = tag_of(hash);
    (void)LockRelease(&tag, ExclusiveLock, false);
}

} // namespace outbox::pg
