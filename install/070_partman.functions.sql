-- A role that had write access to pg_partman's configuration may have left settings there, and pg_partman puts some
-- settings into statements unquoted. The row lock waits for concurrent writes and foreign key checks of the row.
-- Columns that this version of pg_partman lacks are skipped.
CREATE OR REPLACE FUNCTION _outbox.reset_partman_config(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partman CONSTANT name := _outbox.schema_of('pg_partman');
    config  CONSTANT regclass := format('%I.part_config', partman)::regclass;
    log     CONSTANT text := _outbox.partman_name(parent);
    expected jsonb := jsonb_build_object(
        'template_table', _outbox.partman_name(_outbox.template_of(parent)), 'control', 'occurred_at', 'epoch', 'none',
        'time_encoder', NULL, 'time_decoder', NULL,
        'partition_type', CASE WHEN _outbox.partman_version() < 5 THEN 'native' ELSE 'range' END,
        'constraint_cols', NULL, 'inherit_privileges', false, 'subscription_refresh', NULL, 'jobmon', false,
        'undo_in_progress', false, 'async_partitioning_in_progress', NULL, 'date_trunc_interval', NULL,
        'sub_partition_set_full', false, 'infinite_time_partitions', true, 'ignore_default_data', true);
    actual  jsonb;
    changed jsonb;
    columns text;
    removed integer;
BEGIN
    EXECUTE format('SELECT to_jsonb(c) FROM %s c WHERE parent_table = $1 FOR UPDATE', config) INTO actual USING log;
    IF actual IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman has no configuration for %s', _outbox.display_name(parent)),
            DETAIL = format('The row for %s in %s is missing. Without it no partitions are created, and events go to'
                            ' the default partition.', log, config),
            HINT = 'Restore the row from a backup, or copy it from another database with the extension.';
    END IF;
    -- A publication of another role would give that role access to the log.
    expected := expected || jsonb_build_object('publications', (
        SELECT jsonb_agg(p.pubname ORDER BY w.position)
          FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof(actual -> 'publications') = 'array'
                                              THEN actual -> 'publications' ELSE '[]' END)
               WITH ORDINALITY w (name, position)
          JOIN pg_publication p ON p.pubname = w.name JOIN pg_roles r ON r.oid = p.pubowner
         WHERE r.rolsuper OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = parent)));
    SELECT jsonb_object_agg(e.key, actual -> e.key), string_agg(quote_ident(e.key), ', ') INTO changed, columns
      FROM jsonb_each(expected) e WHERE actual ? e.key AND actual -> e.key <> e.value;
    IF columns IS NOT NULL THEN
        EXECUTE format('UPDATE %1$s c SET (%2$s) = (SELECT %2$s FROM jsonb_populate_record(NULL::%1$s, $2))'
                       ' WHERE c.parent_table = $1', config, columns)
          USING log, expected;
    END IF;
    EXECUTE format('DELETE FROM %I.part_config_sub WHERE sub_parent = $1', partman) USING log;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF columns IS NOT NULL OR removed > 0 THEN
        RAISE WARNING USING
            MESSAGE = format('outbox: reset changed pg_partman configuration for %s', _outbox.display_name(parent)),
            DETAIL = format('The changed settings were %s, %s subpartitions.', coalesce(changed, '{}'),
                            CASE WHEN removed > 0 THEN 'with' ELSE 'without' END);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.reset_partman_config(regclass)
IS 'internal: resets pg_partman''s configuration of the log or the audit log';

