----------------------------------------------------------------------------------------------------
-- Status
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_is_preloaded() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_is_preloaded';
COMMENT ON FUNCTION outbox_is_preloaded()
IS 'internal: was the library loaded at server start?';

CREATE FUNCTION outbox_relay_status(OUT launcher boolean, OUT worker integer, OUT vacancy text, OUT lacks_maintenance boolean)
RETURNS record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_relay_status';
COMMENT ON FUNCTION outbox_relay_status()
IS 'internal: is there a launcher, which process relays this database, and why none does; is there no worker slot for maintenance?';

CREATE FUNCTION outbox_sink_status(OUT component text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('sink %s', c.name),
           NOT c.paused AND coalesce(t.troubles, 0) = 0,
           CASE WHEN c.paused THEN 'paused' || coalesce(': ' || c.pause_reason, '')
                WHEN t.troubles > 0 THEN
                    format('in trouble, %s times in a row, tried again %s: %s', t.troubles,
                           coalesce('at ' || t.resume_at, 'now'), t.last_error)
                WHEN t.consumer_id IS NULL THEN 'nothing sent yet'
                ELSE format('%s delivered, %s rejected, %s in hand', t.delivered, t.rejected, t.in_hand) END,
           CASE WHEN c.paused AND s.home <> @extschema@.outbox_identity()
                    THEN 'outbox_resume() lets it send from here, too.'
                WHEN c.paused AND c.pause_reason IS NOT NULL THEN 'Mend it, then call outbox_resume().'
                WHEN c.paused THEN 'outbox_resume() ends the pause.'
                WHEN t.troubles > 0 THEN 'Its events wait. CALL outbox_test_sink() shows what the receiver says.' END
      FROM @extschema@.outbox_consumers c
      JOIN @extschema@.outbox_sinks s USING (consumer_id)
      LEFT JOIN @extschema@.outbox_sink_states() t USING (consumer_id)
     ORDER BY c.name
$$;
COMMENT ON FUNCTION outbox_sink_status()
IS 'internal: the rows of outbox_status() about sinks';

-- outbox_guard_keys() has refused them. But REASSIGN OWNED, or a superuser who is none any more, leaves no command to refuse.
CREATE FUNCTION outbox_foreign_keys(OUT referring regclass, OUT owner name, OUT referred regclass)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE ours (oid) AS (
        SELECT d.objid FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
         WHERE e.extname = 'outbox' AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
         UNION
        SELECT c.oid FROM pg_class c JOIN pg_extension e ON e.extnamespace = c.relnamespace
         WHERE e.extname = 'pg_partman' AND c.relname IN ('part_config', 'part_config_sub')
         UNION
        SELECT i.inhrelid FROM pg_inherits i JOIN ours o ON i.inhparent = o.oid)
    SELECT r.oid::regclass, w.rolname, o.oid::regclass
      FROM pg_constraint k JOIN ours o ON o.oid = k.confrelid JOIN pg_class r ON r.oid = k.conrelid JOIN pg_roles w ON w.oid = r.relowner
     WHERE k.contype = 'f' AND NOT w.rolsuper AND w.oid <> (SELECT c.relowner FROM pg_class c WHERE c.oid = o.oid)
       AND w.oid <> (SELECT l.relowner FROM pg_class l WHERE l.oid = '@extschema@.outbox_messages'::regclass)
     ORDER BY r.oid::regclass::text, o.oid::regclass::text
$$;
COMMENT ON FUNCTION outbox_foreign_keys()
IS 'internal: foreign keys to tables of the extension, from tables of roles that are not trusted';

-- A gap at the end is no gap: maintenance has not come by yet.
CREATE FUNCTION outbox_partition_status(parent regclass, OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partitions  int;
    has_default boolean;
    last_bound  timestamptz;
    gap         record;
BEGIN
    SELECT count(*) FILTER (WHERE NOT is_default), coalesce(bool_or(is_default), false), max(upper_bound)
      INTO partitions, has_default, last_bound
      FROM @extschema@.outbox_partitions(parent);
    SELECT * INTO gap FROM @extschema@.outbox_gaps(parent) g WHERE partitions > 0 AND (g.start < last_bound OR g.object IS NOT NULL)
     ORDER BY g.object IS NULL, g.start LIMIT 1;
    ok := partitions > 0 AND has_default AND last_bound > clock_timestamp() AND gap.start IS NULL;
    detail := CASE WHEN partitions = 0 THEN 'none yet; the first enqueue makes them'
                   ELSE format('%s, up to %s%s%s', partitions, last_bound, CASE WHEN NOT has_default THEN ', and no default' END,
                               ', but none for ' || gap.start) END;
    hint := CASE WHEN gap.object IS NOT NULL THEN format('%s %s. Drop or rename it, then run SELECT outbox_maintain().', gap.object, gap.detail)
                 WHEN last_bound > clock_timestamp() AND gap.start IS NOT NULL THEN 'Run SELECT outbox_maintain().'
                 WHEN NOT ok THEN 'Run SELECT outbox_setup().' END;
END $$;
COMMENT ON FUNCTION outbox_partition_status(regclass)
IS 'internal: what outbox_status() says of the partitions of the log, or of the audit log';

CREATE FUNCTION outbox_status(OUT component text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relay       record;
    intruders   text;
    guarded     boolean;
    lost        text;
    held        record;
    stray       boolean;
    refused     bigint;
    overdue     bigint;
    unexported  boolean := false;
    stuck       regclass;
    since       timestamptz;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_status()');
    component := 'extension';
    ok := true;
    hint := NULL;
    SELECT 'version ' || extversion INTO detail FROM pg_extension WHERE extname = 'outbox';
    RETURN NEXT;

    component := 'pg_partman';
    intruders := @extschema@.outbox_partman_intruders();
    guarded := @extschema@.outbox_is_partman_guarded();
    SELECT string_agg(@extschema@.outbox_title(l), ' and ' ORDER BY l) INTO lost
      FROM unnest(ARRAY['@extschema@.outbox_messages', '@extschema@.audit_log']::regclass[]) l
     WHERE EXISTS (SELECT FROM @extschema@.outbox_partitions(l)) AND (@extschema@.outbox_partition_width(l)).width IS NULL;
    ok := intruders IS NULL AND guarded AND lost IS NULL;
    SELECT 'version ' || extversion || coalesce(', in a schema that is open to ' || intruders, '')
           || CASE WHEN guarded THEN '' ELSE ', which could drop partitions of the log by their age' END
           || coalesce(', which has no configuration for ' || lost, '')
      INTO detail FROM pg_extension WHERE extname = 'pg_partman';
    hint := CASE WHEN intruders IS NOT NULL
                     THEN 'No partitions are made while others could slip functions of their'
                          ' own under pg_partman''s. Its schema must be a superuser''s alone.'
                 WHEN NOT guarded THEN 'Run SELECT outbox_maintain().'
                 WHEN lost IS NOT NULL THEN 'Insert the row into part_config again, as a backup or another database with the extension has it.' END;
    RETURN NEXT;

    component := 'foreign keys';
    ok := false;
    hint := 'Drop it, or give the table that has it to the owner of the log: triggers on that table run with the rights of whoever writes to ours.';
    FOR detail IN SELECT format('%s of %I refers to %s', k.referring, k.owner, k.referred) FROM @extschema@.outbox_foreign_keys() k LOOP
        RETURN NEXT;
    END LOOP;

    component := 'preload';
    hint := NULL;
    ok := @extschema@.outbox_is_preloaded();
    IF ok THEN
        detail := 'the library was loaded at server start';
    ELSE
        detail := 'the library is not in shared_preload_libraries';
        hint := 'Enqueue works without. For background work add outbox to shared_preload_libraries'
                ' and restart the server.';
    END IF;
    RETURN NEXT;

    component := 'relay';
    SELECT * INTO relay FROM @extschema@.outbox_relay_status();
    ok := relay.worker IS NOT NULL;
    detail := CASE WHEN ok THEN 'process ' || relay.worker
                   WHEN NOT relay.launcher THEN 'no launcher runs'
                   ELSE 'none serves this database' || coalesce(': ' || relay.vacancy, '') END;
    hint := CASE WHEN ok THEN NULL
                 WHEN NOT relay.launcher THEN 'It comes with shared_preload_libraries, and waits for the end of recovery.'
                 ELSE 'See outbox.relay, outbox.databases and max_worker_processes, and the server log.' END;
    RETURN NEXT;

    component := 'partitions';
    SELECT p.ok, p.detail, p.hint INTO ok, detail, hint FROM @extschema@.outbox_partition_status('@extschema@.outbox_messages') p;
    RETURN NEXT;

    IF EXISTS (SELECT FROM @extschema@.outbox_partitions('@extschema@.audit_log')) THEN
        component := 'audit partitions';
        SELECT p.ok, p.detail, p.hint INTO ok, detail, hint FROM @extschema@.outbox_partition_status('@extschema@.audit_log') p;
        RETURN NEXT;
    END IF;

    component := 'default partition';
    stray := @extschema@.outbox_default_holds_events();
    ok := stray IS NOT TRUE;
    detail := CASE WHEN stray IS NULL THEN 'none' WHEN stray THEN 'holds events' ELSE 'empty' END;
    hint := CASE WHEN stray THEN 'Events came while there was no partition for their time. They'
                                 ' are safe and seen by consumers, but a partition for that time'
                                 ' cannot be made.' END;
    RETURN NEXT;

    component := 'maintenance';
    SELECT min(h.since) INTO since FROM @extschema@.outbox_home h;
    ok := (since IS NOT NULL OR NOT EXISTS (SELECT FROM @extschema@.outbox_partitions() p WHERE NOT p.is_default)) AND NOT relay.lacks_maintenance;
    detail := CASE WHEN relay.lacks_maintenance THEN 'no worker slot is free'
                   WHEN NOT ok THEN 'not begun, because this database was restored' ELSE coalesce('since ' || since, 'nothing to do yet') END;
    hint := CASE WHEN relay.lacks_maintenance THEN 'Raise max_worker_processes. Until then SELECT outbox_maintain() does what is due.'
                 WHEN NOT ok THEN 'Once the restore is complete, run SELECT outbox_maintain().' END;
    RETURN NEXT;

    component := 'archive';
    SELECT count(DISTINCT h.partition) AS count, min(h.since) AS since,
           pg_size_pretty(sum(h.bytes) FILTER (WHERE h.first)) AS size,
           string_agg(DISTINCT format('%s (%s)', h.consumer, h.reason), ', ') AS holders
      INTO held
      FROM (SELECT *, row_number() OVER (PARTITION BY x.partition) = 1 AS first FROM @extschema@.outbox_held_partitions() x) h;
    ok := held.count = 0;
    SELECT format('%s partitions', count(*)) INTO detail FROM @extschema@.outbox_archived_partitions;
    IF NOT ok THEN
        detail := format('%s partitions of %s should have been archived or dropped, the first at %s; held back by %s',
                         held.count, held.size, held.since, held.holders);
        hint := 'Let those consumers read on, or drop them: nothing goes before it was delivered.';
    ELSE
        hint := NULL;
        SELECT count(*), min(s.since), (array_agg(s.partition))[1] INTO overdue, since, stuck FROM @extschema@.outbox_stuck_partitions() s;
        IF overdue > 0 THEN
            ok := false;
            detail := format('%s partitions should have been archived or dropped, the first, %s, at %s', overdue, stuck, since);
            hint := 'outbox_maintain() and the server log say why not.';
        END IF;
    END IF;
    RETURN NEXT;

    component := 'cold storage';
    SELECT count(*), min(exported_at) INTO overdue, since FROM @extschema@.outbox_cold_files WHERE stored_at IS NULL;
    ok := overdue = 0;
    IF ok AND @extschema@.outbox_has_cold_storage() THEN
        SELECT count(*) INTO overdue FROM @extschema@.outbox_expired_partitions() e
         WHERE NOT e.restored AND @extschema@.outbox_is_stored(e.partition) IS NULL
           AND NOT EXISTS (SELECT FROM @extschema@.outbox_holders(e.partition))
           AND e.upper_bound < clock_timestamp() - @extschema@.outbox_setting('outbox.archive_retention')
                               - 2 * @extschema@.outbox_setting('outbox.maintenance_interval');
        unexported := overdue > 0;
        ok := NOT unexported;
    END IF;
    SELECT CASE WHEN NOT @extschema@.outbox_has_cold_storage() THEN 'none'
                WHEN unexported THEN format('%s partitions should have been exported', overdue)
                WHEN ok THEN format('%s files', count(*))
                ELSE format('%s files wait for outbox.archive_command, the oldest since %s', overdue, since) END
      INTO detail FROM @extschema@.outbox_cold_files;
    hint := CASE WHEN unexported THEN 'outbox_maintain() and the server log say why not. They stay.'
                 WHEN NOT ok THEN 'The server log says how the command failed. Their partitions stay.' END;
    RETURN NEXT;

    component := 'statistics';
    ok := NOT @extschema@.outbox_stats_overflowed();
    detail := CASE WHEN ok THEN 'complete' ELSE 'there are more consumers or event types than places' END;
    hint := CASE WHEN NOT ok THEN 'What has no place is counted under "other".' END;
    RETURN NEXT;

    component := 'scheduled';
    SELECT count(*), min(available_at) INTO overdue, since FROM @extschema@.outbox_scheduled
     WHERE available_at <= clock_timestamp() AND try_again_at IS NULL;
    SELECT count(*) INTO refused FROM @extschema@.outbox_scheduled WHERE try_again_at IS NOT NULL;
    ok := overdue = 0 AND refused = 0;
    detail := CASE WHEN ok THEN 'nothing overdue'
                   ELSE concat_ws('; ', CASE WHEN overdue > 0 THEN format('%s overdue, the oldest since %s', overdue, since) END,
                                        CASE WHEN refused > 0 THEN format('the log refused %s', refused) END) END;
    hint := CASE WHEN refused > 0 THEN 'last_error in outbox_scheduled says why. They are tried again, less and less often;'
                                       ' outbox_release_due() tries them at once, outbox_cancel() takes them back.'
                 WHEN NOT ok THEN 'Run SELECT outbox_release_due().' END;
    RETURN NEXT;

    RETURN QUERY SELECT * FROM @extschema@.outbox_sink_status();
END $$;
COMMENT ON FUNCTION outbox_status()
IS 'what runs, what does not, and a hint for each';

