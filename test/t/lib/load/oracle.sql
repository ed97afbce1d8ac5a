-- A second reader of the log, slow and simple: it must have read exactly the events that a consumer
-- got. Its cursor says "everything up to passed_id was read, except rows of the transactions in
-- passed_running", and moves to the next such state in one step, without pages.
CREATE TABLE oracle_cursor (passed_id bigint NOT NULL, passed_running bigint[] NOT NULL);
INSERT INTO oracle_cursor VALUES (0, '{}');

-- The order of reading. The primary key refuses an event that is read twice.
CREATE TABLE oracle_read (id bigint PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY);

CREATE FUNCTION oracle_read() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before   oracle_cursor;
    seen     pg_snapshot;
    last_id  bigint;
    next_xid bigint;
    running  bigint[];
    count    bigint;
BEGIN
    -- The xid drawn below replaces the snapshot's xmax.
    ASSERT pg_current_xact_id_if_assigned() IS NULL AND current_setting('transaction_isolation') = 'read committed';
    PERFORM pg_advisory_xact_lock(hashtext('oracle'));
    SELECT * INTO before FROM oracle_cursor;

    SELECT pg_current_snapshot() INTO seen;
    last_id := coalesce(pg_sequence_last_value('_outbox.messages_id_seq'), 0);
    next_xid := pg_current_xact_id()::text::bigint;
    running := ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(seen) x
                     UNION SELECT * FROM generate_series(pg_snapshot_xmax(seen)::text::bigint, next_xid));

    -- Transactions that ended since the snapshot are visible by now, but still count as running.
    INSERT INTO oracle_read (id)
    SELECT id FROM (
        SELECT id, xid FROM outbox_messages WHERE id > before.passed_id AND id <= last_id
        UNION ALL
        SELECT id, xid FROM outbox_messages WHERE id <= before.passed_id AND xid = ANY (before.passed_running::text[]::xid8[])) m
     WHERE xid::text::bigint <> ALL (running) ORDER BY id;
    GET DIAGNOSTICS count = ROW_COUNT;
    UPDATE oracle_cursor SET passed_id = last_id, passed_running = running;
    RETURN count;
END $$;

CREATE VIEW oracle_disagrees AS
SELECT 'missed' AS what, m.id FROM outbox_messages m WHERE NOT EXISTS (SELECT FROM oracle_read o WHERE o.id = m.id)
UNION ALL SELECT 'invented', o.id FROM oracle_read o WHERE NOT EXISTS (SELECT FROM outbox_messages m WHERE m.id = o.id);
