-- pg_partman would drop partitions by their age alone. Its configuration refuses that for the log.
CREATE OR REPLACE FUNCTION _outbox.forbid_partman_retention() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.parent_table = _outbox.partman_name('@extschema@.outbox_messages') THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'pg_partman must not have a retention for the log of outbox',
            DETAIL = 'It drops or detaches partitions by their age, also those that a consumer has yet to read.',
            HINT = 'Set outbox.hot_retention and outbox.archive_retention instead.';
    ELSIF NEW.parent_table = _outbox.partman_name('@extschema@.audit_log') THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'pg_partman must not have a retention for the audit log of outbox',
            DETAIL = 'It drops or detaches partitions by their age, also those with rows that are to be kept for longer.',
            HINT = 'Set outbox.audit_retention, or call audit_set_retention() for an entity type.';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION _outbox.forbid_partman_retention()
IS 'internal: keeps pg_partman from getting a retention for the log or the audit log';

CREATE OR REPLACE FUNCTION _outbox.is_retention_guarded() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_trigger t
                    WHERE t.tgrelid = format('%I.part_config', _outbox.schema_of('pg_partman'))::regclass
                      AND t.tgname = 'outbox_forbid_retention' AND t.tgenabled = 'A'
                      AND t.tgfoid = '_outbox.forbid_partman_retention()'::regprocedure)
$$;
COMMENT ON FUNCTION _outbox.is_retention_guarded()
IS 'internal: does pg_partman''s configuration refuse a retention for the log?';

-- Again and again: an update of pg_partman may make its table anew. Nothing is written while that would run what is
-- somebody else's; there are no partitions then, either.
CREATE OR REPLACE FUNCTION _outbox.install_retention_guard() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    config CONSTANT regclass := format('%I.part_config', _outbox.schema_of('pg_partman'))::regclass;
    parent regclass;
    set_to text;
BEGIN
    IF NOT _outbox.is_retention_guarded() THEN
        EXECUTE format('DROP TRIGGER IF EXISTS outbox_forbid_retention ON %s', config);
        EXECUTE format('CREATE TRIGGER outbox_forbid_retention BEFORE INSERT OR UPDATE OF retention, parent_table ON %s FOR EACH ROW'
                       ' WHEN (NEW.retention IS NOT NULL) EXECUTE FUNCTION %s', config,
                       '_outbox.forbid_partman_retention()'::regprocedure);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER outbox_forbid_retention', config);
        EXECUTE format('ALTER TRIGGER outbox_forbid_retention ON %s DEPENDS ON EXTENSION outbox', config);
    END IF;
    IF _outbox.untrusted_partman_roles() IS NOT NULL THEN
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['@extschema@.outbox_messages'::regclass, '@extschema@.audit_log'::regclass] LOOP
        EXECUTE format('UPDATE %1$s c SET retention = NULL FROM %1$s o'
                       ' WHERE c.parent_table = $1 AND o.parent_table = $1 AND o.retention IS NOT NULL RETURNING o.retention', config)
           INTO set_to USING _outbox.partman_name(parent);
        IF set_to IS NOT NULL THEN
            RAISE WARNING 'outbox: took back the retention of % that pg_partman had for %', set_to, _outbox.display_name(parent);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.install_retention_guard()
IS 'internal: sees to it that pg_partman has no retention for the log';

CREATE OR REPLACE FUNCTION _outbox.setup() RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_setup';
COMMENT ON FUNCTION _outbox.setup()
IS 'internal: outbox_setup()';

CREATE OR REPLACE FUNCTION outbox_setup() RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_setup';
COMMENT ON FUNCTION outbox_setup()
IS 'makes the partitions of the log that are missing, seven ahead and a default; returns how many there are';

CREATE OR REPLACE FUNCTION _outbox.refresh_partitions(parent regclass) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_refresh_partitions';
COMMENT ON FUNCTION _outbox.refresh_partitions(regclass)
IS 'internal: has the session see partitions that its relation cache has missed, in the plans that follow';

CREATE OR REPLACE FUNCTION _outbox.audit_setup() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_setup';
COMMENT ON FUNCTION _outbox.audit_setup()
IS 'internal: makes the partitions of the audit log that are missing';

CREATE OR REPLACE FUNCTION _outbox.before_drop() RETURNS event_trigger
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_before_drop';
COMMENT ON FUNCTION _outbox.before_drop()
IS 'internal: takes the log out of pg_partman''s configuration when the extension is dropped';

