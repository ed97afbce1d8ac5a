#include "relay/sink_event_builder.hpp"

#include "core/uuid.hpp"
#include "pg/datum.hpp"
#include "pg/jsonb_text.hpp"
#include "pg/wal_flush.hpp"

#include <cstring>

namespace outbox {

namespace {

constexpr int64 microseconds_to_2000 =
    static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

// Returns a copy, in the current memory context, with every byte above 127 replaced by '?'.
std::string_view replace_high_bits(std::string_view text)
{
    char* readable = pnstrdup(text.data(), text.size());
    for (char* at = readable; at < readable + text.size(); ++at)
        if (IS_HIGHBIT_SET(*at))
            *at = '?';
    return {readable, text.size()};
}

// Returns the text converted, in the current memory context. Replaces characters that have no
// equivalent in Unicode by question marks: an error would stop the sink at this event.
std::string_view convert_to_utf8(std::string_view text, int encoding)
{
    const Oid conversion = FindDefaultConversionProc(encoding, PG_UTF8);
    if (!OidIsValid(conversion))
        return replace_high_bits(text);
    const std::size_t room = text.size() * MAX_CONVERSION_GROWTH + 1;
    auto* const out = static_cast<unsigned char*>(palloc(room));
    auto* const in = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
    std::size_t read = 0;
    std::size_t written = 0;
    for (;;) {
        read += static_cast<std::size_t>(pg_do_encoding_conversion_buf(
            conversion, encoding, PG_UTF8, in + read, static_cast<int>(text.size() - read),
            out + written, static_cast<int>(room - written), true));
        written += std::strlen(reinterpret_cast<char*>(out + written));
        if (read >= text.size())
            return {reinterpret_cast<char*>(out), written};
        out[written++] = '?';
        read += static_cast<std::size_t>(pg_encoding_mblen(encoding, text.data() + read));
        if (read >= text.size())
            return {reinterpret_cast<char*>(out), written};
    }
}

// Returns the text itself if it is UTF-8, else a copy in the current memory context. Raises no
// error for characters that cannot be converted.
std::string_view to_utf8(std::string_view text)
{
    const int encoding = GetDatabaseEncoding();
    if (encoding == PG_UTF8)
        return text;
    // SQL_ASCII: text of any encoding.
    if (encoding == PG_SQL_ASCII)
        return pg_verify_mbstr(PG_UTF8, text.data(), static_cast<int>(text.size()), true)
                   ? text
                   : replace_high_bits(text);
    return convert_to_utf8(text, encoding);
}

std::string_view to_utf8(Datum text)
{
    return to_utf8(pg::to_view(text));
}

std::string_view json_to_utf8(const Jsonb* json)
{
    return to_utf8(pg::jsonb_to_text(json));
}

// Returns a value of the metadata: a string without quotes, anything else as JSON; std::nullopt if
// the key is missing or null.
std::optional<std::string_view> metadata_text(Jsonb* metadata, std::string_view key)
{
    JsonbValue found;
    if (!JB_ROOT_IS_OBJECT(metadata) ||
        getKeyJsonValueFromContainer(&metadata->root, key.data(), static_cast<int>(key.size()),
                                     &found) == nullptr ||
        found.type == jbvNull)
        return std::nullopt;
    if (found.type == jbvString)
        return to_utf8(
            std::string_view(found.val.string.val, static_cast<std::size_t>(found.val.string.len)));
    return json_to_utf8(JsonbValueToJsonb(&found));
}

// A message as text in server memory, without destructors: making it may raise a server error,
// copying it may throw a C++ exception, so these are two steps.
struct MessageText {
    UuidText tracking_id;
    std::string_view aggregate_type;
    std::string_view aggregate_id;
    std::string_view event_type;
    std::string_view payload;
    std::string_view trace_id;
    std::string_view span_id;
    std::string_view traceparent;
    pg::PallocVector<std::optional<std::string_view>> attributes; // one for each metadata key
};

// Converts the columns to UTF-8, in the current memory context. Raises server errors.
MessageText text_of(const Message& message, const std::vector<std::string>& keys)
{
    const Datum* values = message.values;
    MessageText text;
    text.tracking_id =
        to_text(std::span<const uint8, UUID_LEN>(DatumGetUUIDP(values[col_tracking_id])->data));
    text.aggregate_type = to_utf8(values[col_aggregate_type]);
    text.aggregate_id = to_utf8(values[col_aggregate_id]);
    text.event_type = to_utf8(values[col_event_type]);
    text.payload = json_to_utf8(DatumGetJsonbP(values[col_payload]));
    Jsonb* metadata = DatumGetJsonbP(values[col_metadata]);
    const auto metadata_text_or_empty = [&](std::string_view key) {
        return metadata_text(metadata, key).value_or(std::string_view{});
    };
    text.traceparent = metadata_text_or_empty("traceparent");
    text.span_id = metadata_text_or_empty("span_id");
    text.trace_id = message.nulls[col_trace_id] ? metadata_text_or_empty("trace_id")
                                                : to_utf8(values[col_trace_id]);
    for (const std::string& key : keys)
        text.attributes.push(metadata_text(metadata, key));
    return text;
}

sink::EventStats event_stats_of(const Message& message)
{
    const stats::EventFacts facts = event_facts_of(message);
    return {facts.type, facts.bytes, facts.occurred_at};
}

// Copies text and columns into an empty event.
void fill_event(sink::Event& event, const MessageText& text, const Message& message,
                const Delivery& delivery, const std::vector<std::string>& keys,
                const sink::EventStats& event_stats)
{
    event.id = message.id();
    event.token = delivery.token;
    event.attempts = delivery.attempts;
    event.tenant_id = DatumGetInt64(message.values[col_tenant_id]);
    event.event_version = DatumGetInt16(message.values[col_event_version]);
    // Timestamps near the upper limit would overflow in the Unix epoch.
    const TimestampTz time = DatumGetTimestampTz(message.values[col_occurred_at]);
    event.occurred_at = Min(time, DT_NOEND - microseconds_to_2000) + microseconds_to_2000;
    event.event_stats = event_stats;
    event.tracking_id.assign(text.tracking_id.data(), text.tracking_id.size());
    event.aggregate_type = text.aggregate_type;
    event.aggregate_id = text.aggregate_id;
    event.event_type = text.event_type;
    event.payload = text.payload;
    event.trace_id = text.trace_id;
    event.span_id = text.span_id;
    event.traceparent = text.traceparent;
    for (std::size_t i = 0; i < keys.size(); ++i)
        if (const auto& value = text.attributes[i])
            event.attributes.emplace_back(keys[i], std::string(*value));
}

} // namespace

void SinkEventBuilder::reset()
{
    events_.clear();
    bytes_ = 0;
    scratch_ =
        AllocSetContextCreate(CurrentMemoryContext, "outbox message", ALLOCSET_DEFAULT_SIZES);
}

void SinkEventBuilder::receive(const Message& message, const Delivery& delivery)
{
    const MemoryContext before = MemoryContextSwitchTo(scratch_);
    const MessageText text = text_of(message, metadata_keys_);
    const sink::EventStats event_stats =
        stats::is_enabled() ? event_stats_of(message) : sink::EventStats{};
    MemoryContextSwitchTo(before);
    if (const Xid xid = message.xid(); xid != last_xid_) {
        last_xid_ = xid;
        flush_needed_ = Max(flush_needed_, pg::commit_flush_position(xid));
    }
    from_retries_ = delivery.from_retries;
    events_.push_back(event_pool_.acquire());
    fill_event(*events_.back(), text, message, delivery, metadata_keys_, event_stats);
    bytes_ += events_.back()->size();
    MemoryContextReset(scratch_);
}

} // namespace outbox
