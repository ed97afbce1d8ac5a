#include "idempotency/key_store.hpp"

#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "extension/relations.hpp"
#include "pg/datum.hpp"
#include "pg/heap_insert.hpp"
#include "pg/index_scan.hpp"

#include <cstring>

namespace outbox {

namespace {

// The columns of idempotency_keys in the order of the install script.
constexpr pg::ColumnSpec key_columns[] = {{"tenant_id", INT8OID},
                                          {"token", INT8OID},
                                          {"expires_at", TIMESTAMPTZOID},
                                          {"locked_until", TIMESTAMPTZOID, true},
                                          {"begun_at", TIMESTAMPTZOID},
                                          {"finished_at", TIMESTAMPTZOID, true},
                                          {"status_code", INT2OID, true},
                                          {"failed", BOOLOID},
                                          {"request_hash", BYTEAOID},
                                          {"scope", TEXTOID},
                                          {"key", TEXTOID},
                                          {"response", JSONBOID, true}};
constexpr int column_count = std::size(key_columns);
enum Column : int {
    c_tenant_id,
    c_token,
    c_expires_at,
    c_locked_until,
    c_begun_at,
    c_finished_at,
    c_status_code,
    c_failed,
    c_request_hash,
    c_scope,
    c_key,
    c_response
};

constinit pg::DirectTable key_table{key_columns};

// Columns to read. The first three are the key of the index.
constexpr pg::ColumnSpec read_columns[] = {{"key", TEXTOID},
                                           {"scope", TEXTOID},
                                           {"tenant_id", INT8OID},
                                           {"token", INT8OID},
                                           {"expires_at", TIMESTAMPTZOID},
                                           {"locked_until", TIMESTAMPTZOID},
                                           {"status_code", INT2OID},
                                           {"failed", BOOLOID},
                                           {"request_hash", BYTEAOID},
                                           {"response", JSONBOID}};
enum : int {
    w_token = 3,
    w_expires_at,
    w_locked_until,
    w_status_code,
    w_failed,
    w_request_hash,
    w_response
};
using StoredKeyRow = pg::StoredRow<std::size(read_columns)>;

// Reads the row of a key with this snapshot, through the index; std::nullopt if there is none.
std::optional<StoredKey> read_stored_key(const KeyName& name, Snapshot snapshot)
{
    static constinit pg::IndexedTable keys{read_columns, 3};
    const pg::IndexKey wanted[] = {
        {TEXTOID, name.key}, {TEXTOID, name.scope}, {INT8OID, Int64GetDatum(name.tenant_id)}};
    const auto row = keys.find_first(extension_relations().idempotency_keys, snapshot, wanted);
    if (!row)
        return std::nullopt;
    StoredKey stored = {};
    stored.token = DatumGetInt64(row->get(w_token));
    stored.expires_at = DatumGetTimestampTz(row->get(w_expires_at));
    const bytea* hash = DatumGetByteaPP(row->get(w_request_hash));
    if (VARSIZE_ANY_EXHDR(hash) != RequestHash::size)
        elog(ERROR, "an idempotency key has a request_hash of %d bytes",
             static_cast<int>(VARSIZE_ANY_EXHDR(hash)));
    std::memcpy(stored.request.bytes, VARDATA_ANY(hash), RequestHash::size);
    if (const auto locked_until = row->find(w_locked_until))
        stored.locked_until = DatumGetTimestampTz(*locked_until);
    if (const auto status = row->find(w_status_code))
        stored.response = StoredResponse{DatumGetInt16(*status), row->find(w_response),
                                         DatumGetBool(row->get(w_failed))};
    return stored;
}

// Raises serialization_failure if the one snapshot of a REPEATABLE READ or SERIALIZABLE transaction
// does not show `stored`: a decision based on it would not be serializable. Mirrors
// ExecCheckTupleVisible().
void check_visible(const KeyName& name, const StoredKey& stored)
{
    if (!IsolationUsesXactSnapshot())
        return;
    const Snapshot snapshot = RegisterSnapshot(GetTransactionSnapshot());
    const auto shown = read_stored_key(name, snapshot);
    UnregisterSnapshot(snapshot);
    if (!shown || shown->token != stored.token ||
        shown->response.has_value() != stored.response.has_value())
        ereport(ERROR,
                (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                 errmsg("could not serialize access due to concurrent use of an idempotency key"),
                 errhint("Retry the transaction.")));
}

// Returns the hash as a palloc'd bytea.
Datum to_bytea(const RequestHash& hash)
{
    auto* value = static_cast<bytea*>(palloc(VARHDRSZ + RequestHash::size));
    SET_VARSIZE(value, VARHDRSZ + RequestHash::size);
    std::memcpy(VARDATA(value), hash.bytes, RequestHash::size);
    return PointerGetDatum(value);
}

// Values of a row, which are also the parameters of the statements below.
struct KeyRow {
    Datum values[column_count];
    bool nulls[column_count];
};

// Makes the row of an attempt that begins `now`, finished if it has a response.
KeyRow make_key_row(const Attempt& attempt, const std::optional<StoredResponse>& response,
                    TimestampTz now)
{
    KeyRow row = {};
    row.values[c_tenant_id] = Int64GetDatum(attempt.name.tenant_id);
    row.values[c_token] = Int64GetDatum(attempt.token);
    row.values[c_expires_at] = TimestampTzGetDatum(now + attempt.ttl);
    row.values[c_locked_until] = TimestampTzGetDatum(now + attempt.lease);
    row.values[c_begun_at] = TimestampTzGetDatum(now);
    row.values[c_finished_at] = TimestampTzGetDatum(now);
    row.values[c_request_hash] = to_bytea(attempt.request);
    row.values[c_scope] = attempt.name.scope;
    row.values[c_key] = attempt.name.key;
    row.nulls[c_locked_until] = response.has_value();
    row.nulls[c_finished_at] = row.nulls[c_status_code] = row.nulls[c_response] = true;
    row.values[c_failed] = BoolGetDatum(response && response->failed);
    if (response) {
        row.nulls[c_finished_at] = row.nulls[c_status_code] = false;
        row.values[c_status_code] = Int16GetDatum(static_cast<int16>(response->status_code));
        row.nulls[c_response] = !response->body;
        row.values[c_response] = response->body.value_or(Datum{0});
    }
    return row;
}

// Types of the parameters of both statements, one per column.
#define KEY_PARAMETERS                                                                             \
    {                                                                                              \
        INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT2OID, \
            BOOLOID, BYTEAOID, TEXTOID, TEXTOID, JSONBOID                                          \
    }

// Executes with the latest snapshot; the row's columns are the parameters, `changed` gets the
// number of rows. Call inside as_owner().
void execute_with_row(Statement& statement, const KeyRow& row, uint64* changed)
{
    char marks[column_count + 1] = {};
    for (int i = 0; i < column_count; ++i)
        marks[i] = row.nulls[i] ? 'n' : ' ';
    *changed = statement.execute_with_latest_snapshot(row.values, marks);
}

// Updates the row of the key in idempotency_keys. Returns false if there is no row or another
// transaction has locked it. Does not wait.
bool overwrite_row(const KeyRow& row)
{
    static constinit Statement update{
        "UPDATE _outbox.idempotency_keys SET token = $2, expires_at = $3, locked_until = $4,"
        " begun_at = $5, finished_at = $6, status_code = $7, failed = $8, request_hash = $9,"
        " response = $12 WHERE tenant_id = $1 AND scope = $10 AND key = $11"
        " AND EXISTS (SELECT FROM (SELECT FROM _outbox.idempotency_keys WHERE tenant_id = $1"
        " AND scope = $10 AND key = $11 FOR NO KEY UPDATE SKIP LOCKED) free)",
        KEY_PARAMETERS};
    uint64 changed = 0;
    as_owner([&] { execute_with_row(update, row, &changed); });
    return changed > 0;
}

// Inserts into idempotency_keys: directly into heap and index, or by SPI if a user has changed the
// table.
void insert_row(const KeyRow& row)
{
    static constinit Statement insert{
        "INSERT INTO _outbox.idempotency_keys (tenant_id, token, expires_at, locked_until,"
        " begun_at, finished_at, status_code, failed, request_hash, scope, key, response)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        KEY_PARAMETERS};
    if (key_table.insert(extension_relations().idempotency_keys, row.values, row.nulls))
        return;
    uint64 changed = 0;
    as_owner([&] { execute_with_row(insert, row, &changed); });
}

} // namespace

uint64 KeyName::hash() const
{
    uint64 hash = static_cast<uint64>(tenant_id);
    for (const Datum part : {scope, key}) {
        const std::string_view bytes = pg::to_view(part);
        hash =
            DatumGetUInt64(hash_any_extended(reinterpret_cast<const unsigned char*>(bytes.data()),
                                             static_cast<int>(bytes.size()), hash));
    }
    return hash;
}

std::optional<StoredKey> find_key(const KeyName& name)
{
    const auto stored = pg::with_latest_snapshot(
        [&](Snapshot snapshot) { return read_stored_key(name, snapshot); });
    if (stored)
        check_visible(name, *stored);
    return stored;
}

void insert_key(const Attempt& attempt, const std::optional<StoredResponse>& response)
{
    insert_row(make_key_row(attempt, response, GetCurrentTimestamp()));
}

bool can_defer_insert()
{
    return key_table.is_as_installed(extension_relations().idempotency_keys);
}

bool overwrite_key(const Attempt& attempt)
{
    const KeyRow row = make_key_row(attempt, std::nullopt, GetCurrentTimestamp());
    if (overwrite_row(row))
        return true;
    // A concurrent DELETE of the reusable row is not committed yet: an insert would wait for it.
    if (find_key(attempt.name))
        return false;
    insert_row(row);
    return true;
}

bool finish_key(const KeyName& name, int64 token, const StoredResponse& response,
                const Attempt* own)
{
    uint64 changed = 0;
    const TimestampTz now = GetCurrentTimestamp();
    as_owner([&] {
        static constinit Statement update{
            "UPDATE _outbox.idempotency_keys SET locked_until = NULL, finished_at = $8,"
            " status_code = $5, failed = $6, response = $7, expires_at = coalesce($9, expires_at)"
            " WHERE tenant_id = $1 AND scope = $2 AND key = $3 AND token = $4"
            " AND status_code IS NULL AND ($9 IS NOT NULL OR expires_at > $8)",
            {INT8OID, TEXTOID, TEXTOID, INT8OID, INT2OID, BOOLOID, JSONBOID, TIMESTAMPTZOID,
             TIMESTAMPTZOID}};
        const Datum values[] = {Int64GetDatum(name.tenant_id),
                                name.scope,
                                name.key,
                                Int64GetDatum(token),
                                Int16GetDatum(static_cast<int16>(response.status_code)),
                                BoolGetDatum(response.failed),
                                response.body.value_or(Datum{0}),
                                TimestampTzGetDatum(now),
                                TimestampTzGetDatum(own != nullptr ? now + own->ttl : 0)};
        const char marks[] = {' ',
                              ' ',
                              ' ',
                              ' ',
                              ' ',
                              ' ',
                              response.body ? ' ' : 'n',
                              ' ',
                              own != nullptr ? ' ' : 'n',
                              '\0'};
        changed = update.execute_with_latest_snapshot(values, marks);
    });
    return changed > 0;
}

bool remove_key(const KeyName& name, int64 token)
{
    uint64 changed = 0;
    as_owner([&] {
        static constinit Statement remove{
            "DELETE FROM _outbox.idempotency_keys WHERE tenant_id = $1 AND scope = $2"
            " AND key = $3 AND token = $4 AND status_code IS NULL"
            " AND EXISTS (SELECT FROM (SELECT FROM _outbox.idempotency_keys WHERE tenant_id = $1"
            " AND scope = $2 AND key = $3 FOR UPDATE SKIP LOCKED) free)",
            {INT8OID, TEXTOID, TEXTOID, INT8OID}};
        const Datum values[] = {Int64GetDatum(name.tenant_id), name.scope, name.key,
                                Int64GetDatum(token)};
        changed = remove.execute_with_latest_snapshot(values);
    });
    return changed > 0;
}

bool is_key_required(Datum scope)
{
    std::optional<bool> required;
    as_owner([&] {
        static constinit Statement find{
            "SELECT required FROM _outbox.idempotency_scopes WHERE scope = $1", {TEXTOID}};
        if (find.execute_with_latest_snapshot(&scope) > 0)
            required = DatumGetBool(ResultRow(0).get(1));
    });
    return required.value_or(settings::idempotency_required);
}

} // namespace outbox
