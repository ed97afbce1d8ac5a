#include "delivery/poison_batch.hpp"

#include "delivery/dead_letter_log.hpp"
#include "delivery/retry_queue.hpp"
#include "stats/transaction_counters.hpp"

namespace outbox {

bool counts_as_attempt(const Lease& lease)
{
    return !lease.is_unassigned && lease.locked_until != DT_NOBEGIN;
}

bool dead_letter_if_exhausted(const Consumer& consumer, const Batch& batch, const Lease& lease,
                              TimestampTz now)
{
    if (!counts_as_attempt(lease) || lease.message_count != 1 || consumer.is_sink)
        return false;
    const Datum error =
        CStringGetTextDatum("the lease expired: the worker died, hung, or was too slow");
    bool dead = false;
    const auto dead_letter_if_last = [&](const Message& message, int attempts) {
        if (attempts < consumer.retry_policy.max_attempts)
            return;
        move_to_dead_letters(consumer.id, message, attempts, error, now);
        if (stats::is_enabled())
            stats::count_failed(consumer.id, message.values[col_event_type], true, error);
        dead = true;
    };
    if (batch.from_retries) {
        RetryScan scan(consumer.id, batch.ids);
        if (const Message* message = scan.next())
            dead_letter_if_last(*message, scan.failures() + batch.attempts);
        if (dead)
            remove_retries(consumer.id, consumer.ordered, batch.ids, now);
    } else {
        visit_messages(batch.ids, [&](const Message& message) {
            dead_letter_if_last(message, batch.attempts);
            return false;
        });
    }
    if (dead) {
        log_dead_letters(consumer.id, batch.ids, error);
        remove_from_batch(batch.token, {}, batch.ids);
        settle_lease(batch.token, now);
    }
    return dead;
}

Id next_delivery_size(const Batch& batch, const Lease& lease)
{
    constexpr int deliveries_before_split = 2; // the first expiry may be a restart of the worker
    const Id size = count_ids(batch.ids);
    const bool split = counts_as_attempt(lease) && batch.deliveries >= deliveries_before_split;
    return split ? (size + 1) / 2 : size;
}

int next_attempt_number(const Consumer& consumer, const Batch& batch)
{
    const int max_attempt = consumer.retry_policy.max_attempts - (count_ids(batch.ids) > 1 ? 1 : 0);
    return Max(batch.attempts, Min(batch.attempts + 1, max_attempt));
}

} // namespace outbox
