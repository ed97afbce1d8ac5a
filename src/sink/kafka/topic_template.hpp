#pragma once

#include "sink/interface/event.hpp"

#include <optional>
#include <string_view>

namespace outbox::sink {

// Name of a topic with the fields {aggregate_type}, {event_type} and {tenant_id} of the event.
class TopicTemplate {
public:
    TopicTemplate() = default;

    // Raises 22023 for an unknown field, and for a name that is invalid for all events.
    static TopicTemplate parse(std::string_view text);

    // Overwrites `name` with the topic of the event, which may be invalid: see
    // problem_with_topic().
    void apply(const Event& event, std::string& name) const;

    // Returns a number that is the same for events of the same topic; two topics may have the same.
    std::uint64_t hash(const Event& event) const;

private:
    enum class Field { none, aggregate_type, event_type, tenant_id };

    // Literal text and the field behind it.
    struct Part {
        std::string text;
        Field field = Field::none;
    };

    std::vector<Part> parts_;
};

// Returns why no topic can have this name; std::nullopt: the name is valid.
std::optional<std::string> problem_with_topic(std::string_view name);

} // namespace outbox::sink
