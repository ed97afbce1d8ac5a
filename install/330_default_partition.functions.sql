CREATE OR REPLACE FUNCTION _outbox.try_lock(target regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
    RAISE SQLSTATE 'OB999'; -- gives it back
EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'OB999' THEN RETURN true;
END $$;
COMMENT ON FUNCTION _outbox.try_lock(regclass)
IS 'internal: could a table be locked now, if others are kept waiting for 50 ms at most?';

-- Others are kept waiting for 50 ms at most, and have their turn in between.
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
IS 'internal: locks a table, without keeping others waiting for long at a time';

-- The rows that came while there was no partition for their time. They are moved with xid and id as they are,
-- into a table that nobody reads yet. For a time that is over, the default is locked at the end only.
CREATE OR REPLACE FUNCTION _outbox.move_default_rows(parent regclass DEFAULT '@extschema@.outbox_messages') RETURNS TABLE (partition regclass, events bigint, object text, detail text)
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
        RETURN; -- pg_partman knows nothing of the log: whoever makes partitions says so
    END IF;
    FOR start IN EXECUTE format('SELECT DISTINCT date_trunc(%L, occurred_at) FROM %s WHERE isfinite(occurred_at) ORDER BY 1 LIMIT 100', place.unit, spare) LOOP
        SELECT format('%I.%I', n.nspname, c.relname || '_p' || to_char(start, place.suffix)) INTO own
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent;
        partition := NULL;
        events := NULL;
        SELECT o.object, o.detail INTO object, detail FROM _outbox.name_conflict(parent, '_p' || to_char(start, place.suffix)) o;
        IF FOUND THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A time that was archived, and that the clock has come back to.
        CONTINUE WHEN to_regclass(own) IS NOT NULL;
        IF moved THEN
            -- The default is locked by now, until the end of the transaction.
            RETURN NEXT;
            RETURN;
        END IF;
        is_over := start + place.width <= clock_timestamp();
        IF is_over THEN
            -- Is it to be had at all? Otherwise everything would be moved for nothing.
            CONTINUE WHEN NOT _outbox.try_lock(spare);
        ELSE
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', spare);
        END IF;
        PERFORM _outbox.check_no_foreign_key(spare);
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
IS 'internal: moves the events of one day from the default partition to a partition of their own; an object is in the way; all NULL: there are more';

-- The delivery record. What stays: the newest batch of each consumer, which is its cursor, and all that is open.
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
IS 'internal: removes the record of old deliveries, no more than so many batches; returns how many';

-- Makes partitions. Before that, rows that would be in the way of a new one leave the default.
CREATE OR REPLACE FUNCTION _outbox.set_partition_retention(parent regclass, OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    before CONSTANT regclass[] := ARRAY(SELECT p.partition FROM _outbox.partitions(parent) p);
    told   text[] := '{}';
    count  bigint;
    moved  regclass;
BEGIN
    again := false;
    PERFORM _outbox.install_retention_guard();
    FOR moved, count, object, detail IN SELECT * FROM _outbox.move_default_rows(parent) LOOP
        done := moved IS NOT NULL;
        IF object IS NOT NULL THEN
            told := told || object;
            RETURN NEXT;
            CONTINUE;
        END IF;
        again := NOT done;
        IF again THEN
            object := parent;
            detail := 'waits for its turn';
            RETURN NEXT;
            RETURN;
        END IF;
        object := moved;
        detail := format('made for %s %s from the default partition', count,
                         CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 'events' ELSE 'rows' END);
        RETURN NEXT;
    END LOOP;
    IF parent = '@extschema@.outbox_messages'::regclass THEN
        PERFORM _outbox.setup();
    ELSE
        PERFORM _outbox.audit_setup();
    END IF;
    done := false;
    FOR object, detail IN SELECT g.object, g.detail FROM _outbox.missing_partitions(parent) g WHERE g.object <> ALL (told) LOOP
        RETURN NEXT;
    END LOOP;
    done := true;
    FOR object IN SELECT p.partition FROM _outbox.partitions(parent) p
                   WHERE p.partition <> ALL (before) AND pg_relation_size(p.partition) = 0 ORDER BY p.lower_bound LOOP
        detail := 'made';
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.set_partition_retention(regclass)
IS 'internal: makes partitions ahead, and empties the default';

