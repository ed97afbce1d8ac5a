-- Views of tables that users read. The tables are in _outbox, beyond the reach of GRANT ... ON ALL TABLES IN
-- SCHEMA with the extension's schema: a role with TRIGGER on a table could run code with the privileges of
-- its owner. The second item of FROM, which the planner removes, keeps the views from being updatable.
DO $do$
DECLARE
    path  CONSTANT text := pg_catalog.current_setting('search_path');
    shown record;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR shown IN
        SELECT v.view, ('_outbox.' || v.name)::regclass AS "table",
               EXISTS (SELECT FROM pg_attribute a
                        WHERE a.attrelid = ('_outbox.' || v.name)::regclass AND a.attname = 'tenant_id') AS has_tenant
          FROM (VALUES ('outbox_consumers', 'consumers'), ('outbox_sinks', 'sinks'), ('outbox_scheduled', 'scheduled'),
                       ('outbox_retries', 'retries'), ('outbox_messages_dlq', 'dead_letters'),
                       ('idempotency_keys', 'idempotency_keys'), ('outbox_event_types', 'event_types'),
                       ('outbox_cold_files', 'cold_files'), ('outbox_stats_history', 'stats_history')) v (view, name)
    LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s.%I WITH (security_barrier) AS'
                       ' SELECT %s FROM %s CROSS JOIN (SELECT) AS read_only%s', '@extschema@'::regnamespace, shown.view,
                       (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                         WHERE a.attrelid = shown.table AND a.attnum > 0),
                       shown.table, CASE WHEN shown.has_tenant THEN ' WHERE _outbox.may_read(tenant_id)' END);
        EXECUTE format('COMMENT ON VIEW %s.%I IS %L', '@extschema@'::regnamespace, shown.view,
                       obj_description(shown.table, 'pg_class'));
        EXECUTE (SELECT string_agg(format('COMMENT ON COLUMN %s.%I.%I IS %L', '@extschema@'::regnamespace, shown.view,
                                          a.attname, col_description(a.attrelid, a.attnum)), ';')
                   FROM pg_attribute a WHERE a.attrelid = shown.table AND a.attnum > 0);
    END LOOP;
    PERFORM pg_catalog.set_config('search_path', path, true);
END $do$;

