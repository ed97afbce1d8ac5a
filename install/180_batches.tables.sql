----------------------------------------------------------------------------------------------------
-- Batches: one row per claim, never updated. The newest row of a consumer is its cursor and has the tokens of its
-- unsettled batches. Claims find batches by token, not by a status column: its index would fill with dead entries.
----------------------------------------------------------------------------------------------------

CREATE SEQUENCE _outbox.token_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.token_seq IS 'fencing tokens, with the timeline in their high bits; never reset';

CREATE TABLE _outbox.batches (
    token          bigint         NOT NULL,
    consumer_id    integer        NOT NULL,
    partition      integer        NOT NULL,
    attempts       integer        NOT NULL,
    deliveries     integer        NOT NULL,
    from_retries   boolean        NOT NULL,
    last_id        bigint,
    passed_seq     bigint,
    target_seq     bigint,
    ids            int8multirange NOT NULL,
    passed_running bigint[],
    target_running bigint[],
    open_tokens    bigint[],
    PRIMARY KEY (consumer_id, token)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.batches IS 'batches of messages; the newest row of a consumer is its cursor';
COMMENT ON COLUMN _outbox.batches.token IS 'fencing token, increasing with every batch';
COMMENT ON COLUMN _outbox.batches.consumer_id IS 'consumer of the batch';
COMMENT ON COLUMN _outbox.batches.partition IS 'consumer partition, from 0';
COMMENT ON COLUMN _outbox.batches.attempts IS 'number of the current attempt';
COMMENT ON COLUMN _outbox.batches.deliveries IS 'number of deliveries of the messages, under this and earlier tokens';
COMMENT ON COLUMN _outbox.batches.from_retries IS 'true if the messages are in outbox_retries, not in the log';
COMMENT ON COLUMN _outbox.batches.last_id IS 'id up to which the target is drained';
COMMENT ON COLUMN _outbox.batches.passed_seq IS 'position up to which all ids were read, except those of late commits';
COMMENT ON COLUMN _outbox.batches.target_seq IS 'position that is being drained; NULL: none';
COMMENT ON COLUMN _outbox.batches.ids IS 'ids of the messages; empty: the row is only a cursor';
COMMENT ON COLUMN _outbox.batches.passed_running
IS 'ranges of xids that were running at passed_seq: from, upto (exclusive), above (exclusive lower id)';
COMMENT ON COLUMN _outbox.batches.target_running
IS 'ranges of xids that were running at target_seq, in the form of passed_running';
COMMENT ON COLUMN _outbox.batches.open_tokens
IS 'tokens of the unsettled batches of the consumer, including this batch';

CREATE TABLE _outbox.leases (
    token         bigint      PRIMARY KEY,
    root          bigint      NOT NULL,
    first_id      bigint      NOT NULL,
    consumer_id   integer     NOT NULL,
    partition     integer     NOT NULL,
    size          integer     NOT NULL,
    lease         interval,
    claimed_at    timestamptz,
    locked_until  timestamptz,
    acked_at      timestamptz,
    superseded_by bigint,
    remaining     int8multirange,
    failed        int8multirange,
    worker        text,
    tenant_id     bigint
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02,
        vacuum_truncate = off);
COMMENT ON TABLE _outbox.leases IS 'leases of batches, and the unsettled messages of each';
COMMENT ON COLUMN _outbox.leases.token IS 'fencing token of the batch';
COMMENT ON COLUMN _outbox.leases.root
IS 'token of the first batch of the messages; defines the order within a consumer partition';
COMMENT ON COLUMN _outbox.leases.first_id IS 'smallest id in the batch';
COMMENT ON COLUMN _outbox.leases.consumer_id IS 'consumer of the batch';
COMMENT ON COLUMN _outbox.leases.partition IS 'consumer partition, from 0';
COMMENT ON COLUMN _outbox.leases.size IS 'number of messages in the batch';
COMMENT ON COLUMN _outbox.leases.lease IS 'duration that a claim or heartbeat locks the batch for';
COMMENT ON COLUMN _outbox.leases.claimed_at IS 'time of the delivery; NULL: unassigned batch';
COMMENT ON COLUMN _outbox.leases.locked_until IS 'end of the lease; -infinity: released';
COMMENT ON COLUMN _outbox.leases.acked_at IS 'time at which the last message was settled';
COMMENT ON COLUMN _outbox.leases.superseded_by IS 'token of the batch that replaced this batch';
COMMENT ON COLUMN _outbox.leases.remaining IS 'ids of the unsettled messages; NULL: all messages of the batch';
COMMENT ON COLUMN _outbox.leases.failed IS 'ids of the messages that failed, or are blocked by a failed message';
COMMENT ON COLUMN _outbox.leases.worker IS 'name of the worker that has the lease';
COMMENT ON COLUMN _outbox.leases.tenant_id IS 'tenant of the messages if the consumer is fair';

CREATE TABLE _outbox.tenant_turns (
    consumer_id integer NOT NULL,
    tenant_id   bigint  NOT NULL,
    served      bigint  NOT NULL,
    PRIMARY KEY (consumer_id, tenant_id, served)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.tenant_turns IS 'turns of tenants at fair consumers: the newest counts, older ones are pruned';
COMMENT ON COLUMN _outbox.tenant_turns.consumer_id IS 'fair consumer';
COMMENT ON COLUMN _outbox.tenant_turns.tenant_id IS 'tenant that had a turn';
COMMENT ON COLUMN _outbox.tenant_turns.served
IS 'token at the time of the turn; the tenant with the smallest newest token is next';

