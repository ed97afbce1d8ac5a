#include "relay/listen_notify.hpp"

#include "consumer_api/peek.hpp"
#include "extension/owner_spi.hpp"
#include "pg/datum.hpp"

extern "C" {
#include "commands/async.h"
}

namespace outbox {

namespace {

constexpr std::string_view prefix = "outbox_";

// Returns the channel of a consumer; nullptr if its name is too long for one.
const char* channel_of(Datum consumer)
{
    const std::string_view name = pg::to_view(consumer);
    if (prefix.size() + name.size() >= NAMEDATALEN)
        return nullptr;
    return psprintf("%s%.*s", prefix.data(), static_cast<int>(name.size()), name.data());
}

} // namespace

long notify_listeners()
{
    static constinit Statement find{
        "SELECT name FROM _outbox.consumers WHERE kind = 'worker' AND NOT paused"};
    const uint64 count = find.execute_with_latest_snapshot(nullptr);
    pg::PallocVector<Datum> names;
    for (uint64 i = 0; i < count; ++i)
        names.push(ResultRow(i).get(1));
    long next = LONG_MAX;
    for (const Datum name : names) {
        const char* channel = channel_of(name);
        if (channel == nullptr)
            continue;
        const Readiness readiness = check_readiness(name);
        if (readiness.ready)
            Async_Notify(channel, "");
        else
            next = Min(next, readiness.recheck_after_ms);
    }
    return next;
}

} // namespace outbox
