-- Not dumped: a database that is being restored has its partitions before it has its consumers, and no worker
-- may touch them then.
CREATE TABLE _outbox.maintenance_state (
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE _outbox.maintenance_state
IS 'has a row if the worker may archive and drop: since the log got its first partitions here, or outbox_maintain() was called';
COMMENT ON COLUMN _outbox.maintenance_state.since IS 'since when';

