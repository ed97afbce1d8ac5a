#include "stats/transaction_counters.hpp"

#include "pg/palloc_vector.hpp"

namespace outbox::stats {

namespace {

// Counts of a transaction or subtransaction, in TopTransactionContext.
struct SubxactCounters {
    SubxactCounters* outer;
    int nesting;
    pg::PallocVector<TypeDelta> types;
    pg::PallocVector<ConsumerDelta> consumers;
};

SubxactCounters* innermost = nullptr;

// Returns the counts of the current subtransaction; creates them in TopTransactionContext if
// needed.
SubxactCounters& current_counters()
{
    const int nesting = GetCurrentTransactionNestLevel();
    if (innermost == nullptr || innermost->nesting < nesting) {
        auto* fresh = static_cast<SubxactCounters*>(
            MemoryContextAllocZero(TopTransactionContext, sizeof(SubxactCounters)));
        fresh->outer = innermost;
        fresh->nesting = nesting;
        innermost = fresh;
    }
    return *innermost;
}

// Returns the counts of an event type, adding an element if there is none. The reference is valid
// until the next element is added.
TypeDelta& delta_of(SubxactCounters& counters, TypeSlotNumber type)
{
    for (TypeDelta& delta : counters.types)
        if (delta.type == type)
            return delta;
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    counters.types.push({type, 0, 0, 0, 0});
    MemoryContextSwitchTo(before);
    return counters.types[counters.types.size() - 1];
}

// Returns the counts of a consumer slot, adding an element if there is none. The reference is valid
// until the next element is added.
ConsumerDelta& delta_of_slot(SubxactCounters& counters, int slot)
{
    for (ConsumerDelta& delta : counters.consumers)
        if (delta.slot == slot)
            return delta;
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    ConsumerDelta fresh = {};
    fresh.slot = slot;
    counters.consumers.push(fresh);
    MemoryContextSwitchTo(before);
    return counters.consumers[counters.consumers.size() - 1];
}

// Returns the counts of a consumer in the current subtransaction. A new consumer gets a slot in
// shared memory.
ConsumerDelta& delta_of_consumer(int32 consumer)
{
    return delta_of_slot(current_counters(), consumer_slot_of(consumer));
}

// Adds a latency `weight` times. Zero is added if the clock went back, or if occurred_at is
// infinite, which a direct INSERT into the log allows.
void add_latency(ConsumerDelta& delta, TimestampTz since, TimestampTz now, uint32 weight)
{
    const int64 microseconds = TIMESTAMP_NOT_FINITE(since) ? 0 : now - since;
    delta.latency[latency::bucket_of(microseconds)] += weight;
    delta.latency_sum += static_cast<uint64>(Max(microseconds, int64{0})) * weight;
}

// Adds the counts of a subtransaction to those of its parent. Allocates memory.
void merge(const SubxactCounters& from, SubxactCounters& into)
{
    for (const TypeDelta& delta : from.types) {
        TypeDelta& sum = delta_of(into, delta.type);
        sum.enqueued += delta.enqueued;
        sum.delivered += delta.delivered;
        sum.failed += delta.failed;
        sum.dead += delta.dead;
    }
    for (const ConsumerDelta& delta : from.consumers) {
        ConsumerDelta& sum = delta_of_slot(into, delta.slot);
        sum.delivered += delta.delivered;
        sum.failed += delta.failed;
        sum.dead += delta.dead;
        sum.bytes += delta.bytes;
        sum.latency_sum += delta.latency_sum;
        for (std::size_t i = 0; i < latency::bucket_count; ++i)
            sum.latency[i] += delta.latency[i];
    }
}

// Adds the counts to shared memory. Allocates nothing and raises no error.
void add_to_shared(const SubxactCounters& all)
{
    for (const TypeDelta& delta : all.types)
        add(delta);
    const TimestampTz now = all.consumers.empty() ? 0 : GetCurrentTimestamp();
    for (const ConsumerDelta& delta : all.consumers)
        add(delta, now);
}

// Xact callback: a commit adds the counts to shared memory, an abort discards them. PREPARE
// TRANSACTION counts like a commit, because the session that later runs COMMIT PREPARED does not
// have the counts.
void on_xact_event(XactEvent event, void*)
{
    const bool commits = event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE;
    if (!commits && event != XACT_EVENT_ABORT)
        return;
    if (commits && innermost != nullptr)
        add_to_shared(*innermost);
    innermost = nullptr;
}

// Subxact callback: an abort discards the counts of the subtransaction; a commit passes them to its
// parent, before the commit, because merging allocates memory and may fail.
void on_subxact_event(SubXactEvent event, SubTransactionId, SubTransactionId, void*)
{
    if (innermost == nullptr || innermost->nesting < GetCurrentTransactionNestLevel())
        return;
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        innermost = innermost->outer;
    } else if (event == SUBXACT_EVENT_PRE_COMMIT_SUB) {
        SubxactCounters* ended = innermost;
        if (ended->outer == nullptr || ended->outer->nesting < ended->nesting - 1) {
            --ended->nesting;
            return;
        }
        innermost = ended->outer;
        merge(*ended, *innermost);
    }
}

} // namespace

void count_enqueued(TypeSlotNumber type, int count)
{
    delta_of(current_counters(), type).enqueued += static_cast<uint64>(count);
}

void count_delivered(int32 consumer, const EventFacts& event, TimestampTz now)
{
    ConsumerDelta& delta = delta_of_consumer(consumer);
    ++delta.delivered;
    delta.bytes += event.bytes;
    add_latency(delta, event.occurred_at, now, 1);
    ++delta_of(current_counters(), event.type).delivered;
}

void count_failed(int32 consumer, Datum event_type, bool dead, Datum error)
{
    ConsumerDelta& delta = delta_of_consumer(consumer);
    TypeDelta& type = delta_of(current_counters(), type_slot_of(event_type));
    ++delta.failed;
    ++type.failed;
    delta.dead += dead;
    type.dead += dead;
    record_error(delta.slot, error);
}

bool count_batch(int32 consumer, int64 token, TimestampTz now)
{
    const std::optional<BatchSummary> summary = find_batch_summary(token);
    if (!summary)
        return false;
    ConsumerDelta& delta = delta_of_consumer(consumer);
    delta.delivered += summary->count;
    delta.bytes += summary->bytes;
    for (uint32 i = 0; i < BatchSummary::max_samples; ++i) {
        // The weights of the samples add up to the number of events.
        const uint32 weight = summary->count * (i + 1) / BatchSummary::max_samples -
                              summary->count * i / BatchSummary::max_samples;
        add_latency(delta, summary->occurred_at[i], now, weight);
    }
    for (const auto& type : summary->types)
        if (type.count > 0)
            delta_of(current_counters(), type.type).delivered += type.count;
    return true;
}

void set_up()
{
    set_up_shared_counters();
    set_up_batch_summaries();
    RegisterXactCallback(on_xact_event, nullptr);
    RegisterSubXactCallback(on_subxact_event, nullptr);
}

} // namespace outbox::stats
