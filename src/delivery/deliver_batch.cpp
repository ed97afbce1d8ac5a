#include "delivery/deliver_batch.hpp"

#include "delivery/retry_queue.hpp"

extern "C" {
#include "access/detoast.h"
}

namespace outbox {

namespace {

int deliver_from_retries(int32 consumer, const Batch& batch, TimestampTz locked_until,
                         MessageReceiver& sink)
{
    int count = 0;
    RetryScan scan(consumer, batch.ids);
    while (const Message* message = scan.next()) {
        sink.put(*message, {batch.token, locked_until, scan.failures() + batch.attempts, true});
        ++count;
    }
    return count;
}

int deliver_from_log(const Consumer& consumer, const Batch& batch, TimestampTz locked_until,
                     MessageReceiver& sink)
{
    int count = 0;
    pg::PallocVector<IdRange> waiting;
    const bool some_wait = consumer.ordered && has_blocked(consumer.id, batch.partition);
    visit_messages(batch.ids, [&](const Message& message) {
        if (some_wait && must_wait(consumer, batch.partition, message, batch.attempts - 1)) {
            append_to(waiting, message.id());
        } else {
            sink.put(message, {batch.token, locked_until, batch.attempts, false});
            ++count;
        }
        return true;
    });
    if (!waiting.empty()) {
        pg::PallocVector<IdRange> rest;
        rest.reserve(batch.ids.size() + waiting.size());
        rest.set_size(subtract(batch.ids, waiting.view(), rest.data()));
        take_out(batch.token, rest.view(), waiting.view());
    }
    return count;
}

} // namespace

stats::Facts facts_of(const Message& message)
{
    return {stats::place_of(message.values[col_event_type]),
            static_cast<uint32>(toast_datum_size(message.values[col_payload])),
            DatumGetTimestampTz(message.values[col_occurred_at])};
}

bool must_wait(const Consumer& consumer, int32 partition, const Message& message, int failures)
{
    if (!is_blocked(consumer.id, message))
        return false;
    add_blocked(consumer.id, partition, message, failures);
    return true;
}

int deliver_batch(const Consumer& consumer, const Batch& batch, TimestampTz now,
                  TimestampTz locked_until, MessageReceiver& sink)
{
    const int count = batch.from_retries
                          ? deliver_from_retries(consumer.id, batch, locked_until, sink)
                          : deliver_from_log(consumer, batch, locked_until, sink);
    // Nothing is left when all of it waits behind others, or has left the log.
    if (count == 0)
        settle_lease(batch.token, now);
    return count;
}

void settle_at_once(const Consumer& consumer, const Batch& batch, TimestampTz now)
{
    if (batch.from_retries)
        remove_retries(consumer.id, consumer.ordered, batch.ids, now);
    settle_lease(batch.token, now);
}

} // namespace outbox
