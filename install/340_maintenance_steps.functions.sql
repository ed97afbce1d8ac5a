CREATE OR REPLACE FUNCTION _outbox.step_partitions(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.maintain_partitions('@extschema@.outbox_messages')
$$;
COMMENT ON FUNCTION _outbox.step_partitions()
IS 'internal: creates partitions of the log ahead of time and empties its default partition';

-- Locks are held until the end of the transaction, so a transaction stops after 20 ms and leaves the rest to
-- the next one.
CREATE OR REPLACE FUNCTION _outbox.step_archive(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due    regclass;
    locked timestamptz;
    moved  boolean;
BEGIN
    -- This reads the log, which may take long, so it precedes the locks on the log.
    SELECT coalesce(bool_or(_outbox.skip_unwanted_events(l.consumer)), false) INTO moved
      FROM (SELECT DISTINCT h.consumer FROM _outbox.due_partitions() d
             CROSS JOIN LATERAL _outbox.partition_readers(d.partition) h) l;
    -- Adding columns of the log to the archive locks all partitions of the archive, so it precedes those locks, too.
    IF EXISTS (SELECT FROM _outbox.due_partitions()) THEN
        BEGIN
            PERFORM _outbox.add_columns(of => '@extschema@.outbox_messages',
                                        target => '@extschema@.outbox_messages_archive');
        EXCEPTION WHEN lock_not_available THEN
            object := '@extschema@.outbox_messages_archive'::regclass;
            detail := 'lacks a column of the log, because the archive is in use';
            changed := false;
            has_more := true;
            RETURN NEXT;
            RETURN;
        END;
    END IF;
    FOR due IN SELECT d.partition FROM _outbox.due_partitions() d LOOP
        object := due;
        changed := false;
        has_more := locked IS NOT NULL AND clock_timestamp() - locked > '20 ms';
        IF has_more THEN
            detail := 'postponed to the next transaction';
            RETURN NEXT;
            RETURN;
        END IF;
        BEGIN
            detail := _outbox.archive_partition(due);
            locked := coalesce(locked, clock_timestamp());
            changed := true;
        EXCEPTION
            WHEN lock_not_available THEN
                detail := 'stays, because the log is in use';
                has_more := true;
            WHEN object_in_use THEN
                detail := SQLERRM;
                has_more := moved;
            WHEN undefined_table OR undefined_object THEN
                detail := SQLERRM;
                has_more := true;
            WHEN others THEN
                detail := SQLERRM; -- other partitions may succeed
        END;
        RETURN NEXT;
        -- A lock conflict on the log affects all partitions alike.
        EXIT WHEN has_more AND NOT moved;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_archive() IS 'internal: archives partitions of the log that are due';

CREATE OR REPLACE FUNCTION _outbox.step_export(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    next regclass;
BEGIN
    IF NOT _outbox.has_cold_storage() THEN
        RETURN;
    END IF;
    SELECT e.partition INTO next FROM _outbox.expired_partitions() e
     WHERE NOT e.restored AND _outbox.is_stored(e.partition) IS NULL
       AND NOT EXISTS (SELECT FROM _outbox.partition_readers(e.partition))
     LIMIT 1;
    IF FOUND THEN
        object := next;
        detail := 'exported to ' || _outbox.export_partition(next);
        changed := true;
        has_more := true;
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.step_export()
IS 'internal: exports one partition of the archive that is past its retention';

CREATE OR REPLACE FUNCTION _outbox.step_drop(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Each partition takes several locks until the end of the transaction; this bounds their number.
    max_dropped CONSTANT integer := 20;
    dropped     integer := 0;
    expired     record;
BEGIN
    FOR expired IN SELECT e.partition, e.restored FROM _outbox.expired_partitions() e LOOP
        object := expired.partition;
        changed := false;
        has_more := dropped >= max_dropped;
        IF has_more THEN
            detail := 'postponed to the next transaction';
            RETURN NEXT;
            RETURN;
        END IF;
        BEGIN
            IF _outbox.has_cold_storage() AND NOT expired.restored
               AND _outbox.is_stored(expired.partition) IS NOT TRUE THEN
                detail := 'stays until it is in cold storage';
            ELSE
                PERFORM _outbox.drop_partition(expired.partition);
                detail := 'dropped';
                changed := true;
                dropped := dropped + 1;
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                detail := 'stays, because the archive is in use';
                has_more := true;
            WHEN undefined_table OR undefined_object THEN
                detail := SQLERRM;
                has_more := true;
            WHEN others THEN
                detail := SQLERRM; -- other partitions may succeed
        END;
        RETURN NEXT;
        EXIT WHEN has_more;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_drop() IS 'internal: drops partitions of the archive that are past their retention';

CREATE OR REPLACE FUNCTION _outbox.step_cold_files(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    changed := true;
    has_more := false;
    detail := 'removed from cold storage';
    FOR object IN SELECT f.file FROM _outbox.cold_files f
                   WHERE f.upper_bound <= clock_timestamp() - _outbox.setting('outbox.cold_retention')
                     AND f.stored_at IS NOT NULL ORDER BY f.upper_bound LOOP
        PERFORM _outbox.remove_cold_file(object);
        DELETE FROM _outbox.cold_files f WHERE f.file = object;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_cold_files()
IS 'internal: removes files from cold storage that are past outbox.cold_retention';

-- Each table has a step, and thus transactions, of its own: deleted rows stay locked until the end of the
-- transaction. 50,000 rows take some tenths of a second.
CREATE OR REPLACE FUNCTION _outbox.expire_table(
    swept regclass, condition text, OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed integer;
BEGIN
    SELECT s.removed, s.has_more INTO removed, has_more
      FROM _outbox.delete_expired(swept, condition, max_rows => 50000) s;
    object := (SELECT c.relname FROM pg_class c WHERE c.oid = swept);
    detail := CASE WHEN removed > 0 THEN format('%s removed', removed) END;
    changed := true;
END $$;
COMMENT ON FUNCTION _outbox.expire_table(regclass, text) IS 'internal: deletes some of the expired rows of a table';

CREATE OR REPLACE FUNCTION _outbox.step_expire_idempotency_keys(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.expire_table('_outbox.idempotency_keys', 'expires_at <= clock_timestamp()')
$$;
COMMENT ON FUNCTION _outbox.step_expire_idempotency_keys() IS 'internal: deletes some of the expired idempotency keys';

CREATE OR REPLACE FUNCTION _outbox.step_expire_dedup_keys(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.expire_table('_outbox.dedup_keys', 'expires_at <= clock_timestamp()')
$$;
COMMENT ON FUNCTION _outbox.step_expire_dedup_keys() IS 'internal: deletes some of the expired dedup keys';

CREATE OR REPLACE FUNCTION _outbox.step_expire_inbox(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.expire_table('_outbox.inbox',
        'accepted_at <= clock_timestamp() - _outbox.setting(''outbox.inbox_retention'')')
$$;
COMMENT ON FUNCTION _outbox.step_expire_inbox()
IS 'internal: deletes some of the inbox entries that are past outbox.inbox_retention';

CREATE OR REPLACE FUNCTION _outbox.step_prune(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_batches CONSTANT integer := 10000;
    removed     CONSTANT integer := _outbox.prune_batches(max_batches);
    turns       integer;
BEGIN
    object := '_outbox.batches';
    detail := format('%s removed', removed);
    changed := true;
    has_more := removed >= max_batches;
    IF removed > 0 THEN
        RETURN NEXT;
    END IF;

    DELETE FROM _outbox.tenant_turns t
     USING (SELECT o.consumer_id, o.tenant_id, o.served FROM _outbox.tenant_turns o
             WHERE EXISTS (SELECT FROM _outbox.tenant_turns newer
                            WHERE newer.consumer_id = o.consumer_id AND newer.tenant_id = o.tenant_id
                              AND newer.served > o.served)
             LIMIT max_batches FOR UPDATE OF o SKIP LOCKED) old
     WHERE t.consumer_id = old.consumer_id AND t.tenant_id = old.tenant_id AND t.served = old.served;
    GET DIAGNOSTICS turns = ROW_COUNT;
    object := '_outbox.tenant_turns';
    detail := format('%s removed', turns);
    has_more := turns >= max_batches;
    IF turns > 0 THEN
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.step_prune() IS 'internal: deletes some of the old batches, leases and tenant turns';

