#include "upcast/upcast.hpp"

#include "core/limits.hpp"
#include "extension/guc.hpp"
#include "pg/datum.hpp"
#include "pg/sandbox.hpp"
#include "upcast/upcaster_cache.hpp"

extern "C" {
#include "access/detoast.h"
#include "utils/datum.h"
}

#include <cstring>

namespace outbox {

namespace {

// The queue is flushed at this many messages, or bytes of payloads. A subtransaction also ends when
// upcasters have returned that many bytes.
constexpr std::size_t items_threshold = 256;
constexpr std::size_t bytes_threshold = 1024 * 1024;

// Maximum claims per call while all claimed messages fail to be upcast.
constexpr int max_claim_attempts = 8;

// True while upcasters run, because an upcaster that claims or peeks would re-enter this code.
bool is_upcaster_running = false;

// Copies a uuid, text or jsonb to the current memory context. A value in a TOAST table is fetched
// and stays compressed.
Datum copy_of(Datum value, Oid type)
{
    constexpr int uuid_size = 16;
    if (type == UUIDOID)
        return datumCopy(value, false, uuid_size);
    auto* given = reinterpret_cast<struct varlena*>(DatumGetPointer(value));
    return VARATT_IS_EXTERNAL(given) ? PointerGetDatum(detoast_external_attr(given))
                                     : datumCopy(value, false, -1);
}

// Returns the text cut to limits::max_error_bytes.
Datum shorten_error(const char* text)
{
    const int length =
        pg_mbcliplen(text, static_cast<int>(std::strlen(text)), limits::max_error_bytes);
    return PointerGetDatum(cstring_to_text_with_len(text, length));
}

// The prepared calls of upcasters in one subtransaction.
class PreparedCalls {
public:
    // Returns std::nullopt for NULL. The result is valid until reset().
    std::optional<Datum> call(Upcaster& upcaster, Datum payload)
    {
        return evaluation_.call(find_or_prepare(upcaster), payload);
    }
    void reset() { evaluation_.reset(); }
    void end() { evaluation_.end(); }

private:
    struct PreparedCall {
        const Upcaster* upcaster;
        ExprState* call;
    };

    // Returns the upcaster's call, prepared at most once per PreparedCalls, in the current memory
    // context.
    ExprState* find_or_prepare(Upcaster& upcaster)
    {
        for (const PreparedCall& one : prepared_)
            if (one.upcaster == &upcaster)
                return one.call;
        prepared_.push({&upcaster, upcaster.call.prepare()});
        return prepared_[prepared_.size() - 1].call;
    }

    pg::CallEvaluation evaluation_;
    pg::PallocVector<PreparedCall> prepared_;
};

// Returns the upcaster of the event type from this version, or nullptr. The cache must have been
// refreshed.
Upcaster* find_upcaster(std::string_view event_type, int version)
{
    const UpcasterChain* chain = find_upcaster_chain(event_type);
    return chain == nullptr ? nullptr : chain->find_from(version);
}

} // namespace

std::string_view UpcastingReceiver::QueuedMessage::event_type() const
{
    return pg::to_view(message.values[col_event_type]);
}

MessageReceiver& UpcastingReceiver::begin(const Consumer& consumer)
{
    if (is_upcaster_running)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("an upcaster cannot claim or peek at events")));
    consumer_ = consumer;
    refresh_upcaster_cache();
    const bool has_nothing_to_do = consumer.wanted_versions.empty() && !has_upcasters();
    return has_nothing_to_do ? receiver_.begin(consumer) : *this;
}

void UpcastingReceiver::receive(const Message& message, const Delivery& delivery)
{
    token_ = delivery.token;
    const int target = target_version_of(message);
    const bool is_done = target <= DatumGetInt16(message.values[col_event_version]);
    if (is_done && queue_.empty()) {
        forward(message, delivery);
        return;
    }
    const MemoryContext before = MemoryContextSwitchTo(claim_memory_);
    if (queue_memory_ == nullptr)
        queue_memory_ =
            AllocSetContextCreate(claim_memory_, "outbox upcasting", ALLOCSET_DEFAULT_SIZES);
    queue_.reserve(queue_.size() + 1);
    MemoryContextSwitchTo(queue_memory_);
    queue_.push(copy_of(message, delivery, target));
    MemoryContextSwitchTo(before);
    queued_bytes_ +=
        VARSIZE_ANY(DatumGetPointer(queue_[queue_.size() - 1].message.values[col_payload]));
    if (queue_.size() >= items_threshold || queued_bytes_ >= bytes_threshold)
        flush();
}

