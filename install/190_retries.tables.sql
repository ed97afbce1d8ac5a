----------------------------------------------------------------------------------------------------
-- What went wrong
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.retries (
    xid            xid8        NOT NULL,
    id             bigint      NOT NULL,
    occurred_at    timestamptz NOT NULL,
    tenant_id      bigint      NOT NULL,
    tracking_id    uuid        NOT NULL,
    event_version  smallint    NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL,
    trace_id       text,
    consumer_id    integer     NOT NULL,
    partition      integer     NOT NULL,
    attempts       integer     NOT NULL,
    redriven       boolean     NOT NULL DEFAULT false,
    available_at   timestamptz NOT NULL,
    failed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_error     text,
    PRIMARY KEY (consumer_id, id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX ON _outbox.retries (consumer_id, available_at);
CREATE INDEX ON _outbox.retries (consumer_id, aggregate_type, aggregate_id, id);
COMMENT ON TABLE _outbox.retries
IS 'copies of messages that wait for another attempt, or behind one that does';
COMMENT ON COLUMN _outbox.retries.xid IS 'the transaction that wrote the event';
COMMENT ON COLUMN _outbox.retries.id IS 'position in the log';
COMMENT ON COLUMN _outbox.retries.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN _outbox.retries.tenant_id IS 'whose event it is';
COMMENT ON COLUMN _outbox.retries.tracking_id IS 'the event''s identity';
COMMENT ON COLUMN _outbox.retries.event_version IS 'version of the payload''s shape';
COMMENT ON COLUMN _outbox.retries.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN _outbox.retries.aggregate_id IS 'which one';
COMMENT ON COLUMN _outbox.retries.event_type IS 'what happened';
COMMENT ON COLUMN _outbox.retries.payload IS 'the event itself';
COMMENT ON COLUMN _outbox.retries.metadata IS 'an object beside the payload';
COMMENT ON COLUMN _outbox.retries.trace_id IS 'as the producer gave it';
COMMENT ON COLUMN _outbox.retries.consumer_id IS 'whose attempt failed';
COMMENT ON COLUMN _outbox.retries.partition IS 'of the consumer, from 0';
COMMENT ON COLUMN _outbox.retries.attempts IS 'how often it has failed';
COMMENT ON COLUMN _outbox.retries.redriven IS 'came back from the dead letters: nothing waits behind it';
COMMENT ON COLUMN _outbox.retries.available_at IS 'when it is due; infinity: it waits behind another of its aggregate';
COMMENT ON COLUMN _outbox.retries.failed_at IS 'since when it is here';
COMMENT ON COLUMN _outbox.retries.last_error IS 'what the worker said';

CREATE TABLE _outbox.dead_letters (
    xid            xid8        NOT NULL,
    id             bigint      NOT NULL,
    occurred_at    timestamptz NOT NULL,
    tenant_id      bigint      NOT NULL,
    tracking_id    uuid        NOT NULL,
    event_version  smallint    NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL,
    trace_id       text,
    consumer_id    integer     NOT NULL,
    attempts       integer     NOT NULL,
    died_at        timestamptz NOT NULL,
    last_error     text        NOT NULL,
    PRIMARY KEY (consumer_id, id)
);
COMMENT ON TABLE _outbox.dead_letters
IS 'dead letters: copies of messages that a consumer has given up';
COMMENT ON COLUMN _outbox.dead_letters.xid IS 'the transaction that wrote the event';
COMMENT ON COLUMN _outbox.dead_letters.id IS 'position in the log';
COMMENT ON COLUMN _outbox.dead_letters.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN _outbox.dead_letters.tenant_id IS 'whose event it is';
COMMENT ON COLUMN _outbox.dead_letters.tracking_id IS 'the event''s identity';
COMMENT ON COLUMN _outbox.dead_letters.event_version IS 'version of the payload''s shape';
COMMENT ON COLUMN _outbox.dead_letters.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN _outbox.dead_letters.aggregate_id IS 'which one';
COMMENT ON COLUMN _outbox.dead_letters.event_type IS 'what happened';
COMMENT ON COLUMN _outbox.dead_letters.payload IS 'the event itself';
COMMENT ON COLUMN _outbox.dead_letters.metadata IS 'an object beside the payload';
COMMENT ON COLUMN _outbox.dead_letters.trace_id IS 'as the producer gave it';
COMMENT ON COLUMN _outbox.dead_letters.consumer_id IS 'who has given up';
COMMENT ON COLUMN _outbox.dead_letters.attempts IS 'how often it was tried';
COMMENT ON COLUMN _outbox.dead_letters.died_at IS 'when it was given up';
COMMENT ON COLUMN _outbox.dead_letters.last_error IS 'what the worker said';

