#include "audit/append_only_guard.hpp"

#include "pg/exceptions.hpp"

extern "C" {
#include "commands/trigger.h"
}

namespace outbox {

namespace {

// The subtransaction in which DELETE is allowed; InvalidSubTransactionId: none. Backend-local
// memory, so that no setting of a session can enable it; it ends with the (sub)transaction.
SubTransactionId removal_subxact = InvalidSubTransactionId;

// Xact callback: the end of the transaction forbids DELETE again.
void on_xact_event(XactEvent event, void*)
{
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
        removal_subxact = InvalidSubTransactionId;
        break;
    default:
        break;
    }
}

// Subxact callback: a commit passes the permission to the parent, an abort ends it.
void on_subxact_event(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void*)
{
    if (removal_subxact != subxact)
        return;
    if (event == SUBXACT_EVENT_COMMIT_SUB)
        removal_subxact = parent;
    else if (event == SUBXACT_EVENT_ABORT_SUB)
        removal_subxact = InvalidSubTransactionId;
}

// Raises object_not_in_prerequisite_state for the command that fired the trigger.
[[noreturn]] void raise_append_only(const TriggerData* trigger)
{
    const char* command = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)   ? "UPDATE"
                          : TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ? "DELETE"
                                                                       : "TRUNCATE";
    ereport(ERROR,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             errmsg("%s is not allowed: the audit log and its chain are append-only", command),
             errhint("To remove rows by age, set outbox.audit_retention or call "
                     "audit_set_retention()."),
             errtable(trigger->tg_relation)));
    pg_unreachable();
}

} // namespace

void set_up_append_only_guard()
{
    RegisterXactCallback(on_xact_event, nullptr);
    RegisterSubXactCallback(on_subxact_event, nullptr);
}

} // namespace outbox

// Trigger function on audit_log and audit_chain: raises an error unless the command is a DELETE by
// retention.
OUTBOX_SQL_FUNCTION(audit_forbid_change)
{
    return outbox::pg::sql_entry([&]() -> Datum {
        if (!CALLED_AS_TRIGGER(fcinfo))
            ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                            errmsg("audit_forbid_change() is a trigger function")));
        const auto* trigger = reinterpret_cast<TriggerData*>(fcinfo->context);
        const bool allowed = TRIGGER_FIRED_BY_DELETE(trigger->tg_event) &&
                             outbox::removal_subxact != InvalidSubTransactionId;
        if (!allowed)
            outbox::raise_append_only(trigger);
        PG_RETURN_POINTER(trigger->tg_trigtuple);
    });
}

// Allows this session DELETE on audit_log and audit_chain until audit_end_removal(), the rollback
// of the current subtransaction, or the end of the transaction.
OUTBOX_SQL_FUNCTION(audit_begin_removal)
{
    return outbox::pg::sql_entry([&] {
        outbox::removal_subxact = GetCurrentSubTransactionId();
        PG_RETURN_VOID();
    });
}

// Forbids DELETE on audit_log and audit_chain again.
OUTBOX_SQL_FUNCTION(audit_end_removal)
{
    return outbox::pg::sql_entry([&] {
        outbox::removal_subxact = InvalidSubTransactionId;
        PG_RETURN_VOID();
    });
}
