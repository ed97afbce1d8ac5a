CREATE OR REPLACE FUNCTION _outbox.has_cold_storage() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_has_cold_storage';
COMMENT ON FUNCTION _outbox.has_cold_storage()
IS 'internal: returns true if partitions must be exported before they are dropped';

CREATE OR REPLACE FUNCTION _outbox.export_partition(partition regclass) RETURNS text
LANGUAGE c VOLATILE STRICT SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
AS 'MODULE_PATHNAME', 'outbox_export_partition';
COMMENT ON FUNCTION _outbox.export_partition(regclass)
IS 'internal: exports a partition of the archive to a file in outbox.cold_storage_dir; returns its name';

CREATE OR REPLACE FUNCTION _outbox.remove_cold_file(file text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_remove_cold_file';
COMMENT ON FUNCTION _outbox.remove_cold_file(text)
IS 'internal: removes a file from outbox.cold_storage_dir, if it exists';

CREATE OR REPLACE FUNCTION _outbox.cold_prefix() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_cold_prefix';
COMMENT ON FUNCTION _outbox.cold_prefix()
IS 'internal: prefix of the names of files that are exported from this database';

CREATE OR REPLACE FUNCTION _outbox.read_cold_file(file text) RETURNS SETOF text
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_read_cold_file';
COMMENT ON FUNCTION _outbox.read_cold_file(text) IS 'internal: lines of a file in outbox.cold_storage_dir';

-- The file name has the name and the bounds of the partition. Rows keep their xid and id, so that cursors
-- that have passed them do not deliver them again; outbox_seek() moves a cursor back to them.
CREATE OR REPLACE FUNCTION outbox_restore_partition(file text) RETURNS regclass
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    parts CONSTANT text[] := regexp_match(file, '^[^./]+\.(outbox_messages_p[0-9a-z_]{1,46})'
                                                '\.([0-9]{8}T[0-9]{6}Z)-([0-9]{8}T[0-9]{6}Z)\.[0-9]+\.ndjson\.zst$');
    own   CONSTANT text := quote_ident(_outbox.schema_of('outbox')) || '.' || quote_ident(parts[1]);
    columns  text;
    values   text;
    first_id bigint;
    last_id  bigint;
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_restore_partition()');
    IF file IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'file must not be NULL';
    ELSIF parts IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'file must be the name of an exported partition',
            HINT = 'See outbox_cold_files for the names of exported files, such as'
                   ' shop.outbox_messages_p2026_01_31.20260131T000000Z-20260201T000000Z.1.ndjson.zst.';
    ELSIF split_part(file, '.', 1) <> _outbox.cold_prefix()
          AND NOT EXISTS (SELECT FROM _outbox.cold_files f WHERE f.file = outbox_restore_partition.file) THEN
        -- All databases share the directory, but an admin must not read events of another database. After the
        -- database was renamed, or restored under another name, outbox_cold_files still lists its files.
        RAISE invalid_parameter_value USING
            MESSAGE = 'file must be the name of a file that was exported from this database',
            HINT = format('Names of such files start with %s. To restore a file of another database here, rename it in'
                          ' outbox.cold_storage_dir.', _outbox.cold_prefix());
    ELSIF to_regclass(own) IS NOT NULL THEN
        RAISE duplicate_table USING
            MESSAGE = format('partition %s already exists', parts[1]),
            HINT = 'Its events can be read without restoring it.';
    END IF;
    LOCK TABLE _outbox.maintenance_state IN SHARE UPDATE EXCLUSIVE MODE;
    PERFORM _outbox.create_partition(own, parts[2]::timestamptz, parts[3]::timestamptz,
                                     '@extschema@.outbox_messages_archive');
    -- json_populate_record() turns JSON null into SQL NULL, which the columns payload and metadata reject.
    SELECT string_agg(c.name, ', '),
           string_agg(format(CASE WHEN c.name IN ('payload', 'metadata') THEN 'coalesce(r.%s, ''null'')'
                                  ELSE 'r.%s' END, c.name), ', ')
      INTO STRICT columns, values
      FROM _outbox.table_columns(own::regclass) c WHERE c.generated IS NULL;
    BEGIN
        EXECUTE format('INSERT INTO %1$s (%2$s)'
                       ' SELECT %3$s FROM %4$s line, json_populate_record(NULL::%1$s, line::json) r',
                       own, columns, values, '_outbox.read_cold_file($1)') USING file;
    EXCEPTION WHEN data_exception OR not_null_violation OR unique_violation THEN
        RAISE data_corrupted USING MESSAGE = 'the file contains data other than events', DETAIL = SQLERRM;
    END;
    EXECUTE format('SELECT min(id), max(id) FROM %s', own) INTO first_id, last_id;
    IF last_id IS NULL THEN
        RAISE data_corrupted USING MESSAGE = 'the file contains no events';
    ELSIF last_id > _outbox.last_id() THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the file contains ids up to %s, but the last id of this log is %s',
                             last_id, _outbox.last_id()),
            HINT = 'The file is from another database. Restore it there, or in a copy of that database.';
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                   '@extschema@.outbox_messages_archive'::regclass, own, parts[2]::timestamptz, parts[3]::timestamptz);
    INSERT INTO _outbox.archived_partitions (partition, lower_bound, upper_bound, first_id, last_id, restored_at)
    VALUES (parts[1], parts[2]::timestamptz, parts[3]::timestamptz, first_id, last_id, clock_timestamp());
    RETURN own::regclass;
END $$;
COMMENT ON FUNCTION outbox_restore_partition(text)
IS 'restores a partition from a file in outbox.cold_storage_dir to the archive; returns the partition';

-- Partitions that wait for cold storage are excluded: outbox_status() reports them in a row of their own.
CREATE OR REPLACE FUNCTION _outbox.stuck_partitions(OUT partition regclass, OUT since timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.partition, d.since
      FROM (SELECT p.partition, p.upper_bound + _outbox.setting('outbox.hot_retention')
              FROM _outbox.due_partitions() p
             UNION ALL
            SELECT e.partition, e.upper_bound + _outbox.setting('outbox.archive_retention')
              FROM _outbox.expired_partitions() e
             WHERE NOT e.restored
               AND (NOT _outbox.has_cold_storage() OR _outbox.is_stored(e.partition))) d (partition, since)
     WHERE d.since < clock_timestamp() - 2 * _outbox.setting('outbox.maintenance_interval')
       AND NOT EXISTS (SELECT FROM _outbox.partition_readers(d.partition))
     ORDER BY d.since
$$;
COMMENT ON FUNCTION _outbox.stuck_partitions()
IS 'internal: partitions past their retention that no consumer needs and that maintenance has not handled';

