// Rendering of events as HTTP requests.
#include "event_input.hpp"

#include "sink/format/encoding.hpp"

#include <nlohmann/json.hpp>

#include <map>

namespace outbox::fuzz {

using Json = nlohmann::json;
using Attributes = std::map<std::string, std::string>;

Attributes attributes_of(const EventInput& given)
{
    const sink::Event& event = given.event;
    Attributes all = {{"specversion", "1.0"},
                      {"id", event.tracking_id},
                      {"type", event.event_type},
                      {"source", given.source},
                      {"subject", event.aggregate_type + "/" + event.aggregate_id},
                      {"time", sink::format_time(event.occurred_at)},
                      {"partitionkey", event.aggregate_id},
                      {"sequence", sink::format_sequence(event.id)},
                      {"tenantid", std::to_string(event.tenant_id)},
                      {"eventversion", std::to_string(event.event_version)}};
    all.insert(event.attributes.begin(), event.attributes.end());
    std::erase_if(all, [](const auto& attribute) { return attribute.second.empty(); });
    return all;
}

// The headers by name. Each must be valid in an HTTP request.
Attributes read_headers(const sink::RenderedRequest& request)
{
    Attributes headers;
    for (const std::string& line : request.headers) {
        const auto colon = line.find(": ");
        must(colon != std::string::npos, "a header has a name and a value");
        const std::string name = line.substr(0, colon);
        const std::string value = line.substr(colon + 2);
        must(is_visible_ascii(name) && name.find(':') == std::string::npos,
             "a header's name is a token");
        must(!value.empty() && is_visible_ascii(value), "a header's value is visible ASCII");
        must(headers.emplace(sink::ascii_lower(name), value).second, "no header is repeated");
    }
    return headers;
}

void check_binary(const EventInput& given, const sink::RenderedRequest& request)
{
    Attributes found;
    for (const auto& [name, value] : read_headers(request))
        if (name.starts_with("ce-"))
            found[name.substr(3)] = percent_decode(value);
    must(found == attributes_of(given), "the headers have the attributes of the event");
    must(request.body == given.event.payload, "the body is the payload");
}

void check_structured(const EventInput& given, const Json& payload, const Json& object)
{
    Attributes found;
    for (const auto& [name, value] : object.items())
        if (value.is_string())
            found[name] = value.get<std::string>();
    must(object["data"] == payload, "the payload is in the data");
    if (payload.is_string())
        found.erase("data");
    must(found["datacontenttype"] == "application/json", "datacontenttype is application/json");
    found.erase("datacontenttype");
    found.erase("traceparent");
    must(object["eventversion"] == given.event.event_version, "the version is a number");
    found["eventversion"] = std::to_string(given.event.event_version);
    must(found == attributes_of(given), "the object has the attributes of the event");
}

void try_one(std::string_view input)
{
    EventInput given = read_event(input);
    // The server has produced the payload from jsonb, so it is valid JSON.
    Json payload = Json::parse(given.event.payload, nullptr, false);
    if (payload.is_discarded())
        payload = Json::parse(given.event.payload = R"({"n": 1})");
    const sink::Event* const events[] = {&given.event, &given.event};
    const auto one = std::span(events).first(1);

    check_binary(given, sink::render_request(one, sink::HttpFormat::binary, given.source));
    const auto structured = sink::render_request(one, sink::HttpFormat::structured, given.source);
    (void)read_headers(structured);
    check_structured(given, payload, Json::parse(structured.body));
    const auto batch = sink::render_request(events, sink::HttpFormat::batch, given.source);
    (void)read_headers(batch);
    for (const Json& object : Json::parse(batch.body))
        check_structured(given, payload, object);
    const auto raw = sink::render_request(one, sink::HttpFormat::raw, given.source);
    must(read_headers(raw).size() <= 4 && raw.body == given.event.payload,
         "the body of the raw format is the payload");
}

} // namespace outbox::fuzz
