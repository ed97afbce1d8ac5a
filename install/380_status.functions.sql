CREATE OR REPLACE FUNCTION _outbox.status(OUT component text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_status()');
    RETURN QUERY SELECT 'extension', true, 'version ' || extversion, NULL FROM pg_extension WHERE extname = 'outbox';
    RETURN QUERY SELECT 'pg_partman', s.* FROM _outbox.status_partman() s;
    RETURN QUERY SELECT 'foreign keys', s.* FROM _outbox.status_foreign_keys() s;
    RETURN QUERY SELECT 'preload', s.* FROM _outbox.status_preload() s;
    RETURN QUERY SELECT 'relay', s.* FROM _outbox.status_relay() s;
    RETURN QUERY SELECT 'partitions', s.* FROM _outbox.partition_status('@extschema@.outbox_messages') s;
    RETURN QUERY SELECT 'audit partitions', s.* FROM _outbox.partition_status('@extschema@.audit_log') s
                  WHERE EXISTS (SELECT FROM _outbox.partitions('@extschema@.audit_log'));
    RETURN QUERY SELECT 'default partition', s.* FROM _outbox.status_default_partition() s;
    RETURN QUERY SELECT 'maintenance', s.* FROM _outbox.status_maintenance() s;
    RETURN QUERY SELECT 'archive', s.* FROM _outbox.status_archive() s;
    RETURN QUERY SELECT 'cold storage', s.* FROM _outbox.status_cold_storage() s;
    RETURN QUERY SELECT 'statistics', NOT full_up,
                        CASE WHEN full_up THEN 'more consumers or event types than slots' ELSE 'complete' END,
                        CASE WHEN full_up THEN 'Consumers and event types without a slot are counted under "other".' END
                   FROM _outbox.stats_overflowed() full_up;
    RETURN QUERY SELECT 'scheduled', s.* FROM _outbox.status_scheduled() s;
    RETURN QUERY SELECT * FROM _outbox.sink_status();
END $$;
COMMENT ON FUNCTION _outbox.status() IS 'internal: rows of outbox_status()';

CREATE OR REPLACE FUNCTION outbox_status(OUT component text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.status()
$$;
COMMENT ON FUNCTION outbox_status() IS 'state of each component, with a hint for each problem';

