----------------------------------------------------------------------------------------------------
-- Idempotency keys. The table is not partitioned, because a unique index cannot span partitions. An attempt that
-- begins and finishes in one transaction costs one INSERT and one index entry.
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.idempotency_keys (
    tenant_id    bigint      NOT NULL,
    token        bigint      NOT NULL,
    expires_at   timestamptz NOT NULL,
    locked_until timestamptz,
    begun_at     timestamptz NOT NULL,
    finished_at  timestamptz,
    status_code  smallint,
    failed       boolean     NOT NULL,
    request_hash bytea       NOT NULL,
    scope        text        COLLATE "C" NOT NULL,
    key          text        COLLATE "C" NOT NULL,
    response     jsonb,
    -- The key is the first column because it is the most selective: most comparisons stop there.
    PRIMARY KEY (key, scope, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off,
       autovacuum_vacuum_insert_scale_factor = 0.02);
COMMENT ON TABLE _outbox.idempotency_keys IS 'idempotency keys in use, with their responses';
COMMENT ON COLUMN _outbox.idempotency_keys.tenant_id
IS 'tenant of the key; equal keys of different tenants are different keys';
COMMENT ON COLUMN _outbox.idempotency_keys.token IS 'token of the current attempt, increasing with every attempt';
COMMENT ON COLUMN _outbox.idempotency_keys.expires_at IS 'time from which the key counts as new';
COMMENT ON COLUMN _outbox.idempotency_keys.locked_until IS 'end of the lease of the attempt; NULL: finished';
COMMENT ON COLUMN _outbox.idempotency_keys.begun_at IS 'time at which the row of the attempt was written';
COMMENT ON COLUMN _outbox.idempotency_keys.finished_at IS 'time at which the response was stored; NULL: in progress';
COMMENT ON COLUMN _outbox.idempotency_keys.status_code IS 'status code of the response; NULL: in progress';
COMMENT ON COLUMN _outbox.idempotency_keys.failed IS 'true if the response is a failure; failures are replayed as well';
COMMENT ON COLUMN _outbox.idempotency_keys.request_hash IS 'SHA-256 of the request in canonical JSON';
COMMENT ON COLUMN _outbox.idempotency_keys.scope
IS 'kind of request; equal keys of different scopes are different keys';
COMMENT ON COLUMN _outbox.idempotency_keys.key IS 'idempotency key from the client';
COMMENT ON COLUMN _outbox.idempotency_keys.response IS 'response to replay';

CREATE TABLE _outbox.idempotency_scopes (
    scope    text    COLLATE "C" PRIMARY KEY,
    required boolean NOT NULL
);
COMMENT ON TABLE _outbox.idempotency_scopes IS 'scopes with their own rule for calls without a key';
COMMENT ON COLUMN _outbox.idempotency_scopes.scope IS 'scope in calls';
COMMENT ON COLUMN _outbox.idempotency_scopes.required IS 'true if a call without a key is an error';

-- A named composite type, because the server builds the row type of OUT parameters for every call.
CREATE TYPE idempotency_verdict AS (
    decision    text,
    token       bigint,
    status_code integer,
    response    jsonb,
    http_hint   integer
);
COMMENT ON TYPE idempotency_verdict IS 'result of idempotency_begin()';
COMMENT ON COLUMN idempotency_verdict.decision IS 'execute, replay, conflict or in_progress';
COMMENT ON COLUMN idempotency_verdict.token
IS 'token for idempotency_finish() if the request is to be executed under a key';
COMMENT ON COLUMN idempotency_verdict.status_code IS 'status code of the response to replay';
COMMENT ON COLUMN idempotency_verdict.response IS 'response to replay';
COMMENT ON COLUMN idempotency_verdict.http_hint IS 'HTTP status to answer with; NULL: execute the request';

