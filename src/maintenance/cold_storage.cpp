#include "maintenance/cold_storage.hpp"

#include "extension/guc.hpp"
#include "extension/owner_spi.hpp"
#include "pg/datum.hpp"
#include "pg/exceptions.hpp"
#include "pg/zstd_file.hpp"

extern "C" {
#include "commands/dbcommands.h"
#include "common/hashfn.h"
}

#include <unistd.h>

#include <cctype>
#include <climits>
#include <cstring>

namespace outbox {

namespace {

// Returns the path of a file in outbox.cold_storage_dir. Raises an error if that is not set.
const char* cold_path(const char* file)
{
    if (*settings::cold_storage_dir == '\0')
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("outbox.cold_storage_dir is not set"),
                        errhint("Set it to the directory to which partitions are exported before "
                                "they are dropped.")));
    return psprintf("%s/%s", settings::cold_storage_dir, file);
}

// Returns the path of a file that a caller named. Raises invalid_parameter_value for names that
// leave the directory, begin with a dot or are too long.
const char* checked_cold_path(const char* file)
{
    if (*file == '\0' || std::strchr(file, '/') != nullptr || *file == '.' ||
        std::strlen(file) > NAME_MAX)
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                        errmsg("file must be the name of a file in outbox.cold_storage_dir"),
                        errhint("See the view outbox_cold_files for the names.")));
    return cold_path(file);
}

// Escapes all but letters, digits, _ and - by %XX: the result is safe in file names and in a shell.
// A long one is cut to 100 bytes, and a hash of the name is appended.
char* escape_for_file_name(const char* name)
{
    constexpr char hex[] = "0123456789ABCDEF";
    const char* given = name;
    char* out = static_cast<char*>(palloc(std::strlen(name) * 3 + 1));
    char* end = out;
    for (; *name != '\0'; ++name) {
        const auto c = static_cast<unsigned char>(*name);
        if ((c < 128 && std::isalnum(c)) || c == '_' || c == '-') {
            *end++ = *name;
        } else {
            *end++ = '%';
            *end++ = hex[c >> 4];
            *end++ = hex[c & 15];
        }
    }
    *end = '\0';
    // Partition name and bounds follow, and NAME_MAX is 255. The hash keeps long names apart.
    constexpr int max_length = 100;
    if (end - out > max_length) {
        const auto size = static_cast<int>(std::strlen(given));
        return psprintf("%.*s-%08x", max_length, out,
                        hash_bytes(reinterpret_cast<const unsigned char*>(given), size));
    }
    return out;
}

// Prefix of all files of this database: the databases of a cluster share the directory.
char* file_prefix()
{
    return escape_for_file_name(get_database_name(MyDatabaseId));
}

// Returns the file name for an archive partition: it contains all that a restore needs, table,
// bounds and first id. Raises undefined_table for another table.
const char* file_name_for(Oid partition)
{
    static constinit Statement name{
        "SELECT c.relname::text || '.' || to_char(a.lower_bound, 'YYYYMMDD\"T\"HH24MISS\"Z\"') || "
        "'-'"
        " || to_char(a.upper_bound, 'YYYYMMDD\"T\"HH24MISS\"Z\"') || '.' || a.first_id || "
        "'.ndjson.zst'"
        " FROM pg_class c JOIN _outbox.archived_partitions a ON a.partition = c.relname"
        " WHERE c.oid = $1",
        {OIDOID}};
    const Datum values[] = {ObjectIdGetDatum(partition)};
    if (name.execute_with_latest_snapshot(values) == 0)
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("table %u is not a partition of the archive", partition)));
    return psprintf("%s.%s", file_prefix(), TextDatumGetCString(ResultRow(0).get(1)));
}

// Writes the rows in id order, each as a line of JSON, by a cursor of SPI. Returns their number.
int64 write_rows(Oid partition, pg::CompressedWriter* writer)
{
    constexpr long rows_at_once = 1000;
    const char* query =
        psprintf("SELECT row_to_json(m)::text FROM %s m ORDER BY m.id",
                 quote_qualified_identifier(get_namespace_name(get_rel_namespace(partition)),
                                            get_rel_name(partition)));
    const Portal portal = SPI_cursor_open_with_args(nullptr, query, 0, nullptr, nullptr, nullptr,
                                                    true, CURSOR_OPT_NO_SCROLL);
    int64 count = 0;
    for (;;) {
        SPI_cursor_fetch(portal, true, rows_at_once);
        if (SPI_processed == 0)
            break;
        for (uint64 i = 0; i < SPI_processed; ++i) {
            const std::string_view line = pg::to_view(ResultRow(i).get(1));
            pg::write_compressed(writer, line.data(), line.size());
            pg::write_compressed(writer, "\n", 1);
        }
        count += static_cast<int64>(SPI_processed);
        SPI_freetuptable(SPI_tuptable);
    }
    SPI_cursor_close(portal);
    return count;
}

