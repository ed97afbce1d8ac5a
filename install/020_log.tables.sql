----------------------------------------------------------------------------------------------------
-- The log: append-only, no UPDATE. This script creates only the parent tables. A partition, an index or a
-- row of pg_partman's configuration created here would belong to the extension, and pg_dump would omit it;
-- outbox_setup() creates them.
----------------------------------------------------------------------------------------------------

-- CACHE 1: nextval() calls draw ids in their order. A session's cached block would have ids below a cursor.
CREATE SEQUENCE _outbox.messages_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.messages_id_seq IS 'positions in the log; gaps are normal, and the sequence is never reset';

-- Fixed-width columns come first to avoid alignment padding.
CREATE TABLE outbox_messages (
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id             bigint      NOT NULL DEFAULT _outbox.next_id(),
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id      bigint      NOT NULL DEFAULT 0,
    tracking_id    uuid        NOT NULL DEFAULT _outbox.new_tracking_id(),
    event_version  smallint    NOT NULL DEFAULT 1,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL DEFAULT '{}',
    trace_id       text,
    run_length     smallint    DEFAULT 1
) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE outbox_messages IS 'log of events: append-only, partitioned by time';
COMMENT ON COLUMN outbox_messages.xid IS 'transaction that wrote the event';
COMMENT ON COLUMN outbox_messages.id IS 'position in the log; has gaps, and is not the identity of the event';
COMMENT ON COLUMN outbox_messages.occurred_at IS 'time at which the event entered the log';
COMMENT ON COLUMN outbox_messages.tenant_id IS 'tenant of the event; 0 without tenants';
COMMENT ON COLUMN outbox_messages.tracking_id IS 'permanent identity of the event (UUIDv7)';
COMMENT ON COLUMN outbox_messages.event_version IS 'version of the payload''s structure, 1 to 32767';
COMMENT ON COLUMN outbox_messages.aggregate_type IS 'type of the aggregate that the event is about';
COMMENT ON COLUMN outbox_messages.aggregate_id
IS 'identity of the aggregate within its type; order is kept per aggregate';
COMMENT ON COLUMN outbox_messages.event_type IS 'type of the event';
COMMENT ON COLUMN outbox_messages.payload IS 'payload of the event; JSON null is a tombstone';
COMMENT ON COLUMN outbox_messages.metadata IS 'JSON object beside the payload';
COMMENT ON COLUMN outbox_messages.trace_id IS 'trace id from the producer, not validated';
COMMENT ON COLUMN outbox_messages.run_length
IS 'rows with consecutive ids that one call wrote from here on; NULL: not the first row of its run';

-- A unique index without the partition key can exist only on the partitions, not on the parent; pg_partman
-- copies the indexes from this template. The index on (xid, id) finds the rows of a transaction. It has only
-- the first row of each run of consecutive ids, so that a batch costs one index entry instead of hundreds.
CREATE TABLE _outbox.messages_template (LIKE outbox_messages INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON _outbox.messages_template (id);
CREATE UNIQUE INDEX ON _outbox.messages_template (xid, id) WHERE run_length IS NOT NULL;
COMMENT ON TABLE _outbox.messages_template IS 'empty template of the indexes of log partitions';

