#include "claim/consumer_state_cache.hpp"

#include "ipc/worker_registry.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "utils/datum.h"
}

#include <algorithm>

namespace outbox {

namespace {

// The copy_of functions make deep copies in the current memory context.
template <typename T>
std::span<const T> copy_of(std::span<const T> values)
{
    auto* copy = static_cast<T*>(palloc(sizeof(T) * Max(values.size(), std::size_t{1})));
    std::copy(values.begin(), values.end(), copy);
    return {copy, values.size()};
}

std::span<const Datum> copy_of_texts(std::span<const Datum> texts)
{
    auto* copy = static_cast<Datum*>(palloc(sizeof(Datum) * Max(texts.size(), std::size_t{1})));
    for (std::size_t i = 0; i < texts.size(); ++i)
        copy[i] = datumCopy(texts[i], false, -1);
    return {copy, texts.size()};
}

std::span<const WantedVersion> copy_of_versions(std::span<const WantedVersion> versions)
{
    pg::PallocVector<WantedVersion> copy;
    for (const auto& [type, version] : versions)
        copy.push({{pnstrdup(type.data(), type.size()), type.size()}, version});
    return copy.view();
}

Position copy_of(const Position& position)
{
    return {position.seq, copy_of(position.running)};
}

Progress copy_of(const Progress& progress)
{
    Progress copy = progress;
    copy.cursor.passed = copy_of(progress.cursor.passed);
    if (progress.cursor.target)
        copy.cursor.target = copy_of(*progress.cursor.target);
    copy.open_tokens = copy_of(progress.open_tokens);
    return copy;
}

ConsumerState copy_of(const ConsumerState& state)
{
    ConsumerState copy = state;
    copy.consumer.filter.event_types = copy_of_texts(state.consumer.filter.event_types);
    copy.consumer.filter.aggregate_types = copy_of_texts(state.consumer.filter.aggregate_types);
    copy.consumer.wanted_versions = copy_of_versions(state.consumer.wanted_versions);
    copy.progress = copy_of(state.progress);
    return copy;
}

DeferredBatch copy_of(const DeferredBatch& deferred_batch)
{
    DeferredBatch copy = deferred_batch;
    copy.progress = copy_of(deferred_batch.progress);
    copy.batch.ids = copy_of(deferred_batch.batch.ids);
    copy.holder.worker = datumCopy(deferred_batch.holder.worker, false, -1);
    return copy;
}

} // namespace

ConsumerStateCache::~ConsumerStateCache()
{
    for (const Slot& slot : slots_)
        if (slot.memory != nullptr)
            MemoryContextDelete(slot.memory);
}

const ConsumerState* ConsumerStateCache::lookup() const
{
    if (current_ < 0 || ipc::is_wakeup_pending(ipc::reason_sinks_changed))
        return nullptr;
    return &slots_[current_].state;
}

int64 ConsumerStateCache::reserved_token() const
{
    return lookup() == nullptr ? 0 : slots_[current_].reserved_token;
}

const DeferredBatch* ConsumerStateCache::deferred_batch() const
{
    return current_ < 0 || !slots_[current_].deferred_batch ? nullptr
                                                            : &*slots_[current_].deferred_batch;
}

void ConsumerStateCache::mark_deferred_written(int64 reserved_token)
{
    slots_[current_].deferred_batch.reset();
    slots_[current_].reserved_token = reserved_token;
}

void ConsumerStateCache::store(const ConsumerState& state, int64 reserved_token,
                               const DeferredBatch* deferred_batch)
{
    Slot& slot = slots_[current_ == 0 ? 1 : 0];
    if (slot.memory == nullptr)
        slot.memory =
            AllocSetContextCreate(TopMemoryContext, "outbox consumer", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(slot.memory);
    const MemoryContext before = MemoryContextSwitchTo(slot.memory);
    slot.state = copy_of(state);
    slot.reserved_token = reserved_token;
    slot.deferred_batch.reset();
    if (deferred_batch != nullptr)
        slot.deferred_batch = copy_of(*deferred_batch);
    MemoryContextSwitchTo(before);
    has_pending_ = true;
}

void ConsumerStateCache::commit()
{
    if (has_pending_)
        current_ = current_ == 0 ? 1 : 0;
    has_pending_ = false;
}

void ConsumerStateCache::invalidate()
{
    current_ = -1;
    has_pending_ = false;
}

} // namespace outbox
