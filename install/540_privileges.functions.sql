----------------------------------------------------------------------------------------------------
-- Privileges
----------------------------------------------------------------------------------------------------

-- The sets are disjoint, so that revoking one privilege leaves the others intact. The last five functions of
-- an admin are called by views with the privileges of the reader.
CREATE OR REPLACE FUNCTION _outbox.privilege_functions(privilege text) RETURNS SETOF regprocedure
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[] := CASE privilege
        WHEN 'producer' THEN '{outbox_enqueue, outbox_enqueue_many, outbox_cancel}'::text[]
        WHEN 'consumer' THEN
            '{outbox_claim, outbox_consume, outbox_peek, outbox_ack, outbox_fail, outbox_heartbeat,
              outbox_release, outbox_wait, inbox_accept}'::text[]
        WHEN 'idempotency' THEN
            '{idempotency_begin, idempotency_begin_hashed, idempotency_finish, idempotency_abandon,
              idempotency_hash}'::text[]
        WHEN 'audit' THEN '{audit_record}'::text[]
        WHEN 'auditor' THEN '{audit_diff, audit_verify, audit_may_read}'::text[]
        WHEN 'reader' THEN '{may_read}'::text[]
        WHEN 'monitor' THEN
            '{collect_stats, collect_event_stats, collect_latency, collect_dead_letters,
              collect_tables, collect_held, collect_database, outbox_metrics, outbox_health,
              outbox_catalog, report_samples, report_problems, report_dead_letters,
              report_partitions, report_held}'::text[]
        WHEN 'admin' THEN
            '{outbox_stats_reset, audit_set_retention, idempotency_required, idempotency_expire, outbox_setup,
              outbox_maintain, outbox_held_partitions, outbox_restore_partition, outbox_release_due,
              outbox_status, outbox_grant, outbox_revoke,
              outbox_create_consumer, outbox_alter_consumer, outbox_drop_consumer, outbox_pause, outbox_resume,
              outbox_create_sink, outbox_alter_sink, outbox_drop_sink, outbox_test_sink,
              outbox_register_upcaster, outbox_unregister_upcaster,
              outbox_register_event, outbox_unregister_event, outbox_set_event_owner,
              outbox_seek, outbox_redrive, outbox_discard, outbox_find, outbox_history,
              has_passed, known_upto, last_id, sink_states, shows_tenant}'::text[]
        END;
BEGIN
    IF names IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('unknown privilege %L', privilege),
            HINT = 'Privileges are producer, consumer, idempotency, audit, auditor, reader, monitor and admin.';
    END IF;
    -- The schema may have functions of other roles, so only members of the extension count.
    RETURN QUERY SELECT p.oid::regprocedure FROM pg_proc p
        JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
       WHERE e.extname = 'outbox' AND p.proname = ANY (names)
       ORDER BY p.oid;
END $$;
COMMENT ON FUNCTION _outbox.privilege_functions(text) IS 'internal: functions that a privilege includes';

CREATE OR REPLACE FUNCTION _outbox.privilege_views(privilege text) RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass FROM pg_class c
      JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
      JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'outbox' AND c.relkind IN ('v', 'r', 'p') AND c.relnamespace = e.extnamespace
       AND c.relname = ANY (CASE privilege
               WHEN 'reader' THEN '{outbox_messages, outbox_messages_archive, outbox_scheduled, outbox_retries,
                                    outbox_messages_dlq, idempotency_keys}'::text[]
               WHEN 'admin' THEN '{consumer_offsets, outbox_deliveries}'::text[]
               WHEN 'auditor' THEN '{audit_log}'::text[]
               WHEN 'monitor' THEN '{outbox_stats, outbox_stats_events, outbox_stats_latency, outbox_stats_dead_letters,
                                     outbox_stats_tables, outbox_stats_held, outbox_stats_database}'::text[] END)
$$;
COMMENT ON FUNCTION _outbox.privilege_views(text) IS 'internal: views and tables that a privilege permits to read';

CREATE OR REPLACE FUNCTION _outbox.check_role(role name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF role IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'role must not be NULL';
    ELSIF role = 'public' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'role must not be PUBLIC',
            HINT = 'Grant to the roles that need it.';
    ELSIF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
        RAISE undefined_object USING MESSAGE = format('role %I does not exist', role);
    ELSIF role = (SELECT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
                   WHERE c.oid = '@extschema@.outbox_messages'::regclass) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('role %I owns the log and has all privileges', role);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_role(name) IS 'internal: raises an error if privileges cannot be granted to a role';

CREATE OR REPLACE FUNCTION outbox_grant(role name, privilege text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    function regprocedure;
    readable regclass;
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_grant()');
    PERFORM _outbox.check_role(role);
    FOR function IN SELECT _outbox.privilege_functions(privilege) LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', function, role);
    END LOOP;
    FOR readable IN SELECT _outbox.privilege_views(privilege) LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', readable, role);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', _outbox.schema_of('outbox'), role);
END $$;
COMMENT ON FUNCTION outbox_grant(name, text)
IS 'grants a privilege to a role: producer, consumer, idempotency, audit, auditor, reader, monitor or admin';

-- USAGE on the schema stays: the role may need it for other objects, and it permits nothing by itself.
CREATE OR REPLACE FUNCTION outbox_revoke(role name, privilege text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    function regprocedure;
    readable regclass;
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_revoke()');
    PERFORM _outbox.check_role(role);
    FOR function IN SELECT _outbox.privilege_functions(privilege) LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM %I', function, role);
    END LOOP;
    FOR readable IN SELECT _outbox.privilege_views(privilege) LOOP
        EXECUTE format('REVOKE SELECT ON %s FROM %I', readable, role);
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_revoke(name, text) IS 'revokes a privilege that outbox_grant() granted';

-- A function that is new has the default privileges of the database. It has no row in pg_init_privs before its first REVOKE
-- in a script of the extension.
DO $$
DECLARE
    path  CONSTANT text := pg_catalog.current_setting('search_path');
    added record;
    other text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR added IN
        SELECT p.oid::regprocedure AS function, p.proacl, p.proowner FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
         WHERE e.extname = 'outbox' AND d.deptype = 'e'
           AND NOT EXISTS (SELECT FROM pg_init_privs i WHERE i.classoid = 'pg_proc'::regclass AND i.objoid = p.oid)
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', added.function);
        FOR other IN SELECT _outbox.other_grantees(coalesce(added.proacl, acldefault('f', added.proowner)),
                                                   added.proowner) LOOP
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s', added.function, other);
        END LOOP;
    END LOOP;
    PERFORM set_config('search_path', path, true);
END $$;

