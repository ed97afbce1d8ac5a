CREATE OR REPLACE FUNCTION outbox_release_due(max_events integer DEFAULT 1000) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release_due';
COMMENT ON FUNCTION outbox_release_due(integer)
IS 'moves scheduled events that are due into the log, the longest due first, and tries again what it refused; returns how many it took';

CREATE OR REPLACE FUNCTION outbox_cancel(tracking_id uuid) RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel';
COMMENT ON FUNCTION outbox_cancel(uuid)
IS 'takes back a scheduled event that is not yet due, or that the log refused; false if there is no such event';

