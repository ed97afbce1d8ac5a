#include "delivery/deliver_batch.hpp"

#include "delivery/retry_queue.hpp"

extern "C" {
#include "access/detoast.h"
}

namespace outbox {

namespace {

// Passes the batch's rows of _outbox.retries to the receiver. Returns their number.
int deliver_from_retries(int32 consumer, const Batch& batch, TimestampTz locked_until,
                         MessageReceiver& receiver)
{
    int count = 0;
    RetryScan scan(consumer, batch.ids);
    while (const Message* message = scan.next()) {
        receiver.receive(*message,
                         {batch.token, locked_until, scan.failures() + batch.attempts, true});
        ++count;
    }
    return count;
}

// Passes the batch's messages in the log to the receiver and returns their number. Moves blocked
// ones of an ordered consumer to _outbox.retries and takes them out of the batch.
int deliver_from_log(const Consumer& consumer, const Batch& batch, TimestampTz locked_until,
                     MessageReceiver& receiver)
{
    int count = 0;
    pg::PallocVector<IdRange> waiting;
    const bool any_blocked =
        consumer.ordered && has_blocked_aggregates(consumer.id, batch.consumer_partition);
    visit_messages(batch.ids, [&](const Message& message) {
        if (any_blocked &&
            add_if_blocked(consumer, batch.consumer_partition, message, batch.attempts - 1)) {
            append_id(waiting, message.id());
        } else {
            receiver.receive(message, {batch.token, locked_until, batch.attempts, false});
            ++count;
        }
        return true;
    });
    if (!waiting.empty()) {
        pg::PallocVector<IdRange> rest;
        rest.reserve(batch.ids.size() + waiting.size());
        rest.set_size(subtract(batch.ids, waiting.view(), rest.data()));
        remove_from_batch(batch.token, rest.view(), waiting.view());
    }
    return count;
}

} // namespace

stats::EventFacts event_facts_of(const Message& message)
{
    return {stats::type_slot_of(message.values[col_event_type]),
            static_cast<uint32>(toast_datum_size(message.values[col_payload])),
            DatumGetTimestampTz(message.values[col_occurred_at])};
}

bool add_if_blocked(const Consumer& consumer, int32 consumer_partition, const Message& message,
                    int failures)
{
    if (!is_aggregate_blocked(consumer.id, message))
        return false;
    add_blocked_message(consumer.id, consumer_partition, message, failures);
    return true;
}

int deliver_batch(const Consumer& consumer, const Batch& batch, TimestampTz now,
                  TimestampTz locked_until, MessageReceiver& receiver)
{
    const int count = batch.from_retries
                          ? deliver_from_retries(consumer.id, batch, locked_until, receiver)
                          : deliver_from_log(consumer, batch, locked_until, receiver);
    // All messages are blocked, or no longer in the log.
    if (count == 0)
        settle_lease(batch.token, now);
    return count;
}

void settle_whole_batch(const Consumer& consumer, const Batch& batch, TimestampTz now)
{
    if (batch.from_retries)
        remove_retries(consumer.id, consumer.ordered, batch.ids, now);
    settle_lease(batch.token, now);
}

} // namespace outbox
