#include "enqueue/validate_payload.hpp"

#include "core/fixed_string.hpp"
#include "event_catalog/jsonb_to_tree.hpp"
#include "event_catalog/remove_paths.hpp"
#include "event_catalog/schema_cache.hpp"
#include "pg/datum.hpp"
#include "pg/encoding.hpp"

namespace outbox::detail {

namespace {

// Returns the ereport() level for an event that does not fit the catalog: ERROR if
// outbox.catalog_mode is enforce, else WARNING.
int severity()
{
    return settings::catalog_mode == settings::catalog_enforce ? ERROR : WARNING;
}

// schema::Violation without destructors, so that ereport() may jump over it.
struct Violation {
    bool is_found = false;
    FixedString<512> pointer;
    FixedString<32> rule;
    FixedString<512> reason;
};

// Returns the first violation of the type's schema, which must exist, with texts cut to their
// buffers. Without one, is_found is false.
Violation find_violation(const EventType& type, const json::Value& payload)
{
    Violation result;
    if (const auto violation = type.schema->validate(payload)) {
        result.is_found = true;
        result.pointer = FixedString<512>(violation->pointer);
        result.rule = FixedString<32>(violation->rule);
        result.reason = FixedString<512>(violation->reason);
    }
    return result;
}

// Converts UTF-8 text to the database encoding. Also replaces control characters, because a warning
// goes to the server log, too.
const char* in_server_encoding(const char* text)
{
    const std::string_view converted = pg::from_utf8(text);
    return pg::replace_control_characters(pnstrdup(converted.data(), converted.size()));
}

// Returns the event's type for messages, with control characters replaced.
const char* event_type_name(const Event& event)
{
    return pg::replace_control_characters(TextDatumGetCString(event.event_type));
}

// Raises check_violation, as an error or a warning by severity().
void report_violation(const EventArguments& arguments, const Event& event,
                      const Violation& violation)
{
    ereport(
        severity(),
        (errcode(ERRCODE_CHECK_VIOLATION),
         errmsg("%s does not fit the schema of \"%s\" version %d: \"%s\" at \"%s\"",
                arguments.qualified_name("payload"), event_type_name(event), event.event_version,
                violation.rule.text(), in_server_encoding(violation.pointer.text())),
         errdetail("%s", in_server_encoding(violation.reason.text())),
         errhint("Send what the schema describes, or register a new version of the event.")));
}

// Raises statement_too_complex, as an error or a warning.
void report_nested_too_deeply(const EventArguments& arguments, const EventType& type)
{
    // A payload that cannot be checked may contain PII fields: an error, whatever the catalog mode.
    const bool may_have_pii = !type.pii_fields.empty() && settings::pii_mode != settings::pii_off;
    ereport(may_have_pii ? ERROR : severity(),
            (errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
             errmsg("%s is nested too deeply to be checked: more than %d levels",
                    arguments.qualified_name("payload"), schema::max_depth)));
}

// Returns the index of the first PII field that the payload contains, or -1.
int find_pii_field(const EventType& type, const json::Value& payload)
{
    for (std::size_t i = 0; i < type.pii_fields.size(); ++i)
        if (type.pii_fields[i].matches_anything_in(payload))
            return static_cast<int>(i);
    return -1;
}

// Raises check_violation for the PII field at `pointer`.
[[noreturn]] void raise_pii_violation(const EventArguments& arguments, const Event& event,
                                      const std::string& pointer)
{
    ereport(ERROR, (errcode(ERRCODE_CHECK_VIOLATION),
                    errmsg("%s has a value at \"%s\", which \"%s\" version %d must not contain",
                           arguments.qualified_name("payload"), in_server_encoding(pointer.c_str()),
                           event_type_name(event), event.event_version),
                    errhint("Remove it: it is in pii_fields of the event.")));
    pg_unreachable();
}

// Checks the payload against the type's schema and for PII fields, which it may remove from
// event.payload. Allocates in the current context; only a changed payload is allocated in
// `caller_memory`.
void check_payload(const EventArguments& arguments, Event& event, const EventType& type,
                   MemoryContext caller_memory)
{
    Jsonb* payload = DatumGetJsonbP(event.payload);
    auto tree = to_json_value(payload);
    if (!tree) {
        report_nested_too_deeply(arguments, type);
        return;
    }
    if (settings::pii_mode != settings::pii_off) {
        const int field = find_pii_field(type, *tree);
        if (field >= 0) {
            if (settings::pii_mode == settings::pii_refuse)
                raise_pii_violation(arguments, event,
                                    type.pii_pointers[static_cast<std::size_t>(field)]);
            const MemoryContext before = MemoryContextSwitchTo(caller_memory);
            payload = jsonb_without_paths(payload, type.pii_fields);
            event.payload = JsonbPGetDatum(payload);
            MemoryContextSwitchTo(before);
            tree = to_json_value(payload);
        }
    }
    if (type.schema) {
        const Violation violation = find_violation(type, *tree);
        if (violation.is_found)
            report_violation(arguments, event, violation);
    }
}

} // namespace

void check_against_catalog(const EventArguments& arguments, Event& event)
{
    // Events that were registered since this transaction began must be found.
    AcceptInvalidationMessages();

    static MemoryContext scratch = nullptr;
    if (scratch == nullptr)
        scratch =
            AllocSetContextCreate(TopMemoryContext, "outbox catalog check", ALLOCSET_DEFAULT_SIZES);
    MemoryContextReset(scratch); // an error may have left allocations
    const MemoryContext caller_memory = MemoryContextSwitchTo(scratch);
    const EventType* type = find_event_type(event.event_type, event.event_version);
    if (type == nullptr)
        ereport(severity(), (errcode(ERRCODE_UNDEFINED_OBJECT),
                             errmsg("%s \"%s\" version %d is not registered",
                                    arguments.qualified_name("event_type"), event_type_name(event),
                                    event.event_version),
                             errhint("Register it with outbox_register_event().")));
    else if (type->schema || !type->pii_fields.empty())
        check_payload(arguments, event, *type, caller_memory);
    MemoryContextSwitchTo(caller_memory);
    MemoryContextReset(scratch);
}

} // namespace outbox::detail
