----------------------------------------------------------------------------------------------------
-- Maintenance. Each step is a function: the maintenance worker runs each step in a transaction of its own,
-- outbox_maintain() runs all steps in the caller's transaction. A step that needs an exclusive lock waits for
-- at most lock_timeout, so that producers behind it are not blocked for longer, and is repeated later.
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.setting(name text) RETURNS interval
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_setting';
COMMENT ON FUNCTION _outbox.setting(text) IS 'internal: value of an interval setting; NULL if it is unlimited';

CREATE OR REPLACE FUNCTION _outbox.partition_readers(partition regclass, OUT consumer text, OUT reason text)
RETURNS SETOF record LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_partition_readers';
COMMENT ON FUNCTION _outbox.partition_readers(regclass)
IS 'internal: consumers that still need a partition, with the reason';

CREATE OR REPLACE FUNCTION _outbox.skip_unwanted_events(consumer text) RETURNS boolean
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_skip_unwanted_events';
COMMENT ON FUNCTION _outbox.skip_unwanted_events(text)
IS 'internal: advances a cursor past events that its consumer does not want; returns true if it moved';

CREATE OR REPLACE FUNCTION _outbox.due_partitions(
    OUT partition regclass, OUT lower_bound timestamptz, OUT upper_bound timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.partition, p.lower_bound, p.upper_bound FROM _outbox.partitions() p
     WHERE NOT p.is_default AND p.upper_bound <= clock_timestamp() - _outbox.setting('outbox.hot_retention')
     ORDER BY p.upper_bound
$$;
COMMENT ON FUNCTION _outbox.due_partitions()
IS 'internal: partitions of the log that are due to be archived, oldest first';

CREATE OR REPLACE FUNCTION _outbox.expired_partitions(
    OUT partition regclass, OUT upper_bound timestamptz, OUT restored boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass, a.upper_bound, a.restored_at IS NOT NULL
      FROM _outbox.archived_partitions a
      JOIN pg_class c ON c.relname = a.partition
       AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '@extschema@.outbox_messages'::regclass)
      JOIN pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = '@extschema@.outbox_messages_archive'::regclass
     WHERE CASE WHEN a.restored_at IS NULL
                THEN a.upper_bound <= clock_timestamp() - _outbox.setting('outbox.archive_retention')
                ELSE a.restored_at <= clock_timestamp() - _outbox.setting('outbox.hot_retention') END
     ORDER BY a.upper_bound
$$;
COMMENT ON FUNCTION _outbox.expired_partitions()
IS 'internal: partitions of the archive that are past their retention, oldest first';

-- Consumers that keep partitions from being archived or dropped. Cheap enough for frequent calls: one probe
-- of the partition's index finds a consumer that is far behind.
CREATE OR REPLACE FUNCTION _outbox.held_partitions(
    OUT partition regclass, OUT consumer text, OUT reason text, OUT since timestamptz, OUT bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH due AS (
        SELECT p.partition, p.upper_bound + _outbox.setting('outbox.hot_retention') AS since
          FROM _outbox.due_partitions() p
         UNION ALL
        SELECT e.partition, e.upper_bound + _outbox.setting('outbox.archive_retention')
          FROM _outbox.expired_partitions() e)
    SELECT d.partition, h.consumer, h.reason, d.since, pg_total_relation_size(d.partition)
      FROM due d CROSS JOIN LATERAL _outbox.partition_readers(d.partition) h
     WHERE _outbox.shows_tenant(NULL)
     ORDER BY d.since, h.consumer
$$;
COMMENT ON FUNCTION _outbox.held_partitions() IS 'internal: rows of outbox_held_partitions()';

CREATE OR REPLACE FUNCTION outbox_held_partitions(
    OUT partition regclass, OUT consumer text, OUT reason text, OUT since timestamptz, OUT bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.held_partitions()
$$;
COMMENT ON FUNCTION outbox_held_partitions()
IS 'partitions past their retention that a consumer still needs, with the reason and their size';

-- The table lock conflicts with itself, so one session at a time runs maintenance. READ COMMITTED is required
-- because steps decide by the current state, not by the state at the start of the transaction.
CREATE OR REPLACE FUNCTION _outbox.begin_maintenance() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE active_sql_transaction USING
            MESSAGE = format('maintenance cannot run in a transaction with isolation level %s',
                             upper(current_setting('transaction_isolation'))),
            HINT = 'Run it in a READ COMMITTED transaction.';
    END IF;
    LOCK TABLE _outbox.maintenance_state IN SHARE UPDATE EXCLUSIVE MODE;
END $$;
COMMENT ON FUNCTION _outbox.begin_maintenance()
IS 'internal: locks out other sessions from maintenance until the end of the transaction';

-- The caller catches the error: the rollback of its subtransaction releases the locks.
CREATE OR REPLACE FUNCTION _outbox.check_no_readers(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holders CONSTANT text := (SELECT string_agg(format('%s (%s)', h.consumer, h.reason), ', ' ORDER BY h.consumer)
                                FROM _outbox.partition_readers(partition) h);
BEGIN
    IF holders IS NOT NULL THEN
        RAISE object_in_use USING MESSAGE = 'held back by ' || holders;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_no_readers(regclass)
IS 'internal: raises an error that names the consumers that still need a partition';

CREATE OR REPLACE FUNCTION _outbox.archive_partition(partition regclass) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET lock_timeout = '50ms' AS $$
DECLARE
    place    record;
    spare    regclass;
    first_id bigint;
    last_id  bigint;
BEGIN
    -- Checked before the locks, which block producers, and again under them, because the first result may be outdated.
    PERFORM _outbox.check_no_readers(partition);
    spare := (SELECT p.partition FROM _outbox.partitions() p WHERE p.is_default);
    LOCK TABLE ONLY @extschema@.outbox_messages IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    IF spare IS NOT NULL THEN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', spare);
    END IF;
    LOCK TABLE ONLY @extschema@.outbox_messages_archive IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    PERFORM _outbox.check_no_readers(partition);

    SELECT p.lower_bound, p.upper_bound INTO STRICT place FROM _outbox.partitions() p
     WHERE p.partition = archive_partition.partition AND NOT p.is_default;
    EXECUTE format('SELECT min(id), max(id) FROM %s', partition) INTO first_id, last_id;
    IF first_id IS NULL THEN
        EXECUTE format('DROP TABLE %s', partition);
        RETURN 'dropped, because it is empty';
    END IF;
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', '@extschema@.outbox_messages'::regclass, partition);
    PERFORM _outbox.match_columns(partition, '@extschema@.outbox_messages_archive');
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                   '@extschema@.outbox_messages_archive'::regclass, partition, place.lower_bound, place.upper_bound);
    INSERT INTO _outbox.archived_partitions (partition, lower_bound, upper_bound, first_id, last_id)
    SELECT c.relname, place.lower_bound, place.upper_bound, first_id, last_id FROM pg_class c WHERE c.oid = partition;
    RETURN 'archived';
END $$;
COMMENT ON FUNCTION _outbox.archive_partition(regclass)
IS 'internal: moves a partition from the log to the archive, or drops it if it is empty';

CREATE OR REPLACE FUNCTION _outbox.drop_partition(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM _outbox.check_no_readers(partition);
    LOCK TABLE ONLY @extschema@.outbox_messages_archive IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    PERFORM _outbox.check_no_readers(partition);
    DELETE FROM _outbox.archived_partitions a USING pg_class c
     WHERE c.oid = drop_partition.partition AND a.partition = c.relname;
    EXECUTE format('DROP TABLE %s', partition);
END $$;
COMMENT ON FUNCTION _outbox.drop_partition(regclass) IS 'internal: drops a partition of the archive';

CREATE OR REPLACE FUNCTION _outbox.is_stored(partition regclass) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT max(f.stored_at) IS NOT NULL
      FROM _outbox.cold_files f
      JOIN _outbox.archived_partitions a ON a.partition = f.partition AND f.exported_at >= a.archived_at
      JOIN pg_class c ON c.relname = a.partition
     WHERE c.oid = is_stored.partition
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION _outbox.is_stored(regclass)
IS 'internal: returns true if a partition is in cold storage, NULL if it has not been exported';

