// The relay's cache of a sink's consumer as its last claim left it, in memory of the process. Only
// the relay claims from a sink, so the state need not be read before each claim. A transaction that
// changes it otherwise (seek, redrive, ALTER) holds the consumer's lock and sets
// reason_sinks_changed in its commit callback, which runs before the lock is released.
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// A batch that was delivered before its rows are written, with the progress to write along with it.
struct DeferredBatch {
    int32 consumer;
    Batch batch;
    LeaseHolder holder;
    Progress progress;
};

// Has two slots: for the committed state, and for the state that the current transaction stores.
class ConsumerStateCache {
public:
    ConsumerStateCache() = default;
    ConsumerStateCache(const ConsumerStateCache&) = delete;
    ConsumerStateCache& operator=(const ConsumerStateCache&) = delete;
    ~ConsumerStateCache();

    // Returns the committed state, or nullptr if it has to be read: after invalidate(), or while
    // reason_sinks_changed is pending. It is certain only under the consumer's lock.
    const ConsumerState* lookup() const;

    // Returns a token that was drawn in advance, above those of all batches of the consumer; 0 if
    // there is none, or lookup() finds nothing.
    int64 reserved_token() const;

    // Returns the batch that the last transaction delivered without writing it; nullptr: none.
    const DeferredBatch* deferred_batch() const;
    // Forgets that batch, which is written now. `reserved_token` was drawn with it.
    void mark_deferred_written(int64 reserved_token);

    // Copies the state that the current transaction leaves, with the batch that it does not write,
    // into a memory context of the slot. lookup() returns it after commit().
    void store(const ConsumerState& state, int64 reserved_token,
               const DeferredBatch* deferred_batch = nullptr);

    // Call after the commit: makes the stored state the one that lookup() returns.
    void commit();
    // Call after a rollback: forgets both states and the deferred batch.
    void invalidate();

private:
    struct Slot {
        MemoryContext memory = nullptr;
        ConsumerState state = {};
        int64 reserved_token = 0;
        std::optional<DeferredBatch> deferred_batch;
    };

    Slot slots_[2];
    int current_ = -1;
    bool has_pending_ = false;
};

} // namespace outbox
