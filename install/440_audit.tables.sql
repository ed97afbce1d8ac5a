----------------------------------------------------------------------------------------------------
-- The audit log: who did what to what. It is no event source. Rows are appended, and leave by retention
-- alone. As with the log, parents only are made here.
----------------------------------------------------------------------------------------------------

-- CACHE 1, as for the log.
CREATE SEQUENCE _outbox.audit_log_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.audit_log_id_seq
IS 'ids of rows of the audit log; gaps are normal, and it is never set back';

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

