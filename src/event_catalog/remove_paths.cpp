#include "event_catalog/remove_paths.hpp"

#include "pg/datum.hpp"

namespace outbox {

namespace {

// A path that leads on from here, and how far it has led.
struct Lead {
    const json::Path* path;
    std::size_t step;
};

struct Leads {
    const Lead* first;
    int count;
};

enum class Fate { keep, look_into, drop };

// What becomes of a part, and the paths that lead into it.
template <typename Takes>
Fate judge(const Leads& leads, Takes takes, Lead* into, int* count)
{
    *count = 0;
    for (int i = 0; i < leads.count; ++i) {
        const Lead& lead = leads.first[i];
        if (!takes(*lead.path, lead.step))
            continue;
        if (lead.step + 1 == lead.path->length())
            return Fate::drop;
        into[(*count)++] = {lead.path, lead.step + 1};
    }
    return *count > 0 ? Fate::look_into : Fate::keep;
}

JsonbValue* copy(JsonbParseState** out, JsonbContainer* container, const Leads& leads);

void copy_part(JsonbParseState** out, JsonbIteratorToken token, JsonbValue* part,
               const Leads& leads)
{
    if (leads.count > 0 && part->type == jbvBinary)
        (void)copy(out, part->val.binary.data, leads);
    else
        (void)pushJsonbValue(out, token, part);
}

JsonbValue* copy_object(JsonbParseState** out, JsonbIterator* keys, const Leads& leads, Lead* into)
{
    (void)pushJsonbValue(out, WJB_BEGIN_OBJECT, nullptr);
    JsonbValue key;
    JsonbValue member;
    while (JsonbIteratorNext(&keys, &key, true) == WJB_KEY) {
        (void)JsonbIteratorNext(&keys, &member, true);
        const std::string_view name =
            pg::to_utf8({key.val.string.val, static_cast<std::size_t>(key.val.string.len)});
        int count = 0;
        const auto takes = [&](const json::Path& path, std::size_t step) {
            return path.takes_member(step, name);
        };
        if (judge(leads, takes, into, &count) == Fate::drop)
            continue;
        (void)pushJsonbValue(out, WJB_KEY, &key);
        copy_part(out, WJB_VALUE, &member, {into, count});
    }
    return pushJsonbValue(out, WJB_END_OBJECT, nullptr);
}

JsonbValue* copy_array(JsonbParseState** out, JsonbIterator* elements, const Leads& leads,
                       Lead* into)
{
    (void)pushJsonbValue(out, WJB_BEGIN_ARRAY, nullptr);
    JsonbValue element;
    for (std::size_t i = 0; JsonbIteratorNext(&elements, &element, true) == WJB_ELEM; ++i) {
        int count = 0;
        const auto takes = [&](const json::Path& path, std::size_t step) {
            return path.takes_element(step, i);
        };
        if (judge(leads, takes, into, &count) == Fate::drop)
            continue;
        copy_part(out, WJB_ELEM, &element, {into, count});
    }
    return pushJsonbValue(out, WJB_END_ARRAY, nullptr);
}

JsonbValue* copy(JsonbParseState** out, JsonbContainer* container, const Leads& leads)
{
    check_stack_depth();
    CHECK_FOR_INTERRUPTS();
    auto* into = static_cast<Lead*>(palloc(sizeof(Lead) * leads.count));
    JsonbIterator* parts = JsonbIteratorInit(container);
    JsonbValue begin;
    (void)JsonbIteratorNext(&parts, &begin, true);
    return JsonContainerIsObject(container) ? copy_object(out, parts, leads, into)
                                            : copy_array(out, parts, leads, into);
}

} // namespace

Jsonb* strip(Jsonb* payload, std::span<const json::Path> paths)
{
    auto* leads = static_cast<Lead*>(palloc(sizeof(Lead) * paths.size()));
    for (std::size_t i = 0; i < paths.size(); ++i)
        leads[i] = {&paths[i], 0};
    JsonbParseState* out = nullptr;
    return JsonbValueToJsonb(copy(&out, &payload->root, {leads, static_cast<int>(paths.size())}));
}

} // namespace outbox
