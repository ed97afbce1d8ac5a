#include "pg/guard.hpp"
#include "pg/prelude.hpp"

#include <cstring>

// Hashes of the audit log's chain. What is hashed is a sequence of fields, each as its length in
// decimal, a colon, its bytes and a comma; NULL is a hyphen and a comma. Numbers are decimal, times
// are microseconds and dates days since 2000, text is UTF-8, jsonb is its text: no setting of a
// session has a say.

namespace outbox {

namespace {

void add_bytes(StringInfo fields, const char* bytes, int length)
{
    appendStringInfo(fields, "%d:", length);
    appendBinaryStringInfo(fields, bytes, length);
    appendStringInfoChar(fields, ',');
}

// A copy in a database of another encoding has the same hashes.
void add_text(StringInfo fields, char* text, int length)
{
    if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII)
        return add_bytes(fields, text, length);
    char* converted = pg_server_to_any(text, length, PG_UTF8);
    add_bytes(fields, converted,
              converted == text ? length : static_cast<int>(std::strlen(converted)));
}

void add_number(StringInfo fields, int64 number)
{
    char digits[MAXINT8LEN + 1];
    add_bytes(fields, digits, pg_lltoa(number, digits));
}

void add(StringInfo fields, Oid type, Datum value, bool isnull)
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
    case TEXTOID: {
        text* characters = DatumGetTextPP(value);
        return add_text(fields, VARDATA_ANY(characters), VARSIZE_ANY_EXHDR(characters));
    }
    case JSONBOID: {
        Jsonb* json = DatumGetJsonbP(value);
        char* output = JsonbToCString(nullptr, &json->root, VARSIZE(json));
        return add_text(fields, output, static_cast<int>(std::strlen(output)));
    }
    default: {
        Oid function;
        bool is_varlena;
        getTypeOutputInfo(type, &function, &is_varlena);
        char* output = OidOutputFunctionCall(function, value);
        return add_text(fields, output, static_cast<int>(std::strlen(output)));
    }
    }
}

// The first `count` columns of a row, of which the one called `except` is left out.
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
            add(fields, attribute->atttypid, values[i], nulls[i]);
    }
    ReleaseTupleDesc(descriptor);
}

Datum sha256_of(StringInfo fields)
{
    auto* bytes = static_cast<bytea*>(palloc(VARHDRSZ + fields->len));
    SET_VARSIZE(bytes, VARHDRSZ + fields->len);
    std::memcpy(VARDATA(bytes), fields->data, fields->len);
    return DirectFunctionCall1(sha256_bytea, PointerGetDatum(bytes));
}

} // namespace

} // namespace outbox

// Over every column of a row of the audit log. Columns that somebody has added are not ours.
OUTBOX_SQL_FUNCTION(audit_content)
{
    return outbox::pg::entry([&] {
        constexpr int column_count = 11;
        StringInfoData fields;
        initStringInfo(&fields);
        outbox::add_row(&fields, PG_GETARG_HEAPTUPLEHEADER(0), column_count, "");
        return outbox::sha256_of(&fields);
    });
}

// Over the hash before it, and an entry of the chain but for its own hash.
OUTBOX_SQL_FUNCTION(audit_link)
{
    return outbox::pg::entry([&]() -> Datum {
        constexpr int column_count = 7;
        if (PG_ARGISNULL(1))
            PG_RETURN_NULL();
        StringInfoData fields;
        initStringInfo(&fields);
        outbox::add(&fields, BYTEAOID, PG_GETARG_DATUM(0), PG_ARGISNULL(0));
        outbox::add_row(&fields, PG_GETARG_HEAPTUPLEHEADER(1), column_count, "hash");
        return outbox::sha256_of(&fields);
    });
}
