#include "sink/format/cloudevents.hpp"

#include "core/error.hpp"
#include "core/uuid.hpp"
#include "sink/format/encoding.hpp"
#include "sink/format/traceparent.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <optional>

namespace outbox::sink {

namespace {

// Attributes that CloudEvents defines or visit_attributes() sets; metadata cannot replace them.
constexpr std::string_view reserved_attributes[] = {
    "specversion",  "id",       "type",     "source",       "subject",         "time",
    "partitionkey", "sequence", "tenantid", "eventversion", "datacontenttype", "data",
    "traceparent",
};

// Raises 22023.
[[noreturn]] void refuse(const std::string& message, const std::string& hint = {})
{
    throw Error("22023", message, {}, hint);
}

// Appends `"name":"value",`: a member of a JSON object and the comma behind it.
void append_member_and_comma(std::string& out, std::string_view name, std::string_view value)
{
    append_json_string(out, name);
    out += ':';
    append_json_string(out, value);
    out += ',';
}

// Appends the event as one JSON object: its attributes, traceparent, and the payload as `data`.
void append_structured(std::string& out, const Event& event, std::string_view source)
{
    out += '{';
    visit_attributes(event, source, [&](std::string_view name, std::string_view value) {
        if (name != version_attribute) {
            append_member_and_comma(out, name, value);
            return;
        }
        append_json_string(out, name);
        out.append(":").append(value).append(",");
    });
    if (const auto traceparent = traceparent_of(event))
        append_member_and_comma(out, "traceparent", *traceparent);
    out += R"("datacontenttype":"application/json","data":)";
    // The payload is copied, not parsed: a parser could change numbers or the order of keys.
    out += event.payload;
    out += '}';
}

// Returns an estimate of the bytes of a batch, for reserve(): a longer body is not cut.
std::size_t estimated_batch_bytes(std::span<const Event* const> events)
{
    std::size_t bytes = 2;
    for (const Event* event : events)
        bytes += event->size() + 512;
    return bytes;
}

// Returns a JSON array of at least one event.
std::string batch_body(std::span<const Event* const> events, std::string_view source)
{
    std::string body;
    body.reserve(estimated_batch_bytes(events));
    for (const Event* event : events) {
        body += body.empty() ? '[' : ',';
        append_structured(body, *event, source);
    }
    return body += ']';
}

// Returns a UUID (version 8) hashed from the tracking ids: a retry of the same events has the same
// webhook-id. Raises XX000 if OpenSSL fails.
std::string batch_id(std::span<const Event* const> events)
{
    std::string ids;
    for (const Event* event : events)
        ids += event->tracking_id + '\n';
    std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
    if (!EVP_Digest(ids.data(), ids.size(), hash.data(), nullptr, EVP_sha256(), nullptr))
        throw Error("XX000", "could not compute SHA-256");
    hash[6] = static_cast<unsigned char>(0x80 | (hash[6] & 0x0F));
    hash[8] = static_cast<unsigned char>(0x80 | (hash[8] & 0x3F));
    const UuidText uuid = to_text(std::span(hash).first<16>());
    return {uuid.begin(), uuid.end()};
}

// Appends "<name>: <value>" to the headers; escapes nothing.
void add_header(RenderedRequest& request, std::string_view name, std::string_view value)
{
    request.headers.push_back(std::string(name).append(": ").append(value));
}

// Appends a header ce-<name>, percent-encoded, for each attribute; not traceparent.
void add_binary_headers(RenderedRequest& request, const Event& event, std::string_view source)
{
    visit_attributes(event, source, [&](std::string_view name, std::string_view value) {
        std::string& header = request.headers.emplace_back();
        header.reserve(name.size() + value.size() + 5);
        header.append("ce-").append(name).append(": ");
        append_percent_encoded(header, value);
    });
}

std::string_view content_type(HttpFormat format)
{
    switch (format) {
    case HttpFormat::structured:
        return "application/cloudevents+json";
    case HttpFormat::batch:
        return "application/cloudevents-batch+json";
    case HttpFormat::binary:
    case HttpFormat::raw:
        break;
    }
    return "application/json";
}

} // namespace

void check_metadata_keys(const std::vector<std::string>& names)
{
    const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
    for (auto name = names.begin(); name != names.end(); ++name) {
        if (name->empty() || name->size() > 20 || !std::all_of(name->begin(), name->end(), fits))
            refuse("invalid name of a CloudEvents attribute: \"" + *name + "\"",
                   "Use 1 to 20 lower-case letters and digits.");
        if (std::ranges::find(reserved_attributes, *name) != std::end(reserved_attributes))
            refuse("attribute \"" + *name + "\" is set by the sink itself");
        if (std::find(names.begin(), name, *name) != name)
            refuse("config key \"metadata\" has \"" + *name + "\" twice");
    }
}

std::optional<std::string> traceparent_of(const Event& event)
{
    return traceparent_from({event.traceparent, event.trace_id, event.span_id, event.tracking_id});
}

RenderedRequest render_request(std::span<const Event* const> events, HttpFormat format,
                               std::string_view source)
{
    if (events.empty() || (events.size() > 1 && format != HttpFormat::batch))
        throw Error("XX000", "cannot put " + std::to_string(events.size()) +
                                 " events into a request of this format");
    const Event& first = *events.front();
    RenderedRequest request;
    request.headers.reserve(20);
    add_header(request, "Content-Type", content_type(format));
    if (format == HttpFormat::batch) {
        request.id = batch_id(events);
        request.body = batch_body(events, source);
    } else {
        request.id = first.tracking_id;
        if (format == HttpFormat::structured)
            append_structured(request.body, first, source);
        else
            request.body = first.payload;
    }
    if (format == HttpFormat::binary)
        add_binary_headers(request, first, source);
    // A batch has one trace per event; they are in the body.
    if (format != HttpFormat::batch)
        if (const auto traceparent = traceparent_of(first))
            add_header(request, "traceparent", *traceparent);
    add_header(request, "webhook-id", request.id);
    add_header(request, "Idempotency-Key", '"' + request.id + '"');
    return request;
}

} // namespace outbox::sink
