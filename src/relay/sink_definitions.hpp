// The sinks of a database, as its tables have them.
#pragma once

#include "consumer/consumer.hpp"
#include "core/event_type_bloom.hpp"

#include <string>
#include <vector>

namespace outbox {

struct SinkDefinition {
    int32 consumer;
    std::optional<int64> tenant; // whose events it gets; nothing: everybody's
    std::string name;
    std::string kind;
    std::string config; // JSON
    bool ordered;
    RetryPolicy policy;
    EventTypeBloom types; // of the events that it wants

    // All but the types: these can change under way.
    bool equals_except_types(const SinkDefinition& other) const
    {
        return consumer == other.consumer && tenant == other.tenant && name == other.name &&
               kind == other.kind && config == other.config && ordered == other.ordered &&
               policy == other.policy;
    }
};

// Those that are not paused. Call inside pg::as_owner(). Pauses those that came with a copy of
// another database: its own sinks send their events.
void load_sinks(std::vector<SinkDefinition>& sinks);

// This one, paused or not, if it is there.
void load_sinks(std::vector<SinkDefinition>& sinks, int32 consumer);

// Can outbox.http_allowed_hosts be this?
bool is_host_allowlist(const char* list);

// Stops a sink, and says why. Call inside pg::as_owner().
void pause_sink(int32 consumer, std::string_view reason);

} // namespace outbox
