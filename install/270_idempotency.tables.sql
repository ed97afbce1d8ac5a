----------------------------------------------------------------------------------------------------
-- Idempotency keys. A plain table: uniqueness cannot span partitions. An attempt that is begun and
-- finished in one transaction is one row, written once, and has one entry in one index.
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
    -- The key comes first because it alone tells most rows apart: one comparison instead of three.
    PRIMARY KEY (key, scope, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off,
       autovacuum_vacuum_insert_scale_factor = 0.02);
COMMENT ON TABLE _outbox.idempotency_keys
IS 'idempotency keys in use, with the answers to them';
COMMENT ON COLUMN _outbox.idempotency_keys.tenant_id IS 'keys of different tenants never meet';
COMMENT ON COLUMN _outbox.idempotency_keys.token IS 'of the attempt that has the key; grows with every attempt';
COMMENT ON COLUMN _outbox.idempotency_keys.expires_at IS 'from then on the key counts as new';
COMMENT ON COLUMN _outbox.idempotency_keys.locked_until IS 'then another attempt may take over; NULL: it is finished';
COMMENT ON COLUMN _outbox.idempotency_keys.begun_at IS 'when the attempt was first written down';
COMMENT ON COLUMN _outbox.idempotency_keys.finished_at IS 'when the answer was known; NULL: it runs';
COMMENT ON COLUMN _outbox.idempotency_keys.status_code IS 'of the answer; NULL: it runs';
COMMENT ON COLUMN _outbox.idempotency_keys.failed IS 'is the answer a failure? It is replayed like any other';
COMMENT ON COLUMN _outbox.idempotency_keys.request_hash IS 'SHA-256 of the request in canonical JSON';
COMMENT ON COLUMN _outbox.idempotency_keys.scope IS 'what the request is about: keys of different scopes never meet';
COMMENT ON COLUMN _outbox.idempotency_keys.key IS 'as the client gave it';
COMMENT ON COLUMN _outbox.idempotency_keys.response IS 'of the answer';

CREATE TABLE _outbox.idempotency_scopes (
    scope    text    COLLATE "C" PRIMARY KEY,
    required boolean NOT NULL
);
COMMENT ON TABLE _outbox.idempotency_scopes
IS 'scopes that have a rule of their own for calls without a key';
COMMENT ON COLUMN _outbox.idempotency_scopes.scope IS 'as calls name it';
COMMENT ON COLUMN _outbox.idempotency_scopes.required IS 'is a call without a key an error?';

-- A type with a name, because the server makes the row type of OUT parameters anew for every call.
CREATE TYPE idempotency_verdict AS (
    decision    text,
    token       bigint,
    status_code integer,
    response    jsonb,
    http_hint   integer
);
COMMENT ON TYPE idempotency_verdict
IS 'what idempotency_begin() says of a request';
COMMENT ON COLUMN idempotency_verdict.decision IS 'execute, replay, conflict or in_progress';
COMMENT ON COLUMN idempotency_verdict.token IS 'for idempotency_finish(), if the request is to be executed under a key';
COMMENT ON COLUMN idempotency_verdict.status_code IS 'of the answer that is to be replayed';
COMMENT ON COLUMN idempotency_verdict.response IS 'of the answer that is to be replayed';
COMMENT ON COLUMN idempotency_verdict.http_hint IS 'the status with which an HTTP layer answers; NULL: the request is to be executed';

