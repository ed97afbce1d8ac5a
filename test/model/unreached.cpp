// Functions that the linked parts of the product refer to but never call in the model.
#include "claim/claim_internal.hpp"
#include "claim/distribute_page.hpp"
#include "extension/owner_spi.hpp"
#include "pg/exceptions.hpp"

#include <cstdio>

[[noreturn]] static void refuse(const char* what)
{
    std::fprintf(stderr, "%s is not part of the model\n", what);
    std::abort();
}

namespace outbox {

void add_cursor_row(int32, const Batch&, const Progress&)
{
    refuse("a cursor without a batch");
}

void add_batch(int32, const Batch&, const LeaseHolder*)
{
    refuse("an unassigned batch");
}

DistributedPage read_and_distribute(const Consumer&, std::span<const Lease>, int, Cursor&)
{
    refuse("distribution of a page");
}

const ConsumerState* ConsumerStateCache::lookup() const
{
    refuse("the relay");
}

int64 ConsumerStateCache::reserved_token() const
{
    refuse("the relay");
}

void ConsumerStateCache::store(const ConsumerState&, int64, const DeferredBatch*)
{
    refuse("the relay");
}

EventParameters parameters_of(const Event&)
{
    refuse("appending by a statement");
}

stats::EventFacts event_facts_of(const Message&)
{
    refuse("counting");
}

namespace stats {

TypeSlotNumber type_slot_of(Datum)
{
    refuse("counting");
}

void count_enqueued(TypeSlotNumber, int)
{
    refuse("counting");
}

bool count_batch(int32, int64, TimestampTz)
{
    refuse("counting");
}

void store_batch_summary(int64, const BatchSummary&)
{
    refuse("counting");
}

void SummaryBuilder::add(const EventFacts&)
{
    refuse("counting");
}

BatchSummary SummaryBuilder::summary() const
{
    refuse("counting");
}

} // namespace stats

void keep_lock_for_session(int32)
{
    refuse("the relay");
}

uint64 Statement::execute(const Datum*, const char*)
{
    refuse("a statement");
}

namespace detail {

SavedRole switch_to_owner()
{
    refuse("another role");
}

void switch_back(const SavedRole&)
{
    refuse("another role");
}

} // namespace detail

namespace pg {

void CapturedException::capture() noexcept
{
    refuse("an exception");
}

void CapturedException::raise() const
{
    refuse("an exception");
}

} // namespace pg

} // namespace outbox
