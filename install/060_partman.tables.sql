-- The table is not dumped. During a restore the partitions exist before the consumers, and the maintenance worker
-- must not drop partitions that a consumer has yet to read.
CREATE TABLE _outbox.maintenance_state (
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE _outbox.maintenance_state
IS 'one row if maintenance may archive and drop log partitions; empty after a restore';
COMMENT ON COLUMN _outbox.maintenance_state.since
IS 'time of the first partitions of the log in this database, or of the call of outbox_maintain()';

