#include "idempotency/pending_attempts.hpp"

#include "core/limits.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "utils/datum.h"
}

namespace outbox {

namespace {

struct Open {
    Attempt attempt;
    SubTransactionId begun_in;
    SubTransactionId settled_in; // 0: it is not
    Open* next;
};

// In memory of the transaction.
Open* all = nullptr;

void check_number()
{
    int count = 0;
    for (const Open* open = all; open != nullptr; open = open->next)
        ++count;
    if (count >= limits::max_open_attempts)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("a transaction can use at most %d idempotency keys",
                               limits::max_open_attempts),
                        errhint("Commit now and then.")));
}

bool is_same(const KeyName& a, const KeyName& b)
{
    return a.tenant_id == b.tenant_id && pg::to_view(a.scope) == pg::to_view(b.scope) &&
           pg::to_view(a.key) == pg::to_view(b.key);
}

// One that is neither finished nor abandoned goes on in another transaction: from now on the table
// speaks for it.
void write_down(Open& open)
{
    PushActiveSnapshot(GetTransactionSnapshot());
    insert_key(open.attempt, std::nullopt);
    open.settled_in = TopSubTransactionId;
    PopActiveSnapshot();
}

void write_down_all()
{
    for (Open* open = all; open != nullptr; open = open->next)
        if (open->settled_in == InvalidSubTransactionId && !open->attempt.is_written)
            write_down(*open);
}

void at_end(XactEvent event, void*)
{
    switch (event) {
    case XACT_EVENT_PRE_COMMIT:
    case XACT_EVENT_PRE_PREPARE:
        write_down_all();
        break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
        all = nullptr;
        break;
    default:
        break;
    }
}

void at_end_of_part(SubXactEvent event, SubTransactionId part, SubTransactionId parent, void*)
{
    if (event == SUBXACT_EVENT_COMMIT_SUB) {
        for (Open* open = all; open != nullptr; open = open->next) {
            if (open->begun_in == part)
                open->begun_in = parent;
            if (open->settled_in == part)
                open->settled_in = parent;
        }
    } else if (event == SUBXACT_EVENT_ABORT_SUB) {
        for (Open** place = &all; *place != nullptr;) {
            Open* open = *place;
            if (open->settled_in == part)
                open->settled_in = InvalidSubTransactionId;
            if (open->begun_in == part)
                *place = open->next;
            else
                place = &open->next;
        }
    }
}

Datum copy_of(Datum text)
{
    return datumCopy(PointerGetDatum(PG_DETOAST_DATUM_PACKED(text)), false, -1);
}

} // namespace

const Attempt* find_attempt(const KeyName& name)
{
    for (const Open* open = all; open != nullptr; open = open->next)
        if (open->settled_in == InvalidSubTransactionId && is_same(open->attempt.name, name))
            return &open->attempt;
    return nullptr;
}

void add_attempt(const Attempt& attempt)
{
    check_number();
    const MemoryContext before = MemoryContextSwitchTo(TopTransactionContext);
    auto* open = static_cast<Open*>(palloc0(sizeof(Open)));
    open->attempt = attempt;
    open->attempt.name.scope = copy_of(attempt.name.scope);
    open->attempt.name.key = copy_of(attempt.name.key);
    open->begun_in = GetCurrentSubTransactionId();
    open->next = all;
    all = open;
    MemoryContextSwitchTo(before);
}

void settle_attempt(const Attempt* attempt)
{
    for (Open* open = all; open != nullptr; open = open->next)
        if (&open->attempt == attempt)
            open->settled_in = GetCurrentSubTransactionId();
}

void watch_attempts()
{
    RegisterXactCallback(at_end, nullptr);
    RegisterSubXactCallback(at_end_of_part, nullptr);
}

} // namespace outbox
