CREATE OR REPLACE FUNCTION _outbox.try_lock(target regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
    RAISE SQLSTATE 'OB999'; -- the rollback of the subtransaction releases the lock
EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'OB999' THEN RETURN true;
END $$;
COMMENT ON FUNCTION _outbox.try_lock(regclass)
IS 'internal: returns true if a table can be locked exclusively within 50 ms; releases the lock';

-- lock_timeout bounds the time that other sessions queue behind the request; they proceed between two attempts.
CREATE OR REPLACE FUNCTION _outbox.lock_with_retry(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    FOR try IN 1..20 LOOP
        BEGIN
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
END $$;
COMMENT ON FUNCTION _outbox.lock_with_retry(regclass)
IS 'internal: locks a table exclusively; waits for at most 50 ms at a time';

-- Rows are in the default partition if no partition existed for their time. They move with their xid and id
-- to a new table, which is attached afterwards. Only if producers can still insert rows for that time is the
-- default partition locked before the move, otherwise after it. Returns a partition with its number of rows,
-- or an object that prevents the move: one that has the name of a partition, or the default partition if a
-- foreign key refers to it; all columns NULL: more partitions are needed, in another transaction.
CREATE OR REPLACE FUNCTION _outbox.move_default_rows(parent regclass DEFAULT '@extschema@.outbox_messages')
RETURNS TABLE (partition regclass, events bigint, object text, detail text)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET lock_timeout = '50ms' AS $$
DECLARE
    spare   CONSTANT regclass := (SELECT p.partition FROM _outbox.partitions(parent) p WHERE p.is_default);
    place   record;
    start   timestamptz;
    own     text;
    is_over boolean;
    moved   boolean := false;
BEGIN
    IF _outbox.default_partition_has_rows(parent) IS NOT TRUE THEN
        RETURN;
    END IF;
    SELECT * INTO place FROM _outbox.partition_width(parent);
    IF place.width IS NULL THEN
        RETURN; -- pg_partman has no configuration for the log; creating partitions raises an error for that
    END IF;
    FOR start IN EXECUTE format('SELECT DISTINCT date_trunc(%L, occurred_at) FROM %s WHERE isfinite(occurred_at)'
                                ' ORDER BY 1 LIMIT 100', place.unit, spare) LOOP
        SELECT format('%I.%I', n.nspname, c.relname || '_p' || to_char(start, place.suffix)) INTO own
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent;
        partition := NULL;
        events := NULL;
        SELECT o.object, o.detail INTO object, detail
          FROM _outbox.name_conflict(parent, '_p' || to_char(start, place.suffix)) o;
        IF FOUND THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- The partition of that time is in the archive: the clock was set back.
        CONTINUE WHEN to_regclass(own) IS NOT NULL;
        IF moved THEN
            -- The lock on the default partition is held until the end of the transaction, so one partition is enough.
            RETURN NEXT;
            RETURN;
        END IF;
        is_over := start + place.width <= clock_timestamp();
        IF is_over THEN
            -- ATTACH PARTITION will need an exclusive lock; if it is not available, the move would be in vain.
            CONTINUE WHEN NOT _outbox.try_lock(spare);
        ELSE
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', spare);
        END IF;
        BEGIN
            PERFORM _outbox.check_no_foreign_key(spare);
        EXCEPTION WHEN insufficient_privilege THEN
            object := spare;
            detail := SQLERRM;
            RETURN NEXT;
            RETURN;
        END;
        PERFORM _outbox.create_partition(own, start, start + place.width, parent);
        PERFORM _outbox.audit_begin_removal();
        EXECUTE format('WITH moved AS (DELETE FROM %1$s WHERE occurred_at >= %2$L AND occurred_at < %3$L RETURNING *)'
                       ' INSERT INTO %4$s (%5$s) SELECT %5$s FROM moved', spare, start, start + place.width, own,
                       (SELECT string_agg(c.name, ', ') FROM _outbox.table_columns(spare) c WHERE c.generated IS NULL));
        GET DIAGNOSTICS events = ROW_COUNT;
        PERFORM _outbox.audit_end_removal();
        IF is_over THEN
            PERFORM _outbox.lock_with_retry(spare);
        END IF;
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                       parent, own, start, start + place.width);
        partition := own::regclass;
        PERFORM _outbox.configure_partition(partition);
        moved := true;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.move_default_rows(regclass)
IS 'internal: moves rows from the default partition to partitions of their own';

-- Old batches record past deliveries. The newest batch of each consumer is its cursor and stays, as do open batches.
CREATE OR REPLACE FUNCTION _outbox.prune_batches(max_batches integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    cutoff  CONSTANT timestamptz := clock_timestamp() - _outbox.setting('outbox.delivery_retention');
    reader  integer;
    newest  _outbox.batches;
    removed integer;
    total   integer := 0;
BEGIN
    FOR reader IN SELECT c.consumer_id FROM _outbox.consumers c ORDER BY 1 LOOP
        SELECT * INTO newest FROM _outbox.batches b WHERE b.consumer_id = reader ORDER BY b.token DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        WITH old AS (
            SELECT b.token FROM (SELECT o.token FROM _outbox.batches o
                                  WHERE o.consumer_id = reader AND o.token < newest.token
                                  ORDER BY o.token LIMIT max_batches - total) b
              LEFT JOIN _outbox.leases l ON l.token = b.token
             WHERE b.token <> ALL (coalesce(newest.open_tokens, '{}'))
               AND coalesce(l.acked_at, l.claimed_at, '-infinity') < cutoff),
        leases AS (DELETE FROM _outbox.leases l USING old WHERE l.token = old.token)
        DELETE FROM _outbox.batches b USING old WHERE b.consumer_id = reader AND b.token = old.token;
        GET DIAGNOSTICS removed = ROW_COUNT;
        total := total + removed;
        EXIT WHEN total >= max_batches;
    END LOOP;
    RETURN total;
END $$;
COMMENT ON FUNCTION _outbox.prune_batches(integer)
IS 'internal: deletes up to max_batches old batches with their leases; returns their number';

-- Rows leave the default partition first: PostgreSQL rejects a new partition while the default one has rows
-- of its range.
CREATE OR REPLACE FUNCTION _outbox.maintain_partitions(
    parent regclass, OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    before   CONSTANT regclass[] := ARRAY(SELECT p.partition FROM _outbox.partitions(parent) p);
    reported text[] := '{}';
    count    bigint;
    moved    regclass;
BEGIN
    has_more := false;
    PERFORM _outbox.install_retention_guard();
    FOR moved, count, object, detail IN SELECT * FROM _outbox.move_default_rows(parent) LOOP
        changed := moved IS NOT NULL;
        IF object IS NOT NULL THEN
            reported := reported || object;
            RETURN NEXT;
            CONTINUE;
        END IF;
        has_more := NOT changed;
        IF has_more THEN
            object := parent;
            detail := 'postponed to the next transaction';
            RETURN NEXT;
            RETURN;
        END IF;
        object := moved;
        detail := format('created for %s %s from the default partition', count,
                         CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 'events' ELSE 'rows' END);
        RETURN NEXT;
    END LOOP;
    IF parent = '@extschema@.outbox_messages'::regclass THEN
        PERFORM _outbox.setup();
    ELSE
        PERFORM _outbox.audit_setup();
    END IF;
    changed := false;
    FOR object, detail IN SELECT g.object, g.detail FROM _outbox.missing_partitions(parent) g
                           WHERE g.object <> ALL (reported) LOOP
        RETURN NEXT;
    END LOOP;
    changed := true;
    FOR object IN SELECT p.partition FROM _outbox.partitions(parent) p
                   WHERE p.partition <> ALL (before) AND pg_relation_size(p.partition) = 0 ORDER BY p.lower_bound LOOP
        detail := 'created';
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.maintain_partitions(regclass)
IS 'internal: creates partitions ahead of time and empties the default partition';

