#include "audit/append_only_guard.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "commands/trigger.h"
}

namespace outbox {

namespace {

// Where removing was begun; an error ends it with its subtransaction.
SubTransactionId removing_in = InvalidSubTransactionId;

void at_end(XactEvent event, void*)
{
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
        removing_in = InvalidSubTransactionId;
        break;
    default:
        break;
    }
}

void at_end_of_part(SubXactEvent event, SubTransactionId part, SubTransactionId parent, void*)
{
    if (removing_in != part)
        return;
    if (event == SUBXACT_EVENT_COMMIT_SUB)
        removing_in = parent;
    else if (event == SUBXACT_EVENT_ABORT_SUB)
        removing_in = InvalidSubTransactionId;
}

[[noreturn]] void refuse(const TriggerData* trigger)
{
    const char* command = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)   ? "UPDATE"
                          : TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ? "DELETE"
                                                                       : "TRUNCATE";
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("%s is not allowed: the audit log and its chain are append-only", command),
             errhint("Rows leave the audit log when their time is over: see "
                     "outbox.audit_retention and audit_set_retention()."),
             errtable(trigger->tg_relation)));
    pg_unreachable();
}

} // namespace

void watch_removal()
{
    RegisterXactCallback(at_end, nullptr);
    RegisterSubXactCallback(at_end_of_part, nullptr);
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(audit_forbid_change)
{
    return outbox::pg::entry([&]() -> Datum {
        if (!CALLED_AS_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("audit_forbid_change() is a trigger function")));
        const auto* trigger = reinterpret_cast<TriggerData*>(fcinfo->context);
        const bool allowed = TRIGGER_FIRED_BY_DELETE(trigger->tg_event) &&
                             outbox::removing_in != InvalidSubTransactionId;
        if (!allowed)
            outbox::refuse(trigger);
        PG_RETURN_POINTER(trigger->tg_trigtuple);
    });
}

OUTBOX_SQL_FUNCTION(audit_begin_removal)
{
    return outbox::pg::entry([&] {
        outbox::removing_in = GetCurrentSubTransactionId();
        PG_RETURN_VOID();
    });
}

OUTBOX_SQL_FUNCTION(audit_end_removal)
{
    return outbox::pg::entry([&] {
        outbox::removing_in = InvalidSubTransactionId;
        PG_RETURN_VOID();
    });
}
