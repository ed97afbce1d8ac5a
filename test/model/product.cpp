// Minimal replacements of the parts of the product that are not linked, as far as claims and
// appends need them.
#include "product.hpp"

#include "claim/claim_internal.hpp"
#include "delivery/retry_queue.hpp"
#include "extension/locks.hpp"
#include "ipc/wakeup.hpp"
#include "kept.hpp"
#include "log/archive_lookup.hpp"
#include "log/partition_routing.hpp"
#include "pg/sequence.hpp"
#include "planted.hpp"
#include "server.hpp"

#include <cstring>

namespace outbox::model {

namespace {

constexpr int32 consumer_id = 1;
constexpr int32 other_consumer_id = 2;

// A short varlena of the server: its length in the first byte.
Datum text(const char* characters)
{
    const std::size_t length = std::strlen(characters);
    auto* result = static_cast<char*>(palloc(length + 1));
    SET_VARSIZE_1B(result, length + 1);
    std::memcpy(VARDATA_1B(result), characters, length);
    return PointerGetDatum(result);
}

constexpr char consumer_name[] = "consumer";
constexpr char other_consumer_name[] = "other";

// True during the claim of meet(), which is not part of the model: it asks no question and finds no
// message.
bool is_meeting = false;

class NoCaller final : public MessageReceiver {
    void receive(const Message&, const Delivery&) override { std::abort(); }
};

} // namespace

void enqueue(int count)
{
    Event events[max_messages] = {};
    for (int i = 0; i < count; ++i)
        events[i].event_type = text("event");
    append_to_log(events, count);
}

void insert_row(Id id)
{
    write_row(U64FromFullTransactionId(GetTopFullTransactionId()), id, 1);
}

ClaimRequest claim_request(int page)
{
    return {text(consumer_name), page, 1, text("worker"), false};
}

void meet(bool our_consumer)
{
    static bool is_known = false;
    if (our_consumer && is_known)
        return;
    is_known = our_consumer;
    is_meeting = true;
    NoCaller nobody;
    claim_batch(
        {text(our_consumer ? consumer_name : other_consumer_name), 1, 1, text("worker"), false},
        nobody);
    is_meeting = false;
}

} // namespace outbox::model

namespace outbox {

using namespace model;

// ---- consumer and batches: the newest batch is the cursor

ConsumerState read_consumer(Datum name)
{
    ConsumerState state = {};
    state.consumer.consumer_partitions = 1;
    const bool is_other = VARSIZE_ANY_EXHDR(DatumGetPointer(name)) != sizeof(consumer_name) - 1;
    state.consumer.id = is_other ? other_consumer_id : consumer_id;
    if (!is_meeting)
        state.progress.cursor = cursors()[cursor_as_planned()].view();
    return state;
}

bool Filter::matches(const Message&) const
{
    return true;
}

// Tokens are only compared, so a token is one above the greatest in use.
int64 draw_tokens(int)
{
    (void)GetTopTransactionId();
    Byte& token = playing.session().token;
    if (token == 0) {
        Byte greatest = playing.state->server.token;
        for (const Session& session : playing.state->sessions)
            greatest = std::max(greatest, session.token);
        token = greatest + 1;
    }
    return token;
}

pg::PallocVector<Lease> open_leases(std::span<const int64>)
{
    return {};
}

bool may_read_new(const Consumer&, std::span<const Lease>)
{
    return !is_meeting;
}

void add_newest_batch(int32, const Batch& batch, const LeaseHolder*, const Progress& progress)
{
    Session& session = playing.session();
    session.new_cursor = cursors().number_of(keep(progress.cursor));
    Server& server = playing.state->server;
    server.logged_next_xid =
        std::max<Byte>(server.logged_next_xid, static_cast<Byte>(playing.own_xid + 1));
    bool agree = count_ids(batch.ids) == playing.put;
    for (int i = 0; i < playing.put; ++i)
        agree = agree && contains(batch.ids, playing.put_ids[i]);
    session.is_batch_wrong = !agree;
}

// ---- retries and leases: no message fails, and no lease expires

bool Claim::try_lock_consumer_partition(int32)
{
    return true;
}

const Lease* Claim::first_lease_of(int32) const
{
    return nullptr;
}

ClaimStepResult Claim::take_over_expired()
{
    return {};
}

ClaimStepResult Claim::deliver_retries()
{
    return {};
}

ClaimStepResult Claim::take_unassigned_batch()
{
    return {};
}

ClaimStepResult Claim::distribute_to_tenants()
{
    return {};
}

bool has_blocked_aggregates(int32, int32)
{
    return false;
}

bool add_if_blocked(const Consumer&, int32, const Message&, int)
{
    return false;
}

// ---- log

InsertTarget open_insert_target(PartitionedTable)
{
    return {};
}

void close_insert_target(const InsertTarget&) {}

bool DirectInsertCheck::is_allowed(const InsertTarget&)
{
    return true;
}

bool archive_has_ids_above(Id)
{
    return false;
}

pg::PallocVector<Oid> archived_partitions_above(Id)
{
    return {};
}

namespace stats {

bool is_enabled()
{
    return false;
}

} // namespace stats

namespace pg {

// The model has one sequence, that of the log.
int64 draw_values(Oid, int count)
{
    playing.ids_wanted = count;
    return ask(Question::id);
}

int64 last_drawn_value(Oid)
{
    return ask(Question::sequence);
}

} // namespace pg

bool lock_consumer(int32, int)
{
    return is_meeting || ask(Question::consumer_lock) != 0;
}

void unlock_consumer(int32)
{
    if (!is_meeting)
        playing.session().holds_consumer = false;
}

namespace ipc {

void wake_all_at_commit() {}

void wake_for_types_at_commit(const EventTypeBloom&) {}

} // namespace ipc

} // namespace outbox
