#include "stats/transaction_counters.hpp"

#include "pg/palloc_vector.hpp"

namespace outbox::stats {

namespace {

// Of a transaction or subtransaction. In memory of the transaction's.
struct Level {
    Level* outer;
    int nesting;
    pg::PallocVector<TypeDelta> types;
    pg::PallocVector<ConsumerDelta> consumers;
};

Level* innermost = nullptr;

Level& level()
{
    const int nesting = GetCurrentTransactionNestLevel();
    if (innermost == nullptr || innermost->nesting < nesting) {
        auto* fresh =
            static_cast<Level*>(MemoryContextAllocZero(TopTransactionContext, sizeof(Level)));
        fresh->outer = innermost;
        fresh->nesting = nesting;
        innermost = fresh;
    }
    return *innermost;
}

TypeDelta& delta_of(Level& level, TypePlace type)
{
    for (TypeDelta& delta : level.types)
        if (delta.type == type)
            return delta;
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    level.types.push({type, 0, 0, 0, 0});
    MemoryContextSwitchTo(before);
    return level.types[level.types.size() - 1];
}

ConsumerDelta& delta_of_place(Level& level, int place)
{
    for (ConsumerDelta& delta : level.consumers)
        if (delta.place == place)
            return delta;
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    ConsumerDelta fresh = {};
    fresh.place = place;
    level.consumers.push(fresh);
    MemoryContextSwitchTo(before);
    return level.consumers[level.consumers.size() - 1];
}

ConsumerDelta& delta_of_consumer(int32 consumer)
{
    return delta_of_place(level(), place_of_consumer(consumer));
}

// A clock that went back counts as no time at all, and so does a time without end, which whoever
// writes events past outbox_enqueue() may give them.
void add_latency(ConsumerDelta& delta, TimestampTz since, TimestampTz now, uint32 weight)
{
    const int64 microseconds = TIMESTAMP_NOT_FINITE(since) ? 0 : now - since;
    delta.latency[latency::bucket_of(microseconds)] += weight;
    delta.latency_sum += static_cast<uint64>(Max(microseconds, int64{0})) * weight;
}

void merge(const Level& from, Level& into)
{
    for (const TypeDelta& delta : from.types) {
        TypeDelta& sum = delta_of(into, delta.type);
        sum.enqueued += delta.enqueued;
        sum.delivered += delta.delivered;
        sum.failed += delta.failed;
        sum.dead += delta.dead;
    }
    for (const ConsumerDelta& delta : from.consumers) {
        ConsumerDelta& sum = delta_of_place(into, delta.place);
        sum.delivered += delta.delivered;
        sum.failed += delta.failed;
        sum.dead += delta.dead;
        sum.bytes += delta.bytes;
        sum.latency_sum += delta.latency_sum;
        for (std::size_t i = 0; i < latency::bucket_count; ++i)
            sum.latency[i] += delta.latency[i];
    }
}

void add_to_shared(const Level& all)
{
    for (const TypeDelta& delta : all.types)
        add(delta);
    const TimestampTz now = all.consumers.empty() ? 0 : GetCurrentTimestamp();
    for (const ConsumerDelta& delta : all.consumers)
        add(delta, now);
}

// A prepared transaction counts when it is prepared: who commits it knows nothing of what it did.
void at_end(XactEvent event, void*)
{
    const bool commits = event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE;
    if (!commits && event != XACT_EVENT_ABORT)
        return;
    if (commits && innermost != nullptr)
        add_to_shared(*innermost);
    innermost = nullptr;
}

void at_subtransaction_end(SubXactEvent event, SubTransactionId, SubTransactionId, void*)
{
    if (innermost == nullptr || innermost->nesting < GetCurrentTransactionNestLevel())
        return;
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        innermost = innermost->outer;
    } else if (event == SUBXACT_EVENT_PRE_COMMIT_SUB) {
        Level* ended = innermost;
        if (ended->outer == nullptr || ended->outer->nesting < ended->nesting - 1) {
            --ended->nesting;
            return;
        }
        innermost = ended->outer;
        merge(*ended, *innermost);
    }
}

} // namespace

void count_enqueued(TypePlace type, int count)
{
    delta_of(level(), type).enqueued += static_cast<uint64>(count);
}

void count_delivered(int32 consumer, const Facts& event, TimestampTz now)
{
    ConsumerDelta& delta = delta_of_consumer(consumer);
    ++delta.delivered;
    delta.bytes += event.bytes;
    add_latency(delta, event.occurred_at, now, 1);
    ++delta_of(level(), event.type).delivered;
}

void count_failed(int32 consumer, Datum event_type, bool dead, Datum error)
{
    ConsumerDelta& delta = delta_of_consumer(consumer);
    TypeDelta& type = delta_of(level(), place_of(event_type));
    ++delta.failed;
    ++type.failed;
    delta.dead += dead;
    type.dead += dead;
    note_error(delta.place, error);
}

bool count_batch(int32 consumer, int64 token, TimestampTz now)
{
    const std::optional<Summary> summary = recall_batch(token);
    if (!summary)
        return false;
    ConsumerDelta& delta = delta_of_consumer(consumer);
    delta.delivered += summary->count;
    delta.bytes += summary->bytes;
    for (uint32 i = 0; i < Summary::samples; ++i) {
        // Their weights add up to the whole.
        const uint32 weight =
            summary->count * (i + 1) / Summary::samples - summary->count * i / Summary::samples;
        add_latency(delta, summary->occurred_at[i], now, weight);
    }
    for (const auto& type : summary->types)
        if (type.count > 0)
            delta_of(level(), type.type).delivered += type.count;
    return true;
}

void set_up()
{
    set_up_places();
    set_up_batches();
    RegisterXactCallback(at_end, nullptr);
    RegisterSubXactCallback(at_subtransaction_end, nullptr);
}

} // namespace outbox::stats
