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

// So many messages, or so many bytes of them, are collected, and so many bytes may come of them,
// before they are passed on.
constexpr std::size_t enough_items = 256;
constexpr std::size_t enough_bytes = 1024 * 1024;

// A claim whose messages have all failed looks for others, so many times.
constexpr int max_rounds = 8;

// An upcaster that claims or peeks would come back here.
bool is_running = false;

Datum copy_of(Datum value, Oid type)
{
    constexpr int uuid_size = 16;
    if (type == UUIDOID)
        return datumCopy(value, false, uuid_size);
    auto* given = reinterpret_cast<struct varlena*>(DatumGetPointer(value));
    return VARATT_IS_EXTERNAL(given) ? PointerGetDatum(detoast_external_attr(given))
                                     : datumCopy(value, false, -1);
}

Datum kept_text(const char* text)
{
    const int length =
        pg_mbcliplen(text, static_cast<int>(std::strlen(text)), limits::max_error_bytes);
    return PointerGetDatum(cstring_to_text_with_len(text, length));
}

// Functions as they are called in one subtransaction.
class Calls {
public:
    std::optional<Datum> call(Upcaster& upcaster, Datum payload)
    {
        return evaluation_.call(prepared(upcaster), payload);
    }
    void reset() { evaluation_.reset(); }
    void end() { evaluation_.end(); }

private:
    struct Prepared {
        const Upcaster* upcaster;
        ExprState* call;
    };

    ExprState* prepared(Upcaster& upcaster)
    {
        for (const Prepared& one : prepared_)
            if (one.upcaster == &upcaster)
                return one.call;
        prepared_.push({&upcaster, upcaster.call.prepare()});
        return prepared_[prepared_.size() - 1].call;
    }

    pg::Evaluation evaluation_;
    pg::PallocVector<Prepared> prepared_;
};

Upcaster* find_upcaster(std::string_view event_type, int version)
{
    const UpcasterChain* chain = find_upcasters(event_type);
    return chain == nullptr ? nullptr : chain->find(version);
}

} // namespace

std::string_view UpcastingReceiver::Item::event_type() const
{
    return pg::to_view(message.values[col_event_type]);
}

MessageReceiver& UpcastingReceiver::meet(const Consumer& consumer)
{
    if (is_running)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("an upcaster cannot ask for events")));
    consumer_ = consumer;
    refresh_upcasters();
    const bool has_nothing_to_do = consumer.versions.empty() && !has_upcasters();
    return has_nothing_to_do ? sink_.meet(consumer) : *this;
}

void UpcastingReceiver::put(const Message& message, const Delivery& delivery)
{
    token_ = delivery.token;
    const int target = target_of(message);
    const bool is_done = target <= DatumGetInt16(message.values[col_event_version]);
    if (is_done && items_.empty()) {
        pass_on(message, delivery);
        return;
    }
    const MemoryContext before = MemoryContextSwitchTo(lasting_);
    if (memory_ == nullptr)
        memory_ = AllocSetContextCreate(lasting_, "outbox upcasting", ALLOCSET_DEFAULT_SIZES);
    items_.reserve(items_.size() + 1);
    MemoryContextSwitchTo(memory_);
    items_.push(copy_of(message, delivery, target));
    MemoryContextSwitchTo(before);
    bytes_ += VARSIZE_ANY(DatumGetPointer(items_[items_.size() - 1].message.values[col_payload]));
    if (items_.size() >= enough_items || bytes_ >= enough_bytes)
        flush();
}

// The version in which it is to leave. One that cannot be reached is found out on the way.
int UpcastingReceiver::target_of(const Message& message) const
{
    const int version = DatumGetInt16(message.values[col_event_version]);
    const std::string_view type = pg::to_view(message.values[col_event_type]);
    for (const WantedVersion& one : consumer_.versions)
        if (one.event_type == type)
            return one.version;
    const UpcasterChain* chain = find_upcasters(type);
    return chain == nullptr ? version : chain->reach(version, limits::max_event_version);
}

UpcastingReceiver::Item UpcastingReceiver::copy_of(const Message& message, const Delivery& delivery,
                                                   int target)
{
    Item item = {message, delivery, target, nullptr};
    for (const int column : {col_tracking_id, col_aggregate_type, col_aggregate_id, col_event_type,
                             col_payload, col_metadata, col_trace_id})
        if (!message.nulls[column])
            item.message.values[column] =
                outbox::copy_of(message.values[column], log_columns[column].type);
    return item;
}

void UpcastingReceiver::pass_on(const Message& message, const Delivery& delivery)
{
    if (blocked_.contains(message)) {
        const MemoryContext before = MemoryContextSwitchTo(lasting_);
        held_.push(copy_of(message, delivery, 0));
        MemoryContextSwitchTo(before);
        return;
    }
    sink_.put(message, delivery);
    ++passed_on_;
}

void UpcastingReceiver::fail_item(const Item& item, const char* error, bool counts)
{
    const MemoryContext before = MemoryContextSwitchTo(lasting_);
    failed_.push(item.message.id());
    const auto at_once = counts ? std::nullopt : std::optional<int64>(0);
    failures_.push({kept_text(error), at_once, false, counts});
    if (consumer_.ordered)
        blocked_.add(item.message);
    MemoryContextSwitchTo(before);
}

