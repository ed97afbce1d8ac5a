----------------------------------------------------------------------------------------------------
-- Scheduled events
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.scheduled (
    available_at   timestamptz NOT NULL,
    tenant_id      bigint      NOT NULL,
    tracking_id    uuid        NOT NULL PRIMARY KEY,
    event_version  smallint    NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL,
    trace_id       text,
    last_error     text,
    refusals       integer     NOT NULL DEFAULT 0,
    try_again_at   timestamptz
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
-- Each row is in exactly one of these indexes, so that a scan for due events does not pass rejected events.
CREATE INDEX ON _outbox.scheduled (available_at, tracking_id) WHERE try_again_at IS NULL;
CREATE INDEX ON _outbox.scheduled (try_again_at) WHERE try_again_at IS NOT NULL;
COMMENT ON TABLE _outbox.scheduled
IS 'events that enter the log when due, with the same tracking_id, or that the log has rejected';
COMMENT ON COLUMN _outbox.scheduled.available_at IS 'time at which the event is due';
COMMENT ON COLUMN _outbox.scheduled.tenant_id IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.tracking_id IS 'as in outbox_messages; the event keeps it when it enters the log';
COMMENT ON COLUMN _outbox.scheduled.event_version IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.aggregate_type IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.aggregate_id IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.event_type IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.payload IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.metadata IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.trace_id IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.last_error IS 'error of the last rejection by the log';
COMMENT ON COLUMN _outbox.scheduled.refusals IS 'number of rejections by the log';
COMMENT ON COLUMN _outbox.scheduled.try_again_at IS 'time of the next attempt after a rejection; NULL: not rejected';

