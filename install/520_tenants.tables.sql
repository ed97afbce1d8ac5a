----------------------------------------------------------------------------------------------------
-- Tenants. Row security limits a session of a tenant to rows of that tenant. Functions of the extension run
-- as the owner of the tables, to which row security does not apply: they check the tenant themselves.
----------------------------------------------------------------------------------------------------

DO $do$
DECLARE
    owned regclass;
    path  CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR owned IN
        SELECT c.oid FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('r', 'p')
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
         WHERE e.extname = 'outbox' AND d.deptype = 'e'
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', owned);
        EXECUTE format('CREATE POLICY outbox_tenant ON %s USING (%s(tenant_id))', owned,
                       CASE owned WHEN '@extschema@.audit_log'::regclass THEN '_outbox.audit_may_read'::regproc
                                  ELSE '_outbox.may_read'::regproc END);
        EXECUTE format('COMMENT ON POLICY outbox_tenant ON %s IS %L', owned,
                       'limits a session of a tenant to rows of that tenant');
    END LOOP;
    PERFORM set_config('search_path', path, true);
END $do$;

