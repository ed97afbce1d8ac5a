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

// One question for each database.
struct Question {
    enum State : uint32 { none, asked, answered };

    static constexpr std::size_t max_detail = 1024;

    Oid database; // none: nobody asks
    TestQuestion what;
    int asker; // its process
    State state;
    bool ok;
    char detail[max_detail]; // in UTF-8
};

struct Questions {
    uint64 asked; // so many have been
    Question all[pg::max_worker_slots];
};

Questions* questions = nullptr;

void initialize(void* memory)
{
    *static_cast<Questions*>(memory) = {};
}

// All of these with the lock held.
Question* find(Oid database)
{
    for (Question& question : questions->all)
        if (question.database == database)
            return &question;
    return nullptr;
}

// Asks, unless somebody else waits for an answer.
bool ask(int32 consumer)
{
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Question* question = find(MyDatabaseId);
    // One whose asker has gone away, or was interrupted, is nobody's.
    const bool is_free = question == nullptr || question->state == Question::answered ||
                         question->asker == MyProcPid ||
                         BackendPidGetProc(question->asker) == nullptr;
    if (question == nullptr)
        question = find(InvalidOid);
    const bool asked = is_free && question != nullptr;
    if (asked) {
        *question = {};
        question->database = MyDatabaseId;
        question->what = {consumer, ++questions->asked};
        question->asker = MyProcPid;
        question->state = Question::asked;
    }
    LWLockRelease(pg::shared_lock());
    return asked;
}

// The answer, if there is one, or if nobody wants it any more.
bool take_answer(Question& answer, bool give_up)
{
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Question* question = find(MyDatabaseId);
    const bool is_mine = question != nullptr && question->asker == MyProcPid;
    const bool answered = is_mine && question->state == Question::answered;
    if (answered)
        answer = *question;
    if (is_mine && (answered || give_up))
        *question = {};
    LWLockRelease(pg::shared_lock());
    return answered;
}

// The consumer's number, if it is a sink.
int32 find_sink(Datum name)
{
    int32 consumer = 0;
    PushActiveSnapshot(GetTransactionSnapshot());
    pg::as_owner([&] {
        const Consumer found = read_consumer(name).consumer;
        if (!found.is_sink)
            ereport(ERROR,
                    (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("this consumer is no sink")));
        consumer = found.id;
    });
    PopActiveSnapshot();
    return consumer;
}

constinit pg::NamedWait test_wait{"OutboxTestSink"};

void wait_for_answer(Question& answer)
{
    constexpr int patience = 650; // tenths of a second: longer than most time-outs
    for (int i = 0; !take_answer(answer, i == patience); ++i) {
        if (i == patience) {
            strlcpy(answer.detail, "no answer within 65 seconds", Question::max_detail);
            return;
        }
        pg::wake_relay({}, pg::task_test);
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 100,
                        test_wait.number());
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

sink::Event made_up_event()
{
    sink::Event event;
    Uuid id;
    pg::call([&] {
        if (!pg_strong_random(id.data(), id.size()))
            elog(ERROR, "no random bytes are to be had");
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

std::optional<TestQuestion> SinkTest::question()
{
    std::optional<TestQuestion> what;
    LWLockAcquire(pg::shared_lock(), LW_SHARED);
    if (const Question* question = find(MyDatabaseId))
        if (question->state == Question::asked)
            what = question->what;
    LWLockRelease(pg::shared_lock());
    return what;
}

void SinkTest::answer(const TestQuestion& what, bool ok, std::string_view detail)
{
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    Question* question = find(MyDatabaseId);
    if (question != nullptr && question->what.number == what.number &&
        question->state == Question::asked) {
        question->ok = ok;
        question->state = Question::answered;
        const int length =
            pg_encoding_mbcliplen(PG_UTF8, detail.data(), static_cast<int>(detail.size()),
                                  static_cast<int>(Question::max_detail) - 1);
        question->detail[detail.copy(question->detail, static_cast<std::size_t>(length))] = '\0';
        if (PGPROC* asker = BackendPidGetProc(question->asker))
            SetLatch(&asker->procLatch);
    }
    LWLockRelease(pg::shared_lock());
}

SinkTest::SinkTest(const TestQuestion& what, std::unique_ptr<sink::Sink> sink)
    : what_(what), event_(made_up_event()), sink_(std::move(sink))
{
    const sink::Event* events[] = {&event_};
    if (auto outcome = sink_->send(1, events, sink_->stream_of(event_)))
        outcomes_.push_back(std::move(*outcome));
    sink_->start();
}

bool SinkTest::work()
{
    sink_->work(outcomes_);
    if (outcomes_.empty())
        return false;
    const sink::Outcome& outcome = outcomes_.front();
    const bool ok = outcome.verdict == sink::DeliveryStatus::delivered;
    answer(what_, ok, outcome.reason);
    return true;
}

void set_up_sink_tests()
{
    pg::want_shared("outbox sink tests", sizeof(Questions), reinterpret_cast<void**>(&questions),
                    initialize);
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_test_sink)
{
    return outbox::pg::entry([&] {
        using namespace outbox;
        refuse_tenants("outbox_test_sink()");
        pg::check_can_end_transaction(fcinfo, "outbox_test_sink()", "CALL it on its own.");
        if (PG_ARGISNULL(0))
            ereport(ERROR,
                    (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name must not be NULL")));
        if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
            elog(ERROR, "SPI_connect failed");
        const int32 consumer = find_sink(PG_GETARG_DATUM(0));
        SPI_commit(); // nobody talks to the world while a transaction is open
        if (pg::relay_pid(MyDatabaseId) == 0)
            ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                            errmsg("no relay serves this database"),
                            errhint("See SELECT * FROM outbox_status().")));
        if (!ask(consumer))
            ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
                            errmsg("another sink of this database is being tested")));
        Question answer = {};
        wait_for_answer(answer);
        SPI_finish();

        TupleDesc descriptor;
        if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE)
            elog(ERROR, "outbox_test_sink() must return a row");
        Datum values[] = {BoolGetDatum(answer.ok), pg::text_from_utf8(answer.detail)};
        bool nulls[] = {false, false};
        return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
}
