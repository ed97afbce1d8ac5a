CREATE OR REPLACE FUNCTION outbox_release_due(max_events integer DEFAULT 1000) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release_due';
COMMENT ON FUNCTION outbox_release_due(integer)
IS 'moves due scheduled events into the log, earliest first, and retries rejected ones; returns the number moved';

CREATE OR REPLACE FUNCTION outbox_cancel(tracking_id uuid) RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel';
COMMENT ON FUNCTION outbox_cancel(uuid)
IS 'deletes a scheduled event that is not due, or was rejected by the log; returns false if there is none';

