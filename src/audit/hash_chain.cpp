#include "core/json/json_tree.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "pg/postgres.hpp"

#include <algorithm>
#include <cstring>

// Hashes of the chain over the audit log: SHA-256 over a sequence of fields. A field is its length
// in decimal, a colon, its bytes and a comma; NULL is a hyphen and a comma. Numbers are decimal,
// times are microseconds and dates days since 2000, text is UTF-8, jsonb is its text in UTF-8. The
// hash depends neither on settings of the session nor on the database encoding.

namespace outbox {

namespace {

// Appends a field: length, colon, bytes and comma.
void add_bytes(StringInfo fields, const char* bytes, int length)
{
    appendStringInfo(fields, "%d:", length);
    appendBinaryStringInfo(fields, bytes, length);
    appendStringInfoChar(fields, ',');
}

// Appends a field with the text in UTF-8, so that the hash is the same after a restore into another
// encoding.
void add_text(StringInfo fields, std::string_view text)
{
    const std::string_view utf8 = pg::to_utf8(text);
    add_bytes(fields, utf8.data(), static_cast<int>(utf8.size()));
}

// A member of an object with its name in UTF-8.
struct Member {
    std::string_view name;
    JsonbValue key;
    JsonbValue value;
};

// Writes a jsonb in UTF-8, in the layout of jsonb_out() and with keys in the order of their UTF-8.
void write_container(StringInfo text, JsonbContainer* container);

// Appends a jsonb value as text in UTF-8, a container by write_container().
void write_value(StringInfo text, JsonbValue& value)
{
    if (value.type == jbvBinary)
        return write_container(text, value.val.binary.data);
    Jsonb* scalar = JsonbValueToJsonb(&value);
    const std::string_view utf8 =
        pg::to_utf8(JsonbToCString(nullptr, &scalar->root, VARSIZE(scalar)));
    appendBinaryStringInfo(text, utf8.data(), static_cast<int>(utf8.size()));
}

// Appends an array, or without brackets the scalar of a root container.
void write_array(StringInfo text, JsonbContainer* container)
{
    const bool is_scalar = JsonContainerIsScalar(container);
    JsonbIterator* elements = JsonbIteratorInit(container);
    JsonbValue element;
    (void)JsonbIteratorNext(&elements, &element, true);
    appendStringInfoString(text, is_scalar ? "" : "[");
    for (const char* separator = ""; JsonbIteratorNext(&elements, &element, true) == WJB_ELEM;
         separator = ", ") {
        appendStringInfoString(text, separator);
        write_value(text, element);
    }
    appendStringInfoString(text, is_scalar ? "" : "]");
}

// Appends an object with its members in the order of their UTF-8 names.
void write_object(StringInfo text, JsonbContainer* container)
{
    const std::size_t count = JsonContainerSize(container);
    auto* members = static_cast<Member*>(palloc(sizeof(Member) * Max(count, std::size_t{1})));
    JsonbIterator* keys = JsonbIteratorInit(container);
    JsonbValue start;
    (void)JsonbIteratorNext(&keys, &start, true);
    for (Member* member = members; member < members + count; ++member) {
        (void)JsonbIteratorNext(&keys, &member->key, true);
        (void)JsonbIteratorNext(&keys, &member->value, true);
        member->name = pg::to_utf8(
            {member->key.val.string.val, static_cast<std::size_t>(member->key.val.string.len)});
    }
    std::sort(members, members + count, [](const Member& a, const Member& b) {
        return json::is_before_in_jsonb(a.name, b.name);
    });
    appendStringInfoChar(text, '{');
    for (std::size_t i = 0; i < count; ++i) {
        appendStringInfoString(text, i == 0 ? "" : ", ");
        write_value(text, members[i].key);
        appendStringInfoString(text, ": ");
        write_value(text, members[i].value);
    }
    appendStringInfoChar(text, '}');
}

void write_container(StringInfo text, JsonbContainer* container)
{
    check_stack_depth();
    if (JsonContainerIsObject(container))
        write_object(text, container);
    else
        write_array(text, container);
}

// Appends a field with the text of the jsonb in a UTF8 database. In other encodings it is rebuilt,
// because the server sorts keys by their bytes in the database encoding.
void add_json(StringInfo fields, Jsonb* json)
{
    if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII)
        return add_text(fields, JsonbToCString(nullptr, &json->root, VARSIZE(json)));
    StringInfoData text;
    initStringInfo(&text);
    write_container(&text, &json->root);
    add_bytes(fields, text.data, text.len);
    pfree(text.data);
}

// Appends a field with the number in decimal.
void add_number(StringInfo fields, int64 number)
{
    char digits[MAXINT8LEN + 1];
    add_bytes(fields, digits, pg_lltoa(number, digits));
}

// Appends a value in the form that its type has in the hash. Other types than those of the
// extension's columns are hashed as the text of their output function.
void add_field(StringInfo fields, Oid type, Datum value, bool isnull)
{
    if (isnull) {
        appendStringInfoString(fields, "-,");
        return;
    }
    switch (type) {
    case INT8OID:
    case TIMESTAMPTZOID:
        return add_number(fields, DatumGetInt64(value));
    case XID8OID:
        return add_number(
            fields, static_cast<int64>(U64FromFullTransactionId(DatumGetFullTransactionId(value))));
    case DATEOID:
        return add_number(fields, DatumGetInt32(value));
    case BYTEAOID: {
        const bytea* bytes = DatumGetByteaPP(value);
        return add_bytes(fields, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
    }
    case TEXTOID:
        return add_text(fields, pg::to_view(value));
    case JSONBOID:
        return add_json(fields, DatumGetJsonbP(value));
    default: {
        Oid function;
        bool is_varlena;
        getTypeOutputInfo(type, &function, &is_varlena);
        return add_text(fields, OidOutputFunctionCall(function, value));
    }
    }
}

// Appends the first `count` columns of a row, except the column named `except`. Raises an error if
// the row has fewer columns.
void add_row(StringInfo fields, HeapTupleHeader row, int count, const char* except)
{
    const TupleDesc descriptor =
        lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
    HeapTupleData tuple;
    tuple.t_len = HeapTupleHeaderGetDatumLength(row);
    ItemPointerSetInvalid(&tuple.t_self);
    tuple.t_tableOid = InvalidOid;
    tuple.t_data = row;
    auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * descriptor->natts));
    auto* nulls = static_cast<bool*>(palloc(sizeof(bool) * descriptor->natts));
    heap_deform_tuple(&tuple, descriptor, values, nulls);
    if (descriptor->natts < count)
        elog(ERROR, "a row has %d columns instead of %d", descriptor->natts, count);
    for (int i = 0; i < count; ++i) {
        const Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
        if (std::strcmp(NameStr(attribute->attname), except) != 0)
            add_field(fields, attribute->atttypid, values[i], nulls[i]);
    }
    ReleaseTupleDesc(descriptor);
}

