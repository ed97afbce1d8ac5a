----------------------------------------------------------------------------------------------------
-- Batches: one row per claim, never updated. The newest row of a consumer is its cursor. Claims find
-- everything from there, by token: nothing is looked up by a status, through entries of dead rows.
----------------------------------------------------------------------------------------------------

CREATE SEQUENCE _outbox.token_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE _outbox.token_seq
IS 'fencing tokens, with the timeline in their high bits; never set back';

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
COMMENT ON TABLE _outbox.batches
IS 'what was handed out together; the newest row of a consumer says where it is';
COMMENT ON COLUMN _outbox.batches.token IS 'fencing token: grows with every batch';
COMMENT ON COLUMN _outbox.batches.consumer_id IS 'whose batch';
COMMENT ON COLUMN _outbox.batches.partition IS 'of the consumer, from 0';
COMMENT ON COLUMN _outbox.batches.attempts IS 'as which attempt it counts';
COMMENT ON COLUMN _outbox.batches.deliveries IS 'how often it was handed out, under this and earlier tokens';
COMMENT ON COLUMN _outbox.batches.from_retries IS 'are its messages in outbox_retries, not in the log?';
COMMENT ON COLUMN _outbox.batches.last_id IS 'up to where the target is drained';
COMMENT ON COLUMN _outbox.batches.passed_seq IS 'everything up to here was handed out, except what passed_running brings';
COMMENT ON COLUMN _outbox.batches.target_seq IS 'the state that is being drained; NULL: none';
COMMENT ON COLUMN _outbox.batches.ids IS 'the messages in it; empty: only a cursor';
COMMENT ON COLUMN _outbox.batches.passed_running IS 'xids that were running: from, up to but not, ids above';
COMMENT ON COLUMN _outbox.batches.target_running IS 'xids that were running when the target was fixed';
COMMENT ON COLUMN _outbox.batches.open_tokens IS 'batches that were not settled then, this one included';

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
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.leases
IS 'who has a batch, until when, and what is left of it';
COMMENT ON COLUMN _outbox.leases.token IS 'of its batch';
COMMENT ON COLUMN _outbox.leases.root IS 'the first batch that its messages were in: the order within a partition';
COMMENT ON COLUMN _outbox.leases.first_id IS 'least id of the batch';
COMMENT ON COLUMN _outbox.leases.consumer_id IS 'whose batch';
COMMENT ON COLUMN _outbox.leases.partition IS 'of the consumer, from 0';
COMMENT ON COLUMN _outbox.leases.size IS 'how many messages the batch has';
COMMENT ON COLUMN _outbox.leases.lease IS 'for how long a claim or heartbeat locks it';
COMMENT ON COLUMN _outbox.leases.claimed_at IS 'when it was handed out; NULL: it waits for a worker';
COMMENT ON COLUMN _outbox.leases.locked_until IS 'then others may take it over; -infinity: handed back';
COMMENT ON COLUMN _outbox.leases.acked_at IS 'when everything in it was settled';
COMMENT ON COLUMN _outbox.leases.superseded_by IS 'the token that has taken it over';
COMMENT ON COLUMN _outbox.leases.remaining IS 'what is left to settle; NULL: all of it';
COMMENT ON COLUMN _outbox.leases.failed IS 'what was taken out of it';
COMMENT ON COLUMN _outbox.leases.worker IS 'who has it';
COMMENT ON COLUMN _outbox.leases.tenant_id IS 'whose messages they are, if the consumer is fair';

CREATE TABLE _outbox.tenant_turns (
    consumer_id integer NOT NULL,
    tenant_id   bigint  NOT NULL,
    served      bigint  NOT NULL,
    PRIMARY KEY (consumer_id, tenant_id, served)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.tenant_turns
IS 'when each tenant had a turn at a fair consumer: the newest counts, others are pruned';
COMMENT ON COLUMN _outbox.tenant_turns.consumer_id IS 'the consumer';
COMMENT ON COLUMN _outbox.tenant_turns.tenant_id IS 'the tenant';
COMMENT ON COLUMN _outbox.tenant_turns.served IS 'a token from then; whose newest is the least is next';

