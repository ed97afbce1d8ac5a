-- Whoever could write there once may have left something, and pg_partman puts some of it into statements as it is. The row is
-- locked first: what others write to it, or refer to it with, has ended then. Not all versions have all columns.
CREATE OR REPLACE FUNCTION _outbox.reset_partman_config(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partman CONSTANT name := _outbox.schema_of('pg_partman');
    config  CONSTANT regclass := format('%I.part_config', partman)::regclass;
    log     CONSTANT text := _outbox.partman_name(parent);
    usual   jsonb := jsonb_build_object(
        'template_table', _outbox.partman_name(_outbox.template_of(parent)), 'control', 'occurred_at', 'epoch', 'none', 'time_encoder', NULL, 'time_decoder', NULL,
        'partition_type', CASE WHEN _outbox.partman_version() < 5 THEN 'native' ELSE 'range' END,
        'constraint_cols', NULL, 'inherit_privileges', false, 'subscription_refresh', NULL, 'jobmon', false, 'undo_in_progress', false,
        'async_partitioning_in_progress', NULL, 'date_trunc_interval', NULL,
        'sub_partition_set_full', false, 'infinite_time_partitions', true, 'ignore_default_data', true);
    present jsonb;
    strange jsonb;
    columns text;
    removed integer;
BEGIN
    EXECUTE format('SELECT to_jsonb(c) FROM %s c WHERE parent_table = $1 FOR UPDATE', config) INTO present USING log;
    IF present IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman has no configuration for %s', _outbox.display_name(parent)),
            DETAIL = format('The row of %s in %s is gone. Without it no partitions are made: events go to the default one.', log, config),
            HINT = 'Insert it again, as a backup or another database with the extension has it.';
    END IF;
    -- A publication of somebody else's would hand him the log.
    usual := usual || jsonb_build_object('publications', (
        SELECT jsonb_agg(p.pubname ORDER BY w.position)
          FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof(present -> 'publications') = 'array' THEN present -> 'publications' ELSE '[]' END)
               WITH ORDINALITY w (name, position)
          JOIN pg_publication p ON p.pubname = w.name JOIN pg_roles r ON r.oid = p.pubowner
         WHERE r.rolsuper OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = parent)));
    SELECT jsonb_object_agg(u.key, present -> u.key), string_agg(quote_ident(u.key), ', ') INTO strange, columns
      FROM jsonb_each(usual) u WHERE present ? u.key AND present -> u.key <> u.value;
    IF columns IS NOT NULL THEN
        EXECUTE format('UPDATE %1$s c SET (%2$s) = (SELECT %2$s FROM jsonb_populate_record(NULL::%1$s, $2)) WHERE c.parent_table = $1', config, columns)
          USING log, usual;
    END IF;
    EXECUTE format('DELETE FROM %I.part_config_sub WHERE sub_parent = $1', partman) USING log;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF columns IS NOT NULL OR removed > 0 THEN
        RAISE WARNING USING
            MESSAGE = format('outbox: pg_partman had another configuration for %s, or subpartitions: it is as it was made again', _outbox.display_name(parent)),
            DETAIL = format('It was: %s, %s subpartitions.', coalesce(strange, '{}'), CASE WHEN removed > 0 THEN 'with' ELSE 'without' END);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.reset_partman_config(regclass)
IS 'internal: what pg_partman makes partitions by is as the extension has set it';

