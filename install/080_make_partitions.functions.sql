CREATE OR REPLACE FUNCTION _outbox.check_partman() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    roles  CONSTANT text := _outbox.untrusted_partman_roles();
    -- pg_temp is in front of pg_catalog, too, and any session can fill its own.
    shadow CONSTANT name := (SELECT min(s.name) FROM _outbox.catalog_shadowing(pg_my_temp_schema()) s);
BEGIN
    IF roles IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('pg_partman''s schema %I is open to %s', _outbox.schema_of('pg_partman'), roles),
            DETAIL = 'Functions created there would run with the rights of the owner of the log.',
            HINT = 'Install pg_partman into a schema of its own that a superuser owns, or revoke'
                   ' CREATE on this one, INSERT, UPDATE, TRIGGER and REFERENCES on its part_config and part_config_sub,'
                   ' and pg_write_all_data, and drop what others have created in it or on those.';
    END IF;
    IF shadow IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('pg_partman would take the temporary %I for the server''s own', shadow),
            HINT = 'Drop it, or have another session run outbox_setup().';
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_partman()
IS 'internal: raises an error if code of another role could run when pg_partman makes partitions';

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
    -- Some versions of pg_partman would take it for the default partition, triggers of its owner included.
    SELECT * INTO conflict FROM _outbox.name_conflict(parent, '_default');
    IF FOUND THEN
        RAISE duplicate_table USING
            MESSAGE = format('%s %s', conflict.object, conflict.detail),
            HINT = 'Drop or rename it.';
    END IF;
    -- A row without partitions is left over from a log that was dropped with its schema.
    EXECUTE format('DELETE FROM %I.part_config WHERE parent_table = $1', partman) USING log;
    -- Version 4 wants the kind of partitioning and knows intervals by words, version 5 neither.
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
    -- It may have been created meanwhile.
    SELECT p.partition INTO conflict FROM _outbox.partitions(parent) p JOIN pg_class c ON c.oid = p.partition
      JOIN pg_class l ON l.oid = parent WHERE c.relowner <> l.relowner LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('%s belongs to another role, and would be a partition of %s', conflict.partition, _outbox.display_name(parent)),
            HINT = 'Drop or rename it.';
    END IF;
    PERFORM _outbox.configure_partitions(parent);
    PERFORM _outbox.audit_guard_partitions();
    -- A log that has partitions already may be one that is being restored.
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
IS 'internal: has pg_partman make the first partitions of the log or the audit log, and the default partition';

-- pg_partman raises some errors anew without their SQLSTATE. That rows of the default partition are in the way is one of them.
CREATE OR REPLACE FUNCTION _outbox.extend_partition_set(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    log       CONSTANT text := _outbox.partman_name(parent);
    partman   CONSTANT name := _outbox.schema_of('pg_partman');
    version   CONSTANT int  := _outbox.partman_version();
    conflicts CONSTANT int  := (SELECT count(g.object) FROM _outbox.missing_partitions(parent) g);
    gap       timestamptz;
BEGIN
    -- pg_partman passes over a name that is taken, or stops there. And after a long time without maintenance it would begin
    -- where it stopped, and make an empty partition for each interval since, under a lock.
    FOR gap IN SELECT g.start FROM _outbox.missing_partitions(parent) g, (SELECT max(upper_bound) AS last FROM _outbox.partitions(parent)) p
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
COMMENT ON FUNCTION _outbox.extend_partition_set(regclass)
IS 'internal: has pg_partman make the partitions that are missing';

-- Some versions of pg_partman only warn of what goes wrong.
CREATE OR REPLACE FUNCTION _outbox.check_partitions_ahead(parent regclass, wanted integer) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ahead CONSTANT int := (SELECT count(*) FROM _outbox.partitions(parent) WHERE upper_bound > clock_timestamp());
BEGIN
    IF ahead < wanted THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman made %s partitions ahead instead of %s', ahead, wanted),
            HINT = CASE WHEN _outbox.default_partition_has_rows(parent)
                        THEN 'The default partition holds events of a time that a new partition'
                             ' would cover. They are safe, and further ones go there too.'
                        ELSE 'pg_partman''s warnings in the server log say why.' END;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_partitions_ahead(regclass, integer)
IS 'internal: raises an error if there are fewer partitions for times to come than wanted';

-- In UTC whatever the session's time zone is: bounds made in two time zones would overlap.
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
            MESSAGE = format('%s has no partition but the default one', _outbox.display_name(parent)),
            HINT = 'If that one is empty, drop it and run outbox_setup() again.';
    END IF;
    PERFORM _outbox.extend_partition_set(parent);
END $$;
COMMENT ON FUNCTION _outbox.make_partitions(text, boolean, regclass)
IS 'internal: has pg_partman make the partitions of the log, some ahead, and a default';