// Returns the SHA-256 of the fields as a palloc'd bytea.
Datum sha256_of(StringInfo fields)
{
    auto* bytes = static_cast<bytea*>(palloc(VARHDRSZ + fields->len));
    SET_VARSIZE(bytes, VARHDRSZ + fields->len);
    std::memcpy(VARDATA(bytes), fields->data, fields->len);
    return DirectFunctionCall1(sha256_bytea, PointerGetDatum(bytes));
}

} // namespace

} // namespace outbox

// Returns SHA-256 over the columns of a row of audit_log. Only the extension's columns are hashed,
// not columns that a user has added behind them.
OUTBOX_SQL_FUNCTION(audit_content)
{
    return outbox::pg::sql_entry([&] {
        constexpr int column_count = 11;
        StringInfoData fields;
        initStringInfo(&fields);
        outbox::add_row(&fields, PG_GETARG_HEAPTUPLEHEADER(0), column_count, "");
        return outbox::sha256_of(&fields);
    });
}

// Returns the hash that an entry of audit_chain must have: SHA-256 over the hash of the previous
// entry and all columns of the entry except its hash. Returns NULL if the entry is NULL.
OUTBOX_SQL_FUNCTION(audit_link)
{
    return outbox::pg::sql_entry([&]() -> Datum {
        constexpr int column_count = 7;
        if (PG_ARGISNULL(1))
            PG_RETURN_NULL();
        StringInfoData fields;
        initStringInfo(&fields);
        outbox::add_field(&fields, BYTEAOID, PG_GETARG_DATUM(0), PG_ARGISNULL(0));
        outbox::add_row(&fields, PG_GETARG_HEAPTUPLEHEADER(1), column_count, "hash");
        return outbox::sha256_of(&fields);
    });
}
