-- SKIP LOCKED keeps the sweep from waiting: rows that are locked by other transactions stay, and a sweep that
-- cannot lock the cursor in expiry_cursors starts at a random block.
CREATE OR REPLACE FUNCTION _outbox.delete_expired(
    swept regclass, condition text, max_rows integer, whole boolean DEFAULT false, max_blocks integer DEFAULT 10000,
    OUT removed integer, OUT has_more boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    blocks   CONSTANT bigint := pg_relation_size(swept) / current_setting('block_size')::integer;
    hint     _outbox.expiry_cursors;
    place    bigint;
    still    bigint;
    next     bigint;
    looked   bigint := 1;   -- not 0, or the sweep of an empty table would never end
    last     tid;
    found    integer;
BEGIN
    removed := 0;
    -- Under REPEATABLE READ, locking a cursor that was updated after the snapshot raises a serialization failure.
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT * INTO hint FROM _outbox.expiry_cursors s WHERE s.swept = delete_expired.swept FOR UPDATE SKIP LOCKED;
    END IF;
    place := coalesce(hint.block, floor(random() * blocks));
    still := coalesce(hint.rest, blocks / 12 + 1);
    -- The ranges before the end of the table and before the starting block may both be short, hence one more
    -- than needed.
    FOR part IN 0 .. CASE WHEN whole THEN blocks / max_blocks + 1 ELSE 0 END LOOP
        IF place >= blocks THEN
            place := 0;
        END IF;
        next := least(place + max_blocks, blocks);
        EXECUTE format('WITH gone AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
                       'SELECT ctid FROM %1$s WHERE ctid >= %2$L AND ctid < %3$L AND (%4$s)'
                       ' LIMIT %5$L FOR UPDATE SKIP LOCKED)) RETURNING ctid) SELECT count(*), max(ctid) FROM gone',
                       swept, format('(%s,0)', place), format('(%s,0)', next), condition, max_rows - removed)
           INTO found, last;
        removed := removed + found;
        IF removed >= max_rows THEN
            next := (last::text::point)[0];   -- the last block may have more
        END IF;
        looked := looked + next - place;
        place := next;
        EXIT WHEN removed >= max_rows;
    END LOOP;
    still := still - looked;
    -- A sweep passes the table at most once; it extends only while every row that it reads is deleted.
    has_more := hint.swept IS NOT NULL AND (still > 0 OR (removed >= looked AND still > -blocks));
    UPDATE _outbox.expiry_cursors s
       SET block = place, rest = CASE WHEN whole THEN hint.rest WHEN has_more THEN still END
     WHERE s.swept = hint.swept;
END $$;
COMMENT ON FUNCTION _outbox.delete_expired(regclass, text, integer, boolean, integer)
IS 'internal: deletes up to max_rows rows that match a condition, from some blocks or from the whole table';

CREATE OR REPLACE FUNCTION idempotency_expire(max_keys integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('idempotency_expire()');
    IF max_keys IS NULL OR max_keys < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'max_keys must be at least 1';
    END IF;
    RETURN (_outbox.delete_expired('_outbox.idempotency_keys', 'expires_at <= clock_timestamp()', max_keys,
                                   whole => true)).removed;
END $$;
COMMENT ON FUNCTION idempotency_expire(integer)
IS 'deletes up to max_keys expired idempotency keys; returns their number';