// Returns the version in which the message must be delivered. flush() finds out whether upcasters
// reach it.
int UpcastingReceiver::target_version_of(const Message& message) const
{
    const int version = DatumGetInt16(message.values[col_event_version]);
    const std::string_view type = pg::to_view(message.values[col_event_type]);
    for (const WantedVersion& one : consumer_.wanted_versions)
        if (one.event_type == type)
            return one.version;
    const UpcasterChain* chain = find_upcaster_chain(type);
    return chain == nullptr ? version
                            : chain->highest_reachable(version, limits::max_event_version);
}

// Copies the message and its values to the current memory context.
UpcastingReceiver::QueuedMessage UpcastingReceiver::copy_of(const Message& message,
                                                            const Delivery& delivery, int target)
{
    QueuedMessage item = {message, delivery, target, nullptr};
    for (const int column : {col_tracking_id, col_aggregate_type, col_aggregate_id, col_event_type,
                             col_payload, col_metadata, col_trace_id})
        if (!message.nulls[column])
            item.message.values[column] =
                outbox::copy_of(message.values[column], log_columns[column].type);
    return item;
}

// Passes the message to the wrapped receiver. If a message of its aggregate has failed, keeps a
// copy in maybe_blocked_ instead, until settle_failures().
void UpcastingReceiver::forward(const Message& message, const Delivery& delivery)
{
    if (blocked_aggregates_.contains(message)) {
        const MemoryContext before = MemoryContextSwitchTo(claim_memory_);
        maybe_blocked_.push(copy_of(message, delivery, 0));
        MemoryContextSwitchTo(before);
        return;
    }
    receiver_.receive(message, delivery);
    ++forwarded_;
}

// Adds the message to failed_ids_ and failures_, which settle_failures() writes, and for an ordered
// consumer its aggregate to the blocked ones. Without `counts` it is retried at once, and no
// attempt is counted.
void UpcastingReceiver::record_failure(const QueuedMessage& item, const char* error, bool counts)
{
    const MemoryContext before = MemoryContextSwitchTo(claim_memory_);
    failed_ids_.push(item.message.id());
    const auto at_once = counts ? std::nullopt : std::optional<int64>(0);
    failures_.push({shorten_error(error), at_once, false, counts});
    if (consumer_.ordered)
        blocked_aggregates_.add(item.message);
    MemoryContextSwitchTo(before);
}

// Handles and empties the queue, in order: forwards messages that are in their target version. From
// the first other message on, upcasts, until an upcaster fails or has to run as another role.
// Records the failure of messages that did not reach their target version.
void UpcastingReceiver::flush()
{
    for (std::size_t i = 0; i < queue_.size(); ++i) {
        for (;;) {
            CHECK_FOR_INTERRUPTS();
            QueuedMessage& item = queue_[i];
            if (item.error != nullptr || item.version() >= item.target_version)
                break;
            if (is_time_exhausted_)
                break;
            refresh_upcaster_cache();
            const Upcaster* next = find_upcaster(item.event_type(), item.version());
            if (next == nullptr || next->problem != nullptr)
                set_error(item, nullptr, next);
            else
                upcast_from(i, next->runs_as);
        }
        const QueuedMessage& item = queue_[i];
        if (item.error != nullptr)
            // No attempt is counted for a message that is blocked behind another failure.
            record_failure(item, item.error, !blocked_aggregates_.contains(item.message));
        else if (item.version() < item.target_version)
            record_failure(item, "not tried: upcasting had used up its time", false);
        else
            forward(item.message, item.delivery);
        pfree(DatumGetPointer(item.message.values[col_payload]));
    }
    queue_.set_size(0);
    queued_bytes_ = 0;
    if (queue_memory_ != nullptr)
        MemoryContextReset(queue_memory_);
}

