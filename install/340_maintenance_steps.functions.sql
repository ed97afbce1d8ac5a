CREATE OR REPLACE FUNCTION _outbox.step_partitions(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.set_partition_retention('@extschema@.outbox_messages')
$$;
COMMENT ON FUNCTION _outbox.step_partitions()
IS 'internal: makes partitions of the log ahead, and empties the default';

-- Locks stay until the end of the transaction, so one that has archived for some milliseconds goes no further.
CREATE OR REPLACE FUNCTION _outbox.step_archive(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due    regclass;
    locked timestamptz;
    moved  boolean;
BEGIN
    -- Before the log is locked: this may take a while.
    SELECT coalesce(bool_or(_outbox.skip_unwanted_events(l.consumer)), false) INTO moved
      FROM (SELECT DISTINCT h.consumer FROM _outbox.due_partitions() d
             CROSS JOIN LATERAL _outbox.partition_readers(d.partition) h) l;
    -- Likewise: columns that the log was given. They take locks on all of the archive.
    IF EXISTS (SELECT FROM _outbox.due_partitions()) THEN
        BEGIN
            PERFORM _outbox.add_columns(of => '@extschema@.outbox_messages', target => '@extschema@.outbox_messages_archive');
        EXCEPTION WHEN lock_not_available THEN
            object := '@extschema@.outbox_messages_archive'::regclass;
            detail := 'lacks a column that the log has, because it is in use';
            done := false;
            again := true;
            RETURN NEXT;
            RETURN;
        END;
    END IF;
    FOR due IN SELECT d.partition FROM _outbox.due_partitions() d LOOP
        object := due;
        done := false;
        again := locked IS NOT NULL AND clock_timestamp() - locked > '20 ms';
        IF again THEN
            detail := 'waits for its turn';
            RETURN NEXT;
            RETURN;
        END IF;
        BEGIN
            detail := _outbox.archive_partition(due);
            locked := coalesce(locked, clock_timestamp());
            done := true;
        EXCEPTION
            WHEN lock_not_available THEN
                detail := 'stays, because the log is in use';
                again := true;
            WHEN object_in_use THEN
                detail := SQLERRM;
                again := moved;
            WHEN undefined_table OR undefined_object THEN
                detail := SQLERRM;
                again := true;
            WHEN others THEN
                detail := SQLERRM; -- of this one
        END;
        RETURN NEXT;
        -- Whoever is in the way of one is in the way of all.
        EXIT WHEN again AND NOT moved;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_archive()
IS 'internal: archives partitions of the log that are due';

CREATE OR REPLACE FUNCTION _outbox.step_export(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
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
        done := true;
        again := true;
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.step_export()
IS 'internal: exports a partition of the archive whose time is over';

CREATE OR REPLACE FUNCTION _outbox.step_drop(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Each takes a handful of locks, which are kept to the end.
    most    CONSTANT integer := 20;
    dropped integer := 0;
    expired record;
BEGIN
    FOR expired IN SELECT e.partition, e.restored FROM _outbox.expired_partitions() e LOOP
        object := expired.partition;
        done := false;
        again := dropped >= most;
        IF again THEN
            detail := 'waits for its turn';
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
                done := true;
                dropped := dropped + 1;
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                detail := 'stays, because the archive is in use';
                again := true;
            WHEN undefined_table OR undefined_object THEN
                detail := SQLERRM;
                again := true;
            WHEN others THEN
                detail := SQLERRM; -- of this one
        END;
        RETURN NEXT;
        EXIT WHEN again;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_drop()
IS 'internal: drops partitions of the archive whose time is over';

CREATE OR REPLACE FUNCTION _outbox.step_cold_files(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    done := true;
    again := false;
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
IS 'internal: removes files from cold storage whose time is over';

-- Each table in transactions of its own: what one has removed stays locked until its end. Some tenths of a second.
CREATE OR REPLACE FUNCTION _outbox.expire_table(swept regclass, condition text, OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed integer;
BEGIN
    SELECT s.removed, s.again INTO removed, again FROM _outbox.delete_expired(swept, condition, max_rows => 50000) s;
    object := (SELECT c.relname FROM pg_class c WHERE c.oid = swept);
    detail := CASE WHEN removed > 0 THEN format('%s removed', removed) END;
    done := true;
END $$;
COMMENT ON FUNCTION _outbox.expire_table(regclass, text)
IS 'internal: removes some of the rows whose time is over';

CREATE OR REPLACE FUNCTION _outbox.step_expire_idempotency_keys(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.expire_table('_outbox.idempotency_keys', 'expires_at <= clock_timestamp()')
$$;
COMMENT ON FUNCTION _outbox.step_expire_idempotency_keys()
IS 'internal: removes some of the idempotency keys that have expired';

CREATE OR REPLACE FUNCTION _outbox.step_expire_dedup_keys(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.expire_table('_outbox.dedup_keys', 'expires_at <= clock_timestamp()')
$$;
COMMENT ON FUNCTION _outbox.step_expire_dedup_keys()
IS 'internal: removes some of the dedup keys that have expired';

CREATE OR REPLACE FUNCTION _outbox.step_expire_inbox(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.expire_table('_outbox.inbox',
        'accepted_at <= clock_timestamp() - _outbox.setting(''outbox.inbox_retention'')')
$$;
COMMENT ON FUNCTION _outbox.step_expire_inbox()
IS 'internal: removes some of the entries of the inbox that are old';

CREATE OR REPLACE FUNCTION _outbox.step_prune(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_batches CONSTANT integer := 10000;
    removed     CONSTANT integer := _outbox.prune_batches(max_batches);
    turns       integer;
BEGIN
    object := '_outbox.batches';
    detail := format('%s removed', removed);
    done := true;
    again := removed >= max_batches;
    IF removed > 0 THEN
        RETURN NEXT;
    END IF;

    DELETE FROM _outbox.tenant_turns t
     USING (SELECT o.consumer_id, o.tenant_id, o.served FROM _outbox.tenant_turns o
             WHERE EXISTS (SELECT FROM _outbox.tenant_turns newer
                            WHERE newer.consumer_id = o.consumer_id AND newer.tenant_id = o.tenant_id AND newer.served > o.served)
             LIMIT max_batches FOR UPDATE OF o SKIP LOCKED) old
     WHERE t.consumer_id = old.consumer_id AND t.tenant_id = old.tenant_id AND t.served = old.served;
    GET DIAGNOSTICS turns = ROW_COUNT;
    object := '_outbox.tenant_turns';
    detail := format('%s removed', turns);
    again := turns >= max_batches;
    IF turns > 0 THEN
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.step_prune()
IS 'internal: removes some of the record of deliveries';

