----------------------------------------------------------------------------------------------------
-- The log. Nothing updates it. Parents only are made here: a partition, an index or a row of
-- pg_partman's configuration made in this script would belong to the extension, and pg_dump would
-- leave it out. outbox_setup() makes them.
----------------------------------------------------------------------------------------------------

-- CACHE 1: ids are drawn in the order of the calls.
CREATE SEQUENCE _outbox.messages_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.messages_id_seq
IS 'positions in the log; gaps are normal, and it is never set back';

-- Columns of fixed width come first, so that no row carries padding.
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
COMMENT ON TABLE outbox_messages
IS 'the log of events: append-only, partitioned by time';
COMMENT ON COLUMN outbox_messages.xid IS 'the transaction that wrote the event';
COMMENT ON COLUMN outbox_messages.id IS 'position in the log; not an identity, and not gapless';
COMMENT ON COLUMN outbox_messages.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN outbox_messages.tenant_id IS 'whose event it is; 0 where there are no tenants';
COMMENT ON COLUMN outbox_messages.tracking_id IS 'the event''s identity for ever (UUIDv7)';
COMMENT ON COLUMN outbox_messages.event_version IS 'version of the payload''s shape, 1 to 32767';
COMMENT ON COLUMN outbox_messages.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN outbox_messages.aggregate_id IS 'which one: the unit of order';
COMMENT ON COLUMN outbox_messages.event_type IS 'what happened';
COMMENT ON COLUMN outbox_messages.payload IS 'the event itself; JSON null is a tombstone';
COMMENT ON COLUMN outbox_messages.metadata IS 'an object beside the payload';
COMMENT ON COLUMN outbox_messages.trace_id IS 'as the producer gave it, valid or not';
COMMENT ON COLUMN outbox_messages.run_length
IS 'how many rows one call has written from here on, their ids in a row; NULL: not the first of them';

-- Unique indexes without the partition key can only exist on each partition by itself; pg_partman
-- copies them from here. The second one is for finding what a transaction has written: the first row
-- of each run is enough for that, and a batch pays for one entry instead of hundreds.
CREATE TABLE _outbox.messages_template (LIKE outbox_messages INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON _outbox.messages_template (id);
CREATE UNIQUE INDEX ON _outbox.messages_template (xid, id) WHERE run_length IS NOT NULL;
COMMENT ON TABLE _outbox.messages_template
IS 'always empty: the indexes that each partition of the log gets';