// Writes the rows of an archive partition to a new file and inserts the file into
// _outbox.cold_files. Returns its name. A rollback does not remove the file.
const char* export_partition(Oid partition)
{
    static constinit Statement insert_file{
        "INSERT INTO _outbox.cold_files"
        " (file, partition, lower_bound, upper_bound, events, bytes, stored_at)"
        " SELECT $2, a.partition, a.lower_bound, a.upper_bound, $3, $4,"
        "        CASE WHEN $5 THEN clock_timestamp() END"
        "   FROM _outbox.archived_partitions a JOIN pg_class c ON c.relname = a.partition"
        "  WHERE c.oid = $1",
        {OIDOID, TEXTOID, INT8OID, INT8OID, BOOLOID}};
    const char* file = file_name_for(partition);
    pg::CompressedWriter* writer = pg::create_compressed(cold_path(file));
    const int64 count = write_rows(partition, writer);
    const int64 bytes = pg::finish_compressed(writer);
    const Datum values[] = {ObjectIdGetDatum(partition), CStringGetTextDatum(file),
                            Int64GetDatum(count), Int64GetDatum(bytes),
                            BoolGetDatum(*settings::archive_command == '\0')};
    insert_file.execute_with_latest_snapshot(values);
    return file;
}

} // namespace

std::string archive_command_for(const std::string& file, const std::string& table,
                                const std::string& day)
{
    std::string command;
    for (const char* at = settings::archive_command; *at != '\0'; ++at) {
        if (*at != '%') {
            command += *at;
            continue;
        }
        switch (*++at) {
        case 'f':
            command += std::string(settings::cold_storage_dir) + "/" + file;
            break;
        case 't':
            command += table;
            break;
        case 'd':
            command += day;
            break;
        case '%':
            command += '%';
            break;
        default: // an unknown % sequence is kept
            command += '%';
            --at;
        }
    }
    return command;
}

} // namespace outbox

OUTBOX_SQL_FUNCTION(outbox_has_cold_storage)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        PG_RETURN_BOOL(*settings::cold_storage_dir != '\0' || *settings::archive_command != '\0');
    });
}

OUTBOX_SQL_FUNCTION(outbox_cold_prefix)
{
    return outbox::pg::sql_entry([&] { PG_RETURN_TEXT_P(cstring_to_text(outbox::file_prefix())); });
}

// Internal: export_partition() as the owner of the log.
OUTBOX_SQL_FUNCTION(outbox_export_partition)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const Oid partition = PG_GETARG_OID(0);
        const MemoryContext memory = CurrentMemoryContext;
        const char* file = nullptr;
        as_owner([&] { file = MemoryContextStrdup(memory, export_partition(partition)); });
        PG_RETURN_TEXT_P(cstring_to_text(file));
    });
}

// Internal: removes the file at once, if it exists. A rollback does not restore it.
OUTBOX_SQL_FUNCTION(outbox_remove_cold_file)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        const char* path = checked_cold_path(text_to_cstring(PG_GETARG_TEXT_PP(0)));
        // ENOENT: archive_command has moved the file elsewhere.
        if (unlink(path) != 0 && errno != ENOENT)
            ereport(ERROR,
                    (errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", path)));
        PG_RETURN_VOID();
    });
}

// Internal: the lines of a file. Raises an error if the file is damaged, or if a line is not valid
// in the database's encoding.
OUTBOX_SQL_FUNCTION(outbox_read_cold_file)
{
    return outbox::pg::sql_entry([&] {
        using namespace outbox;
        InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
        const auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
        pg::CompressedReader* reader =
            pg::open_compressed(checked_cold_path(text_to_cstring(PG_GETARG_TEXT_PP(0))));
        const char* no_text = nullptr;
        while (const char* line = pg::read_compressed_line(reader)) {
            // The text may not be valid in the database's encoding. Report that only after
            // close_compressed(), which detects damage of the file.
            if (!pg_verifymbstr(line, static_cast<int>(std::strlen(line)), true)) {
                no_text = no_text == nullptr ? pstrdup(line) : no_text;
                continue;
            }
            Datum value = CStringGetTextDatum(line);
            bool null = false;
            tuplestore_putvalues(result->setResult, result->setDesc, &value, &null);
            pfree(DatumGetPointer(value));
        }
        pg::close_compressed(reader);
        if (no_text != nullptr)
            (void)pg_verifymbstr(no_text, static_cast<int>(std::strlen(no_text)), false);
        return Datum{0};
    });
}
