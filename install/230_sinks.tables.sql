----------------------------------------------------------------------------------------------------
-- Sinks: destinations of the relay, each with a consumer of its own
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.sinks (
    consumer_id integer PRIMARY KEY,
    config      jsonb   NOT NULL,
    home        text    NOT NULL
);
COMMENT ON TABLE _outbox.sinks IS 'destinations of the relay; each sink is also a row of outbox_consumers';
COMMENT ON COLUMN _outbox.sinks.consumer_id IS 'id of the sink in outbox_consumers';
COMMENT ON COLUMN _outbox.sinks.config IS 'configuration of the sink; secrets only by name';
COMMENT ON COLUMN _outbox.sinks.home
IS 'database in which the sink was created or resumed; in a copy of that database the sink stays paused';

