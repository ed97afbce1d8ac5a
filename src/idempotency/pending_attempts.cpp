#include "idempotency/pending_attempts.hpp"

#include "core/limits.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "utils/datum.h"
}

namespace outbox {

namespace {

struct PendingAttempt {
    Attempt attempt;
    SubTransactionId begun_in;
    SubTransactionId closed_in; // InvalidSubTransactionId: open
    PendingAttempt* next;
};

// Linked list in TopTransactionContext.
PendingAttempt* pending_attempts = nullptr;

// Raises program_limit_exceeded if the transaction has limits::max_open_attempts attempts, closed
// ones included.
void check_attempt_limit()
{
    int count = 0;
    for (const PendingAttempt* pending = pending_attempts; pending != nullptr;
         pending = pending->next)
        ++count;
    if (count >= limits::max_open_attempts)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("a transaction can use at most %d idempotency keys",
                               limits::max_open_attempts),
                        errhint("Commit the transaction more often.")));
}

bool is_same_key(const KeyName& a, const KeyName& b)
{
    return a.tenant_id == b.tenant_id && pg::to_view(a.scope) == pg::to_view(b.scope) &&
           pg::to_view(a.key) == pg::to_view(b.key);
}

// Inserts the row of an attempt that is still open at commit, so that another transaction can
// finish it, and closes the attempt.
void insert_pending(PendingAttempt& pending)
{
    PushActiveSnapshot(GetTransactionSnapshot());
    insert_key(pending.attempt, std::nullopt);
    pending.closed_in = TopSubTransactionId;
    PopActiveSnapshot();
}

// Inserts the rows of all open attempts that are not written yet.
void insert_all_pending()
{
    for (PendingAttempt* pending = pending_attempts; pending != nullptr; pending = pending->next)
        if (pending->closed_in == InvalidSubTransactionId && !pending->attempt.is_written)
            insert_pending(*pending);
}

// Xact callback: writes open attempts before commit and PREPARE; the end of the transaction forgets
// all.
void on_xact_event(XactEvent event, void*)
{
    switch (event) {
    case XACT_EVENT_PRE_COMMIT:
    case XACT_EVENT_PRE_PREPARE:
        insert_all_pending();
        break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
        pending_attempts = nullptr;
        break;
    default:
        break;
    }
}

// Subxact callback: a commit passes attempts to the parent; an abort removes those begun in the
// subtransaction and opens those closed in it.
void on_subxact_event(SubXactEvent event, SubTransactionId subxact, SubTransactionId parent, void*)
{
    if (event == SUBXACT_EVENT_COMMIT_SUB) {
        for (PendingAttempt* pending = pending_attempts; pending != nullptr;
             pending = pending->next) {
            if (pending->begun_in == subxact)
                pending->begun_in = parent;
            if (pending->closed_in == subxact)
                pending->closed_in = parent;
        }
    } else if (event == SUBXACT_EVENT_ABORT_SUB) {
        for (PendingAttempt** link = &pending_attempts; *link != nullptr;) {
            PendingAttempt* pending = *link;
            if (pending->closed_in == subxact)
                pending->closed_in = InvalidSubTransactionId;
            if (pending->begun_in == subxact)
                *link = pending->next;
            else
                link = &pending->next;
        }
    }
}

// Returns a detoasted copy of a text in the current memory context.
Datum copy_text(Datum text)
{
    return datumCopy(PointerGetDatum(PG_DETOAST_DATUM_PACKED(text)), false, -1);
}

} // namespace

const Attempt* find_pending_attempt(const KeyName& name)
{
    for (const PendingAttempt* pending = pending_attempts; pending != nullptr;
         pending = pending->next)
        if (pending->closed_in == InvalidSubTransactionId &&
            is_same_key(pending->attempt.name, name))
            return &pending->attempt;
    return nullptr;
}

void add_pending_attempt(const Attempt& attempt)
{
    check_attempt_limit();
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    auto* pending = static_cast<PendingAttempt*>(palloc0(sizeof(PendingAttempt)));
    pending->attempt = attempt;
    pending->attempt.name.scope = copy_text(attempt.name.scope);
    pending->attempt.name.key = copy_text(attempt.name.key);
    pending->begun_in = GetCurrentSubTransactionId();
    pending->next = pending_attempts;
    pending_attempts = pending;
    MemoryContextSwitchTo(before);
}

void close_pending_attempt(const Attempt* attempt)
{
    for (PendingAttempt* pending = pending_attempts; pending != nullptr; pending = pending->next)
        if (&pending->attempt == attempt)
            pending->closed_in = GetCurrentSubTransactionId();
}

void set_up_pending_attempts()
{
    RegisterXactCallback(on_xact_event, nullptr);
    RegisterSubXactCallback(on_subxact_event, nullptr);
}

} // namespace outbox
