----------------------------------------------------------------------------------------------------
-- The archive. It gets whole partitions of the log, with their indexes.
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_messages_archive (LIKE outbox_messages INCLUDING COMMENTS) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE outbox_messages_archive
IS 'events that every consumer has passed, and that are older than outbox.hot_retention';

-- Claims ask here whether a consumer is so far behind that it has to read the archive.
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
COMMENT ON TABLE _outbox.archived_partitions
IS 'the partitions of the archive';
COMMENT ON COLUMN _outbox.archived_partitions.partition IS 'its table, in the schema of the log';
COMMENT ON COLUMN _outbox.archived_partitions.lower_bound IS 'the first moment that it covers';
COMMENT ON COLUMN _outbox.archived_partitions.upper_bound IS 'where it ends';
COMMENT ON COLUMN _outbox.archived_partitions.first_id IS 'least id in it';
COMMENT ON COLUMN _outbox.archived_partitions.last_id IS 'greatest id in it';
COMMENT ON COLUMN _outbox.archived_partitions.archived_at IS 'when it left the log';
COMMENT ON COLUMN _outbox.archived_partitions.restored_at IS 'when it came back from cold storage; NULL: it never left';

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
COMMENT ON TABLE _outbox.cold_files
IS 'partitions that were exported before they were dropped';
COMMENT ON COLUMN _outbox.cold_files.file IS 'its name in outbox.cold_storage_dir';
COMMENT ON COLUMN _outbox.cold_files.partition IS 'the table that it was';
COMMENT ON COLUMN _outbox.cold_files.lower_bound IS 'the first moment that it covers';
COMMENT ON COLUMN _outbox.cold_files.upper_bound IS 'where it ends';
COMMENT ON COLUMN _outbox.cold_files.events IS 'how many are in it';
COMMENT ON COLUMN _outbox.cold_files.bytes IS 'its size, compressed';
COMMENT ON COLUMN _outbox.cold_files.exported_at IS 'when it was written';
COMMENT ON COLUMN _outbox.cold_files.tried_at IS 'when outbox.archive_command was last called for it';
COMMENT ON COLUMN _outbox.cold_files.stored_at IS 'when outbox.archive_command was done with it; NULL: it is not';

