#pragma once

#include "sink/interface/event.hpp"

#include <optional>
#include <string_view>

namespace outbox::sink {

// A topic's name with parts that come from the event: {aggregate_type}, {event_type}, {tenant_id}.
class TopicTemplate {
public:
    TopicTemplate() = default;

    // Throws 22023 for a name that no topic can have, whatever the event.
    static TopicTemplate parse(std::string_view text);

    // Into `name`, which keeps its memory.
    void apply(const Event& event, std::string& name) const;

    // The same for events that go to the same topic.
    std::uint64_t hash(const Event& event) const;

private:
    enum class Field { none, aggregate_type, event_type, tenant_id };

    struct Part {
        std::string text; // in front of the field
        Field field = Field::none;
    };

    std::vector<Part> parts_;
};

// Why no topic can have this name, if so.
std::optional<std::string> problem_with_topic(std::string_view name);

} // namespace outbox::sink
