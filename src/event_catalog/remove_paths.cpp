#include "event_catalog/remove_paths.hpp"

#include "pg/datum.hpp"

namespace outbox {

namespace {

// A path whose first `step` steps match the current container.
struct PathPosition {
    const json::PathPattern* path;
    std::size_t step;
};

// All paths that match the current container; an array without a destructor.
struct PathPositions {
    const PathPosition* first;
    int count;
};

enum class Keep { whole, part, none };

// Decides whether a member or element is copied whole, in part or not at all. The paths that
// continue inside it are written to `inner`.
template <typename Matches>
Keep decide_keep(const PathPositions& positions, Matches matches, PathPosition* inner, int* count)
{
    *count = 0;
    for (int i = 0; i < positions.count; ++i) {
        const PathPosition& position = positions.first[i];
        if (!matches(*position.path, position.step))
            continue;
        if (position.step + 1 == position.path->length())
            return Keep::none;
        inner[(*count)++] = {position.path, position.step + 1};
    }
    return *count > 0 ? Keep::part : Keep::whole;
}

// Appends an object or array to `out` without the values that match a path. Raises an error at the
// stack limit.
JsonbValue* copy_container(JsonbParseState** out, JsonbContainer* container,
                           const PathPositions& positions);

// Appends a member's value or an element to `out`: without its matching parts if it is a container
// in which paths continue, else unchanged.
void copy_part(JsonbParseState** out, JsonbIteratorToken token, JsonbValue* part,
               const PathPositions& positions)
{
    if (positions.count > 0 && part->type == jbvBinary)
        (void)copy_container(out, part->val.binary.data, positions);
    else
        (void)pushJsonbValue(out, token, part);
}

// Appends an object without the values that match a path. `inner` has room for all positions.
JsonbValue* copy_object(JsonbParseState** out, JsonbIterator* keys, const PathPositions& positions,
                        PathPosition* inner)
{
    (void)pushJsonbValue(out, WJB_BEGIN_OBJECT, nullptr);
    JsonbValue key;
    JsonbValue member;
    while (JsonbIteratorNext(&keys, &key, true) == WJB_KEY) {
        (void)JsonbIteratorNext(&keys, &member, true);
        const std::string_view name =
            pg::to_utf8({key.val.string.val, static_cast<std::size_t>(key.val.string.len)});
        int count = 0;
        const auto matches = [&](const json::PathPattern& path, std::size_t step) {
            return path.matches_member(step, name);
        };
        if (decide_keep(positions, matches, inner, &count) == Keep::none)
            continue;
        (void)pushJsonbValue(out, WJB_KEY, &key);
        copy_part(out, WJB_VALUE, &member, {inner, count});
    }
    return pushJsonbValue(out, WJB_END_OBJECT, nullptr);
}

// Appends an array without the values that match a path. `inner` has room for all positions.
JsonbValue* copy_array(JsonbParseState** out, JsonbIterator* elements,
                       const PathPositions& positions, PathPosition* inner)
{
    (void)pushJsonbValue(out, WJB_BEGIN_ARRAY, nullptr);
    JsonbValue element;
    for (std::size_t i = 0; JsonbIteratorNext(&elements, &element, true) == WJB_ELEM; ++i) {
        int count = 0;
        const auto matches = [&](const json::PathPattern& path, std::size_t step) {
            return path.matches_element(step, i);
        };
        if (decide_keep(positions, matches, inner, &count) == Keep::none)
            continue;
        copy_part(out, WJB_ELEM, &element, {inner, count});
    }
    return pushJsonbValue(out, WJB_END_ARRAY, nullptr);
}

JsonbValue* copy_container(JsonbParseState** out, JsonbContainer* container,
                           const PathPositions& positions)
{
    check_stack_depth();
    CHECK_FOR_INTERRUPTS();
    auto* inner = static_cast<PathPosition*>(palloc(sizeof(PathPosition) * positions.count));
    JsonbIterator* parts = JsonbIteratorInit(container);
    JsonbValue begin;
    (void)JsonbIteratorNext(&parts, &begin, true);
    return JsonContainerIsObject(container) ? copy_object(out, parts, positions, inner)
                                            : copy_array(out, parts, positions, inner);
}

} // namespace

Jsonb* jsonb_without_paths(Jsonb* payload, std::span<const json::PathPattern> paths)
{
    auto* positions = static_cast<PathPosition*>(palloc(sizeof(PathPosition) * paths.size()));
    for (std::size_t i = 0; i < paths.size(); ++i)
        positions[i] = {&paths[i], 0};
    JsonbParseState* out = nullptr;
    return JsonbValueToJsonb(
        copy_container(&out, &payload->root, {positions, static_cast<int>(paths.size())}));
}

} // namespace outbox
