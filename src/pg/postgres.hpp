// Includes the server's headers and wraps differences between its versions. Every file outside of
// src/core and src/sink includes this header first; files in src/core and src/sink never do.
#pragma once

// A server built without NLS defines gettext() and related functions as macros. <libintl.h>, which
// C++ headers include, declares them as functions, so it comes first.
#if __has_include(<libintl.h>)
#include <libintl.h>
#endif

extern "C" {
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "partitioning/partbounds.h"
#include "partitioning/partdesc.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/partcache.h"
#include "utils/rangetypes.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"
#include "utils/wait_event.h"
#include "utils/xid8.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 170000
#include "utils/injection_point.h"
#endif
}

#if PG_VERSION_NUM < 150000
#error "outbox needs PostgreSQL 15 or later"
#endif

// Declares and begins a C function for SQL. The module is built with -fvisibility=hidden, and
// PGDLLEXPORT is empty on Linux in PostgreSQL 15, so visibility is set by pragma.
#define OUTBOX_SQL_FUNCTION(name)                                                                  \
    _Pragma("GCC visibility push(default)") extern "C"                                             \
    {                                                                                              \
        PG_FUNCTION_INFO_V1(name);                                                                 \
    }                                                                                              \
    _Pragma("GCC visibility pop") extern "C" Datum name(PG_FUNCTION_ARGS)

#include <cstdlib>

namespace outbox::pg {

// Allocates the `extra` of a GUC check hook, which the server frees; nullptr if out of memory.
inline void* alloc_guc_extra(std::size_t size)
{
#if PG_VERSION_NUM >= 160000
    return guc_malloc(LOG, size);
#else
    return std::malloc(size);
#endif
}

// Returns all GUCs, placeholders without a definition included.
inline config_generic** all_gucs(int* count)
{
#if PG_VERSION_NUM >= 160000
    return get_guc_variables(count);
#else
    *count = GetNumConfigOptions();
    return get_guc_variables();
#endif
}

// Returns the header of a sequence's WAL record.
inline xl_seq_rec sequence_wal_record(Relation sequence)
{
    xl_seq_rec record;
#if PG_VERSION_NUM >= 160000
    record.locator = sequence->rd_locator;
#else
    record.node = sequence->rd_node;
#endif
    return record;
}

// Parameter types of index_beginscan() after the snapshot, for test/model, which replaces it.
#if PG_VERSION_NUM >= 180000
#define OUTBOX_MORE_BEGINSCAN_PARAMETERS IndexScanInstrumentation*, int, int
#else
#define OUTBOX_MORE_BEGINSCAN_PARAMETERS int, int
#endif

// index_beginscan() with `keys` scan keys and no order-by keys.
inline IndexScanDesc begin_index_scan(Relation table, Relation index, Snapshot snapshot, int keys)
{
#if PG_VERSION_NUM >= 180000
    return index_beginscan(table, index, snapshot, nullptr, keys, 0);
#else
    return index_beginscan(table, index, snapshot, keys, 0);
#endif
}

// Updates a row. Returns true if indexes need entries for the new version. Raises an error if the
// row was changed concurrently.
inline bool update_row(Relation table, ItemPointerData tid, TupleTableSlot* row, Snapshot snapshot)
{
#if PG_VERSION_NUM >= 160000
    TU_UpdateIndexes indexes;
    simple_table_tuple_update(table, &tid, row, snapshot, &indexes);
    return indexes != TU_None;
#else
    bool indexes;
    simple_table_tuple_update(table, &tid, row, snapshot, &indexes);
    return indexes;
#endif
}

// Returns the oldest xid whose status is in the commit log. The caller holds XactTruncationLock.
inline TransactionId oldest_clog_xid()
{
#if PG_VERSION_NUM >= 170000
    return TransamVariables->oldestClogXid;
#else
    return ShmemVariableCache->oldestClogXid;
#endif
}

// Creates a wait event set for `count` events that lives as long as the process.
inline WaitEventSet* create_wait_event_set(int count)
{
#if PG_VERSION_NUM >= 170000
    return CreateWaitEventSet(nullptr, count);
#else
    return CreateWaitEventSet(TopMemoryContext, count);
#endif
}

// Runs the injection point of that name, on servers built with --enable-injection-points.
inline void run_injection_point([[maybe_unused]] const char* name)
{
#if PG_VERSION_NUM >= 180000
    INJECTION_POINT(name, nullptr);
#elif PG_VERSION_NUM >= 170000
    INJECTION_POINT(name);
#endif
}

// A wait event. pg_stat_activity shows its name from PostgreSQL 17 on, before that "Extension".
class CustomWaitEvent {
public:
    constexpr explicit CustomWaitEvent(const char* name) : name_(name) {}

    // Returns wait_event_info, registering the name with the server at the first call.
    uint32 event_info()
    {
#if PG_VERSION_NUM >= 170000
        if (event_info_ == PG_WAIT_EXTENSION)
            event_info_ = WaitEventExtensionNew(name_);
#endif
        return event_info_;
    }

private:
    [[maybe_unused]] const char* name_;
    uint32 event_info_ = PG_WAIT_EXTENSION;
};

// Returns true if the current role owns the database.
inline bool owns_database(Oid database)
{
#if PG_VERSION_NUM >= 160000
    return object_ownercheck(DatabaseRelationId, database, GetUserId());
#else
    return pg_database_ownercheck(database, GetUserId());
#endif
}

// Returns true if the current role owns the extension.
inline bool owns_extension(Oid extension)
{
#if PG_VERSION_NUM >= 160000
    return object_ownercheck(ExtensionRelationId, extension, GetUserId());
#else
    return pg_extension_ownercheck(extension, GetUserId());
#endif
}

// Returns true if the role has EXECUTE on the function.
inline bool may_execute(Oid function, Oid role)
{
#if PG_VERSION_NUM >= 160000
    return object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK;
#else
    return pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

// make_range() for a range that is not empty.
inline RangeType* make_plain_range(TypeCacheEntry* type, RangeBound* lower, RangeBound* upper)
{
#if PG_VERSION_NUM >= 160000
    return make_range(type, lower, upper, false, nullptr);
#else
    return make_range(type, lower, upper, false);
#endif
}

} // namespace outbox::pg
