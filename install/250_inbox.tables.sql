----------------------------------------------------------------------------------------------------
-- The inbox: events that a consumer has handled, to detect duplicates
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.inbox (
    tracking_id uuid        NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id   bigint      NOT NULL DEFAULT 0,
    consumer    text        NOT NULL,
    PRIMARY KEY (consumer, tracking_id, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.inbox IS 'events that consumers have accepted, to handle each event once';
COMMENT ON COLUMN _outbox.inbox.tracking_id IS 'tracking_id of the event';
COMMENT ON COLUMN _outbox.inbox.accepted_at IS 'time of the first inbox_accept()';
COMMENT ON COLUMN _outbox.inbox.tenant_id IS 'tenant of the session; inboxes of different tenants are separate';
COMMENT ON COLUMN _outbox.inbox.consumer
IS 'name of the consumer; any name, because the log may be in another database';

