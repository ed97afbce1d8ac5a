#include "extension/locks.hpp"

#include "pg/subtransaction.hpp"

extern "C" {
#include "storage/proc.h"
#include "utils/resowner.h"
}

#include <optional>

namespace outbox::pg {

namespace {

// Users' advisory locks have 1 or 2 here.
enum Space : uint16 { keys = 0x4F42, consumers = 0x4F43, partitions = 0x4F44, attempts = 0x4F45 };

std::optional<int32> held_consumer;

LOCKTAG tag_of(Space space, uint32 first, uint32 second)
{
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, first, second, space);
    return tag;
}

LOCKTAG tag_of_hash(Space space, uint64 hash)
{
    return tag_of(space, static_cast<uint32>(hash >> 32), static_cast<uint32>(hash));
}

LOCKTAG tag_of_consumer(int32 consumer)
{
    return tag_of(consumers, static_cast<uint32>(consumer), 0);
}

// Runs `body` so that locks belong to the transaction, not to the statement that is being run: a
// lock that was waited for in a subtransaction does in any case, and all are to be found there.
template <typename Body>
auto for_transaction(Body&& body) -> decltype(body())
{
    const ResourceOwner statement = CurrentResourceOwner;
    CurrentResourceOwner = CurTransactionResourceOwner;
    const auto result = body();
    CurrentResourceOwner = statement;
    return result;
}

bool try_lock(const LOCKTAG& tag)
{
    return for_transaction(
        [&] { return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL; });
}

// lock_timeout, but only shorter than it is.
void limit_lock_timeout(int milliseconds)
{
    if (LockTimeout > 0 && LockTimeout < milliseconds)
        return;
    char value[16];
    snprintf(value, sizeof(value), "%d", milliseconds);
    (void)set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                            true, 0, false);
}

// A subtransaction, because a wait that times out raises an error. It costs something, and only
// those who must wait pay it.
bool lock_within(const LOCKTAG& tag, int milliseconds)
{
    if (try_lock(tag))
        return true;
    if (milliseconds == 0)
        return false;

    const int settings = NewGUCNestLevel();
    limit_lock_timeout(milliseconds);
    ErrorData* error =
        in_subtransaction([&] { (void)LockAcquire(&tag, ExclusiveLock, false, false); });
    AtEOXact_GUC(false, settings);
    if (error != nullptr && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
        ReThrowError(error);
    return error == nullptr;
}

void give_back(const LOCKTAG& tag)
{
    (void)for_transaction([&] { return LockRelease(&tag, ExclusiveLock, false); });
}

} // namespace

void lock_key(uint64 hash)
{
    const LOCKTAG tag = tag_of_hash(keys, hash);
    (void)LockAcquire(&tag, ExclusiveLock, false, false);
}

void unlock_key(uint64 hash)
{
    const LOCKTAG tag = tag_of_hash(keys, hash);
    (void)LockRelease(&tag, ExclusiveLock, false);
}

bool lock_consumer(int32 consumer, int milliseconds)
{
    return lock_within(tag_of_consumer(consumer), milliseconds);
}

bool lock_attempt(uint64 hash, int milliseconds)
{
    return lock_within(tag_of_hash(attempts, hash), milliseconds);
}

void unlock_attempt(uint64 hash)
{
    give_back(tag_of_hash(attempts, hash));
}

void lock_consumer(int32 consumer)
{
    const LOCKTAG tag = tag_of_consumer(consumer);
    (void)for_transaction([&] { return LockAcquire(&tag, ExclusiveLock, false, false); });
}

bool try_lock_partition(int32 consumer, int32 partition)
{
    return try_lock(
        tag_of(partitions, static_cast<uint32>(consumer), static_cast<uint32>(partition)));
}

bool is_partition_locked(int32 consumer, int32 partition)
{
    const LOCKTAG tag =
        tag_of(partitions, static_cast<uint32>(consumer), static_cast<uint32>(partition));
    if (!try_lock(tag))
        return true;
    give_back(tag);
    return false;
}

bool is_consumer_locked(int32 consumer)
{
    if (!try_lock(tag_of_consumer(consumer)))
        return true;
    unlock_consumer(consumer);
    return false;
}

void keep_lock_for_session(int32 consumer)
{
    const LOCKTAG tag = tag_of_consumer(consumer);
    (void)LockAcquire(&tag, ExclusiveLock, true, false);
    held_consumer = consumer;
}

void release_session_lock()
{
    if (!held_consumer)
        return;
    const LOCKTAG tag = tag_of_consumer(*held_consumer);
    held_consumer.reset();
    (void)LockRelease(&tag, ExclusiveLock, true);
}

void unlock_consumer(int32 consumer)
{
    give_back(tag_of_consumer(consumer));
}

} // namespace outbox::pg
