// Reads sinks from _outbox.sinks and _outbox.consumers.
#pragma once

#include "consumer/consumer.hpp"
#include "core/event_type_bloom.hpp"

#include <string>
#include <vector>

namespace outbox {

// A sink as its rows describe it. A task is replaced when its definition changes.
struct SinkDefinition {
    int32 consumer;
    std::optional<int64> tenant; // gets events of this tenant only; nullopt: of all tenants
    std::string name;
    std::string kind;
    std::string config; // JSON
    bool ordered;
    RetryPolicy policy;
    EventTypeBloom types; // event types that match its filter

    // Compares all members but the types, which can change without opening the sink again.
    bool equals_except_types(const SinkDefinition& other) const
    {
        return consumer == other.consumer && tenant == other.tenant && name == other.name &&
               kind == other.kind && config == other.config && ordered == other.ordered &&
               policy == other.policy;
    }
};

// Appends the sinks that are not paused. First pauses sinks that were created in another database,
// of which this one is a copy: the original sends their events. Writes _outbox.consumers. Call
// inside as_owner().
void load_sinks(std::vector<SinkDefinition>& sinks);

// Appends the sink of one consumer, paused or not, if it exists; for 0 all sinks that are not
// paused. Writes nothing. Call inside as_owner().
void load_sinks(std::vector<SinkDefinition>& sinks, int32 consumer);

// Returns whether the text is a valid value of outbox.http_allowed_hosts.
bool is_host_allowlist(const char* list);

// Sets paused and pause_reason (given in UTF-8) of a sink, unless it is paused. Call inside
// as_owner().
void pause_sink(int32 consumer, std::string_view reason);

} // namespace outbox
