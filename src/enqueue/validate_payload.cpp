#include "enqueue/validate_payload.hpp"

#include "core/fixed_string.hpp"
#include "event_catalog/jsonb_to_tree.hpp"
#include "event_catalog/remove_paths.hpp"
#include "event_catalog/schema_cache.hpp"
#include "pg/datum.hpp"
#include "pg/encoding.hpp"

namespace outbox::detail {

namespace {

int severity()
{
    return settings::catalog_mode == settings::catalog_enforce ? ERROR : WARNING;
}

// schema::Misfit without destructors.
struct Misfit {
    bool is_one = false;
    FixedString<512> pointer;
    FixedString<32> rule;
    FixedString<512> reason;
};

Misfit find_misfit(const EventType& type, const json::Value& payload)
{
    Misfit result;
    if (const auto misfit = type.schema->validate(payload)) {
        result.is_one = true;
        result.pointer = FixedString<512>(misfit->pointer);
        result.rule = FixedString<32>(misfit->rule);
        result.reason = FixedString<512>(misfit->reason);
    }
    return result;
}

// A warning goes to the server's log, too.
const char* in_server_encoding(const char* text)
{
    const std::string_view converted = pg::from_utf8(text);
    return pg::in_one_line(pnstrdup(converted.data(), converted.size()));
}

const char* name_of(const Event& event)
{
    return pg::in_one_line(TextDatumGetCString(event.event_type));
}

void complain_of_misfit(const EventArguments& arguments, const Event& event, const Misfit& misfit)
{
    ereport(severity(),
            (errcode(ERRCODE_CHECK_VIOLATION),
             errmsg("%s does not fit the schema of \"%s\" version %d: \"%s\" at \"%s\"",
                    arguments.name_of("payload"), name_of(event), event.event_version,
                    misfit.rule.text(), in_server_encoding(misfit.pointer.text())),
             errdetail("%s", in_server_encoding(misfit.reason.text())),
             errhint("Send what the schema describes, or register a new version of the event.")));
}

void complain_of_depth(const EventArguments& arguments, const EventType& type)
{
    // Nobody knows what is in there, so it is not let in where some of it must not be.
    const bool may_have_pii = !type.pii_fields.empty() && settings::pii_mode != settings::pii_off;
    ereport(may_have_pii ? ERROR : severity(),
            (errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
             errmsg("%s is nested too deeply to be checked: more than %d levels",
                    arguments.name_of("payload"), schema::max_depth)));
}

// The number of the first field that is there; -1 if none is.
int find_pii(const EventType& type, const json::Value& payload)
{
    for (std::size_t i = 0; i < type.pii_fields.size(); ++i)
        if (type.pii_fields[i].finds(payload))
            return static_cast<int>(i);
    return -1;
}

[[noreturn]] void refuse_pii(const EventArguments& arguments, const Event& event,
                             const std::string& pointer)
{
    ereport(ERROR, (errcode(ERRCODE_CHECK_VIOLATION),
                    errmsg("%s has something at \"%s\", which \"%s\" version %d must not carry",
                           arguments.name_of("payload"), in_server_encoding(pointer.c_str()),
                           name_of(event), event.event_version),
                    errhint("It is one of the event's pii_fields. Leave it out.")));
    pg_unreachable();
}

// In memory that is given back afterwards, what is kept aside.
void check_payload(const EventArguments& arguments, Event& event, const EventType& type,
                   MemoryContext kept)
{
    Jsonb* payload = DatumGetJsonbP(event.payload);
    auto tree = tree_of(payload);
    if (!tree) {
        complain_of_depth(arguments, type);
        return;
    }
    if (settings::pii_mode != settings::pii_off) {
        const int field = find_pii(type, *tree);
        if (field >= 0) {
            if (settings::pii_mode == settings::pii_refuse)
                refuse_pii(arguments, event, type.pii_pointers[static_cast<std::size_t>(field)]);
            const MemoryContext before = MemoryContextSwitchTo(kept);
            payload = strip(payload, type.pii_fields);
            event.payload = JsonbPGetDatum(payload);
            MemoryContextSwitchTo(before);
            tree = tree_of(payload);
        }
    }
    if (type.schema) {
        const Misfit misfit = find_misfit(type, *tree);
        if (misfit.is_one)
            complain_of_misfit(arguments, event, misfit);
    }
}

} // namespace

void check_against_catalog(const EventArguments& arguments, Event& event)
{
    // What others have registered since this transaction began counts.
    AcceptInvalidationMessages();

    static MemoryContext scratch = nullptr;
    if (scratch == nullptr)
        scratch =
            AllocSetContextCreate(TopMemoryContext, "outbox catalog check", ALLOCSET_DEFAULT_SIZES);
    MemoryContextReset(scratch); // an error may have left something
    const MemoryContext kept = MemoryContextSwitchTo(scratch);
    const EventType* type = find_event_type(event.event_type, event.event_version);
    if (type == nullptr)
        ereport(severity(),
                (errcode(ERRCODE_UNDEFINED_OBJECT),
                 errmsg("%s \"%s\" version %d is not registered", arguments.name_of("event_type"),
                        name_of(event), event.event_version),
                 errhint("Register it with outbox_register_event().")));
    else if (type->schema || !type->pii_fields.empty())
        check_payload(arguments, event, *type, kept);
    MemoryContextSwitchTo(kept);
    MemoryContextReset(scratch);
}

} // namespace outbox::detail
