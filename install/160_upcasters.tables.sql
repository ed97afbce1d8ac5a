----------------------------------------------------------------------------------------------------
-- Upcasters: functions that convert a payload to the next version of its event type on delivery
----------------------------------------------------------------------------------------------------

-- The table has function names, not oids: names survive a dump, and DROP and CREATE of the function.
CREATE TABLE _outbox.upcasters (
    event_type      text        NOT NULL,
    from_version    integer     NOT NULL CHECK (from_version BETWEEN 1 AND 32766),
    function_schema text        NOT NULL,
    function_name   text        NOT NULL,
    registered_by   text        NOT NULL,
    registered_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_type, from_version)
);
COMMENT ON TABLE _outbox.upcasters
IS 'functions from jsonb to jsonb that convert a payload to the next version of its event type';
COMMENT ON COLUMN _outbox.upcasters.event_type IS 'event type of the payloads';
COMMENT ON COLUMN _outbox.upcasters.from_version IS 'version of the argument; the result has the next version';
COMMENT ON COLUMN _outbox.upcasters.function_schema IS 'schema of the function';
COMMENT ON COLUMN _outbox.upcasters.function_name IS 'name of the function; its argument is a jsonb';
COMMENT ON COLUMN _outbox.upcasters.registered_by
IS 'role that registered the upcaster; the function runs with at most the privileges of this role';
COMMENT ON COLUMN _outbox.upcasters.registered_at IS 'time of the registration';

CREATE TRIGGER upcasters_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _outbox.upcasters
FOR EACH STATEMENT EXECUTE FUNCTION _outbox.upcasters_changed();
ALTER TABLE _outbox.upcasters ENABLE ALWAYS TRIGGER upcasters_changed;
COMMENT ON TRIGGER upcasters_changed ON _outbox.upcasters IS 'invalidates the upcaster caches of all sessions';

