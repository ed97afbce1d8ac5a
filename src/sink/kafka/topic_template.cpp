#include "sink/kafka/topic_template.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace outbox::sink {

namespace {

constexpr std::size_t max_topic_bytes = 249; // limit of Kafka

constexpr const char* known_fields = "The fields are {aggregate_type}, {event_type} and "
                                     "{tenant_id}.";

// Raises 22023: config key "topic" <message>.
[[noreturn]] void refuse(const std::string& message, const std::string& hint = {})
{
    throw Error("22023", "config key \"topic\" " + message, {}, hint);
}

// Returns true for a character that Kafka allows in the name of a topic.
bool is_legal(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

} // namespace

std::optional<std::string> problem_with_topic(std::string_view name)
{
    if (name.empty() || name == "." || name == "..")
        return "a topic must have a name";
    if (name.size() > max_topic_bytes)
        return "the name of its topic has " + std::to_string(name.size()) +
               " bytes, at most 249 are allowed";
    if (!std::all_of(name.begin(), name.end(), is_legal))
        return "the name of its topic has characters other than a-z, A-Z, 0-9, '.', '_' and '-'";
    return std::nullopt;
}

TopicTemplate TopicTemplate::parse(std::string_view text)
{
    TopicTemplate made;
    Part part;
    while (!text.empty()) {
        const std::size_t open = text.find('{');
        part.text = text.substr(0, open);
        if (!std::all_of(part.text.begin(), part.text.end(), is_legal))
            refuse("must have no characters but a-z, A-Z, 0-9, '.', '_' and '-' outside of braces",
                   known_fields);
        text.remove_prefix(std::min(open, text.size()));
        if (!text.empty()) {
            const std::size_t close = text.find('}');
            const std::string_view field = text.substr(0, std::min(close, text.size() - 1) + 1);
            if (field == "{aggregate_type}")
                part.field = Field::aggregate_type;
            else if (field == "{event_type}")
                part.field = Field::event_type;
            else if (field == "{tenant_id}")
                part.field = Field::tenant_id;
            else
                refuse("has an unknown field in braces", known_fields);
            text.remove_prefix(field.size());
        }
        made.parts_.push_back(std::move(part));
        part = {};
    }
    const bool has_field = std::any_of(made.parts_.begin(), made.parts_.end(),
                                       [](const Part& one) { return one.field != Field::none; });
    std::string literal;
    for (const Part& one : made.parts_)
        literal += one.text;
    if (literal.size() > max_topic_bytes || (!has_field && problem_with_topic(literal).has_value()))
        refuse("must be the name of a topic: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'",
               known_fields);
    return made;
}

void TopicTemplate::apply(const Event& event, std::string& name) const
{
    name.clear();
    for (const Part& part : parts_) {
        name += part.text;
        switch (part.field) {
        case Field::none:
            break;
        case Field::aggregate_type:
            name += event.aggregate_type;
            break;
        case Field::event_type:
            name += event.event_type;
            break;
        case Field::tenant_id:
            name += std::to_string(event.tenant_id);
            break;
        }
    }
}

std::uint64_t TopicTemplate::hash(const Event& event) const
{
    const std::hash<std::string_view> hash_of;
    std::uint64_t hash = 0;
    for (const Part& part : parts_) {
        hash *= 31;
        switch (part.field) {
        case Field::none:
            break;
        case Field::aggregate_type:
            hash += hash_of(event.aggregate_type);
            break;
        case Field::event_type:
            hash += hash_of(event.event_type);
            break;
        case Field::tenant_id:
            hash += static_cast<std::uint64_t>(event.tenant_id);
            break;
        }
    }
    return hash;
}

} // namespace outbox::sink
