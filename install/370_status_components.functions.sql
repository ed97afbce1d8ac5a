----------------------------------------------------------------------------------------------------
-- Status
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.is_preloaded() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_is_preloaded';
COMMENT ON FUNCTION _outbox.is_preloaded() IS 'internal: returns true if the library was loaded at server start';

CREATE OR REPLACE FUNCTION _outbox.relay_status(
    OUT launcher boolean, OUT worker integer, OUT absence text, OUT lacks_maintenance boolean)
RETURNS record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_relay_status';
COMMENT ON FUNCTION _outbox.relay_status()
IS 'internal: state of the launcher, and of the relay and the maintenance worker of this database';

CREATE OR REPLACE FUNCTION _outbox.sink_status(OUT component text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('sink %s', c.name),
           NOT c.paused AND coalesce(t.troubles, 0) = 0,
           CASE WHEN c.paused THEN 'paused' || coalesce(': ' || c.pause_reason, '')
                WHEN t.troubles > 0 THEN
                    format('in trouble, %s failures in a row, next attempt %s: %s', t.troubles,
                           coalesce('at ' || t.resume_at, 'now'), t.last_error)
                WHEN t.consumer_id IS NULL THEN 'nothing sent yet'
                ELSE format('%s delivered, %s rejected, %s claimed', t.delivered, t.rejected, t.claimed) END,
           CASE WHEN c.paused AND s.home <> _outbox.database_identity()
                    THEN 'To send from this database, too, call outbox_resume().'
                WHEN c.paused AND c.pause_reason IS NOT NULL THEN 'Fix the problem, then call outbox_resume().'
                WHEN c.paused THEN 'To end the pause, call outbox_resume().'
                WHEN t.troubles > 0 THEN 'Its events are kept. CALL outbox_test_sink() shows the response.' END
      FROM _outbox.consumers c
      JOIN _outbox.sinks s USING (consumer_id)
      LEFT JOIN _outbox.sink_states() t USING (consumer_id)
     ORDER BY c.name
$$;
COMMENT ON FUNCTION _outbox.sink_status() IS 'internal: rows of outbox_status() about sinks';

-- A DELETE here cascades to the referring table, and runs triggers on it with the privileges of the owner of the log.
CREATE OR REPLACE FUNCTION _outbox.foreign_keys(OUT referring regclass, OUT owner name, OUT referred regclass)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE ours (oid) AS (
        SELECT d.objid
          FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
         WHERE e.extname = 'outbox' AND d.classid = 'pg_class'::regclass AND d.deptype = 'e'
         UNION
        SELECT c.oid FROM pg_class c JOIN pg_extension e ON e.extnamespace = c.relnamespace
         WHERE e.extname = 'pg_partman' AND c.relname IN ('part_config', 'part_config_sub')
         UNION
        SELECT i.inhrelid FROM pg_inherits i JOIN ours o ON i.inhparent = o.oid)
    SELECT r.oid::regclass, w.rolname, o.oid::regclass
      FROM pg_constraint k JOIN ours o ON o.oid = k.confrelid JOIN pg_class r ON r.oid = k.conrelid
      JOIN pg_roles w ON w.oid = r.relowner
     WHERE k.contype = 'f' AND NOT w.rolsuper AND w.oid <> (SELECT c.relowner FROM pg_class c WHERE c.oid = o.oid)
       AND w.oid <> (SELECT l.relowner FROM pg_class l WHERE l.oid = '@extschema@.outbox_messages'::regclass)
     ORDER BY r.oid::regclass::text, o.oid::regclass::text
$$;
COMMENT ON FUNCTION _outbox.foreign_keys()
IS 'internal: foreign keys to tables of the extension, from tables of untrusted roles';

-- The lock of the DELETE that follows comes first: it keeps other sessions from adding a foreign key after the check.
CREATE OR REPLACE FUNCTION _outbox.check_no_foreign_key(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key record;
BEGIN
    EXECUTE format('LOCK TABLE ONLY %s IN ROW EXCLUSIVE MODE', target);
    SELECT * INTO key FROM _outbox.foreign_keys() k WHERE k.referred = target LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('%s is referenced by a foreign key of another role', target),
            DETAIL = format('Triggers on %s of %I would run with the privileges of the owner of the log.',
                            key.referring, key.owner),
            HINT = 'Drop the foreign key.';
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_no_foreign_key(regclass)
IS 'internal: raises an error if deleting rows of a table could run triggers of another role';

-- Partitions missing after the last one are not reported: maintenance creates them.
CREATE OR REPLACE FUNCTION _outbox.partition_status(parent regclass, OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partitions  int;
    has_default boolean;
    last_bound  timestamptz;
    gap         record;
BEGIN
    SELECT count(*) FILTER (WHERE NOT is_default), coalesce(bool_or(is_default), false), max(upper_bound)
      INTO partitions, has_default, last_bound
      FROM _outbox.partitions(parent);
    SELECT * INTO gap FROM _outbox.missing_partitions(parent) g
     WHERE partitions > 0 AND (g.start < last_bound OR g.object IS NOT NULL)
     ORDER BY g.object IS NULL, g.start LIMIT 1;
    ok := partitions > 0 AND has_default AND last_bound > clock_timestamp() AND gap.start IS NULL;
    detail := CASE WHEN partitions = 0 THEN 'none yet; the first enqueue creates them'
                   ELSE format('%s, up to %s%s%s', partitions, last_bound,
                               CASE WHEN NOT has_default THEN ', and no default' END,
                               ', but none for ' || gap.start) END;
    hint := CASE WHEN gap.object IS NOT NULL
                     THEN format('%s %s. Drop or rename it, then run SELECT outbox_maintain().', gap.object, gap.detail)
                 WHEN last_bound > clock_timestamp() AND gap.start IS NOT NULL THEN 'Run SELECT outbox_maintain().'
                 WHEN NOT ok THEN 'Run SELECT outbox_setup().' END;
END $$;
COMMENT ON FUNCTION _outbox.partition_status(regclass)
IS 'internal: row of outbox_status() about the partitions of the log or of the audit log';

CREATE OR REPLACE FUNCTION _outbox.status_partman(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    roles   CONSTANT text := _outbox.untrusted_partman_roles();
    guarded CONSTANT boolean := _outbox.is_retention_guarded();
    lost    text;
BEGIN
    SELECT string_agg(_outbox.display_name(l), ' and ' ORDER BY l) INTO lost
      FROM unnest(ARRAY['@extschema@.outbox_messages', '@extschema@.audit_log']::regclass[]) l
     WHERE EXISTS (SELECT FROM _outbox.partitions(l)) AND (_outbox.partition_width(l)).width IS NULL;
    ok := roles IS NULL AND guarded AND lost IS NULL;
    SELECT 'version ' || extversion || coalesce(', in a schema that is open to ' || roles, '')
           || CASE WHEN guarded THEN '' ELSE ', which could drop partitions of the log by their age' END
           || coalesce(', which has no configuration for ' || lost, '')
      INTO detail FROM pg_extension WHERE extname = 'pg_partman';
    hint := CASE WHEN roles IS NOT NULL
                     THEN 'No partitions are created while other roles could replace functions of pg_partman.'
                          ' Its schema and all objects in it must belong to a superuser, and be closed to others.'
                 WHEN NOT guarded THEN 'Run SELECT outbox_maintain().'
                 WHEN lost IS NOT NULL
                     THEN 'Insert its row into part_config, as in a backup or another database with the extension.' END;
END $$;
COMMENT ON FUNCTION _outbox.status_partman() IS 'internal: row of outbox_status() about pg_partman';

CREATE OR REPLACE FUNCTION _outbox.status_foreign_keys(OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT false, format('%s of %I refers to %s', k.referring, k.owner, k.referred),
           'Drop it, or make the owner of the log the owner of the referring table: triggers on that table run with the'
           ' privileges of the role that deletes rows of the referenced table.'
      FROM _outbox.foreign_keys() k
$$;
COMMENT ON FUNCTION _outbox.status_foreign_keys() IS 'internal: rows of outbox_status() about foreign keys';

CREATE OR REPLACE FUNCTION _outbox.status_preload(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.ok, CASE WHEN p.ok THEN 'the library was loaded at server start'
                      ELSE 'the library is not in shared_preload_libraries' END,
           CASE WHEN NOT p.ok THEN 'Enqueue works without it. For background workers, add outbox to'
                                   ' shared_preload_libraries and restart the server.' END
      FROM _outbox.is_preloaded() p (ok)
$$;
COMMENT ON FUNCTION _outbox.status_preload() IS 'internal: row of outbox_status() about shared_preload_libraries';

CREATE OR REPLACE FUNCTION _outbox.status_relay(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.worker IS NOT NULL,
           CASE WHEN r.worker IS NOT NULL THEN 'process ' || r.worker
                WHEN NOT r.launcher THEN 'the launcher is not running'
                ELSE 'none serves this database' || coalesce(': ' || r.absence, '') END,
           CASE WHEN r.worker IS NOT NULL THEN NULL
                WHEN NOT r.launcher THEN 'It requires outbox in shared_preload_libraries, and starts after recovery.'
                ELSE 'See outbox.relay, outbox.databases and max_worker_processes, and the server log.' END
      FROM _outbox.relay_status() r
$$;
COMMENT ON FUNCTION _outbox.status_relay() IS 'internal: row of outbox_status() about the relay';

CREATE OR REPLACE FUNCTION _outbox.status_default_partition(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT has_rows IS NOT TRUE,
           CASE WHEN has_rows IS NULL THEN 'none' WHEN has_rows THEN 'holds events' ELSE 'empty' END,
           CASE WHEN has_rows THEN 'Events were enqueued while no partition existed for their time. Consumers read'
                                   ' them. Run SELECT outbox_maintain() to move them to partitions of their own.' END
      FROM _outbox.default_partition_has_rows() has_rows
$$;
COMMENT ON FUNCTION _outbox.status_default_partition()
IS 'internal: row of outbox_status() about the default partition';

CREATE OR REPLACE FUNCTION _outbox.status_maintenance(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    since        CONSTANT timestamptz := (SELECT min(s.since) FROM _outbox.maintenance_state s);
    lacks_worker CONSTANT boolean := (SELECT r.lacks_maintenance FROM _outbox.relay_status() r);
BEGIN
    ok := (since IS NOT NULL OR NOT EXISTS (SELECT FROM _outbox.partitions() p WHERE NOT p.is_default))
          AND NOT lacks_worker;
    detail := CASE WHEN lacks_worker THEN 'no worker slot is free'
                   WHEN NOT ok THEN 'not started, because this database was restored'
                   ELSE coalesce('since ' || since, 'nothing to do yet') END;
    hint := CASE WHEN lacks_worker
                     THEN 'Raise max_worker_processes. Until then, run SELECT outbox_maintain() yourself.'
                 WHEN NOT ok THEN 'Once the restore is complete, run SELECT outbox_maintain().' END;
END $$;
COMMENT ON FUNCTION _outbox.status_maintenance() IS 'internal: row of outbox_status() about maintenance';

CREATE OR REPLACE FUNCTION _outbox.status_archive(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held  record;
    stuck record;
BEGIN
    SELECT count(DISTINCT h.partition) AS count, min(h.since) AS since,
           pg_size_pretty(sum(h.bytes) FILTER (WHERE h.first)) AS size,
           string_agg(DISTINCT format('%s (%s)', h.consumer, h.reason), ', ') AS holders
      INTO held
      FROM (SELECT *, row_number() OVER (PARTITION BY x.partition) = 1 AS first FROM _outbox.held_partitions() x) h;
    ok := held.count = 0;
    IF NOT ok THEN
        detail := format('%s partitions of %s should have been archived or dropped, the first at %s; held back by %s',
                         held.count, held.size, held.since, held.holders);
        hint := 'Let those consumers catch up, or drop them: partitions stay until their events are delivered.';
        RETURN;
    END IF;
    SELECT count(*) AS count, min(s.since) AS since, (array_agg(s.partition))[1] AS first
      INTO stuck FROM _outbox.stuck_partitions() s;
    IF stuck.count > 0 THEN
        ok := false;
        detail := format('%s partitions should have been archived or dropped, the first, %s, at %s',
                         stuck.count, stuck.first, stuck.since);
        hint := 'For the reason, run SELECT * FROM outbox_maintain() or see the server log.';
        RETURN;
    END IF;
    SELECT format('%s partitions', count(*)) INTO detail FROM _outbox.archived_partitions;
END $$;
COMMENT ON FUNCTION _outbox.status_archive()
IS 'internal: row of outbox_status() about archived and overdue partitions';

CREATE OR REPLACE FUNCTION _outbox.status_cold_storage(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unstored   bigint;
    since      timestamptz;
    unexported bigint := 0;
BEGIN
    SELECT count(*), min(exported_at) INTO unstored, since FROM _outbox.cold_files WHERE stored_at IS NULL;
    IF unstored = 0 AND _outbox.has_cold_storage() THEN
        SELECT count(*) INTO unexported FROM _outbox.expired_partitions() e
         WHERE NOT e.restored AND _outbox.is_stored(e.partition) IS NULL
           AND NOT EXISTS (SELECT FROM _outbox.partition_readers(e.partition))
           AND e.upper_bound < clock_timestamp() - _outbox.setting('outbox.archive_retention')
                               - 2 * _outbox.setting('outbox.maintenance_interval');
    END IF;
    ok := unstored = 0 AND unexported = 0;
    SELECT CASE WHEN NOT _outbox.has_cold_storage() THEN 'none'
                WHEN unexported > 0 THEN format('%s partitions should have been exported', unexported)
                WHEN ok THEN format('%s files', count(*))
                ELSE format('%s files wait for outbox.archive_command, the oldest since %s', unstored, since) END
      INTO detail FROM _outbox.cold_files;
    hint := CASE WHEN unexported > 0 THEN 'For the reason, run SELECT * FROM outbox_maintain() or see the server log.'
                 WHEN NOT ok THEN 'For the error of the command, see the server log.' END;
END $$;
COMMENT ON FUNCTION _outbox.status_cold_storage() IS 'internal: row of outbox_status() about cold storage';

CREATE OR REPLACE FUNCTION _outbox.status_scheduled(OUT ok boolean, OUT detail text, OUT hint text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    overdue bigint;
    since   timestamptz;
    refused CONSTANT bigint := (SELECT count(*) FROM _outbox.scheduled WHERE try_again_at IS NOT NULL);
BEGIN
    SELECT count(*), min(available_at) INTO overdue, since FROM _outbox.scheduled
     WHERE available_at <= clock_timestamp() AND try_again_at IS NULL;
    ok := overdue = 0 AND refused = 0;
    detail := CASE WHEN ok THEN 'nothing overdue'
                   ELSE concat_ws('; ',
                                  CASE WHEN overdue > 0
                                       THEN format('%s overdue, the oldest since %s', overdue, since) END,
                                  CASE WHEN refused > 0 THEN format('the log refused %s', refused) END) END;
    hint := CASE WHEN refused > 0
                     THEN 'For the reason, see last_error in outbox_scheduled. They are retried with increasing delays;'
                          ' outbox_release_due() retries at once, outbox_cancel() cancels events.'
                 WHEN NOT ok THEN 'Run SELECT outbox_release_due().' END;
END $$;
COMMENT ON FUNCTION _outbox.status_scheduled() IS 'internal: row of outbox_status() about scheduled events';

