----------------------------------------------------------------------------------------------------
-- Sinks: consumers that the relay serves
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.sinks (
    consumer_id integer PRIMARY KEY,
    config      jsonb   NOT NULL,
    home        text    NOT NULL
);
COMMENT ON TABLE _outbox.sinks
IS 'where the relay brings events; the rest of each sink is in outbox_consumers';
COMMENT ON COLUMN _outbox.sinks.consumer_id IS 'the consumer that it is';
COMMENT ON COLUMN _outbox.sinks.config IS 'what the sink needs to know; secrets only by their names';
COMMENT ON COLUMN _outbox.sinks.home IS 'the database it was made in: a copy of that database keeps it paused';

