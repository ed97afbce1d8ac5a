CREATE OR REPLACE FUNCTION _outbox.next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_next_id';
COMMENT ON FUNCTION _outbox.next_id()
IS 'the next position in the log, drawn after this transaction has its xid';

CREATE OR REPLACE FUNCTION _outbox.new_tracking_id() RETURNS uuid
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_new_tracking_id';
COMMENT ON FUNCTION _outbox.new_tracking_id()
IS 'a UUIDv7, greater than all that this session has made before';

CREATE OR REPLACE FUNCTION _outbox.upcasters_changed() RETURNS trigger
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_upcasters_changed';
COMMENT ON FUNCTION _outbox.upcasters_changed()
IS 'internal: all sessions read the upcasters again';

CREATE OR REPLACE FUNCTION _outbox.audit_next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_next_id';
COMMENT ON FUNCTION _outbox.audit_next_id()
IS 'internal: the next id in the audit log, drawn after this transaction has its xid';

CREATE OR REPLACE FUNCTION _outbox.audit_forbid_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'audit_forbid_change';
COMMENT ON FUNCTION _outbox.audit_forbid_change()
IS 'internal: refuses UPDATE, DELETE and TRUNCATE, but for retention';

-- A trigger, so that also what is done by hand or by a restore reaches all sessions.
CREATE OR REPLACE FUNCTION _outbox.event_types_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_event_types_changed';
COMMENT ON FUNCTION _outbox.event_types_changed()
IS 'internal: has all sessions forget what they know of the catalog';

