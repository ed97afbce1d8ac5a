CREATE OR REPLACE FUNCTION _outbox.check_partman() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    roles  CONSTANT text := _outbox.untrusted_partman_roles();
    -- pg_temp is searched before pg_catalog as well, and any session can create objects in its own.
    shadow CONSTANT name := (SELECT min(s.name) FROM _outbox.catalog_shadowing(pg_my_temp_schema()) s);
BEGIN
    IF roles IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('pg_partman''s schema %I is open to %s', _outbox.schema_of('pg_partman'), roles),
            DETAIL = 'Functions created there would run with the rights of the owner of the log.',
            HINT = 'Install pg_partman into a schema of its own that a superuser owns, or revoke'
                   ' CREATE on this schema, INSERT, UPDATE, TRIGGER and REFERENCES on its part_config and'
                   ' part_config_sub, and pg_write_all_data, and drop objects that these roles have created in'
                   ' the schema or on these tables.';
    END IF;
    IF shadow IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('temporary object %I would replace an object of pg_catalog in pg_partman', shadow),
            HINT = 'Drop the temporary object, or run outbox_setup() in another session.';
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_partman()
IS 'internal: raises an error if code of another role could run when pg_partman creates partitions';

CREATE OR REPLACE FUNCTION _outbox.create_partition_set(parent regclass, partition_interval text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    log      CONSTANT text := _outbox.partman_name(parent);
    partman  CONSTANT name := _outbox.schema_of('pg_partman');
    version  CONSTANT int  := _outbox.partman_version();
    words    CONSTANT jsonb := '{"hourly": "1 hour", "daily": "1 day", "weekly": "1 week", "monthly": "1 month"}';
    start    CONSTANT timestamptz := date_trunc(split_part(words ->> partition_interval, ' ', 2), clock_timestamp());
    conflict record;
BEGIN
    -- Some versions of pg_partman use an existing table of that name as the default partition, with its triggers.
    SELECT * INTO conflict FROM _outbox.name_conflict(parent, '_default');
    IF FOUND THEN
        RAISE duplicate_table USING
            MESSAGE = format('%s %s', conflict.object, conflict.detail),
            HINT = 'Drop or rename it.';
    END IF;
    -- A configuration row without partitions remains if a log was dropped with its schema.
    EXECUTE format('DELETE FROM %I.part_config WHERE parent_table = $1', partman) USING log;
    -- pg_partman 4 takes the type "native" and an interval such as "daily", pg_partman 5 "range" and "1 day".
    EXECUTE format('SELECT %I.create_parent(p_parent_table := $1, p_control := ''occurred_at'','
                   ' p_type := $2, p_interval := $3, p_premake := $6, p_jobmon := false,'
                   ' p_automatic_maintenance := ''off'', p_template_table := $4,'
                   ' p_start_partition := $5)', partman)
      USING log,
            CASE WHEN version < 5 THEN 'native' ELSE 'range' END,
            CASE WHEN version < 5 THEN partition_interval ELSE words ->> partition_interval END,
            _outbox.partman_name(_outbox.template_of(parent)),
            start::text,
            CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 7 ELSE 3 END;
    EXECUTE format('UPDATE %I.part_config SET infinite_time_partitions = true,'
                   ' ignore_default_data = true WHERE parent_table = $1', partman)
      USING log;
    -- The conflicting table may have been created after the check above.
    SELECT p.partition INTO conflict FROM _outbox.partitions(parent) p JOIN pg_class c ON c.oid = p.partition
      JOIN pg_class l ON l.oid = parent WHERE c.relowner <> l.relowner LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('%s would become a partition of %s, but belongs to another role', conflict.partition,
                             _outbox.display_name(parent)),
            HINT = 'Drop or rename it.';
    END IF;
    PERFORM _outbox.configure_partitions(parent);
    PERFORM _outbox.audit_guard_partitions();
    -- The audit log alone does not enable maintenance if the log has partitions: it may be part of a running restore.
    IF parent = '@extschema@.outbox_messages'::regclass OR NOT EXISTS (SELECT FROM _outbox.partitions()) THEN
        INSERT INTO _outbox.maintenance_state SELECT WHERE NOT EXISTS (SELECT FROM _outbox.maintenance_state);
    END IF;
    IF parent = '@extschema@.audit_log'::regclass THEN
        INSERT INTO _outbox.audit_progress
        SELECT _outbox.database_identity(), 0, '0', 0, _outbox.audit_next_xid()
         WHERE NOT EXISTS (SELECT FROM _outbox.audit_progress);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.create_partition_set(regclass, text)
IS 'internal: has pg_partman create the first partitions and the default partition';

-- pg_partman re-raises some errors as raise_exception, without the original SQLSTATE. One is the check_violation for
-- rows of the default partition in the range of a new partition; these errors are ignored here, because
-- check_partitions_ahead() reports them.
CREATE OR REPLACE FUNCTION _outbox.extend_partition_set(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    log       CONSTANT text := _outbox.partman_name(parent);
    partman   CONSTANT name := _outbox.schema_of('pg_partman');
    version   CONSTANT int  := _outbox.partman_version();
    conflicts CONSTANT int  := (SELECT count(g.object) FROM _outbox.missing_partitions(parent) g);
    gap       timestamptz;
BEGIN
    -- run_maintenance() skips a name that is taken, or stops there. After a long time without maintenance it would also
    -- create an empty partition for each past interval, under a lock. Gaps are therefore filled one by one.
    FOR gap IN SELECT g.start FROM _outbox.missing_partitions(parent) g,
                      (SELECT max(upper_bound) AS last FROM _outbox.partitions(parent)) p
                WHERE g.object IS NULL AND (conflicts > 0 OR g.start < greatest(p.last, clock_timestamp())) LOOP
        BEGIN
            EXECUTE format('SELECT %I.create_partition_time(p_parent_table := $1, p_partition_times := ARRAY[$2]%s)',
                           partman, CASE WHEN version < 5 THEN ', p_analyze := false' ELSE '' END)
              USING log, gap;
        EXCEPTION WHEN raise_exception OR check_violation THEN
            IF _outbox.default_partition_has_rows(parent) IS NOT TRUE THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    BEGIN
        IF conflicts = 0 THEN
            EXECUTE format('SELECT %I.run_maintenance(p_parent_table := $1, p_analyze := false,'
                           ' p_jobmon := false)', partman)
              USING log;
        END IF;
    EXCEPTION WHEN raise_exception OR check_violation THEN
        IF _outbox.default_partition_has_rows(parent) IS NOT TRUE THEN
            RAISE;
        END IF;
    END;
    PERFORM _outbox.configure_partitions(parent);
    PERFORM _outbox.audit_guard_partitions();
    PERFORM _outbox.check_partitions_ahead(parent, (_outbox.partition_width(parent)).premake - conflicts);
END $$;
COMMENT ON FUNCTION _outbox.extend_partition_set(regclass) IS 'internal: has pg_partman create the missing partitions';

-- Some versions of pg_partman report failures only as warnings.
CREATE OR REPLACE FUNCTION _outbox.check_partitions_ahead(parent regclass, wanted integer) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ahead CONSTANT int := (SELECT count(*) FROM _outbox.partitions(parent) WHERE upper_bound > clock_timestamp());
BEGIN
    IF ahead < wanted THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman created %s future partitions instead of %s', ahead, wanted),
            HINT = CASE WHEN _outbox.default_partition_has_rows(parent)
                        THEN 'The default partition has events in the range of a new partition. They are delivered'
                             ' as usual. Run outbox_maintain() to move them.'
                        ELSE 'Look for warnings of pg_partman in the server log.' END;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_partitions_ahead(regclass, integer)
IS 'internal: raises an error if there are fewer future partitions than wanted';

-- Bounds are computed in UTC for every session: bounds in several time zones would overlap.
CREATE OR REPLACE FUNCTION _outbox.make_partitions(
    partition_interval text, first_time boolean, parent regclass DEFAULT '@extschema@.outbox_messages')
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET default_tablespace = '' SET default_table_access_method = 'heap' SET jit = off AS $$
BEGIN
    PERFORM _outbox.check_partman();
    IF first_time THEN
        PERFORM _outbox.create_partition_set(parent, partition_interval);
        RETURN;
    END IF;
    PERFORM _outbox.reset_partman_config(parent);
    IF NOT EXISTS (SELECT FROM _outbox.partitions(parent) WHERE NOT is_default) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('%s has no partition except the default partition', _outbox.display_name(parent)),
            HINT = 'If the default partition is empty, drop it and run outbox_setup() again.';
    END IF;
    PERFORM _outbox.extend_partition_set(parent);
END $$;
COMMENT ON FUNCTION _outbox.make_partitions(text, boolean, regclass)
IS 'internal: creates the missing partitions of the log or the audit log through pg_partman';

