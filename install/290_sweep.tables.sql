-- Tables with rows that expire have no index on the expiry time, because every insert would maintain it. Instead each
-- maintenance run searches a twelfth of the blocks, from the block at which the last run ended. The run goes on while
-- most searched blocks have expired rows, because rows that were inserted together expire together.
CREATE TABLE _outbox.expiry_cursors (
    swept regclass PRIMARY KEY,
    block bigint   NOT NULL,
    rest  bigint
);
INSERT INTO _outbox.expiry_cursors
VALUES ('_outbox.dedup_keys', 0), ('_outbox.inbox', 0), ('_outbox.idempotency_keys', 0);
COMMENT ON TABLE _outbox.expiry_cursors IS 'blocks at which the next search for expired rows begins; a hint only';
COMMENT ON COLUMN _outbox.expiry_cursors.swept IS 'table with rows that expire';
COMMENT ON COLUMN _outbox.expiry_cursors.block IS 'block at which the next search begins';
COMMENT ON COLUMN _outbox.expiry_cursors.rest
IS 'blocks left for the current maintenance run; negative: blocks beyond its share; NULL: no run in progress';

