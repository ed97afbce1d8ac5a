#include "relay/test_sink.hpp"

#include "core/uuid.hpp"
#include "extension/owner_spi.hpp"
#include "extension/tenant.hpp"
#include "ipc/shmem.hpp"
#include "ipc/worker_registry.hpp"
#include "pg/datum.hpp"
#include "pg/encoding.hpp"
#include "pg/exceptions.hpp"
#include "pg/nonatomic_call.hpp"

extern "C" {
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
}

#include <algorithm>

namespace outbox {

namespace {

// The one request of a database, and its result.
struct SinkTestSlot {
    enum State : uint32 { none, requested, finished };

    static constexpr std::size_t max_detail = 1024;

    Oid database; // InvalidOid: free
    SinkTestRequest request;
    int requester_pid; // of the waiting backend
    State state;
    bool ok;
    char detail[max_detail]; // in UTF-8
};

struct SinkTestSlots {
    uint64 request_count; // numbers the requests
    SinkTestSlot slots[ipc::max_worker_slots];
};

SinkTestSlots* test_slots = nullptr;

void initialize_shmem(void* memory)
{
    *static_cast<SinkTestSlots*>(memory) = {};
}

// Returns the slot of the database, nullptr if it has none. The caller holds the lock.
SinkTestSlot* find_slot(Oid database)
{
    for (SinkTestSlot& slot : test_slots->slots)
        if (slot.database == database)
            return &slot;
    return nullptr;
}

// Writes a request of this backend to the slot of the database. Returns false if another backend
// waits for its result, or no slot is free.
bool submit_request(int32 consumer)
{
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    SinkTestSlot* slot = find_slot(MyDatabaseId);
    // A request is stale if its backend has ended, or is this one, after a cancel.
    const bool is_free = slot == nullptr || slot->state == SinkTestSlot::finished ||
                         slot->requester_pid == MyProcPid ||
                         BackendPidGetProc(slot->requester_pid) == nullptr;
    if (slot == nullptr)
        slot = find_slot(InvalidOid);
    const bool submitted = is_free && slot != nullptr;
    if (submitted) {
        *slot = {};
        slot->database = MyDatabaseId;
        slot->request = {consumer, ++test_slots->request_count};
        slot->requester_pid = MyProcPid;
        slot->state = SinkTestSlot::requested;
    }
    LWLockRelease(ipc::shmem_lock());
    return submitted;
}

// Returns whether the request of this backend is finished, with the result in `outcome`. Frees the
// slot then, and also on `frees_slot`, when the backend stops waiting.
bool take_result(SinkTestSlot& outcome, bool frees_slot)
{
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    SinkTestSlot* slot = find_slot(MyDatabaseId);
    const bool is_mine = slot != nullptr && slot->requester_pid == MyProcPid;
    const bool is_finished = is_mine && slot->state == SinkTestSlot::finished;
    if (is_finished)
        outcome = *slot;
    if (is_mine && (is_finished || frees_slot))
        *slot = {};
    LWLockRelease(ipc::shmem_lock());
    return is_finished;
}

// Returns the consumer id of a sink, read as the owner of the log. Raises undefined_object for an
// unknown consumer, wrong_object_type for one that is not a sink.
int32 find_sink(Datum name)
{
    int32 consumer = 0;
    PushActiveSnapshot(GetTransactionSnapshot());
    as_owner([&] {
        const Consumer found = read_consumer(name).consumer;
        if (!found.is_sink)
            ereport(ERROR,
                    (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("this consumer is not a sink")));
        consumer = found.id;
    });
    PopActiveSnapshot();
    return consumer;
}

constinit pg::CustomWaitEvent test_wait{"OutboxTestSink"};

// Wakes the relay until the result is there, for up to 65 s; after that outcome.ok is false and its
// detail says so. Can be canceled.
void wait_for_result(SinkTestSlot& outcome)
{
    constexpr int max_wait = 650; // tenths of a second: longer than most request timeouts
    for (int i = 0; !take_result(outcome, i == max_wait); ++i) {
        if (i == max_wait) {
            strlcpy(outcome.detail, "no answer within 65 seconds", SinkTestSlot::max_detail);
            return;
        }
        ipc::wake_relay({}, ipc::reason_sink_test);
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
                        test_wait.event_info());
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

// Returns an event with a random tracking id. Throws pg::ServerError if no random bytes are there.
sink::Event make_test_event()
{
    sink::Event event;
    Uuid id;
    pg::guarded_call([&] {
        if (!pg_strong_random(id.data(), id.size()))
            elog(ERROR, "could not generate random bytes");
    });
    constexpr unsigned char version = 0x40, variant = 0x80;
    id[6] = static_cast<unsigned char>((id[6] & 0x0F) | version);
    id[8] = static_cast<unsigned char>((id[8] & 0x3F) | variant);
    const UuidText text = to_text(id);
    event.tracking_id.assign(text.data(), text.size());
    event.aggregate_type = "outbox";
    event.aggregate_id = "test";
    event.event_type = "OutboxSinkTested";
    event.payload = R"({"test": true})";
    event.attempts = 1;
    using namespace std::chrono;
    event.occurred_at = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
    return event;
}

} // namespace

std::optional<SinkTestRequest> SinkTest::pending_request()
{
    std::optional<SinkTestRequest> request;
    LWLockAcquire(ipc::shmem_lock(), LW_SHARED);
    if (const SinkTestSlot* slot = find_slot(MyDatabaseId))
        if (slot->state == SinkTestSlot::requested)
            request = slot->request;
    LWLockRelease(ipc::shmem_lock());
    return request;
}

void SinkTest::respond(const SinkTestRequest& request, bool ok, std::string_view detail)
{
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    SinkTestSlot* slot = find_slot(MyDatabaseId);
    if (slot != nullptr && slot->request.number == request.number &&
        slot->state == SinkTestSlot::requested) {
        slot->ok = ok;
        slot->state = SinkTestSlot::finished;
        const int length =
            pg_encoding_mbcliplen(PG_UTF8, detail.data(), static_cast<int>(detail.size()),
                                  static_cast<int>(SinkTestSlot::max_detail) - 1);
        slot->detail[detail.copy(slot->detail, static_cast<std::size_t>(length))] = '\0';
        if (PGPROC* requester = BackendPidGetProc(slot->requester_pid))
            SetLatch(&requester->procLatch);
    }
    LWLockRelease(ipc::shmem_lock());
}

SinkTest::SinkTest(const SinkTestRequest& request, std::unique_ptr<sink::Sink> sink)
    : request_(request), event_(make_test_event()), sink_(std::move(sink))
{
    const sink::Event* events[] = {&event_};
    if (auto result = sink_->send(1, events, sink_->stream_of(event_)))
        results_.push_back(std::move(*result));
    sink_->flush();
}

bool SinkTest::poll()
{
    sink_->poll(results_);
    if (results_.empty())
        return false;
    const sink::DeliveryResult& result = results_.front();
    const bool ok = result.status == sink::DeliveryStatus::delivered;
    respond(request_, ok, result.reason);
    return true;
}

void set_up_sink_tests()
{
    ipc::request_shmem("outbox sink tests", sizeof(SinkTestSlots),
                       reinterpret_cast<void**>(&test_slots), initialize_shmem);
}

} // namespace outbox

// Commits the caller's transaction, so that none is open during the request, and waits for the
// relay.
OUTBOX_SQL_FUNCTION(outbox_test_sink)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        require_no_tenant("outbox_test_sink()");
        pg::require_nonatomic_call(fcinfo, "outbox_test_sink()", "CALL it on its own.");
        if (PG_ARGISNULL(0))
            ereport(ERROR,
                    (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name must not be NULL")));
        if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
            elog(ERROR, "SPI_connect failed");
        const int32 consumer = find_sink(PG_GETARG_DATUM(0));
        SPI_commit(); // no transaction is open while the request is in flight
        if (ipc::relay_pid(MyDatabaseId) == 0)
            ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                            errmsg("no relay serves this database"),
                            errhint("See SELECT * FROM outbox_status().")));
        if (!submit_request(consumer))
            ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
                            errmsg("another sink of this database is being tested")));
        SinkTestSlot outcome = {};
        wait_for_result(outcome);
        SPI_finish();

        TupleDesc descriptor;
        if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "outbox_test_sink() must return a row");
        Datum values[] = {BoolGetDatum(outcome.ok), pg::error_text_from_utf8(outcome.detail)};
        bool nulls[] = {false, false};
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
}
