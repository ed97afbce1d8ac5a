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
-- What the log refused is in nobody's way: each row is in one of these.
CREATE INDEX ON _outbox.scheduled (available_at, tracking_id) WHERE try_again_at IS NULL;
CREATE INDEX ON _outbox.scheduled (try_again_at) WHERE try_again_at IS NOT NULL;
COMMENT ON TABLE _outbox.scheduled
IS 'events whose available_at is still to come, or that the log refused; they enter the log when due, with the same tracking_id';
COMMENT ON COLUMN _outbox.scheduled.available_at IS 'when the event is to enter the log';
COMMENT ON COLUMN _outbox.scheduled.tenant_id IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.tracking_id IS 'as it will stand in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.event_version IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.aggregate_type IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.aggregate_id IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.event_type IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.payload IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.metadata IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.trace_id IS 'as in outbox_messages';
COMMENT ON COLUMN _outbox.scheduled.last_error IS 'why the log refused it';
COMMENT ON COLUMN _outbox.scheduled.refusals IS 'how often the log refused it';
COMMENT ON COLUMN _outbox.scheduled.try_again_at IS 'when it is tried again, if the log refused it';

