#include "event_catalog/jsonb_to_tree.hpp"

#include "core/schema/normalize.hpp"
#include "pg/datum.hpp"

#include <charconv>
#include <cmath>

namespace outbox {

namespace {

using Kind = json::Value::Kind;

bool read_container(JsonbContainer* container, int depth, json::Value* value);

// Returns the text of a jbvString in UTF-8, palloc'd if it had to be converted.
std::string_view text_of(const JsonbValue& value)
{
    return pg::to_utf8({value.val.string.val, static_cast<std::size_t>(value.val.string.len)});
}

// Reads a number into `value`: as an integer if it has no fraction other than zeros and fits into
// 64 bits; as a double otherwise.
void read_number(Numeric number, json::Value* value)
{
    const std::string_view digits =
        DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(number)));
    const char* const end = digits.data() + digits.size();
    const auto [at, error] = std::from_chars(digits.data(), end, value->integer);
    const bool fits = error == std::errc{};
    const bool has_fraction =
        at != end && std::string_view(at, end).find_first_not_of("0.") != std::string_view::npos;
    if (fits && !has_fraction) {
        value->kind = Kind::integer;
        return;
    }
    value->kind = Kind::number;
    if (std::from_chars(digits.data(), end, value->number).ec == std::errc{})
        return;
    // Out of the range of a double: infinity if too large, zero if too small.
    const double size = fits ? 0 : HUGE_VAL;
    value->number = digits.front() == '-' ? -size : size;
}

// Reads a value of any type into `value`. Returns false, as the other read functions do, if a
// container is more than schema::max_depth levels deep.
bool read_value(const JsonbValue& given, int depth, json::Value* value)
{
    switch (given.type) {
    case jbvNull:
        value->kind = Kind::null;
        return true;
    case jbvBool:
        value->kind = Kind::boolean;
        value->boolean = given.val.boolean;
        return true;
    case jbvString: {
        const std::string_view text = text_of(given);
        value->kind = Kind::string;
        value->text = text.data();
        value->count = text.size();
        return true;
    }
    case jbvNumeric:
        read_number(given.val.numeric, value);
        return true;
    case jbvBinary:
        return read_container(given.val.binary.data, depth + 1, value);
    default:
        elog(ERROR, "unexpected type %d in jsonb", static_cast<int>(given.type));
        pg_unreachable();
    }
}

// Reads the `count` elements of an array, whose WJB_BEGIN_ARRAY was read, into palloc'd memory.
bool read_array(JsonbIterator* elements, std::size_t count, int depth, json::Value* value)
{
    auto* array = static_cast<json::Value*>(palloc0(sizeof(json::Value) * Max(count, 1u)));
    JsonbValue element;
    for (std::size_t i = 0; i < count; ++i) {
        (void)JsonbIteratorNext(&elements, &element, true);
        if (!read_value(element, depth, &array[i]))
            return false;
    }
    value->kind = Kind::array;
    value->elements = array;
    value->count = count;
    return true;
}

// Reads the `count` members of an object, whose WJB_BEGIN_OBJECT was read, into palloc'd memory, in
// the order of is_before_in_jsonb().
bool read_object(JsonbIterator* keys, std::size_t count, int depth, json::Value* value)
{
    auto* members = static_cast<json::Member*>(palloc0(sizeof(json::Member) * Max(count, 1u)));
    JsonbValue key;
    JsonbValue member;
    for (std::size_t i = 0; i < count; ++i) {
        (void)JsonbIteratorNext(&keys, &key, true);
        (void)JsonbIteratorNext(&keys, &member, true);
        members[i].name = text_of(key);
        if (!read_value(member, depth, &members[i].value))
            return false;
    }
    // The server sorts keys by their bytes in the database encoding; the tree is in UTF-8.
    if (GetDatabaseEncoding() != PG_UTF8)
        std::sort(members, members + count, [](const json::Member& a, const json::Member& b) {
            return json::is_before_in_jsonb(a.name, b.name);
        });
    value->kind = Kind::object;
    value->members = members;
    value->count = count;
    return true;
}

// Reads an object or an array at level `depth`, or the scalar in the root container.
bool read_container(JsonbContainer* container, int depth, json::Value* value)
{
    if (depth > schema::max_depth)
        return false;
    const std::size_t count = JsonContainerSize(container);
    const bool is_object = JsonContainerIsObject(container);
    JsonbIterator* parts = JsonbIteratorInit(container);
    JsonbValue part;
    (void)JsonbIteratorNext(&parts, &part, true);
    if (JsonContainerIsScalar(container)) {
        (void)JsonbIteratorNext(&parts, &part, true);
        return read_value(part, depth, value);
    }
    return is_object ? read_object(parts, count, depth, value)
                     : read_array(parts, count, depth, value);
}

} // namespace

std::optional<json::Value> to_json_value(Jsonb* payload)
{
    json::Value value;
    if (!read_container(&payload->root, 1, &value))
        return std::nullopt;
    return value;
}

} // namespace outbox
