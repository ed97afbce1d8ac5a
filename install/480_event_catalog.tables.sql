----------------------------------------------------------------------------------------------------
-- The catalog of events: name, owner module and payload schema of each version. Enqueue checks events against
-- it according to outbox.catalog_mode.
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
COMMENT ON TABLE _outbox.event_types IS 'catalog of events';
COMMENT ON COLUMN _outbox.event_types.event_type IS 'name of the event: <Aggregate><PastTenseVerb>';
COMMENT ON COLUMN _outbox.event_types.event_version IS 'version of the event; each version has its own schema';
COMMENT ON COLUMN _outbox.event_types.owner_module IS 'module that emits the event, the same for all versions';
COMMENT ON COLUMN _outbox.event_types.json_schema IS 'JSON Schema of the payload; NULL permits any payload';
COMMENT ON COLUMN _outbox.event_types.description IS 'meaning of the event; documentation only';
COMMENT ON COLUMN _outbox.event_types.consumers IS 'known consumers of the event; documentation only';
COMMENT ON COLUMN _outbox.event_types.replay_safe IS 'true if consumers may get the event again; documentation only';
COMMENT ON COLUMN _outbox.event_types.pii_fields
IS 'JSON pointers to values that a payload must not have; * stands for all members or elements';
COMMENT ON COLUMN _outbox.event_types.registered_at IS 'time of the registration';
COMMENT ON COLUMN _outbox.event_types.changed_at IS 'time of the last change';

CREATE TRIGGER event_types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _outbox.event_types
FOR EACH STATEMENT EXECUTE FUNCTION _outbox.event_types_changed();
ALTER TABLE _outbox.event_types ENABLE ALWAYS TRIGGER event_types_changed;

