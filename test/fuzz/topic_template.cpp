// Templates of topic names.
#include "sink/kafka/topic_template.hpp"

#include "core/parse_number.hpp"
#include "fuzz.hpp"

namespace outbox::fuzz {

bool is_topic(std::string_view name)
{
    return !name.empty() && name.size() <= 249 && name != "." && name != ".." &&
           name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-") == std::string_view::npos;
}

void replace(std::string& text, std::string_view field, std::string_view value)
{
    for (auto at = text.find(field); at != std::string::npos;
         at = text.find(field, at + value.size()))
        text.replace(at, field.size(), value);
}

std::string fill_in(std::string_view pattern, const sink::Event& event)
{
    std::string name(pattern);
    // A brace in a value must not start a field.
    replace(name, "{aggregate_type}", "\x01");
    replace(name, "{event_type}", "\x02");
    replace(name, "{tenant_id}", std::to_string(event.tenant_id));
    std::string out;
    for (const char c : name)
        out += c == '\x01'   ? event.aggregate_type
               : c == '\x02' ? event.event_type
                             : std::string(1, c);
    return out;
}

void try_one(std::string_view input)
{
    const auto [pattern, aggregate_type, event_type, tenant] = split<4>(input, '|');
    must(!sink::problem_with_topic(pattern) == is_topic(pattern),
         "a topic follows the rules of Kafka");
    sink::TopicTemplate topic;
    const auto error =
        error_of([&, pattern = pattern] { topic = sink::TopicTemplate::parse(pattern); });
    if (error) {
        must(std::string_view(error->sqlstate()) == "22023", "bad templates are bad values");
        must(!is_topic(pattern), "every valid topic is a valid template");
        return;
    }
    sink::Event event;
    event.aggregate_type = aggregate_type;
    event.event_type = event_type;
    event.tenant_id = parse_bigint(tenant).value_or(0);
    std::string name = "what was there before";
    topic.apply(event, name);
    must(name == fill_in(pattern, event), "fields are replaced, other text is unchanged");
    if (pattern.find('{') == std::string_view::npos)
        must(is_topic(name), "a template without fields is a valid topic");
}

} // namespace outbox::fuzz
