CREATE OR REPLACE FUNCTION _outbox.audit_begin_removal() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_begin_removal';
COMMENT ON FUNCTION _outbox.audit_begin_removal()
IS 'internal: permits this transaction to delete rows of the audit log';

CREATE OR REPLACE FUNCTION _outbox.audit_end_removal() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_end_removal';
COMMENT ON FUNCTION _outbox.audit_end_removal() IS 'internal: withdraws the permission given by audit_begin_removal()';

CREATE OR REPLACE FUNCTION audit_record(
    actor text, action text, entity_type text, entity_id text, before jsonb DEFAULT NULL, after jsonb DEFAULT NULL,
    context jsonb DEFAULT '{}', tenant_id bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_record';
COMMENT ON FUNCTION audit_record(text, text, text, text, jsonb, jsonb, jsonb, bigint)
IS 'appends a row to the audit log in this transaction; returns its id';

CREATE OR REPLACE FUNCTION audit_set_retention(entity_type text, retention interval) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('audit_set_retention()');
    IF entity_type IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'entity_type must not be NULL';
    ELSIF entity_type = '' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'entity_type must not be empty';
    ELSIF octet_length(entity_type) > 255 THEN
        RAISE string_data_right_truncation USING
            MESSAGE = format('entity_type is too long: %s bytes, at most 255 are allowed', octet_length(entity_type));
    ELSIF retention <= '0' OR retention > '1000 years' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('retention must be positive and at most 1000 years, not %s', retention),
            HINT = 'To restore outbox.audit_retention, use NULL.';
    END IF;
    IF retention IS NULL THEN
        DELETE FROM _outbox.audit_retention r WHERE r.entity_type = audit_set_retention.entity_type;
    ELSE
        INSERT INTO _outbox.audit_retention AS r VALUES (entity_type, retention)
            ON CONFLICT ON CONSTRAINT audit_retention_pkey DO UPDATE SET retention = EXCLUDED.retention;
    END IF;
END $$;
COMMENT ON FUNCTION audit_set_retention(text, interval)
IS 'sets how long rows of an entity type stay in the audit log; NULL restores outbox.audit_retention';

CREATE OR REPLACE FUNCTION _outbox.audit_may_read(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION _outbox.audit_may_read(bigint)
IS 'returns true if the session may read rows of a tenant; called by the policy of the audit log';

-- Descends into JSON objects, also if a key has an object on one side only. Arrays are compared as a whole.
CREATE OR REPLACE FUNCTION audit_diff(id bigint) RETURNS TABLE (path text[], before jsonb, after jsonb)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_row @extschema@.audit_log;
BEGIN
    IF audit_diff.id IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'id must not be NULL';
    END IF;
    SELECT * INTO found_row FROM @extschema@.audit_log a WHERE a.id = audit_diff.id;
    IF NOT FOUND THEN
        RAISE no_data_found USING
            MESSAGE = format('the audit log has no row %s', audit_diff.id),
            HINT = 'Use the id that audit_record() returned. Retention may have removed the row.';
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk(path, b, a) AS (
        SELECT '{}'::text[], found_row.before, found_row.after
         UNION ALL
        SELECT w.path || k.key, w.b -> k.key, w.a -> k.key
          FROM walk w CROSS JOIN LATERAL (
               SELECT jsonb_object_keys(w.b) UNION SELECT jsonb_object_keys(w.a)) k(key)
         WHERE w.b IS DISTINCT FROM w.a
           AND coalesce(jsonb_typeof(w.b), 'object') = 'object' AND coalesce(jsonb_typeof(w.a), 'object') = 'object')
    SELECT w.path, w.b, w.a FROM walk w
     WHERE w.b IS DISTINCT FROM w.a
       -- Objects into which the query descended are reported by their keys.
       AND NOT (coalesce(jsonb_typeof(w.b), 'object') = 'object' AND coalesce(jsonb_typeof(w.a), 'object') = 'object'
                AND (coalesce(w.b <> '{}', false) OR coalesce(w.a <> '{}', false)))
     ORDER BY w.path;
END $$;
COMMENT ON FUNCTION audit_diff(bigint)
IS 'changes that a row of the audit log records: path, value before and value after';

