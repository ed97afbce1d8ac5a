// What the relay knows of a sink's consumer from its last claim. Nobody else moves that cursor, so
// it need not be read again; whoever changes it after all – a seek, a redrive – holds the
// consumer's lock and calls the relay before giving it back.
#pragma once

#include "consumer/batch_store.hpp"

namespace outbox {

// A batch that has been handed out before it is in the tables, and where its consumer is with it.
struct DeferredBatch {
    int32 consumer;
    Batch batch;
    LeaseHolder holder;
    Progress progress;
};

class ConsumerStateCache {
public:
    ConsumerStateCache() = default;
    ConsumerStateCache(const ConsumerStateCache&) = delete;
    ConsumerStateCache& operator=(const ConsumerStateCache&) = delete;
    ~ConsumerStateCache();

    // To be asked with the consumer's lock in hand. Nothing if it has to be read.
    const ConsumerState* lookup() const;

    // A token above those of all batches of the consumer, as long as there is something to be
    // found; 0 if there is none.
    int64 reserved_token() const;

    // What the last transaction has handed out and not written down, if it has.
    const DeferredBatch* deferred_batch() const;
    // Now it is written down. `reserved_token` was drawn meanwhile.
    void mark_deferred_written(int64 reserved_token);

    // What the present transaction leaves behind, with the batch that it does not write, if there
    // is one.
    void store(const ConsumerState& state, int64 reserved_token,
               const DeferredBatch* deferred_batch = nullptr);

    // It was committed, or it was not: then nothing is known.
    void commit();
    void invalidate();

private:
    // One that is believed and one that is being written.
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
