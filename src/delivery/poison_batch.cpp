#include "delivery/poison_batch.hpp"

#include "delivery/dead_letter_log.hpp"
#include "delivery/retry_queue.hpp"
#include "stats/transaction_counters.hpp"

namespace outbox {

bool has_used_an_attempt(const Lease& lease)
{
    return !lease.is_unassigned && lease.locked_until != DT_NOBEGIN;
}

bool dead_letter_if_exhausted(const Consumer& consumer, const Batch& batch, const Lease& lease,
                              TimestampTz now)
{
    if (!has_used_an_attempt(lease) || lease.size != 1 || consumer.is_sink)
        return false;
    const Datum error =
        CStringGetTextDatum("the lease expired: the worker died, hung, or was too slow");
    bool dead = false;
    const auto bury_if = [&](const Message& message, int attempts) {
        if (attempts < consumer.policy.max_attempts)
            return;
        move_to_dead_letters(consumer.id, message, attempts, error, now);
        if (stats::is_on())
            stats::count_failed(consumer.id, message.values[col_event_type], true, error);
        dead = true;
    };
    if (batch.from_retries) {
        RetryScan scan(consumer.id, batch.ids);
        if (const Message* message = scan.next())
            bury_if(*message, scan.failures() + batch.attempts);
        if (dead)
            remove_retries(consumer.id, consumer.ordered, batch.ids, now);
    } else {
        visit_messages(batch.ids, [&](const Message& message) {
            bury_if(message, batch.attempts);
            return false;
        });
    }
    if (dead) {
        log_dead_letters(consumer.id, batch.ids, error);
        take_out(batch.token, {}, batch.ids);
        settle_lease(batch.token, now);
    }
    return dead;
}

Id next_portion(const Batch& batch, const Lease& lease)
{
    constexpr int tries_before_split = 2;
    const Id size = count_ids(batch.ids);
    const bool split = has_used_an_attempt(lease) && batch.deliveries >= tries_before_split;
    return split ? (size + 1) / 2 : size;
}

int next_attempt(const Consumer& consumer, const Batch& batch)
{
    const int most = consumer.policy.max_attempts - (count_ids(batch.ids) > 1 ? 1 : 0);
    return Max(batch.attempts, Min(batch.attempts + 1, most));
}

} // namespace outbox
