#include "claim/consumer_state_cache.hpp"

#include "ipc/worker_registry.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "utils/datum.h"
}

#include <algorithm>

namespace outbox {

namespace {

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
    copy.consumer.versions = copy_of_versions(state.consumer.versions);
    copy.progress = copy_of(state.progress);
    return copy;
}

DeferredBatch copy_of(const DeferredBatch& unwritten)
{
    DeferredBatch copy = unwritten;
    copy.progress = copy_of(unwritten.progress);
    copy.batch.ids = copy_of(unwritten.batch.ids);
    copy.holder.worker = datumCopy(unwritten.holder.worker, false, -1);
    return copy;
}

} // namespace

ConsumerStateCache::~ConsumerStateCache()
{
    for (const Slot& slot : slots_)
        if (slot.memory != nullptr)
            MemoryContextDelete(slot.memory);
}

const ConsumerState* ConsumerStateCache::find() const
{
    if (believed_ < 0 || pg::is_relay_called(pg::task_sinks))
        return nullptr;
    return &slots_[believed_].state;
}

int64 ConsumerStateCache::reserved_token() const
{
    return find() == nullptr ? 0 : slots_[believed_].reserved_token;
}

const DeferredBatch* ConsumerStateCache::unwritten() const
{
    return believed_ < 0 || !slots_[believed_].unwritten ? nullptr : &*slots_[believed_].unwritten;
}

void ConsumerStateCache::mark_written(int64 reserved_token)
{
    slots_[believed_].unwritten.reset();
    slots_[believed_].reserved_token = reserved_token;
}

void ConsumerStateCache::keep(const ConsumerState& state, int64 reserved_token,
                              const DeferredBatch* unwritten)
{
    Slot& slot = slots_[believed_ == 0 ? 1 : 0];
    if (slot.memory == nullptr)
        slot.memory =
            AllocSetContextCreate(TopMemoryContext, "outbox consumer", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(slot.memory);
    const MemoryContext before = MemoryContextSwitchTo(slot.memory);
    slot.state = copy_of(state);
    slot.reserved_token = reserved_token;
    slot.unwritten.reset();
    if (unwritten != nullptr)
        slot.unwritten = copy_of(*unwritten);
    MemoryContextSwitchTo(before);
    has_next_ = true;
}

void ConsumerStateCache::committed()
{
    if (has_next_)
        believed_ = believed_ == 0 ? 1 : 0;
    has_next_ = false;
}

void ConsumerStateCache::forget()
{
    believed_ = -1;
    has_next_ = false;
}

} // namespace outbox
