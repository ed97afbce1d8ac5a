-- Not dumped: a database that is being restored has its partitions before it has its consumers, and no worker
-- may touch them then.
CREATE TABLE outbox_home (
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE outbox_home
IS 'has a row if the worker may archive and drop: since the log got its first partitions here, or outbox_maintain() was called';
COMMENT ON COLUMN outbox_home.since IS 'since when';

-- Whoever could write there once may have left something, and pg_partman puts some of it into statements as it is. The row is
-- locked first: what others write to it, or refer to it with, has ended then. Not all versions have all columns.
CREATE FUNCTION outbox_mend_partman_config(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partman CONSTANT name := @extschema@.outbox_schema_of('pg_partman');
    config  CONSTANT regclass := format('%I.part_config', partman)::regclass;
    log     CONSTANT text := @extschema@.outbox_partman_name(parent);
    usual   jsonb := jsonb_build_object(
        'template_table', log || '_template', 'control', 'occurred_at', 'epoch', 'none', 'time_encoder', NULL, 'time_decoder', NULL,
        'partition_type', CASE WHEN @extschema@.outbox_partman_version() < 5 THEN 'native' ELSE 'range' END,
        'constraint_cols', NULL, 'inherit_privileges', false, 'subscription_refresh', NULL, 'jobmon', false, 'undo_in_progress', false,
        'async_partitioning_in_progress', NULL, 'date_trunc_interval', NULL,
        'sub_partition_set_full', false, 'infinite_time_partitions', true, 'ignore_default_data', true);
    present jsonb;
    strange jsonb;
    columns text;
    removed integer;
BEGIN
    EXECUTE format('SELECT to_jsonb(c) FROM %s c WHERE parent_table = $1 FOR UPDATE', config) INTO present USING log;
    IF present IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman has no configuration for %s', @extschema@.outbox_title(parent)),
            DETAIL = format('The row of %s in %s is gone. Without it no partitions are made: events go to the default one.', log, config),
            HINT = 'Insert it again, as a backup or another database with the extension has it.';
    END IF;
    -- A publication of somebody else's would hand him the log.
    usual := usual || jsonb_build_object('publications', (
        SELECT jsonb_agg(p.pubname ORDER BY w.position)
          FROM jsonb_array_elements_text(CASE WHEN jsonb_typeof(present -> 'publications') = 'array' THEN present -> 'publications' ELSE '[]' END)
               WITH ORDINALITY w (name, position)
          JOIN pg_publication p ON p.pubname = w.name JOIN pg_roles r ON r.oid = p.pubowner
         WHERE r.rolsuper OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = parent)));
    SELECT jsonb_object_agg(u.key, present -> u.key), string_agg(quote_ident(u.key), ', ') INTO strange, columns
      FROM jsonb_each(usual) u WHERE present ? u.key AND present -> u.key <> u.value;
    IF columns IS NOT NULL THEN
        EXECUTE format('UPDATE %1$s c SET (%2$s) = (SELECT %2$s FROM jsonb_populate_record(NULL::%1$s, $2)) WHERE c.parent_table = $1', config, columns)
          USING log, usual;
    END IF;
    EXECUTE format('DELETE FROM %I.part_config_sub WHERE sub_parent = $1', partman) USING log;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF columns IS NOT NULL OR removed > 0 THEN
        RAISE WARNING USING
            MESSAGE = format('outbox: pg_partman had another configuration for %s, or subpartitions: it is as it was made again', @extschema@.outbox_title(parent)),
            DETAIL = format('It was: %s, %s subpartitions.', coalesce(strange, '{}'), CASE WHEN removed > 0 THEN 'with' ELSE 'without' END);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_mend_partman_config(regclass)
IS 'internal: what pg_partman makes partitions by is as the extension has set it';

-- In UTC whatever the session's time zone is: bounds made in two time zones would overlap.
CREATE FUNCTION outbox_make_partitions(
    partition_interval text, first_time boolean, parent regclass DEFAULT '@extschema@.outbox_messages')
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET default_tablespace = '' SET default_table_access_method = 'heap' SET jit = off AS $$
DECLARE
    log     CONSTANT text := @extschema@.outbox_partman_name(parent);
    premake CONSTANT int  := CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 7 ELSE 3 END;
    partman CONSTANT name := @extschema@.outbox_schema_of('pg_partman');
    version CONSTANT int  := @extschema@.outbox_partman_version();
    words   CONSTANT jsonb := '{"hourly": "1 hour", "daily": "1 day",
                                "weekly": "1 week", "monthly": "1 month"}';
    start   CONSTANT timestamptz := date_trunc(split_part(words ->> partition_interval, ' ', 2),
                                               clock_timestamp());
    intruders CONSTANT text := @extschema@.outbox_partman_intruders();
    -- pg_temp is in front of pg_catalog, too, and anybody's to fill.
    shadow    CONSTANT name := (SELECT min(s.name) FROM @extschema@.outbox_shadows(pg_my_temp_schema()) s);
    wanted    int;
    ahead     int;
    obstacle  record;
    obstacles int;
    gap       timestamptz;
