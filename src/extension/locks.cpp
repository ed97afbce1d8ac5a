#include "extension/locks.hpp"

#include "pg/subtransaction.hpp"

extern "C" {
#include "storage/proc.h"
#include "utils/resowner.h"
}

#include <optional>

namespace outbox {

namespace {

// Fourth field of the lock tag. Users' advisory locks have 1 or 2 there.
enum LockSpace : uint16 {
    key_space = 0x4F42,
    consumer_space = 0x4F43,
    partition_space = 0x4F44,
    idempotency_space = 0x4F45
};

std::optional<int32> session_locked_consumer;

// Makes the tag of an advisory lock in this database.
LOCKTAG lock_tag(LockSpace space, uint32 first, uint32 second)
{
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, first, second, space);
    return tag;
}

LOCKTAG lock_tag_of_hash(LockSpace space, uint64 hash)
{
    return lock_tag(space, static_cast<uint32>(hash >> 32), static_cast<uint32>(hash));
}

LOCKTAG lock_tag_of_consumer(int32 consumer)
{
    return lock_tag(consumer_space, static_cast<uint32>(consumer), 0);
}

// Runs `body` with the resource owner of the transaction in place of the statement's. A lock taken
// in a subtransaction passes to that owner when the subtransaction commits, and LockRelease() only
// finds locks of the current owner: so all locks go to the same one.
template <typename Body>
auto with_transaction_owner(Body&& body) -> decltype(body())
{
    const ResourceOwner statement = CurrentResourceOwner;
    CurrentResourceOwner = CurTransactionResourceOwner;
    const auto result = body();
    CurrentResourceOwner = statement;
    return result;
}

// Takes a lock until the end of the transaction. Returns false if another session holds it.
bool try_lock(const LOCKTAG& tag)
{
    return with_transaction_owner(
        [&] { return LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL; });
}

// Sets lock_timeout for the current GUC nest level, unless a shorter one is in effect.
void limit_lock_timeout(int milliseconds)
{
    if (LockTimeout > 0 && LockTimeout < milliseconds)
        return;
    char value[16];
    snprintf(value, sizeof(value), "%d", milliseconds);
    (void)set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
                            true, 0, false);
}

// Takes a lock until the end of the transaction. Returns false if another session holds it for
// longer than `milliseconds` or lock_timeout. A wait that times out raises an error, so it runs in
// a subtransaction. Callers that find the lock free do not pay for one.
bool lock_with_timeout(const LOCKTAG& tag, int milliseconds)
{
    if (try_lock(tag))
        return true;
    if (milliseconds == 0)
        return false;

    const int settings = NewGUCNestLevel();
    limit_lock_timeout(milliseconds);
    ErrorData* error =
        pg::in_subtransaction([&] { (void)LockAcquire(&tag, ExclusiveLock, false, false); });
    AtEOXact_GUC(false, settings);
    if (error != nullptr && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
        ReThrowError(error);
    return error == nullptr;
}

// Releases a lock that try_lock() or lock_with_timeout() has taken.
void release_lock(const LOCKTAG& tag)
{
    (void)with_transaction_owner([&] { return LockRelease(&tag, ExclusiveLock, false); });
}

} // namespace

void lock_key(uint64 hash)
{
    const LOCKTAG tag = lock_tag_of_hash(key_space, hash);
    (void)LockAcquire(&tag, ExclusiveLock, false, false);
}

void unlock_key(uint64 hash)
{
    const LOCKTAG tag = lock_tag_of_hash(key_space, hash);
    (void)LockRelease(&tag, ExclusiveLock, false);
}

bool lock_consumer(int32 consumer, int milliseconds)
{
    return lock_with_timeout(lock_tag_of_consumer(consumer), milliseconds);
}

bool lock_idempotency_key(uint64 hash, int milliseconds)
{
    return lock_with_timeout(lock_tag_of_hash(idempotency_space, hash), milliseconds);
}

void unlock_idempotency_key(uint64 hash)
{
    release_lock(lock_tag_of_hash(idempotency_space, hash));
}

void lock_consumer(int32 consumer)
{
    const LOCKTAG tag = lock_tag_of_consumer(consumer);
    (void)with_transaction_owner([&] { return LockAcquire(&tag, ExclusiveLock, false, false); });
}

bool try_lock_consumer_partition(int32 consumer, int32 partition)
{
    return try_lock(
        lock_tag(partition_space, static_cast<uint32>(consumer), static_cast<uint32>(partition)));
}

bool is_consumer_partition_locked(int32 consumer, int32 partition)
{
    const LOCKTAG tag =
        lock_tag(partition_space, static_cast<uint32>(consumer), static_cast<uint32>(partition));
    if (!try_lock(tag))
        return true;
    release_lock(tag);
    return false;
}

bool is_consumer_locked(int32 consumer)
{
    if (!try_lock(lock_tag_of_consumer(consumer)))
        return true;
    unlock_consumer(consumer);
    return false;
}

void keep_lock_for_session(int32 consumer)
{
    const LOCKTAG tag = lock_tag_of_consumer(consumer);
    (void)LockAcquire(&tag, ExclusiveLock, true, false);
    session_locked_consumer = consumer;
}

void release_session_lock()
{
    if (!session_locked_consumer)
        return;
    const LOCKTAG tag = lock_tag_of_consumer(*session_locked_consumer);
    session_locked_consumer.reset();
    (void)LockRelease(&tag, ExclusiveLock, true);
}

void unlock_consumer(int32 consumer)
{
    release_lock(lock_tag_of_consumer(consumer));
}

} // namespace outbox
