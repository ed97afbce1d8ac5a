----------------------------------------------------------------------------------------------------
-- Upcasters: how a payload gets from one version of its event type to the next, when it is read
----------------------------------------------------------------------------------------------------

-- Names, not oids: a dump brings them along, and a function that is made again is found again.
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
IS 'functions from jsonb to jsonb that bring a payload to the next version of its event type';
COMMENT ON COLUMN _outbox.upcasters.event_type IS 'whose payloads it takes';
COMMENT ON COLUMN _outbox.upcasters.from_version IS 'the version that it takes; it returns the one after that';
COMMENT ON COLUMN _outbox.upcasters.function_schema IS 'the schema of the function';
COMMENT ON COLUMN _outbox.upcasters.function_name IS 'its name; its argument is a jsonb';
COMMENT ON COLUMN _outbox.upcasters.registered_by IS 'the role that it has no more rights than';
COMMENT ON COLUMN _outbox.upcasters.registered_at IS 'since when';

CREATE TRIGGER upcasters_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _outbox.upcasters
FOR EACH STATEMENT EXECUTE FUNCTION _outbox.upcasters_changed();
ALTER TABLE _outbox.upcasters ENABLE ALWAYS TRIGGER upcasters_changed;
COMMENT ON TRIGGER upcasters_changed ON _outbox.upcasters
IS 'sessions keep what they have read of the table';

