#include "relay/sink_status_shmem.hpp"

#include "extension/tenant.hpp"
#include "ipc/shmem.hpp"
#include "pg/encoding.hpp"
#include "pg/exceptions.hpp"

extern "C" {
#include "storage/lwlock.h"
}

namespace outbox {

namespace {

struct Board {
    SinkState states[max_sinks_shown]; // those without a database are free
};

Board* board = nullptr;

void initialize(void* memory)
{
    *static_cast<Board*>(memory) = {};
}

SinkState* find(Oid database, int32 consumer)
{
    for (SinkState& state : board->states)
        if (state.database == database && state.consumer == consumer)
            return &state;
    return nullptr;
}

} // namespace

void publish_sink_status(const SinkState& state)
{
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    SinkState* place = find(MyDatabaseId, state.consumer);
    if (place == nullptr)
        place = find(InvalidOid, 0);
    if (place != nullptr) {
        *place = state;
        place->database = MyDatabaseId;
    }
    LWLockRelease(pg::shared_lock());
}

void remove_sink_status(int32 consumer)
{
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    if (SinkState* place = find(MyDatabaseId, consumer))
        *place = {};
    LWLockRelease(pg::shared_lock());
}

void clear_sink_statuses()
{
    LWLockAcquire(pg::shared_lock(), LW_EXCLUSIVE);
    for (SinkState& state : board->states)
        if (state.database == MyDatabaseId)
            state = {};
    LWLockRelease(pg::shared_lock());
}

void set_up_sink_statuses()
{
    pg::want_shared("outbox board", sizeof(Board), reinterpret_cast<void**>(&board), initialize);
}

} // namespace outbox

// Internal: what the relay shows of the sinks of this database. What a receiver has said may be
// about any tenant's events.
OUTBOX_SQL_FUNCTION(outbox_sink_states)
{
    return outbox::pg::entry([&] {
        using namespace outbox;
        InitMaterializedSRF(fcinfo, 0);
        const auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
        if (board == nullptr)
            return Datum{0};
        auto* copy = static_cast<Board*>(palloc(sizeof(Board)));
        LWLockAcquire(pg::shared_lock(), LW_SHARED);
        *copy = *board;
        LWLockRelease(pg::shared_lock());
        for (const SinkState& state : copy->states) {
            if (state.database != MyDatabaseId || !shows_tenant(state.tenant))
                continue;
            const Datum values[] = {
                Int32GetDatum(state.consumer),        Int32GetDatum(state.in_hand),
                Int32GetDatum(state.on_the_way),      Int32GetDatum(state.troubles),
                Int64GetDatum(state.delivered),       Int64GetDatum(state.rejected),
                TimestampTzGetDatum(state.resume_at), TimestampTzGetDatum(state.last_error_at),
                pg::text_from_utf8(state.last_error)};
            const bool nulls[] = {false,
                                  false,
                                  false,
                                  false,
                                  false,
                                  false,
                                  state.resume_at == 0,
                                  state.last_error_at == 0,
                                  state.last_error_at == 0};
            tuplestore_putvalues(result->setResult, result->setDesc, const_cast<Datum*>(values),
                                 const_cast<bool*>(nulls));
        }
        return Datum{0};
    });
}
