CREATE OR REPLACE FUNCTION _outbox.next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_next_id';
COMMENT ON FUNCTION _outbox.next_id()
IS 'internal: assigns the transaction''s xid, then draws the next position in the log';

CREATE OR REPLACE FUNCTION _outbox.new_tracking_id() RETURNS uuid
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_new_tracking_id';
COMMENT ON FUNCTION _outbox.new_tracking_id()
IS 'internal: returns a UUIDv7 greater than all earlier ones of the session';

CREATE OR REPLACE FUNCTION _outbox.upcasters_changed() RETURNS trigger
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_upcasters_changed';
COMMENT ON FUNCTION _outbox.upcasters_changed() IS 'internal: invalidates the upcaster caches of all sessions';

CREATE OR REPLACE FUNCTION _outbox.audit_next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_next_id';
COMMENT ON FUNCTION _outbox.audit_next_id()
IS 'internal: assigns the transaction''s xid, then draws the next id of the audit log';

CREATE OR REPLACE FUNCTION _outbox.audit_forbid_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'audit_forbid_change';
COMMENT ON FUNCTION _outbox.audit_forbid_change()
IS 'internal: rejects UPDATE, DELETE and TRUNCATE of the audit log, except by retention';

-- A trigger sends the invalidation, so that manual changes and a restore invalidate the caches, too.
CREATE OR REPLACE FUNCTION _outbox.event_types_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_event_types_changed';
COMMENT ON FUNCTION _outbox.event_types_changed() IS 'internal: invalidates the event catalog caches of all sessions';

