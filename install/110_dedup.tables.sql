----------------------------------------------------------------------------------------------------
-- Dedup keys. A plain table: uniqueness cannot span partitions. Keys are bytes: their order means
-- nothing, and comparing them by a locale's rules would be most of the work.
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.dedup_keys (
    tenant_id   bigint      NOT NULL,
    expires_at  timestamptz NOT NULL,
    tracking_id uuid        NOT NULL,
    dedup_key   text        COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, dedup_key)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.dedup_keys
IS 'dedup keys that are remembered, with the event that used each first';
COMMENT ON COLUMN _outbox.dedup_keys.tenant_id IS 'keys of different tenants never meet';
COMMENT ON COLUMN _outbox.dedup_keys.expires_at IS 'from then on the key counts as new';
COMMENT ON COLUMN _outbox.dedup_keys.tracking_id IS 'what every further enqueue with the key returns';
COMMENT ON COLUMN _outbox.dedup_keys.dedup_key IS 'as the producer gave it';

