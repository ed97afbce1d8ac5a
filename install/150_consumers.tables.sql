----------------------------------------------------------------------------------------------------
-- Consumers
----------------------------------------------------------------------------------------------------

CREATE SEQUENCE _outbox.consumers_id_seq AS integer;
COMMENT ON SEQUENCE _outbox.consumers_id_seq IS 'consumer ids; an id is never reused, even if a name is';

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
COMMENT ON TABLE _outbox.consumers IS 'consumers of the log: filter, order, parallelism, retry policy';
COMMENT ON COLUMN _outbox.consumers.consumer_id IS 'id that cursors, batches and dead letters refer to';
COMMENT ON COLUMN _outbox.consumers.name IS 'name of the consumer in calls';
COMMENT ON COLUMN _outbox.consumers.kind IS 'worker: claimed by callers; http, kafka: claimed by the relay';
COMMENT ON COLUMN _outbox.consumers.ordered IS 'true if events of one aggregate are delivered strictly in order';
COMMENT ON COLUMN _outbox.consumers.paused IS 'true if nothing can be claimed';
COMMENT ON COLUMN _outbox.consumers.partitions IS 'number of consumer partitions';
COMMENT ON COLUMN _outbox.consumers.tenant_id IS 'tenant of the events that the consumer gets; NULL: all tenants';
COMMENT ON COLUMN _outbox.consumers.event_types IS 'event types that the consumer gets; NULL or empty: all';
COMMENT ON COLUMN _outbox.consumers.aggregate_types IS 'aggregate types that the consumer gets; NULL or empty: all';
COMMENT ON COLUMN _outbox.consumers.max_attempts
IS 'attempts before an event is a dead letter; NULL: outbox.max_attempts';
COMMENT ON COLUMN _outbox.consumers.immediate_retries IS 'retries without a delay; NULL: outbox.immediate_retries';
COMMENT ON COLUMN _outbox.consumers.backoff_base IS 'first delay of a retry; NULL: outbox.backoff_base';
COMMENT ON COLUMN _outbox.consumers.backoff_max IS 'longest delay of a retry; NULL: outbox.backoff_max';
COMMENT ON COLUMN _outbox.consumers.backoff_jitter
IS 'largest random reduction of a delay, as a fraction; NULL: outbox.backoff_jitter';
COMMENT ON COLUMN _outbox.consumers.created_at IS 'creation time';
COMMENT ON COLUMN _outbox.consumers.pause_reason
IS 'error for which the relay paused the sink; NULL: paused by outbox_pause()';
COMMENT ON COLUMN _outbox.consumers.fair IS 'true if tenants take turns';
COMMENT ON COLUMN _outbox.consumers.payload_versions
IS 'payload version per event type; other types get the latest version of their upcasters';

