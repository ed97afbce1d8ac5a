----------------------------------------------------------------------------------------------------
-- The archive: whole partitions, moved from the log with their indexes
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_messages_archive (LIKE outbox_messages INCLUDING COMMENTS) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE outbox_messages_archive
IS 'archive of events that all consumers have passed and that are older than outbox.hot_retention';

-- A claim reads the archive if the consumer's cursor is below the last archived id.
CREATE TABLE _outbox.archived_partitions (
    partition   name        PRIMARY KEY,
    lower_bound timestamptz NOT NULL,
    upper_bound timestamptz NOT NULL,
    first_id    bigint      NOT NULL,
    last_id     bigint      NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    restored_at timestamptz
);
CREATE INDEX ON _outbox.archived_partitions (last_id);
COMMENT ON TABLE _outbox.archived_partitions IS 'partitions of the archive';
COMMENT ON COLUMN _outbox.archived_partitions.partition IS 'name of the table, in the schema of the log';
COMMENT ON COLUMN _outbox.archived_partitions.lower_bound IS 'inclusive lower bound of occurred_at';
COMMENT ON COLUMN _outbox.archived_partitions.upper_bound IS 'exclusive upper bound of occurred_at';
COMMENT ON COLUMN _outbox.archived_partitions.first_id IS 'smallest id in the partition';
COMMENT ON COLUMN _outbox.archived_partitions.last_id IS 'largest id in the partition';
COMMENT ON COLUMN _outbox.archived_partitions.archived_at IS 'time at which the partition left the log';
COMMENT ON COLUMN _outbox.archived_partitions.restored_at
IS 'time of the restore from cold storage; NULL: never dropped';

CREATE TABLE _outbox.cold_files (
    file        text        PRIMARY KEY,
    partition   name        NOT NULL,
    lower_bound timestamptz NOT NULL,
    upper_bound timestamptz NOT NULL,
    events      bigint      NOT NULL,
    bytes       bigint      NOT NULL,
    exported_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tried_at    timestamptz,
    stored_at   timestamptz
);
COMMENT ON TABLE _outbox.cold_files IS 'files of partitions that were exported to cold storage';
COMMENT ON COLUMN _outbox.cold_files.file IS 'file name in outbox.cold_storage_dir';
COMMENT ON COLUMN _outbox.cold_files.partition IS 'name of the table that was exported';
COMMENT ON COLUMN _outbox.cold_files.lower_bound IS 'inclusive lower bound of occurred_at';
COMMENT ON COLUMN _outbox.cold_files.upper_bound IS 'exclusive upper bound of occurred_at';
COMMENT ON COLUMN _outbox.cold_files.events IS 'number of events in the file';
COMMENT ON COLUMN _outbox.cold_files.bytes IS 'compressed size in bytes';
COMMENT ON COLUMN _outbox.cold_files.exported_at IS 'time of the export';
COMMENT ON COLUMN _outbox.cold_files.tried_at IS 'time of the last call of outbox.archive_command for the file';
COMMENT ON COLUMN _outbox.cold_files.stored_at IS 'time at which outbox.archive_command succeeded; NULL: not yet';

