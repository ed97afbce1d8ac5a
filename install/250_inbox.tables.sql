----------------------------------------------------------------------------------------------------
-- The inbox: a consumer's memory of what it has handled
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.inbox (
    tracking_id uuid        NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id   bigint      NOT NULL DEFAULT 0,
    consumer    text        NOT NULL,
    PRIMARY KEY (consumer, tracking_id, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.inbox
IS 'events that consumers have accepted, so that they handle each once';
COMMENT ON COLUMN _outbox.inbox.tracking_id IS 'of the event';
COMMENT ON COLUMN _outbox.inbox.accepted_at IS 'when';
COMMENT ON COLUMN _outbox.inbox.tenant_id IS 'of the session; inboxes of different tenants never meet';
COMMENT ON COLUMN _outbox.inbox.consumer IS 'by whom; any name, the log may be in another database';

