-- Old rows of tables that have no index on their time, because every row would pay for it when it is written. A clock hand goes
-- round instead: each run of maintenance looks through a 12th of the table, from where the last one ended. Rows come, and grow
-- old, next to each other: where many are found, it goes on.
CREATE TABLE _outbox.expiry_cursors (
    swept regclass PRIMARY KEY,
    block bigint   NOT NULL,
    rest  bigint
);
INSERT INTO _outbox.expiry_cursors VALUES ('_outbox.dedup_keys', 0), ('_outbox.inbox', 0), ('_outbox.idempotency_keys', 0);
COMMENT ON TABLE _outbox.expiry_cursors
IS 'where to look next for rows that are to be removed: only a hint';
COMMENT ON COLUMN _outbox.expiry_cursors.swept IS 'the table';
COMMENT ON COLUMN _outbox.expiry_cursors.block IS 'the block of it';
COMMENT ON COLUMN _outbox.expiry_cursors.rest IS 'how many blocks the run that is under way has yet to look through; negative: more than it had to; NULL: none is under way';

