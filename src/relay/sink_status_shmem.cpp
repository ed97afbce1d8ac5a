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

struct SinkStatuses {
    SinkStatus statuses[max_sink_statuses]; // database == InvalidOid: free
};

SinkStatuses* sink_statuses = nullptr;

void initialize_shmem(void* memory)
{
    *static_cast<SinkStatuses*>(memory) = {};
}

// Returns the entry, nullptr if there is none; (InvalidOid, 0) is a free one. The caller holds
// ipc::shmem_lock().
SinkStatus* find(Oid database, int32 consumer)
{
    for (SinkStatus& status : sink_statuses->statuses)
        if (status.database == database && status.consumer == consumer)
            return &status;
    return nullptr;
}

} // namespace

void publish_sink_status(const SinkStatus& status)
{
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    SinkStatus* entry = find(MyDatabaseId, status.consumer);
    if (entry == nullptr)
        entry = find(InvalidOid, 0);
    if (entry != nullptr) {
        *entry = status;
        entry->database = MyDatabaseId;
    }
    LWLockRelease(ipc::shmem_lock());
}

void remove_sink_status(int32 consumer)
{
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    if (SinkStatus* entry = find(MyDatabaseId, consumer))
        *entry = {};
    LWLockRelease(ipc::shmem_lock());
}

void clear_sink_statuses()
{
    LWLockAcquire(ipc::shmem_lock(), LW_EXCLUSIVE);
    for (SinkStatus& status : sink_statuses->statuses)
        if (status.database == MyDatabaseId)
            status = {};
    LWLockRelease(ipc::shmem_lock());
}

void set_up_sink_statuses()
{
    ipc::request_shmem("outbox sink statuses", sizeof(SinkStatuses),
                       reinterpret_cast<void**>(&sink_statuses), initialize_shmem);
}

} // namespace outbox

// Internal: the states of the sinks of this database. A session of a tenant sees its own sinks
// only, because an endpoint's error text may quote events of other tenants.
OUTBOX_SQL_FUNCTION(outbox_sink_states)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        InitMaterializedSRF(fcinfo, 0);
        const auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
        if (sink_statuses == nullptr)
            return Datum{0};
        auto* copy = static_cast<SinkStatuses*>(palloc(sizeof(SinkStatuses)));
        LWLockAcquire(ipc::shmem_lock(), LW_SHARED);
        *copy = *sink_statuses;
        LWLockRelease(ipc::shmem_lock());
        for (const SinkStatus& status : copy->statuses) {
            if (status.database != MyDatabaseId || !can_see_tenant(status.tenant))
                continue;
            const Datum values[] = {Int32GetDatum(status.consumer),
                                    Int32GetDatum(status.claimed),
                                    Int32GetDatum(status.in_flight),
                                    Int32GetDatum(status.consecutive_failures),
                                    Int64GetDatum(status.delivered),
                                    Int64GetDatum(status.rejected),
                                    TimestampTzGetDatum(status.resume_at),
                                    TimestampTzGetDatum(status.last_error_at),
                                    pg::error_text_from_utf8(status.last_error)};
            const bool nulls[] = {false,
                                  false,
                                  false,
                                  false,
                                  false,
                                  false,
                                  status.resume_at == 0,
                                  status.last_error_at == 0,
                                  status.last_error_at == 0};
            tuplestore_putvalues(result->setResult, result->setDesc, const_cast<Datum*>(values),
                                 const_cast<bool*>(nulls));
        }
        return Datum{0};
    });
}
