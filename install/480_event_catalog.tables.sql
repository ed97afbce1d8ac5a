----------------------------------------------------------------------------------------------------
-- The catalog of events: what they are called, whose they are, and what they look like. Enqueue asks it, as
-- outbox.catalog_mode says.
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.event_types (
    event_type    text        NOT NULL,
    event_version integer     NOT NULL,
    owner_module  text        NOT NULL,
    json_schema   jsonb,
    description   text,
    consumers     text[]      NOT NULL,
    replay_safe   boolean     NOT NULL,
    pii_fields    text[]      NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_type, event_version)
);
COMMENT ON TABLE _outbox.event_types IS 'the catalog of events';
COMMENT ON COLUMN _outbox.event_types.event_type IS 'its name: <Aggregate><PastTenseVerb>';
COMMENT ON COLUMN _outbox.event_types.event_version IS 'each version has a schema of its own';
COMMENT ON COLUMN _outbox.event_types.owner_module IS 'the one module that emits the event, in all versions';
COMMENT ON COLUMN _outbox.event_types.json_schema IS 'what its payload looks like; NULL: anything';
COMMENT ON COLUMN _outbox.event_types.description IS 'what it means, for people';
COMMENT ON COLUMN _outbox.event_types.consumers IS 'who is known to listen, for people';
COMMENT ON COLUMN _outbox.event_types.replay_safe IS 'whether consumers may get it again, for people';
COMMENT ON COLUMN _outbox.event_types.pii_fields
IS 'JSON pointers to what must not be in a payload; * stands for all members or elements';
COMMENT ON COLUMN _outbox.event_types.registered_at IS 'when it was registered';
COMMENT ON COLUMN _outbox.event_types.changed_at IS 'when what is said about it changed';

CREATE TRIGGER event_types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _outbox.event_types
FOR EACH STATEMENT EXECUTE FUNCTION _outbox.event_types_changed();
ALTER TABLE _outbox.event_types ENABLE ALWAYS TRIGGER event_types_changed;

