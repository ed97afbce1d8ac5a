-- PostgreSQL copies row triggers to partitions, but not statement triggers such as those for TRUNCATE.
CREATE OR REPLACE FUNCTION _outbox.audit_guard_partitions() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN SELECT p.partition FROM _outbox.partitions('@extschema@.audit_log') p
                      WHERE NOT EXISTS (SELECT FROM pg_trigger t
                                         WHERE t.tgrelid = p.partition AND t.tgname = 'audit_refuse_truncate') LOOP
        EXECUTE format('CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON %s'
                       ' FOR EACH STATEMENT EXECUTE FUNCTION %s',
                       partition, '_outbox.audit_forbid_change()'::regprocedure);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER audit_refuse_truncate', partition);
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.audit_guard_partitions()
IS 'internal: creates the trigger that rejects TRUNCATE on partitions of the audit log';

CREATE OR REPLACE FUNCTION _outbox.step_audit_partitions(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    -- Without partitions there is nothing to maintain: the first audit_record() creates them.
    IF EXISTS (SELECT FROM _outbox.partitions('@extschema@.audit_log')) THEN
        RETURN QUERY SELECT * FROM _outbox.maintain_partitions('@extschema@.audit_log');
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.step_audit_partitions()
IS 'internal: creates partitions of the audit log ahead of time and empties its default partition';

CREATE OR REPLACE FUNCTION _outbox.step_audit_chain(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_rows CONSTANT integer := 10000;
    chained  integer;
BEGIN
    IF EXISTS (SELECT FROM _outbox.partitions('@extschema@.audit_log')) THEN
        chained := _outbox.audit_chain_rows(max_rows);
        object := 'audit_chain';
        detail := format('%s rows chained', chained);
        changed := true;
        has_more := chained >= max_rows;
        IF chained > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.step_audit_chain() IS 'internal: adds some of the rows of the audit log to the chain';

CREATE OR REPLACE FUNCTION _outbox.audit_cutoff(entity_type text) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT clock_timestamp() - coalesce((SELECT r.retention FROM _outbox.audit_retention r WHERE r.entity_type = $1),
                                        _outbox.setting('outbox.audit_retention'))
$$;
COMMENT ON FUNCTION _outbox.audit_cutoff(text)
IS 'internal: time before which rows of an entity type are past their retention; NULL if it is unlimited';

-- A loose index scan: entity types are few, so one index probe for each is cheaper than reading the partition.
CREATE OR REPLACE FUNCTION _outbox.audit_types(partition regclass) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    type text;
BEGIN
    LOOP
        EXECUTE format('SELECT entity_type FROM %s WHERE $1 IS NULL OR entity_type > $1'
                       ' ORDER BY entity_type LIMIT 1', partition)
           INTO type USING type;
        EXIT WHEN type IS NULL;
        RETURN NEXT type;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.audit_types(regclass) IS 'internal: entity types in a partition of the audit log';

-- The result decides whether a partition is dropped (is_all), loses the rows of some types, or stays as it is.
CREATE OR REPLACE FUNCTION _outbox.audit_due(
    partition regclass, upper_bound timestamptz, OUT types text[], OUT is_all boolean)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(t.type) FILTER (WHERE t.is_over), coalesce(bool_and(t.is_over),
           -- An empty partition is dropped once its end is past the longest retention.
           (SELECT bool_and(coalesce(upper_bound <= clock_timestamp() - r.retention, false))
              FROM (SELECT a.retention FROM _outbox.audit_retention a
                     UNION ALL SELECT _outbox.setting('outbox.audit_retention')) r))
      FROM (SELECT type, coalesce(upper_bound <= _outbox.audit_cutoff(type), false) AS is_over
              FROM _outbox.audit_types(partition) AS type) t
$$;
COMMENT ON FUNCTION _outbox.audit_due(regclass, timestamptz)
IS 'internal: entity types in a partition that are past their retention; is_all: no others are in it';

-- Dropping a partition with missing rows would hide tampering from audit_verify().
CREATE OR REPLACE FUNCTION _outbox.audit_check_complete(partition regclass, period date) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    missing bigint;
BEGIN
    EXECUTE format('SELECT c.id FROM %s c WHERE c.period = $1 AND c.id IS NOT NULL'
                   ' AND NOT EXISTS (SELECT FROM %s a WHERE a.id = c.id)'
                   ' AND NOT EXISTS (SELECT FROM %s r WHERE r.period = $1 AND r.position > c.position'
                   ' AND r.removed IS NOT NULL AND c.id <@ r.removed)'
                   ' ORDER BY c.position LIMIT 1',
                   '_outbox.audit_chain'::regclass, partition, '_outbox.audit_chain'::regclass)
       INTO missing USING period;
    IF missing IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('stays, because row %s is missing from it: see audit_verify()', missing);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.audit_check_complete(regclass, date)
IS 'internal: raises an error if a row is missing that retention has not removed';

CREATE OR REPLACE FUNCTION _outbox.audit_drop_partition(
    partition regclass, period date, upper_bound timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    spare  CONSTANT regclass := (SELECT p.partition FROM _outbox.partitions('@extschema@.audit_log') p
                                  WHERE p.is_default);
    newest _outbox.audit_chain;
BEGIN
    -- The check may take long, so it precedes the locks, which block writers.
    PERFORM _outbox.audit_check_complete(partition, period);
    LOCK TABLE ONLY @extschema@.audit_log IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    IF spare IS NOT NULL THEN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', spare);
    END IF;
    IF (_outbox.audit_due(partition, upper_bound)).is_all IS NOT TRUE OR NOT _outbox.audit_is_settled(partition) THEN
        RAISE object_in_use USING MESSAGE = 'stays, because there are new rows in it';
    END IF;
    EXECUTE format('DROP TABLE %s', partition);
    newest := _outbox.audit_newest(period);
    IF newest.position > 0 THEN
        PERFORM _outbox.audit_append(newest, NULL, '{(,)}', _outbox.audit_content('{(,)}'::int8multirange));
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.audit_drop_partition(regclass, date, timestamptz)
IS 'internal: drops a partition of the audit log, and records that in the chain';

CREATE OR REPLACE FUNCTION _outbox.audit_is_settled(partition regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    newest bigint;
BEGIN
    EXECUTE format('SELECT max(id) FROM %s', partition) INTO newest;
    RETURN newest IS NULL OR newest <= (SELECT p.settled_id FROM _outbox.audit_progress p);
END $$;
COMMENT ON FUNCTION _outbox.audit_is_settled(regclass)
IS 'internal: returns true if all rows in a partition of the audit log are in the chain';

CREATE OR REPLACE FUNCTION _outbox.audit_remove_rows(
    partition regclass, period date, types text[], max_rows integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids   int8multirange;
    count integer;
BEGIN
    PERFORM _outbox.check_no_foreign_key(partition);
    PERFORM _outbox.audit_begin_removal();
    EXECUTE format('WITH gone AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
                   'SELECT ctid FROM %1$s WHERE entity_type = ANY ($1) LIMIT $2)) RETURNING id)'
                   ' SELECT range_agg(int8range(id, id, ''[]'')), count(*) FROM gone', partition)
       INTO ids, count USING types, max_rows;
    PERFORM _outbox.audit_end_removal();
    IF count > 0 THEN
        PERFORM _outbox.audit_append(_outbox.audit_newest(period), NULL, ids, _outbox.audit_content(ids));
    END IF;
    RETURN count;
END $$;
COMMENT ON FUNCTION _outbox.audit_remove_rows(regclass, date, text[], integer)
IS 'internal: deletes up to max_rows rows of some entity types, and records that in the chain; returns their number';

-- The last entry of a dropped month stays: its hash can still be compared with a known one.
CREATE OR REPLACE FUNCTION _outbox.audit_prune_chain(max_rows integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    removed integer;
BEGIN
    PERFORM _outbox.audit_begin_removal();
    DELETE FROM _outbox.audit_chain WHERE ctid = ANY (ARRAY(
        SELECT c.ctid FROM _outbox.audit_chain e
          JOIN _outbox.audit_chain c ON c.period = e.period AND c.position < e.position
         WHERE e.removed IS NOT NULL AND e.removed = '{(,)}' LIMIT max_rows));
    GET DIAGNOSTICS removed = ROW_COUNT;
    PERFORM _outbox.audit_end_removal();
    RETURN removed;
END $$;
COMMENT ON FUNCTION _outbox.audit_prune_chain(integer)
IS 'internal: deletes up to max_rows entries of the chain of dropped partitions; returns their number';

CREATE OR REPLACE FUNCTION _outbox.step_audit_retention(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_rows CONSTANT integer := 10000;
    removed  integer;
    old      record;
    due      record;
BEGIN
    removed := _outbox.audit_prune_chain(max_rows);
    IF removed > 0 THEN
        object := 'audit_chain';
        detail := format('%s entries removed', removed);
        changed := true;
        has_more := removed >= max_rows;
        RETURN NEXT;
    END IF;
    FOR old IN SELECT p.partition, p.upper_bound, _outbox.audit_period(p.lower_bound) AS period
                 FROM _outbox.partitions('@extschema@.audit_log') p
                WHERE NOT p.is_default AND p.upper_bound <= clock_timestamp() ORDER BY p.upper_bound LOOP
        SELECT * INTO due FROM _outbox.audit_due(old.partition, old.upper_bound);
        CONTINUE WHEN due.types IS NULL AND due.is_all IS NOT TRUE;
        object := old.partition;
        changed := false;
        has_more := false;
        BEGIN
            IF NOT _outbox.audit_is_settled(old.partition) THEN
                detail := 'stays until all of it is in the chain';
            ELSIF due.is_all THEN
                PERFORM _outbox.audit_drop_partition(old.partition, old.period, old.upper_bound);
                detail := 'dropped';
                changed := true;
                has_more := true; -- the next round prunes its chain
            ELSE
                removed := _outbox.audit_remove_rows(old.partition, old.period, due.types, max_rows);
                detail := format('%s rows removed', removed);
                changed := true;
                has_more := removed >= max_rows;
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                detail := 'stays, because the audit log is in use';
                has_more := true;
            WHEN others THEN
                detail := SQLERRM; -- other partitions may succeed
        END;
        RETURN NEXT;
        -- Locks are held until the end of the transaction, so the rest is left to the next one.
        EXIT WHEN has_more;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_audit_retention()
IS 'internal: deletes rows of the audit log past their retention, and drops partitions without others';

