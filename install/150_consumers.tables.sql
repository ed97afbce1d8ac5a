----------------------------------------------------------------------------------------------------
-- Consumers
----------------------------------------------------------------------------------------------------

CREATE SEQUENCE _outbox.consumers_id_seq AS integer;
COMMENT ON SEQUENCE _outbox.consumers_id_seq
IS 'ids of consumers; a name can come back, its id cannot';

CREATE TABLE _outbox.consumers (
    consumer_id       integer     PRIMARY KEY,
    name              text        NOT NULL UNIQUE,
    kind              text        NOT NULL DEFAULT 'worker' CHECK (kind IN ('worker', 'http', 'kafka')),
    ordered           boolean     NOT NULL DEFAULT false,
    paused            boolean     NOT NULL DEFAULT false,
    partitions        integer     NOT NULL DEFAULT 1 CHECK (partitions BETWEEN 1 AND 1024),
    tenant_id         bigint,
    event_types       text[],
    aggregate_types   text[],
    max_attempts      integer,
    immediate_retries integer,
    backoff_base      interval,
    backoff_max       interval,
    backoff_jitter    double precision,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    pause_reason      text,
    fair              boolean     NOT NULL DEFAULT false CHECK (NOT fair OR NOT ordered AND partitions = 1),
    payload_versions  jsonb
);
COMMENT ON TABLE _outbox.consumers
IS 'who reads the log: filter, order, parallelism, retry policy';
COMMENT ON COLUMN _outbox.consumers.consumer_id IS 'what cursors, batches and dead letters belong to';
COMMENT ON COLUMN _outbox.consumers.name IS 'what callers know it by';
COMMENT ON COLUMN _outbox.consumers.kind IS 'worker: callers claim; http, kafka: the relay does';
COMMENT ON COLUMN _outbox.consumers.ordered IS 'are the events of an aggregate handled strictly in order?';
COMMENT ON COLUMN _outbox.consumers.paused IS 'a paused consumer claims nothing';
COMMENT ON COLUMN _outbox.consumers.partitions IS 'into how many batches a page of the log is dealt';
COMMENT ON COLUMN _outbox.consumers.tenant_id IS 'only events of this tenant; NULL: of all';
COMMENT ON COLUMN _outbox.consumers.event_types IS 'only these; NULL or empty: all';
COMMENT ON COLUMN _outbox.consumers.aggregate_types IS 'only these; NULL or empty: all';
COMMENT ON COLUMN _outbox.consumers.max_attempts IS 'then an event is a dead letter; NULL: outbox.max_attempts';
COMMENT ON COLUMN _outbox.consumers.immediate_retries IS 'failures without a pause; NULL: outbox.immediate_retries';
COMMENT ON COLUMN _outbox.consumers.backoff_base IS 'the first pause; NULL: outbox.backoff_base';
COMMENT ON COLUMN _outbox.consumers.backoff_max IS 'the longest pause; NULL: outbox.backoff_max';
COMMENT ON COLUMN _outbox.consumers.backoff_jitter IS 'what chance may take off a pause; NULL: outbox.backoff_jitter';
COMMENT ON COLUMN _outbox.consumers.created_at IS 'when it was created';
COMMENT ON COLUMN _outbox.consumers.pause_reason IS 'why the relay has paused it; NULL: somebody else did';
COMMENT ON COLUMN _outbox.consumers.fair IS 'do tenants take turns?';
COMMENT ON COLUMN _outbox.consumers.payload_versions IS 'in which version it gets which event type; others in the latest that upcasters reach';