// Upcasts queued messages from `first` on in one sandbox with the rights of `role`, until an
// upcaster fails, another role is needed, or bytes_threshold is reached. Sets the error of a
// message whose upcaster fails. Raises a query cancel again.
void UpcastingReceiver::upcast_from(std::size_t first, Oid role)
{
    QueuedMessage* current = nullptr;
    Upcaster* called = nullptr;
    bool is_null = false;
    const MemoryContext work =
        AllocSetContextCreate(queue_memory_, "outbox upcaster calls", ALLOCSET_DEFAULT_SIZES);
    const auto upcast_once = [&](PreparedCalls& calls, QueuedMessage& item) {
        Datum& payload = item.message.values[col_payload];
        current = &item;
        pg::start_time_limit(settings::upcaster_timeout);
        const auto result = pg::with_guc_nest_level([&] { return calls.call(*called, payload); });
        pg::end_time_limit();
        is_null = !result;
        if (is_null)
            return std::size_t{0};
        const MemoryContext before = MemoryContextSwitchTo(queue_memory_);
        const Datum copy = PointerGetDatum(PG_DETOAST_DATUM_COPY(*result));
        MemoryContextSwitchTo(before);
        calls.reset();
        pfree(DatumGetPointer(payload));
        payload = copy;
        item.message.values[col_event_version] =
            Int16GetDatum(static_cast<int16>(item.version() + 1));
        return static_cast<std::size_t>(VARSIZE_ANY(DatumGetPointer(copy)));
    };
    const auto body = [&] {
        is_upcaster_running = true;
        MemoryContextSwitchTo(work);
        PreparedCalls calls;
        std::size_t bytes = 0;
        for (std::size_t i = first; i < queue_.size() && bytes < bytes_threshold; ++i)
            while (queue_[i].version() < queue_[i].target_version) {
                called = find_upcaster(queue_[i].event_type(), queue_[i].version());
                if (called == nullptr || called->problem != nullptr || called->runs_as != role) {
                    calls.end();
                    return;
                }
                bytes += upcast_once(calls, queue_[i]);
                if (is_null)
                    return;
            }
        calls.end();
    };

    const TimestampTz start = GetCurrentTimestamp();
    const ErrorData* error = pg::in_sandbox(role, body);
    is_upcaster_running = false;
    time_spent_ += GetCurrentTimestamp() - start;
    is_time_exhausted_ = time_limit_ && time_spent_ > *time_limit_;
    if (error != nullptr && pg::is_query_cancel(*error))
        ReThrowError(const_cast<ErrorData*>(error));
    if (error != nullptr || is_null)
        set_error(*current, error, called);
    MemoryContextDelete(work);
}

// Sets why the message could not be upcast: no upcaster, a problem of it, its error, or NULL. After
// outbox.upcaster_timeout, also sets is_time_exhausted_.
void UpcastingReceiver::set_error(QueuedMessage& item, const ErrorData* error,
                                  const Upcaster* upcaster)
{
    const char* type = TextDatumGetCString(item.message.values[col_event_type]);
    const MemoryContext before = MemoryContextSwitchTo(queue_memory_);
    if (upcaster == nullptr) {
        item.error = psprintf("version %d of %s cannot be reached: there is no upcaster from %d",
                              item.target_version, type, item.version());
    } else {
        const bool took_too_long = error != nullptr &&
                                   error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
                                   pg::has_time_limit_expired();
        is_time_exhausted_ = is_time_exhausted_ || took_too_long;
        const char* reason = upcaster->problem != nullptr ? upcaster->problem
                             : error == nullptr           ? "it returned NULL"
                             : took_too_long
                                 ? psprintf("it took longer than outbox.upcaster_timeout, %d ms",
                                            settings::upcaster_timeout)
                                 : error->message;
        item.error =
            psprintf("upcaster %s of %s %d: %s", upcaster->function, type, item.version(), reason);
    }
    MemoryContextSwitchTo(before);
}

bool UpcastingReceiver::finish()
{
    flush();
    return failed_ids_.empty();
}

void UpcastingReceiver::settle_failures()
{
    const FailResult outcome = fail_messages(token_, failed_ids_.view(), failures_.view());
    for (const QueuedMessage& item : maybe_blocked_)
        if (!contains(outcome.blocked, item.message.id())) {
            receiver_.receive(item.message, item.delivery);
            ++forwarded_;
        }
}

ClaimResult claim_with_upcasting(const ClaimRequest& request, MessageReceiver& receiver)
{
    constexpr int64 us_per_ms = 1000;
    const bool is_relay = request.relay != nullptr;
    // In the relay, upcasting for one sink must not delay the others.
    const auto limit =
        is_relay ? std::optional<int64>(settings::upcaster_timeout * us_per_ms) : std::nullopt;
    for (int round = 1;; ++round) {
        UpcastingReceiver upcasting(receiver, limit);
        ClaimResult claimed = claim_batch(request, upcasting);
        claimed.upcasting_us = upcasting.time_spent();
        if (upcasting.failed() == 0)
            return claimed;
        upcasting.settle_failures();
        claimed.count = upcasting.forwarded();
        claimed.failed = upcasting.failed();
        claimed.has_more = true;
        if (request.settle_at_once && claimed.count > 0)
            ack_messages(upcasting.token(), nullptr);
        if (claimed.count > 0 || is_relay || upcasting.is_time_exhausted() ||
            round == max_claim_attempts)
            return claimed;
    }
}

} // namespace outbox