BEGIN
    IF intruders IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('pg_partman''s schema %I is open to %s', partman, intruders),
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
    IF first_time THEN
        -- Some versions of pg_partman would take it for the default partition, triggers of its owner's included.
        SELECT * INTO obstacle FROM @extschema@.outbox_obstacle(parent, '_default');
        IF FOUND THEN
            RAISE duplicate_table USING
                MESSAGE = format('%s %s', obstacle.object, obstacle.detail),
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
                log || '_template',
                start::text, premake;
        EXECUTE format('UPDATE %I.part_config SET infinite_time_partitions = true,'
                       ' ignore_default_data = true WHERE parent_table = $1', partman)
          USING log;
        -- It may have come meanwhile.
        SELECT p.partition INTO obstacle FROM @extschema@.outbox_partitions(parent) p JOIN pg_class c ON c.oid = p.partition
          JOIN pg_class l ON l.oid = parent WHERE c.relowner <> l.relowner LIMIT 1;
        IF FOUND THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('%s is somebody else''s, and would be a partition of %s', obstacle.partition, @extschema@.outbox_title(parent)),
                HINT = 'Drop or rename it.';
        END IF;
        PERFORM @extschema@.outbox_dress_partitions(parent);
        PERFORM @extschema@.audit_guard_partitions();
        -- A log that has partitions already may be one that is being restored.
        IF parent = '@extschema@.outbox_messages'::regclass OR NOT EXISTS (SELECT FROM @extschema@.outbox_partitions()) THEN
            INSERT INTO @extschema@.outbox_home SELECT WHERE NOT EXISTS (SELECT FROM @extschema@.outbox_home);
        END IF;
        IF parent = '@extschema@.audit_log'::regclass THEN
            INSERT INTO @extschema@.audit_progress
            SELECT @extschema@.outbox_identity(), 0, '0', 0, @extschema@.audit_next_xid()
             WHERE NOT EXISTS (SELECT FROM @extschema@.audit_progress);
        END IF;
        RETURN;
    END IF;

    PERFORM @extschema@.outbox_mend_partman_config(parent);
    IF NOT EXISTS (SELECT FROM @extschema@.outbox_partitions(parent) WHERE NOT is_default) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('%s has no partition but the default one', @extschema@.outbox_title(parent)),
            HINT = 'If that one is empty, drop it and run outbox_setup() again.';
    END IF;
    -- Where something is in the way, pg_partman passes over it, or stops there. And after a long time without maintenance it would begin
    -- where it stopped, and make one for each interval since, empty ones under a lock.
    obstacles := (SELECT count(g.object) FROM @extschema@.outbox_gaps(parent) g);
    FOR gap IN SELECT g.start FROM @extschema@.outbox_gaps(parent) g, (SELECT max(upper_bound) AS last FROM @extschema@.outbox_partitions(parent)) p
                WHERE g.object IS NULL AND (obstacles > 0 OR g.start < greatest(p.last, clock_timestamp())) LOOP
        BEGIN
            EXECUTE format('SELECT %I.create_partition_time(p_parent_table := $1, p_partition_times := ARRAY[$2]%s)',
                           partman, CASE WHEN version < 5 THEN ', p_analyze := false' ELSE '' END)
              USING log, gap;
        EXCEPTION WHEN raise_exception OR check_violation THEN
            IF @extschema@.outbox_default_holds_events(parent) IS NOT TRUE THEN
                RAISE;
            END IF;
        END;
    END LOOP;
    -- What goes wrong here, some versions raise anew without its SQLSTATE, and some only mention.
    BEGIN
        IF obstacles = 0 THEN
            EXECUTE format('SELECT %I.run_maintenance(p_parent_table := $1, p_analyze := false,'
                           ' p_jobmon := false)', partman)
              USING log;
        END IF;
    EXCEPTION WHEN raise_exception OR check_violation THEN
        IF @extschema@.outbox_default_holds_events(parent) IS NOT TRUE THEN
            RAISE;
        END IF;
    END;
    PERFORM @extschema@.outbox_dress_partitions(parent);
    PERFORM @extschema@.audit_guard_partitions();
    wanted := (@extschema@.outbox_partition_width(parent)).premake - obstacles;
    SELECT count(*) INTO ahead FROM @extschema@.outbox_partitions(parent)
     WHERE upper_bound > clock_timestamp();
    IF ahead < wanted THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman made %s partitions ahead instead of %s', ahead, wanted),
            HINT = CASE WHEN @extschema@.outbox_default_holds_events(parent)
                        THEN 'The default partition holds events of a time that a new partition'
                             ' would cover. They are safe, and further ones go there too.'
                        ELSE 'pg_partman''s warnings in the server log say why.' END;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_make_partitions(text, boolean, regclass)
