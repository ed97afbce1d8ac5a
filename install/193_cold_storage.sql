CREATE FUNCTION outbox_has_cold_storage() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_has_cold_storage';
COMMENT ON FUNCTION outbox_has_cold_storage()
IS 'internal: do partitions have to be exported before they are dropped?';

CREATE FUNCTION outbox_export_partition(partition regclass) RETURNS text
LANGUAGE c VOLATILE STRICT SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS 'MODULE_PATHNAME', 'outbox_export_partition';
COMMENT ON FUNCTION outbox_export_partition(regclass)
IS 'internal: writes a partition of the archive to a file in outbox.cold_storage_dir; returns its name';

CREATE FUNCTION outbox_remove_cold_file(file text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_remove_cold_file';
COMMENT ON FUNCTION outbox_remove_cold_file(text)
IS 'internal: removes a file from outbox.cold_storage_dir, if it is there';

CREATE FUNCTION outbox_cold_prefix() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_cold_prefix';
COMMENT ON FUNCTION outbox_cold_prefix()
IS 'internal: what the names of files that are exported from this database begin with';

CREATE FUNCTION outbox_read_cold_file(file text) RETURNS SETOF text
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_read_cold_file';
COMMENT ON FUNCTION outbox_read_cold_file(text)
IS 'internal: the lines of a file in outbox.cold_storage_dir';

-- The file's name says what it is. Its rows come back with xid and id as they were: consumers that have passed them
-- stay behind them, and outbox_seek() makes one read them again.
CREATE FUNCTION outbox_restore_partition(file text) RETURNS regclass
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    parts CONSTANT text[] := regexp_match(file, '^[^./]+\.(outbox_messages_p[0-9a-z_]{1,46})\.([0-9]{8}T[0-9]{6}Z)-([0-9]{8}T[0-9]{6}Z)'
                                                '\.[0-9]+\.ndjson\.zst$');
    own   CONSTANT text := quote_ident(@extschema@.outbox_schema_of('outbox')) || '.' || quote_ident(parts[1]);
    columns  text;
    values   text;
    first_id bigint;
    last_id  bigint;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_restore_partition()');
    IF file IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'file must not be NULL';
    ELSIF parts IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'file must be the name of an exported partition',
            HINT = 'Such as shop.outbox_messages_p2026_01_31.20260131T000000Z-20260201T000000Z.1.ndjson.zst;'
                   ' outbox_cold_files has them.';
    ELSIF split_part(file, '.', 1) <> @extschema@.outbox_cold_prefix()
          AND NOT EXISTS (SELECT FROM @extschema@.outbox_cold_files f WHERE f.file = outbox_restore_partition.file) THEN
        -- The directory is one for all databases, and an admin is an admin of one. A database that was renamed, or restored
        -- under another name, knows its files by its list.
        RAISE invalid_parameter_value USING
            MESSAGE = 'file must be one that was exported from this database',
            HINT = format('Its name would begin with %s. Whoever can rename files there can bring it here all the same.',
                          @extschema@.outbox_cold_prefix());
    ELSIF to_regclass(own) IS NOT NULL THEN
        RAISE duplicate_table USING
            MESSAGE = format('partition %s exists already', parts[1]),
            HINT = 'Its events can be read where they are.';
    END IF;
    LOCK TABLE @extschema@.outbox_home IN SHARE UPDATE EXCLUSIVE MODE;
    PERFORM @extschema@.outbox_create_partition(own, parts[2]::timestamptz, parts[3]::timestamptz, '@extschema@.outbox_messages_archive');
    -- JSON null is a payload, and the function would make it NULL.
    SELECT string_agg(c.name, ', '),
           string_agg(format(CASE WHEN c.name IN ('payload', 'metadata') THEN 'coalesce(r.%s, ''null'')' ELSE 'r.%s' END, c.name), ', ')
      INTO STRICT columns, values
      FROM @extschema@.outbox_columns(own::regclass) c WHERE c.generated IS NULL;
    BEGIN
        EXECUTE format('INSERT INTO %1$s (%2$s) SELECT %3$s FROM %4$s line, json_populate_record(NULL::%1$s, line::json) r',
                       own, columns, values, '@extschema@.outbox_read_cold_file($1)') USING file;
    EXCEPTION WHEN data_exception OR not_null_violation OR unique_violation THEN
        RAISE data_corrupted USING MESSAGE = 'the file has something else than events in it', DETAIL = SQLERRM;
    END;
    EXECUTE format('SELECT min(id), max(id) FROM %s', own) INTO first_id, last_id;
    IF last_id IS NULL THEN
        RAISE data_corrupted USING MESSAGE = 'the file has no events';
    ELSIF last_id > @extschema@.outbox_last_id() THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the file has ids up to %s, and this log has come to %s', last_id, @extschema@.outbox_last_id()),
            HINT = 'It is from another database. Only a copy of that one can take it back.';
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                   '@extschema@.outbox_messages_archive'::regclass, own, parts[2]::timestamptz, parts[3]::timestamptz);
    INSERT INTO @extschema@.outbox_archived_partitions (partition, lower_bound, upper_bound, first_id, last_id, restored_at)
    VALUES (parts[1], parts[2]::timestamptz, parts[3]::timestamptz, first_id, last_id, clock_timestamp());
    RETURN own::regclass;
END $$;
COMMENT ON FUNCTION outbox_restore_partition(text)
IS 'brings a partition back from a file in outbox.cold_storage_dir into the archive, for a replay; returns its table';

-- Not those that wait for cold storage, of which outbox_status() speaks by itself.
CREATE FUNCTION outbox_stuck_partitions(OUT partition regclass, OUT since timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.partition, d.since
      FROM (SELECT p.partition, p.upper_bound + @extschema@.outbox_setting('outbox.hot_retention')
              FROM @extschema@.outbox_due_partitions() p
             UNION ALL
            SELECT e.partition, e.upper_bound + @extschema@.outbox_setting('outbox.archive_retention')
              FROM @extschema@.outbox_expired_partitions() e
             WHERE NOT e.restored AND (NOT @extschema@.outbox_has_cold_storage() OR @extschema@.outbox_is_stored(e.partition))) d (partition, since)
     WHERE d.since < clock_timestamp() - 2 * @extschema@.outbox_setting('outbox.maintenance_interval')
       AND NOT EXISTS (SELECT FROM @extschema@.outbox_holders(d.partition))
     ORDER BY d.since
$$;
COMMENT ON FUNCTION outbox_stuck_partitions()
IS 'internal: the partitions whose time is over, that nobody needs, and that are still where they were';