// In their order: what is done is passed on, up to the first that is not. From there on functions
// are called, until one fails or has to be called as somebody else.
void UpcastingReceiver::flush()
{
    for (std::size_t i = 0; i < items_.size(); ++i) {
        for (;;) {
            CHECK_FOR_INTERRUPTS();
            Item& item = items_[i];
            if (item.error != nullptr || item.version() >= item.target)
                break;
            if (is_exhausted_)
                break;
            refresh_upcasters();
            const Upcaster* next = find_upcaster(item.event_type(), item.version());
            if (next == nullptr || next->problem != nullptr)
                explain(item, nullptr, next);
            else
                upcast_from(i, next->runs_as);
        }
        const Item& item = items_[i];
        if (item.error != nullptr)
            // One that has to wait behind another has not had its turn.
            fail_item(item, item.error, !blocked_.contains(item.message));
        else if (item.version() < item.target)
            fail_item(item, "not tried: upcasters had used up their time", false);
        else
            pass_on(item.message, item.delivery);
        pfree(DatumGetPointer(item.message.values[col_payload]));
    }
    items_.set_size(0);
    bytes_ = 0;
    if (memory_ != nullptr)
        MemoryContextReset(memory_);
}

// As far as it goes, in one subtransaction.
void UpcastingReceiver::upcast_from(std::size_t first, Oid role)
{
    Item* current = nullptr;
    Upcaster* called = nullptr;
    bool is_null = false;
    const MemoryContext work =
        AllocSetContextCreate(memory_, "outbox upcasters at work", ALLOCSET_DEFAULT_SIZES);
    const auto bring_up = [&](Calls& calls, Item& item) {
        Datum& payload = item.message.values[col_payload];
        current = &item;
        pg::start_time_limit(settings::upcaster_timeout);
        const auto result = pg::with_own_settings([&] { return calls.call(*called, payload); });
        pg::end_time_limit();
        is_null = !result;
        if (is_null)
            return std::size_t{0};
        const MemoryContext before = MemoryContextSwitchTo(memory_);
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
        is_running = true;
        MemoryContextSwitchTo(work);
        Calls calls;
        std::size_t bytes = 0;
        for (std::size_t i = first; i < items_.size() && bytes < enough_bytes; ++i)
            while (items_[i].version() < items_[i].target) {
                called = find_upcaster(items_[i].event_type(), items_[i].version());
                if (called == nullptr || called->problem != nullptr || called->runs_as != role) {
                    calls.end();
                    return;
                }
                bytes += bring_up(calls, items_[i]);
                if (is_null)
                    return;
            }
        calls.end();
    };

    const TimestampTz start = GetCurrentTimestamp();
    const ErrorData* error = pg::in_sandbox(role, body);
    is_running = false;
    time_ += GetCurrentTimestamp() - start;
    is_exhausted_ = limit_ && time_ > *limit_;
    if (error != nullptr && pg::is_cancel(*error))
        ReThrowError(const_cast<ErrorData*>(error));
    if (error != nullptr || is_null)
        explain(*current, error, called);
    MemoryContextDelete(work);
}

// Why a message has failed.
void UpcastingReceiver::explain(Item& item, const ErrorData* error, const Upcaster* upcaster)
{
    const char* type = TextDatumGetCString(item.message.values[col_event_type]);
    const MemoryContext before = MemoryContextSwitchTo(memory_);
    if (upcaster == nullptr) {
        item.error = psprintf("version %d of %s cannot be reached: there is no upcaster from %d",
                              item.target, type, item.version());
    } else {
        const bool took_too_long =
            error != nullptr && error->sqlerrcode == ERRCODE_QUERY_CANCELED && pg::is_time_up();
        is_exhausted_ = is_exhausted_ || took_too_long;
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

bool UpcastingReceiver::complete()
{
    flush();
    return failed_.empty();
}

void UpcastingReceiver::settle_failures()
{
    const Failed outcome = fail(token_, failed_.view(), failures_.view());
    for (const Item& item : held_)
        if (!contains(outcome.blocked, item.message.id())) {
            sink_.put(item.message, item.delivery);
            ++passed_on_;
        }
}

Claimed claim_upcast(const ClaimRequest& request, MessageReceiver& sink)
{
    constexpr int64 microseconds = 1000;
    const bool is_relay = request.relay != nullptr;
    // The relay has other sinks to look after.
    const auto limit =
        is_relay ? std::optional<int64>(settings::upcaster_timeout * microseconds) : std::nullopt;
    for (int round = 1;; ++round) {
        UpcastingReceiver upcasting(sink, limit);
        Claimed claimed = claim(request, upcasting);
        claimed.upcasting_time = upcasting.time();
        if (upcasting.failed() == 0)
            return claimed;
        upcasting.settle_failures();
        claimed.count = upcasting.passed_on();
        claimed.failed = upcasting.failed();
        claimed.more = true;
        if (request.settle && claimed.count > 0)
            ack(upcasting.token(), nullptr);
        if (claimed.count > 0 || is_relay || upcasting.is_exhausted() || round == max_rounds)
            return claimed;
    }
}

} // namespace outbox
