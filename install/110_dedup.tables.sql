----------------------------------------------------------------------------------------------------
-- Dedup keys. The table is not partitioned, because a unique index cannot span partitions. COLLATE "C"
-- compares bytes: the order has no meaning, and a locale's collation would dominate the cost of an insert.
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.dedup_keys (
    tenant_id   bigint      NOT NULL,
    expires_at  timestamptz NOT NULL,
    tracking_id uuid        NOT NULL,
    dedup_key   text        COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, dedup_key)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.dedup_keys IS 'dedup keys in use, with the first event of each';
COMMENT ON COLUMN _outbox.dedup_keys.tenant_id
IS 'tenant of the key; equal keys of different tenants are different keys';
COMMENT ON COLUMN _outbox.dedup_keys.expires_at IS 'time from which the key counts as new';
COMMENT ON COLUMN _outbox.dedup_keys.tracking_id IS 'tracking_id of the first event, returned for each duplicate';
COMMENT ON COLUMN _outbox.dedup_keys.dedup_key IS 'dedup key from the producer';