IS 'internal: has pg_partman make the partitions of the log, some ahead, and a default';

-- pg_partman would drop partitions by their age alone. Its configuration refuses that for the log.
CREATE FUNCTION outbox_refuse_retention() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.parent_table = @extschema@.outbox_partman_name('@extschema@.outbox_messages') THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'pg_partman must not have a retention for the log of outbox',
            DETAIL = 'It drops or detaches partitions by their age, also those that a consumer has yet to read.',
            HINT = 'Set outbox.hot_retention and outbox.archive_retention instead.';
    ELSIF NEW.parent_table = @extschema@.outbox_partman_name('@extschema@.audit_log') THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'pg_partman must not have a retention for the audit log of outbox',
            DETAIL = 'It drops or detaches partitions by their age, also those with rows that are to be kept for longer.',
            HINT = 'Set outbox.audit_retention, or call audit_set_retention() for an entity type.';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION outbox_refuse_retention()
IS 'internal: keeps pg_partman from getting a retention for the log or the audit log';

CREATE FUNCTION outbox_is_partman_guarded() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_trigger t
                    WHERE t.tgrelid = format('%I.part_config', @extschema@.outbox_schema_of('pg_partman'))::regclass
                      AND t.tgname = 'outbox_refuse_retention' AND t.tgenabled = 'A'
                      AND t.tgfoid = '@extschema@.outbox_refuse_retention()'::regprocedure)
$$;
COMMENT ON FUNCTION outbox_is_partman_guarded()
IS 'internal: does pg_partman''s configuration refuse a retention for the log?';

-- Again and again: an update of pg_partman may make its table anew. Nothing is written while that would run what is
-- somebody else's; there are no partitions then, either.
CREATE FUNCTION outbox_guard_partman() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    config CONSTANT regclass := format('%I.part_config', @extschema@.outbox_schema_of('pg_partman'))::regclass;
    parent regclass;
    set_to text;
BEGIN
    IF NOT @extschema@.outbox_is_partman_guarded() THEN
        EXECUTE format('DROP TRIGGER IF EXISTS outbox_refuse_retention ON %s', config);
        EXECUTE format('CREATE TRIGGER outbox_refuse_retention BEFORE INSERT OR UPDATE OF retention, parent_table ON %s FOR EACH ROW'
                       ' WHEN (NEW.retention IS NOT NULL) EXECUTE FUNCTION %s', config,
                       '@extschema@.outbox_refuse_retention()'::regprocedure);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER outbox_refuse_retention', config);
        EXECUTE format('ALTER TRIGGER outbox_refuse_retention ON %s DEPENDS ON EXTENSION outbox', config);
    END IF;
    IF @extschema@.outbox_partman_intruders() IS NOT NULL THEN
        RETURN;
    END IF;
    FOREACH parent IN ARRAY ARRAY['@extschema@.outbox_messages'::regclass, '@extschema@.audit_log'::regclass] LOOP
        EXECUTE format('UPDATE %1$s c SET retention = NULL FROM %1$s o'
                       ' WHERE c.parent_table = $1 AND o.parent_table = $1 AND o.retention IS NOT NULL RETURNING o.retention', config)
           INTO set_to USING @extschema@.outbox_partman_name(parent);
        IF set_to IS NOT NULL THEN
            RAISE WARNING 'outbox: took back the retention of % that pg_partman had for %', set_to, @extschema@.outbox_title(parent);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_guard_partman()
IS 'internal: sees to it that pg_partman has no retention for the log';

CREATE FUNCTION outbox_setup() RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_setup';
COMMENT ON FUNCTION outbox_setup()
IS 'makes the partitions of the log that are missing, seven ahead and a default; returns how many there are';

CREATE FUNCTION outbox_refresh_partitions(parent regclass) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_refresh_partitions';
COMMENT ON FUNCTION outbox_refresh_partitions(regclass)
IS 'internal: has the session see partitions that its relation cache has missed, in the plans that follow';

CREATE FUNCTION audit_setup() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_setup';
COMMENT ON FUNCTION audit_setup()
IS 'internal: makes the partitions of the audit log that are missing';

CREATE FUNCTION outbox_before_drop() RETURNS event_trigger
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_before_drop';
COMMENT ON FUNCTION outbox_before_drop()
IS 'internal: takes the log out of pg_partman''s configuration when the extension is dropped';

-- Not for DROP SCHEMA: if the library's file were missing, nobody could drop any schema. The row that
-- a DROP SCHEMA ... CASCADE leaves behind is inert, and the next log replaces it.
CREATE EVENT TRIGGER outbox_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION') EXECUTE FUNCTION outbox_before_drop();
COMMENT ON EVENT TRIGGER outbox_before_drop
IS 'DROP EXTENSION outbox leaves nothing behind in pg_partman';

