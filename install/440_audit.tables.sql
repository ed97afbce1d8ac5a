----------------------------------------------------------------------------------------------------
-- The audit log records actions on entities. It is not a source of events. Only retention deletes rows. The
-- script creates the parent table only: audit_record() and maintenance create the partitions, so that pg_dump
-- includes them.
----------------------------------------------------------------------------------------------------

-- CACHE 1: ids cached by a session would be lower than ids that the chain has already passed.
CREATE SEQUENCE _outbox.audit_log_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.audit_log_id_seq IS 'ids of rows of the audit log; has gaps, and is never set back';

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
COMMENT ON TABLE audit_log IS 'append-only log of actions on entities, partitioned by month';
COMMENT ON COLUMN audit_log.xid IS 'transaction that wrote the row';
COMMENT ON COLUMN audit_log.id IS 'id of the row, as returned by audit_record()';
COMMENT ON COLUMN audit_log.occurred_at IS 'time when the row was written';
COMMENT ON COLUMN audit_log.tenant_id IS 'tenant of the row; 0 without tenants';
COMMENT ON COLUMN audit_log.actor IS 'user or service that acted';
COMMENT ON COLUMN audit_log.action IS 'name of the action';
COMMENT ON COLUMN audit_log.entity_type IS 'type of the entity; determines the retention of the row';
COMMENT ON COLUMN audit_log.entity_id IS 'id of the entity';
COMMENT ON COLUMN audit_log.before
IS 'state of the entity before the action; NULL if it did not exist or is not recorded';
COMMENT ON COLUMN audit_log.after
IS 'state of the entity after the action; NULL if it does not exist or is not recorded';
COMMENT ON COLUMN audit_log.context IS 'JSON object with further facts, such as origin and reason';

-- Both indexes are unique because pg_partman copies unique indexes only.
CREATE TABLE _outbox.audit_log_template (LIKE audit_log INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON _outbox.audit_log_template (id);
CREATE UNIQUE INDEX ON _outbox.audit_log_template (entity_type, entity_id, id);
COMMENT ON TABLE _outbox.audit_log_template IS 'empty table with the indexes that each partition of the audit log gets';

-- PostgreSQL copies row triggers to partitions; audit_guard_partitions() creates the statement trigger on them.
CREATE TRIGGER audit_forbid_change BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION _outbox.audit_forbid_change();
CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION _outbox.audit_forbid_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_forbid_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate;
COMMENT ON TRIGGER audit_forbid_change ON audit_log IS 'rejects UPDATE and DELETE: the audit log is append-only';
COMMENT ON TRIGGER audit_refuse_truncate ON audit_log IS 'rejects TRUNCATE: the audit log is append-only';

-- There is one chain per month, independent of the partitions of its rows. An entry has the id and the hash
-- of a row, so the chain can be checked after retention has removed rows.
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
COMMENT ON TABLE _outbox.audit_chain IS 'append-only hash chain over the audit log';
COMMENT ON COLUMN _outbox.audit_chain.period IS 'first day of the month, in UTC';
COMMENT ON COLUMN _outbox.audit_chain.position IS 'position in the chain of that month, from 1';
COMMENT ON COLUMN _outbox.audit_chain.id IS 'id of the row; NULL if the entry is about rows that retention has removed';
COMMENT ON COLUMN _outbox.audit_chain.removed
IS 'ids of rows that retention has removed; {(,)} stands for all rows before this entry';
COMMENT ON COLUMN _outbox.audit_chain.content IS 'SHA-256 of the row, or of removed';
COMMENT ON COLUMN _outbox.audit_chain.hash IS 'SHA-256 of the previous hash and all other columns of this entry';
COMMENT ON COLUMN _outbox.audit_chain.chained_at IS 'time when the entry was added';

CREATE TRIGGER audit_forbid_change BEFORE UPDATE OR DELETE ON _outbox.audit_chain
    FOR EACH ROW EXECUTE FUNCTION _outbox.audit_forbid_change();
CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON _outbox.audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION _outbox.audit_forbid_change();
ALTER TABLE _outbox.audit_chain ENABLE ALWAYS TRIGGER audit_forbid_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate;
COMMENT ON TRIGGER audit_forbid_change ON _outbox.audit_chain IS 'rejects UPDATE and DELETE: the chain is append-only';
COMMENT ON TRIGGER audit_refuse_truncate ON _outbox.audit_chain IS 'rejects TRUNCATE: the chain is append-only';

CREATE TABLE _outbox.audit_progress (
    identity    text    NOT NULL,
    settled_id  bigint  NOT NULL,
    horizon     xid8    NOT NULL,
    pending_id  bigint  NOT NULL,
    pending_xid xid8    NOT NULL
);
ALTER TABLE _outbox.audit_progress REPLICA IDENTITY FULL; -- see _outbox.secure_partition()
COMMENT ON TABLE _outbox.audit_progress IS 'progress of the chain; has one row as soon as the audit log is in use';
COMMENT ON COLUMN _outbox.audit_progress.identity IS 'identity of the database that assigned the transaction ids';
COMMENT ON COLUMN _outbox.audit_progress.settled_id
IS 'highest id up to which all rows are in the chain; a row that appears below it later is reported';
COMMENT ON COLUMN _outbox.audit_progress.horizon
IS 'transaction id; all rows written by earlier transactions are in the chain';
COMMENT ON COLUMN _outbox.audit_progress.pending_id
IS 'next settled_id, valid as soon as all transactions before pending_xid have ended';
COMMENT ON COLUMN _outbox.audit_progress.pending_xid IS 'transaction id that pending_id waits for';

CREATE TABLE _outbox.audit_retention (
    entity_type text     PRIMARY KEY,
    retention   interval NOT NULL
);
COMMENT ON TABLE _outbox.audit_retention
IS 'retention of entity types in the audit log, as set by audit_set_retention()';
COMMENT ON COLUMN _outbox.audit_retention.entity_type IS 'type of the entity';
COMMENT ON COLUMN _outbox.audit_retention.retention
IS 'age, counted from the end of the month, at which rows are removed';

