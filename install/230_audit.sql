----------------------------------------------------------------------------------------------------
-- The audit log: who did what to what. It is no event source. Rows are appended, and leave by retention
-- alone. As with the log, parents only are made here.
----------------------------------------------------------------------------------------------------

-- CACHE 1, as for the log.
CREATE SEQUENCE _outbox.audit_log_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.audit_log_id_seq
IS 'ids of rows of the audit log; gaps are normal, and it is never set back';

CREATE FUNCTION _outbox.audit_next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_next_id';
COMMENT ON FUNCTION _outbox.audit_next_id()
IS 'internal: the next id in the audit log, drawn after this transaction has its xid';

CREATE TABLE audit_log (
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id          bigint      NOT NULL DEFAULT _outbox.audit_next_id(),
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id   bigint      NOT NULL DEFAULT 0,
    actor       text        NOT NULL,
    action      text        NOT NULL,
    entity_type text        NOT NULL,
    entity_id   text        NOT NULL,
    before      jsonb,
    after       jsonb,
    context     jsonb       NOT NULL DEFAULT '{}'
) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE audit_log IS 'who did what to what: append-only, partitioned by month';
COMMENT ON COLUMN audit_log.xid IS 'the transaction that wrote the row';
COMMENT ON COLUMN audit_log.id IS 'what audit_record() returned';
COMMENT ON COLUMN audit_log.occurred_at IS 'when the row was written';
COMMENT ON COLUMN audit_log.tenant_id IS 'whose row it is; 0 where there are no tenants';
COMMENT ON COLUMN audit_log.actor IS 'who did it';
COMMENT ON COLUMN audit_log.action IS 'what was done';
COMMENT ON COLUMN audit_log.entity_type IS 'what kind of thing it was done to; retention goes by it';
COMMENT ON COLUMN audit_log.entity_id IS 'which one';
COMMENT ON COLUMN audit_log.before IS 'how the thing was before; NULL: it was not, or does not matter';
COMMENT ON COLUMN audit_log.after IS 'how it is now; NULL: it is not, or does not matter';
COMMENT ON COLUMN audit_log.context IS 'an object: where from, why, on whose behalf';

