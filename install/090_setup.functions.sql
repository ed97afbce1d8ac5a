-- pg_partman's retention drops partitions by age, even if consumers have not read them. This trigger on
-- part_config rejects such a retention.
CREATE OR REPLACE FUNCTION _outbox.forbid_partman_retention() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.parent_table = _outbox.partman_name('@extschema@.outbox_messages') THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'pg_partman must not have a retention for the log of outbox',
            DETAIL = 'pg_partman drops or detaches partitions by age, including those with unread events.',
            HINT = 'Set outbox.hot_retention and outbox.archive_retention instead.';
    ELSIF NEW.parent_table = _outbox.partman_name('@extschema@.audit_log') THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'pg_partman must not have a retention for the audit log of outbox',
            DETAIL = 'pg_partman drops or detaches partitions by age, including those with rows to be kept longer.',
            HINT = 'Set outbox.audit_retention, or call audit_set_retention() for an entity type.';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION _outbox.forbid_partman_retention()
IS 'internal: rejects a pg_partman retention for the log or the audit log';

CREATE OR REPLACE FUNCTION _outbox.is_retention_guarded() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_trigger t
                    WHERE t.tgrelid = format('%I.part_config', _outbox.schema_of('pg_partman'))::regclass
                      AND t.tgname = 'outbox_forbid_retention' AND t.tgenabled = 'A'
                      AND t.tgfoid = '_outbox.forbid_partman_retention()'::regprocedure)
$$;
COMMENT ON FUNCTION _outbox.is_retention_guarded()
IS 'internal: returns true if pg_partman''s configuration has the trigger that rejects a retention';

-- Called repeatedly, because an update of pg_partman may recreate part_config. The table is not written while
-- untrusted_partman_roles() names a role, because the write could run that role's code.
CREATE OR REPLACE FUNCTION _outbox.install_retention_guard() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    config CONSTANT regclass := format('%I.part_config', _outbox.schema_of('pg_partman'))::regclass;
    parent regclass;
    removed text;
BEGIN
    IF NOT _outbox.is_retention_guarded() THEN
        EXECUTE format('DROP TRIGGER IF EXISTS outbox_forbid_retention ON %s', config);
        EXECUTE format('CREATE TRIGGER outbox_forbid_retention BEFORE INSERT OR UPDATE OF retention, parent_table'
                       ' ON %s FOR EACH ROW WHEN (NEW.retention IS NOT NULL) EXECUTE FUNCTION %s', config,
                       '_outbox.forbid_partman_retention()'::regprocedure);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER outbox_forbid_retention', config);
        EXECUTE format('ALTER TRIGGER outbox_forbid_retention ON %s DEPENDS ON EXTENSION outbox', config);
    END IF;
    IF _outbox.untrusted_partman_roles() IS NOT NULL THEN
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['@extschema@.outbox_messages'::regclass, '@extschema@.audit_log'::regclass] LOOP
        EXECUTE format('UPDATE %1$s c SET retention = NULL FROM %1$s o'
                       ' WHERE c.parent_table = $1 AND o.parent_table = $1 AND o.retention IS NOT NULL'
                       ' RETURNING o.retention', config)
           INTO removed USING _outbox.partman_name(parent);
        IF removed IS NOT NULL THEN
            RAISE WARNING 'outbox: removed pg_partman''s retention of % for %', removed, _outbox.display_name(parent);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.install_retention_guard()
IS 'internal: installs the trigger that rejects a pg_partman retention, and removes existing retentions';

CREATE OR REPLACE FUNCTION _outbox.setup() RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_setup';
COMMENT ON FUNCTION _outbox.setup() IS 'internal: implements outbox_setup()';

CREATE OR REPLACE FUNCTION outbox_setup() RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_setup';
COMMENT ON FUNCTION outbox_setup()
IS 'creates missing partitions of the log, seven ahead and a default; returns the number of partitions';

CREATE OR REPLACE FUNCTION _outbox.refresh_partitions(parent regclass) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_refresh_partitions';
COMMENT ON FUNCTION _outbox.refresh_partitions(regclass)
IS 'internal: rebuilds the session''s relcache entry of a table that lacks partitions';

CREATE OR REPLACE FUNCTION _outbox.audit_setup() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_setup';
COMMENT ON FUNCTION _outbox.audit_setup() IS 'internal: creates the missing partitions of the audit log';

CREATE OR REPLACE FUNCTION _outbox.before_drop() RETURNS event_trigger
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_before_drop';
COMMENT ON FUNCTION _outbox.before_drop()
IS 'internal: deletes the extension''s rows of pg_partman''s configuration before DROP EXTENSION';

