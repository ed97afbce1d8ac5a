#include "log/event.hpp"

#include "core/uuid.hpp"
#include "pg/exceptions.hpp"

#include <cstring>

namespace outbox {

namespace {

// pg_strong_random() as a UuidV7::RandomSource.
bool strong_random(void* buffer, std::size_t size)
{
    return pg_strong_random(buffer, size);
}

} // namespace

EventParameters parameters_of(const Event& event)
{
    return {{UUIDPGetDatum(&event.tracking_id), Int64GetDatum(event.tenant_id),
             Int16GetDatum(event.event_version), event.aggregate_type, event.aggregate_id,
             event.event_type, event.payload, event.metadata, event.trace_id.value_or(Datum{0}), 0},
            {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', event.trace_id ? ' ' : 'n', 'n'}};
}

pg_uuid_t new_tracking_id(TimestampTz now)
{
    static constinit UuidV7 generator{strong_random};
    static int generator_pid = 0;
    if (generator_pid != MyProcPid) {
        generator.reset();
        generator_pid = MyProcPid;
    }

    constexpr int64 unix_epoch =
        static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
    const Uuid uuid = generator.next(now + unix_epoch);
    pg_uuid_t result;
    static_assert(sizeof(result.data) == sizeof(uuid));
    std::memcpy(result.data, uuid.data(), sizeof(result.data));
    return result;
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_new_tracking_id)
{
    return outbox::pg::sql_entry([&] {
        auto* uuid = static_cast<pg_uuid_t*>(palloc(sizeof(pg_uuid_t)));
        *uuid = outbox::new_tracking_id(GetCurrentTimestamp());
        PG_RETURN_UUID_P(uuid);
    });
}