-- The second one is unique because pg_partman copies no other.
CREATE TABLE _outbox.audit_log_template (LIKE audit_log INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON _outbox.audit_log_template (id);
CREATE UNIQUE INDEX ON _outbox.audit_log_template (entity_type, entity_id, id);
COMMENT ON TABLE _outbox.audit_log_template
IS 'always empty: the indexes that each partition of the audit log gets';

CREATE FUNCTION _outbox.audit_forbid_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'audit_forbid_change';
COMMENT ON FUNCTION _outbox.audit_forbid_change()
IS 'internal: refuses UPDATE, DELETE and TRUNCATE, but for retention';

CREATE FUNCTION _outbox.audit_begin_removal() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_begin_removal';
COMMENT ON FUNCTION _outbox.audit_begin_removal()
IS 'internal: from here on this transaction may remove rows of the audit log';

CREATE FUNCTION _outbox.audit_end_removal() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_end_removal';
COMMENT ON FUNCTION _outbox.audit_end_removal()
IS 'internal: from here on it may not';

-- One for all of them: partitions get it too, by themselves or from audit_guard_partitions().
CREATE TRIGGER audit_forbid_change BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION _outbox.audit_forbid_change();
CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION _outbox.audit_forbid_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_forbid_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate;
COMMENT ON TRIGGER audit_forbid_change ON audit_log IS 'the audit log is append-only';
COMMENT ON TRIGGER audit_refuse_truncate ON audit_log IS 'the audit log is append-only';

-- One chain per month, whichever partition its rows are in. Nothing here refers to a row by more than its id:
-- rows that retention has removed stay in it as hashes.
CREATE TABLE _outbox.audit_chain (
    period     date        NOT NULL,
    position   bigint      NOT NULL,
    id         bigint      UNIQUE,
    removed    int8multirange,
    content    bytea       NOT NULL,
    hash       bytea       NOT NULL,
    chained_at timestamptz NOT NULL,
    PRIMARY KEY (period, position)
);
CREATE INDEX ON _outbox.audit_chain (period, position) WHERE removed IS NOT NULL;
COMMENT ON TABLE _outbox.audit_chain IS 'the hash chain over the audit log: append-only';
COMMENT ON COLUMN _outbox.audit_chain.period IS 'the first day of the month, in UTC';
COMMENT ON COLUMN _outbox.audit_chain.position IS 'the place in the chain of that month, from 1';
COMMENT ON COLUMN _outbox.audit_chain.id IS 'the row; NULL: this is about what retention has removed';
COMMENT ON COLUMN _outbox.audit_chain.removed IS 'the ids of rows that retention has removed; {(,)}: all before this';
COMMENT ON COLUMN _outbox.audit_chain.content IS 'SHA-256 over the row, or over what is in removed';
COMMENT ON COLUMN _outbox.audit_chain.hash IS 'SHA-256 over the hash before it, and over all else in this row';
COMMENT ON COLUMN _outbox.audit_chain.chained_at IS 'when it was put in the chain';

CREATE TRIGGER audit_forbid_change BEFORE UPDATE OR DELETE ON _outbox.audit_chain
    FOR EACH ROW EXECUTE FUNCTION _outbox.audit_forbid_change();
CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON _outbox.audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION _outbox.audit_forbid_change();
ALTER TABLE _outbox.audit_chain ENABLE ALWAYS TRIGGER audit_forbid_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate;
COMMENT ON TRIGGER audit_forbid_change ON _outbox.audit_chain IS 'the chain is append-only';
COMMENT ON TRIGGER audit_refuse_truncate ON _outbox.audit_chain IS 'the chain is append-only';

CREATE TABLE _outbox.audit_progress (
    identity    text    NOT NULL,
    settled_id  bigint  NOT NULL,
    horizon     xid8    NOT NULL,
    pending_id  bigint  NOT NULL,
    pending_xid xid8    NOT NULL
);
ALTER TABLE _outbox.audit_progress REPLICA IDENTITY FULL; -- see secure_partition()
COMMENT ON TABLE _outbox.audit_progress IS 'one row, since the audit log is in use: how far the chain is';
COMMENT ON COLUMN _outbox.audit_progress.identity IS 'the database whose transactions these are';
COMMENT ON COLUMN _outbox.audit_progress.settled_id IS 'all rows up to this id are in the chain; one that comes later was slipped in';
COMMENT ON COLUMN _outbox.audit_progress.horizon IS 'what transactions before this one have written is in the chain';
COMMENT ON COLUMN _outbox.audit_progress.pending_id IS 'what settled_id will be once all transactions before pending_xid have ended';
COMMENT ON COLUMN _outbox.audit_progress.pending_xid IS 'see pending_id';

CREATE TABLE _outbox.audit_retention (
    entity_type text     PRIMARY KEY,
    retention   interval NOT NULL
);
COMMENT ON TABLE _outbox.audit_retention IS 'what audit_set_retention() was told';
COMMENT ON COLUMN _outbox.audit_retention.entity_type IS 'rows of this entity type';
COMMENT ON COLUMN _outbox.audit_retention.retention IS 'are removed when they are as old as this, with their month';

CREATE FUNCTION audit_record(
    actor text, action text, entity_type text, entity_id text, before jsonb DEFAULT NULL, after jsonb DEFAULT NULL,
    context jsonb DEFAULT '{}', tenant_id bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_record';
COMMENT ON FUNCTION audit_record(text, text, text, text, jsonb, jsonb, jsonb, bigint)
IS 'appends a row to the audit log in this transaction; returns its id';

CREATE FUNCTION audit_set_retention(entity_type text, retention interval) RETURNS void
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
            HINT = 'NULL makes outbox.audit_retention hold again.';
    END IF;
    IF retention IS NULL THEN
        DELETE FROM _outbox.audit_retention r WHERE r.entity_type = audit_set_retention.entity_type;
    ELSE
        INSERT INTO _outbox.audit_retention AS r VALUES (entity_type, retention)
            ON CONFLICT ON CONSTRAINT audit_retention_pkey DO UPDATE SET retention = EXCLUDED.retention;
    END IF;
END $$;
COMMENT ON FUNCTION audit_set_retention(text, interval)
IS 'how long rows of an entity type stay in the audit log; NULL: as long as outbox.audit_retention says';

CREATE FUNCTION _outbox.audit_may_read(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION _outbox.audit_may_read(bigint)
IS 'for the policy of the audit log: may this session see rows of a tenant?';

-- What is an object on both sides, or only on one, is gone into. Arrays are values.
CREATE FUNCTION audit_diff(id bigint) RETURNS TABLE (path text[], before jsonb, after jsonb)
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
            HINT = 'Its id is what audit_record() returned. Retention may have removed it.';
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
       -- Unless it was gone into.
       AND NOT (coalesce(jsonb_typeof(w.b), 'object') = 'object' AND coalesce(jsonb_typeof(w.a), 'object') = 'object'
                AND (coalesce(w.b <> '{}', false) OR coalesce(w.a <> '{}', false)))
     ORDER BY w.path;
END $$;
COMMENT ON FUNCTION audit_diff(bigint)
IS 'what a row of the audit log has changed: the path to each key, and its value before and after';

