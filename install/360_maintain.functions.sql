-- The only list of steps. touches_log: skipped while the database is being restored. takes_long: precedes the
-- other steps in outbox_maintain(), which runs all steps in one transaction, so that exclusive locks are held
-- for a short time. is_routine: logged at DEBUG1. follows_storing: repeated when outbox.archive_command has
-- stored a file.
CREATE OR REPLACE FUNCTION _outbox.maintenance_steps(
    OUT step text, OUT "position" integer, OUT touches_log boolean, OUT takes_long boolean, OUT is_routine boolean,
    OUT follows_storing boolean)
RETURNS SETOF record
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM (VALUES
        --                      position, touches_log, takes_long, is_routine, follows_storing
        ('skip_unwanted_events',     1,  true, false,  true, false),
        ('sample',                   2,  true, false, false, false),
        ('expire_idempotency_keys',  3, false, false, false, false),
        ('expire_dedup_keys',        4, false, false, false, false),
        ('expire_inbox',             5, false, false, false, false),
        ('partitions',               6,  true, false, false, false),
        ('audit_partitions',         7,  true, false, false, false),
        ('audit_chain',              8,  true, false,  true, false),
        ('prune',                    9,  true, false,  true, false),
        ('cold_files',              10,  true,  true, false, false),
        ('export',                  11,  true,  true, false, false),
        ('audit_retention',         12,  true, false, false, false),
        ('drop',                    13,  true, false, false,  true),
        ('archive',                 14,  true, false, false, false)) s
$$;
COMMENT ON FUNCTION _outbox.maintenance_steps() IS 'internal: steps of maintenance, with their order and properties';

CREATE OR REPLACE FUNCTION _outbox.run_step(
    step text, OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    PERFORM _outbox.begin_maintenance();
    RETURN QUERY EXECUTE format('SELECT * FROM _outbox.%I()', 'step_' || step);
END $$;
COMMENT ON FUNCTION _outbox.run_step(text)
IS 'internal: runs one step of maintenance; returns changes, and objects that it could not change';

-- Each step runs in a subtransaction: the error of one step rolls back that step only.
CREATE OR REPLACE FUNCTION outbox_maintain(OUT step text, OUT object text, OUT detail text, OUT changed boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_maintain()');
    BEGIN
        PERFORM _outbox.begin_maintenance();
    EXCEPTION WHEN lock_not_available THEN
        detail := 'another session is running maintenance';
        changed := false;
        RETURN NEXT;
        RETURN;
    END;
    INSERT INTO _outbox.maintenance_state SELECT WHERE NOT EXISTS (SELECT FROM _outbox.maintenance_state);
    FOR step IN SELECT s.step FROM _outbox.maintenance_steps() s ORDER BY NOT s.takes_long, s.position LOOP
        BEGIN
            FOR object, detail, changed IN SELECT s.object, s.detail, s.changed FROM _outbox.run_step(step) s
                                         WHERE s.detail IS NOT NULL LOOP
                RETURN NEXT;
            END LOOP;
        EXCEPTION WHEN others THEN
            object := NULL;
            detail := SQLERRM;
            changed := false;
            RETURN NEXT;
        END;
    END LOOP;
    step := 'export';
    changed := false;
    detail := 'waits for outbox.archive_command, which the maintenance worker runs';
    FOR object IN SELECT f.file FROM _outbox.cold_files f WHERE f.stored_at IS NULL LOOP
        PERFORM _outbox.request_maintenance();
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_maintain()
IS 'runs all steps of maintenance, as the worker does; returns changes, and objects that they could not change';

CREATE OR REPLACE FUNCTION _outbox.request_maintenance() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_request_maintenance';
COMMENT ON FUNCTION _outbox.request_maintenance()
IS 'internal: starts a maintenance worker when the transaction commits';

