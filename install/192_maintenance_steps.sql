CREATE FUNCTION outbox_step_partitions(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM @extschema@.outbox_keep_partitions('@extschema@.outbox_messages')
$$;
COMMENT ON FUNCTION outbox_step_partitions()
IS 'internal: makes partitions of the log ahead, and empties the default';

-- Locks stay until the end of the transaction, so one that has archived for some milliseconds goes no further.
CREATE FUNCTION outbox_step_archive(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    due    regclass;
    locked timestamptz;
    moved  boolean;
BEGIN
    -- Before the log is locked: this may take a while.
    SELECT coalesce(bool_or(@extschema@.outbox_catch_up(l.consumer)), false) INTO moved
      FROM (SELECT DISTINCT h.consumer FROM @extschema@.outbox_due_partitions() d
             CROSS JOIN LATERAL @extschema@.outbox_holders(d.partition) h) l;
    -- Likewise: columns that the log was given. They take locks on all of the archive.
    IF EXISTS (SELECT FROM @extschema@.outbox_due_partitions()) THEN
        BEGIN
            PERFORM @extschema@.outbox_add_columns(of => '@extschema@.outbox_messages', target => '@extschema@.outbox_messages_archive');
        EXCEPTION WHEN lock_not_available THEN
            object := '@extschema@.outbox_messages_archive'::regclass;
            detail := 'lacks a column that the log has, because it is in use';
            done := false;
            again := true;
            RETURN NEXT;
            RETURN;
        END;
    END IF;
    FOR due IN SELECT d.partition FROM @extschema@.outbox_due_partitions() d LOOP
        object := due;
        done := false;
        again := locked IS NOT NULL AND clock_timestamp() - locked > '20 ms';
        IF again THEN
            detail := 'waits for its turn';
            RETURN NEXT;
            RETURN;
        END IF;
        BEGIN
            detail := @extschema@.outbox_archive_partition(due);
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
COMMENT ON FUNCTION outbox_step_archive()
IS 'internal: archives partitions of the log that are due';

CREATE FUNCTION outbox_step_export(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    next regclass;
BEGIN
    IF NOT @extschema@.outbox_has_cold_storage() THEN
        RETURN;
    END IF;
    SELECT e.partition INTO next FROM @extschema@.outbox_expired_partitions() e
     WHERE NOT e.restored AND @extschema@.outbox_is_stored(e.partition) IS NULL
       AND NOT EXISTS (SELECT FROM @extschema@.outbox_holders(e.partition))
     LIMIT 1;
    IF FOUND THEN
        object := next;
        detail := 'exported to ' || @extschema@.outbox_export_partition(next);
        done := true;
        again := true;
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_step_export()
IS 'internal: exports a partition of the archive whose time is over';

CREATE FUNCTION outbox_step_drop(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- Each takes a handful of locks, which are kept to the end.
    most    CONSTANT integer := 20;
    dropped integer := 0;
    expired record;
BEGIN
    FOR expired IN SELECT e.partition, e.restored FROM @extschema@.outbox_expired_partitions() e LOOP
        object := expired.partition;
        done := false;
        again := dropped >= most;
        IF again THEN
            detail := 'waits for its turn';
            RETURN NEXT;
            RETURN;
        END IF;
        BEGIN
            IF @extschema@.outbox_has_cold_storage() AND NOT expired.restored
               AND @extschema@.outbox_is_stored(expired.partition) IS NOT TRUE THEN
                detail := 'stays until it is in cold storage';
            ELSE
                PERFORM @extschema@.outbox_drop_partition(expired.partition);
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
COMMENT ON FUNCTION outbox_step_drop()
IS 'internal: drops partitions of the archive whose time is over';

CREATE FUNCTION outbox_step_cold_files(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    done := true;
    again := false;
    detail := 'removed from cold storage';
    FOR object IN SELECT f.file FROM @extschema@.outbox_cold_files f
                   WHERE f.upper_bound <= clock_timestamp() - @extschema@.outbox_setting('outbox.cold_retention')
                     AND f.stored_at IS NOT NULL ORDER BY f.upper_bound LOOP
        PERFORM @extschema@.outbox_remove_cold_file(object);
        DELETE FROM @extschema@.outbox_cold_files f WHERE f.file = object;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_step_cold_files()
IS 'internal: removes files from cold storage whose time is over';

-- Each table in transactions of its own: what one has removed stays locked until its end. Some tenths of a second.
CREATE FUNCTION outbox_expire_rows(swept regclass, condition text, OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    removed integer;
BEGIN
    SELECT s.removed, s.again INTO removed, again FROM @extschema@.outbox_sweep(swept, condition, max_rows => 50000) s;
    object := (SELECT c.relname FROM pg_class c WHERE c.oid = swept);
    detail := CASE WHEN removed > 0 THEN format('%s removed', removed) END;
    done := true;
END $$;
COMMENT ON FUNCTION outbox_expire_rows(regclass, text)
IS 'internal: removes some of the rows whose time is over';

CREATE FUNCTION outbox_step_expire_idempotency_keys(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM @extschema@.outbox_expire_rows('@extschema@.idempotency_keys', 'expires_at <= clock_timestamp()')
$$;
COMMENT ON FUNCTION outbox_step_expire_idempotency_keys()
IS 'internal: removes some of the idempotency keys that have expired';

CREATE FUNCTION outbox_step_expire_dedup_keys(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM @extschema@.outbox_expire_rows('@extschema@.outbox_dedup_keys', 'expires_at <= clock_timestamp()')
$$;
COMMENT ON FUNCTION outbox_step_expire_dedup_keys()
IS 'internal: removes some of the dedup keys that have expired';

CREATE FUNCTION outbox_step_expire_inbox(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM @extschema@.outbox_expire_rows('@extschema@.outbox_inbox',
        'accepted_at <= clock_timestamp() - @extschema@.outbox_setting(''outbox.inbox_retention'')')
$$;
COMMENT ON FUNCTION outbox_step_expire_inbox()
IS 'internal: removes some of the entries of the inbox that are old';

CREATE FUNCTION outbox_step_prune(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_batches CONSTANT integer := 10000;
    removed     CONSTANT integer := @extschema@.outbox_prune_batches(max_batches);
    turns       integer;
BEGIN
    object := 'outbox_batches';
    detail := format('%s removed', removed);
    done := true;
    again := removed >= max_batches;
    IF removed > 0 THEN
        RETURN NEXT;
    END IF;

    DELETE FROM @extschema@.outbox_turns t
     USING (SELECT o.consumer_id, o.tenant_id, o.served FROM @extschema@.outbox_turns o
             WHERE EXISTS (SELECT FROM @extschema@.outbox_turns newer
                            WHERE newer.consumer_id = o.consumer_id AND newer.tenant_id = o.tenant_id AND newer.served > o.served)
             LIMIT max_batches FOR UPDATE OF o SKIP LOCKED) old
     WHERE t.consumer_id = old.consumer_id AND t.tenant_id = old.tenant_id AND t.served = old.served;
    GET DIAGNOSTICS turns = ROW_COUNT;
    object := 'outbox_turns';
    detail := format('%s removed', turns);
    again := turns >= max_batches;
    IF turns > 0 THEN
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_step_prune()
IS 'internal: removes some of the record of deliveries';

CREATE FUNCTION outbox_steps() RETURNS SETOF text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT unnest('{catch_up,sample,expire_idempotency_keys,expire_dedup_keys,expire_inbox,partitions,audit_partitions,audit_chain,prune,cold_files,export,audit_retention,drop,archive}'::text[])
$$;
COMMENT ON FUNCTION outbox_steps()
IS 'internal: the steps of maintenance in their order, those with strong locks last';

CREATE FUNCTION outbox_run_step(step text, OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    PERFORM @extschema@.outbox_begin_maintenance();
    RETURN QUERY EXECUTE format('SELECT * FROM %I.%I()', @extschema@.outbox_schema_of('outbox'), 'outbox_step_' || step);
END $$;
COMMENT ON FUNCTION outbox_run_step(text)
IS 'internal: one step of maintenance: what it did and could not do, with a detail if it is worth to be told, and whether there is more to do at once';

-- A step that fails changes nothing, and keeps no other from being taken.
CREATE FUNCTION outbox_maintain(OUT step text, OUT object text, OUT detail text, OUT done boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_maintain()');
    BEGIN
        PERFORM @extschema@.outbox_begin_maintenance();
    EXCEPTION WHEN lock_not_available THEN
        detail := 'another session is at it';
        done := false;
        RETURN NEXT;
        RETURN;
    END;
    INSERT INTO @extschema@.outbox_home SELECT WHERE NOT EXISTS (SELECT FROM @extschema@.outbox_home);
    -- Those first that may take long: locks that others take are kept to the end.
    FOR step IN SELECT s.step FROM @extschema@.outbox_steps() WITH ORDINALITY s (step, position)
                 ORDER BY s.step NOT IN ('cold_files', 'export'), s.position LOOP
        BEGIN
            FOR object, detail, done IN SELECT s.object, s.detail, s.done FROM @extschema@.outbox_run_step(step) s
                                         WHERE s.detail IS NOT NULL LOOP
                RETURN NEXT;
            END LOOP;
        EXCEPTION WHEN others THEN
            object := NULL;
            detail := SQLERRM;
            done := false;
            RETURN NEXT;
        END;
    END LOOP;
    step := 'export';
    done := false;
    detail := 'waits for outbox.archive_command, which the worker runs';
    FOR object IN SELECT f.file FROM @extschema@.outbox_cold_files f WHERE f.stored_at IS NULL LOOP
        PERFORM @extschema@.outbox_call_maintenance();
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_maintain()
IS 'makes partitions, archives, drops and prunes what is due, as the worker does; returns what it did and what it could not do';

CREATE FUNCTION outbox_call_maintenance() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_call_maintenance';
COMMENT ON FUNCTION outbox_call_maintenance()
IS 'internal: has a worker do maintenance as soon as this transaction has committed';

