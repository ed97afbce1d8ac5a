----------------------------------------------------------------------------------------------------
-- Failed messages: retries and dead letters
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
COMMENT ON TABLE _outbox.retries IS 'copies of messages that wait for a retry, or are blocked by a message that does';
COMMENT ON COLUMN _outbox.retries.xid IS 'transaction that wrote the event';
COMMENT ON COLUMN _outbox.retries.id IS 'position in the log';
COMMENT ON COLUMN _outbox.retries.occurred_at IS 'time at which the event entered the log';
COMMENT ON COLUMN _outbox.retries.tenant_id IS 'tenant of the event';
COMMENT ON COLUMN _outbox.retries.tracking_id IS 'identity of the event';
COMMENT ON COLUMN _outbox.retries.event_version IS 'version of the payload''s structure';
COMMENT ON COLUMN _outbox.retries.aggregate_type IS 'type of the aggregate';
COMMENT ON COLUMN _outbox.retries.aggregate_id IS 'identity of the aggregate within its type';
COMMENT ON COLUMN _outbox.retries.event_type IS 'type of the event';
COMMENT ON COLUMN _outbox.retries.payload IS 'payload of the event';
COMMENT ON COLUMN _outbox.retries.metadata IS 'JSON object beside the payload';
COMMENT ON COLUMN _outbox.retries.trace_id IS 'trace id from the producer';
COMMENT ON COLUMN _outbox.retries.consumer_id IS 'consumer of the failed attempt';
COMMENT ON COLUMN _outbox.retries.partition IS 'consumer partition, from 0';
COMMENT ON COLUMN _outbox.retries.attempts IS 'number of failed attempts';
COMMENT ON COLUMN _outbox.retries.redriven IS 'true if redriven from the dead letters; such a message blocks no other';
COMMENT ON COLUMN _outbox.retries.available_at
IS 'due time of the retry; infinity: blocked by another message of the aggregate';
COMMENT ON COLUMN _outbox.retries.failed_at IS 'time at which the message was added';
COMMENT ON COLUMN _outbox.retries.last_error IS 'error text from the worker';

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
COMMENT ON TABLE _outbox.dead_letters IS 'copies of messages that a consumer has given up';
COMMENT ON COLUMN _outbox.dead_letters.xid IS 'transaction that wrote the event';
COMMENT ON COLUMN _outbox.dead_letters.id IS 'position in the log';
COMMENT ON COLUMN _outbox.dead_letters.occurred_at IS 'time at which the event entered the log';
COMMENT ON COLUMN _outbox.dead_letters.tenant_id IS 'tenant of the event';
COMMENT ON COLUMN _outbox.dead_letters.tracking_id IS 'identity of the event';
COMMENT ON COLUMN _outbox.dead_letters.event_version IS 'version of the payload''s structure';
COMMENT ON COLUMN _outbox.dead_letters.aggregate_type IS 'type of the aggregate';
COMMENT ON COLUMN _outbox.dead_letters.aggregate_id IS 'identity of the aggregate within its type';
COMMENT ON COLUMN _outbox.dead_letters.event_type IS 'type of the event';
COMMENT ON COLUMN _outbox.dead_letters.payload IS 'payload of the event';
COMMENT ON COLUMN _outbox.dead_letters.metadata IS 'JSON object beside the payload';
COMMENT ON COLUMN _outbox.dead_letters.trace_id IS 'trace id from the producer';
COMMENT ON COLUMN _outbox.dead_letters.consumer_id IS 'consumer that gave the message up';
COMMENT ON COLUMN _outbox.dead_letters.attempts IS 'number of attempts';
COMMENT ON COLUMN _outbox.dead_letters.died_at IS 'time at which the message was given up';
COMMENT ON COLUMN _outbox.dead_letters.last_error IS 'error text from the worker';

