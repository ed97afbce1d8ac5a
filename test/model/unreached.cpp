// Functions that the linked parts of the product mention and, in the model, never call.
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
    refuse("a dealt batch");
}

DistributedPage read_and_distribute(const Consumer&, std::span<const Lease>, int, Cursor&)
{
    refuse("dealing");
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

stats::Facts event_facts_of(const Message&)
{
    refuse("counting");
}

namespace stats {

TypePlace place_of(Datum)
{
    refuse("counting");
}

void count_enqueued(TypePlace, int)
{
    refuse("counting");
}

bool count_batch(int32, int64, TimestampTz)
{
    refuse("counting");
}

void remember_batch(int64, const Summary&)
{
    refuse("counting");
}

void Collector::add(const Facts&)
{
    refuse("counting");
}

Summary Collector::summary() const
{
    refuse("counting");
}

} // namespace stats

namespace pg {

void keep_lock_for_session(int32)
{
    refuse("the relay");
}

uint64 Statement::execute(const Datum*, const char*)
{
    refuse("a statement");
}

namespace detail {

Role become_owner()
{
    refuse("another role");
}

void become_self(const Role&)
{
    refuse("another role");
}

} // namespace detail

void Report::capture() noexcept
{
    refuse("an exception");
}

void Report::raise() const
{
    refuse("an exception");
}

} // namespace pg

} // namespace outbox
