-- outbox 1.0. In the order of the flow: log, partitions, archive, dedup, schedule, enqueue, consumers,
-- batches, retries, dead letters, sinks, inbox, idempotency keys, views, maintenance, status, audit log,
-- guard, privileges.
--
-- Tables whose rows come and go are vacuumed early, and never truncated: that would lock them.
\echo Use "CREATE EXTENSION outbox CASCADE" to load this file. \quit

----------------------------------------------------------------------------------------------------
-- The log. Nothing updates it. Parents only are made here: a partition, an index or a row of
-- pg_partman's configuration made in this script would belong to the extension, and pg_dump would
-- leave it out. outbox_setup() makes them.
----------------------------------------------------------------------------------------------------

-- CACHE 1: ids are drawn in the order of the calls.
CREATE SEQUENCE outbox_messages_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE outbox_messages_id_seq
IS 'positions in the log; gaps are normal, and it is never set back';

CREATE FUNCTION outbox_next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_next_id';
COMMENT ON FUNCTION outbox_next_id()
IS 'the next position in the log, drawn after this transaction has its xid';

CREATE FUNCTION outbox_new_tracking_id() RETURNS uuid
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_new_tracking_id';
COMMENT ON FUNCTION outbox_new_tracking_id()
IS 'a UUIDv7, greater than all that this session has made before';

-- Columns of fixed width come first, so that no row carries padding.
CREATE TABLE outbox_messages (
    xid            xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id             bigint      NOT NULL DEFAULT outbox_next_id(),
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id      bigint      NOT NULL DEFAULT 0,
    tracking_id    uuid        NOT NULL DEFAULT outbox_new_tracking_id(),
    event_version  smallint    NOT NULL DEFAULT 1,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL DEFAULT '{}',
    trace_id       text,
    run_length     smallint    DEFAULT 1
) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE outbox_messages
IS 'the log of events: append-only, partitioned by time';
COMMENT ON COLUMN outbox_messages.xid IS 'the transaction that wrote the event';
COMMENT ON COLUMN outbox_messages.id IS 'position in the log; not an identity, and not gapless';
COMMENT ON COLUMN outbox_messages.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN outbox_messages.tenant_id IS 'whose event it is; 0 where there are no tenants';
COMMENT ON COLUMN outbox_messages.tracking_id IS 'the event''s identity for ever (UUIDv7)';
COMMENT ON COLUMN outbox_messages.event_version IS 'version of the payload''s shape, 1 to 32767';
COMMENT ON COLUMN outbox_messages.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN outbox_messages.aggregate_id IS 'which one: the unit of order';
COMMENT ON COLUMN outbox_messages.event_type IS 'what happened';
COMMENT ON COLUMN outbox_messages.payload IS 'the event itself; JSON null is a tombstone';
COMMENT ON COLUMN outbox_messages.metadata IS 'an object beside the payload';
COMMENT ON COLUMN outbox_messages.trace_id IS 'as the producer gave it, valid or not';
COMMENT ON COLUMN outbox_messages.run_length
IS 'how many rows one call has written from here on, their ids in a row; NULL: not the first of them';

-- Unique indexes without the partition key can only exist on each partition by itself; pg_partman
-- copies them from here. The second one is for finding what a transaction has written: the first row
-- of each run is enough for that, and a batch pays for one entry instead of hundreds.
CREATE TABLE outbox_messages_template (LIKE outbox_messages INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON outbox_messages_template (id);
CREATE UNIQUE INDEX ON outbox_messages_template (xid, id) WHERE run_length IS NOT NULL;
COMMENT ON TABLE outbox_messages_template
IS 'always empty: the indexes that each partition of the log gets';

----------------------------------------------------------------------------------------------------
-- Partitions
----------------------------------------------------------------------------------------------------

-- Bodies in quotes, here and below: one in BEGIN ATOMIC would be read with the search_path of this
-- script, and could be made to use operators that others have put into the extension's schema.
CREATE FUNCTION outbox_schema_of(extension name) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
     WHERE e.extname = extension
$$;
COMMENT ON FUNCTION outbox_schema_of(name)
IS 'internal: the schema that an extension lives in';

-- Sessions with an outbox.tenant_id are a tenant's. This is asked in C: while the library is not loaded,
-- anybody could set a parameter of that name.
CREATE FUNCTION outbox_shows_tenant(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION outbox_shows_tenant(bigint)
IS 'internal: may this session see what belongs to a tenant? NULL: to all of them';

CREATE FUNCTION outbox_may_read(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION outbox_may_read(bigint)
IS 'for policies: may this session see rows of a tenant?';

CREATE FUNCTION outbox_session_tenant() RETURNS bigint
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_session_tenant';
COMMENT ON FUNCTION outbox_session_tenant()
IS 'internal: the tenant that this session acts for; NULL: it is none''s';

CREATE FUNCTION outbox_refuse_tenants(function text) RETURNS void
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_refuse_tenants';
COMMENT ON FUNCTION outbox_refuse_tenants(text)
IS 'internal: an error in the session of a tenant';

-- A table or view has a type of its name. Arrays come with their elements.
CREATE FUNCTION outbox_shadows(schema oid, OUT name name, OUT owner oid) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.typname, t.typowner FROM pg_type t
     WHERE t.typnamespace = schema AND NOT (t.typtype = 'b' AND t.typelem <> 0)
       AND (EXISTS (SELECT FROM pg_type o WHERE o.typname = t.typname AND o.typnamespace = 'pg_catalog'::regnamespace)
            OR EXISTS (SELECT FROM pg_class o WHERE o.relname = t.typname AND o.relnamespace = 'pg_catalog'::regnamespace))
$$;
COMMENT ON FUNCTION outbox_shadows(oid)
IS 'internal: types, tables and views of a schema that have the name of one in pg_catalog, and whose they are';

-- pg_partman puts its own schema in front of pg_catalog. Whoever can create functions there, or has
-- done so, would have them called by the owner of the log. So would those with a foreign key to its configuration or with anything
-- on it that runs when it is written: triggers, rules, constraints, defaults, indexes, tables that inherit. And what is written there
-- decides which indexes a partition gets. One of its two tables cascades to the other.
CREATE FUNCTION outbox_partman_intruders() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE partman AS (
        SELECT n.oid, n.nspacl, n.nspowner
          FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'pg_partman'
    ), config AS (
        SELECT c.oid, c.relowner, c.relacl FROM partman n JOIN pg_class c ON c.relnamespace = n.oid
         WHERE c.relname IN ('part_config', 'part_config_sub')
         UNION ALL
        SELECT c.oid, c.relowner, c.relacl FROM config p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid
    ), runs (classid, objid) AS (
        SELECT 'pg_class'::regclass, oid FROM config
         UNION ALL
        SELECT 'pg_trigger'::regclass, t.oid FROM config c JOIN pg_trigger t ON t.tgrelid = c.oid
         UNION ALL
        SELECT 'pg_rewrite'::regclass, r.oid FROM config c JOIN pg_rewrite r ON r.ev_class = c.oid
         UNION ALL
        SELECT 'pg_attrdef'::regclass, d.oid FROM config c JOIN pg_attrdef d ON d.adrelid = c.oid
         UNION ALL
        SELECT 'pg_constraint'::regclass, k.oid FROM config c JOIN pg_constraint k ON k.conrelid = c.oid
         UNION ALL
        SELECT 'pg_class'::regclass, i.indexrelid FROM config c JOIN pg_index i ON i.indrelid = c.oid
         UNION ALL
        SELECT 'pg_policy'::regclass, p.oid FROM config c JOIN pg_policy p ON p.polrelid = c.oid
    ), used AS (
        SELECT d.refclassid, d.refobjid FROM runs JOIN pg_depend d USING (classid, objid)
    ), creators AS (
        SELECT nspowner AS role FROM partman
         UNION
        SELECT a.grantee FROM partman, aclexplode(nspacl) AS a WHERE a.privilege_type = 'CREATE'
         UNION
        SELECT p.proowner FROM partman n JOIN pg_proc p ON p.pronamespace = n.oid
         UNION
        SELECT o.oprowner FROM partman n JOIN pg_operator o ON o.oprnamespace = n.oid
         UNION
        SELECT s.owner FROM partman n CROSS JOIN LATERAL @extschema@.outbox_shadows(n.oid) s
         UNION
        SELECT relowner FROM config
         UNION
        SELECT a.grantee FROM config, aclexplode(relacl) AS a
         WHERE a.privilege_type IN ('INSERT', 'UPDATE', 'TRIGGER', 'REFERENCES')
         UNION
        SELECT a.grantee FROM config c JOIN pg_attribute f ON f.attrelid = c.oid, aclexplode(f.attacl) AS a
         WHERE a.privilege_type IN ('INSERT', 'UPDATE', 'REFERENCES')
         UNION
        SELECT m.member FROM pg_auth_members m WHERE m.roleid = 'pg_write_all_data'::regrole
         UNION
        SELECT p.proowner FROM used JOIN pg_proc p ON p.oid = refobjid WHERE refclassid = 'pg_proc'::regclass
         UNION
        SELECT o.oprowner FROM used JOIN pg_operator o ON o.oid = refobjid WHERE refclassid = 'pg_operator'::regclass
         UNION
        SELECT o.opcowner FROM used JOIN pg_opclass o ON o.oid = refobjid WHERE refclassid = 'pg_opclass'::regclass
         UNION
        SELECT t.typowner FROM used JOIN pg_type t ON t.oid = refobjid WHERE refclassid = 'pg_type'::regclass
         UNION
        SELECT r.relowner FROM used JOIN pg_class r ON r.oid = refobjid WHERE refclassid = 'pg_class'::regclass
         UNION
        SELECT r.relowner FROM config c JOIN pg_constraint k ON k.contype = 'f' AND k.confrelid = c.oid
          JOIN pg_class r ON r.oid = k.conrelid
    ), actual AS (
        SELECT CASE WHEN role = (SELECT oid FROM pg_roles WHERE rolname = 'pg_database_owner')
                    THEN (SELECT datdba FROM pg_database WHERE datname = current_database())
                    ELSE role END AS role
          FROM creators
    )
    SELECT string_agg(CASE WHEN a.role = 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END, ', ')
      FROM actual a LEFT JOIN pg_roles r ON r.oid = a.role
     WHERE r.rolsuper IS NOT TRUE
       AND a.role <> (SELECT relowner FROM pg_class
                       WHERE oid = '@extschema@.outbox_messages'::regclass)
$$;
COMMENT ON FUNCTION outbox_partman_intruders()
IS 'internal: the roles that could slip functions of their own under pg_partman''s; NULL if none';

CREATE FUNCTION outbox_partman_version() RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(extversion, '.', 1)::integer FROM pg_extension WHERE extname = 'pg_partman'
$$;
COMMENT ON FUNCTION outbox_partman_version()
IS 'internal: 4 or 5, which want different things';

-- Here and below: the log, unless the audit log is meant.
CREATE FUNCTION outbox_partitions(parent regclass DEFAULT '@extschema@.outbox_messages', OUT partition regclass, OUT is_default boolean,
                                  OUT lower_bound timestamptz, OUT upper_bound timestamptz)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
    SELECT c.oid::regclass, bound = 'DEFAULT',
           substring(bound FROM $re$FROM \('([^']+)'\)$re$)::timestamptz,
           substring(bound FROM $re$TO \('([^']+)'\)$re$)::timestamptz
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
           pg_get_expr(c.relpartbound, c.oid) AS bound
     WHERE i.inhparent = parent AND NOT i.inhdetachpending
$$;
COMMENT ON FUNCTION outbox_partitions(regclass)
IS 'internal: the partitions of the log, and from when to when each goes';

-- As pg_partman wants it: without quotes.
CREATE FUNCTION outbox_partman_name(parent regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent
$$;
COMMENT ON FUNCTION outbox_partman_name(regclass)
IS 'internal: how pg_partman''s configuration names a table';

CREATE FUNCTION outbox_title(parent regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 'the log' ELSE 'the audit log' END
$$;
COMMENT ON FUNCTION outbox_title(regclass)
IS 'internal: how messages name a table with partitions';

-- Default privileges of the database give new objects to others.
CREATE FUNCTION outbox_others(acl aclitem[], owner oid) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END
      FROM aclexplode(acl) a LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE a.grantee <> owner
$$;
COMMENT ON FUNCTION outbox_others(aclitem[], oid)
IS 'internal: who has a privilege besides the owner, as REVOKE names them';

CREATE FUNCTION outbox_close(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other text;
BEGIN
    FOR other IN SELECT @extschema@.outbox_others(c.relacl, c.relowner) FROM pg_class c WHERE c.oid = target LOOP
        EXECUTE format('REVOKE ALL ON TABLE %s FROM %s', target, other);
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_close(regclass)
IS 'internal: leaves a table or sequence to its owner alone';

-- Row security without a policy: who is let into all tables of a schema still reads the log by its parent only.
-- The identity: where a publication has all tables, no row without one can be removed, by retention or for a partition
-- of its own. Rows that come pay nothing for it.
CREATE FUNCTION outbox_finish_partition(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_close(partition);
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, REPLICA IDENTITY FULL', partition);
END $$;
COMMENT ON FUNCTION outbox_finish_partition(regclass)
IS 'internal: a partition is read by its parent, and otherwise by its owner alone; its rows can be told apart';

-- pg_partman makes them likewise: columns and constraints are the parent's, indexes the template's.
CREATE FUNCTION outbox_copy_indexes(of regclass, target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition text; -- from USING on
BEGIN
    FOR definition IN
        SELECT substr(pg_get_indexdef(i.oid), length(format('CREATE UNIQUE INDEX %I ON %I.%I', i.relname, n.nspname, t.relname)) + 1)
          FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
         WHERE x.indrelid = of AND x.indisunique ORDER BY i.oid LOOP
        EXECUTE format('CREATE UNIQUE INDEX ON %s%s', target, definition);
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_copy_indexes(regclass, regclass)
IS 'internal: gives a table the unique indexes of another';

-- The CHECK says what the bounds say already. It is made while the partition is empty, so that the archive
-- can take it over without looking at its rows.
CREATE FUNCTION outbox_create_partition(own text, lower_bound timestamptz, upper_bound timestamptz, parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET default_tablespace = '' SET default_table_access_method = 'heap' AS $$
BEGIN
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING IDENTITY,'
                   ' CONSTRAINT outbox_bounds CHECK (occurred_at >= %L AND occurred_at < %L))',
                   own, parent, lower_bound, upper_bound);
    PERFORM @extschema@.outbox_copy_indexes((SELECT t.oid FROM pg_class t JOIN pg_class p USING (relnamespace)
                                              WHERE p.oid = parent AND t.relname = regexp_replace(p.relname, '_archive$', '') || '_template'),
                                            own::regclass);
    PERFORM @extschema@.outbox_finish_partition(own::regclass);
END $$;
COMMENT ON FUNCTION outbox_create_partition(text, timestamptz, timestamptz, regclass)
IS 'internal: a table that can be attached to its parent without a look at its rows';

-- Those that were not there when the extension was made are somebody else's.
-- A type with its collation, if that is not the type's own.
CREATE FUNCTION outbox_columns(target regclass, OUT name text, OUT type text, OUT plain_type text, OUT generated text, OUT is_stored boolean)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT quote_ident(a.attname), spelled.as_it_is, spelled.without_domains,
           CASE WHEN a.attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%s)', pg_get_expr(d.adbin, d.adrelid)) END,
           a.attgenerated = 's'
      FROM pg_attribute a
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     CROSS JOIN LATERAL (
            WITH RECURSIVE layers AS (
                SELECT 0 AS depth, a.atttypid AS type, a.atttypmod AS modifier
                 UNION ALL
                SELECT l.depth + 1, t.typbasetype, t.typtypmod FROM layers l JOIN pg_type t ON t.oid = l.type WHERE t.typtype = 'd')
            SELECT min(s.name) FILTER (WHERE s.depth = 0) AS as_it_is, (array_agg(s.name ORDER BY s.depth DESC))[1] AS without_domains
              FROM (SELECT l.depth, format_type(l.type, l.modifier)
                                    || coalesce((SELECT ' COLLATE ' || o.oid::regcollation FROM pg_collation o
                                                  WHERE o.oid = a.attcollation AND o.oid <> t.typcollation), '') AS name
                      FROM layers l JOIN pg_type t ON t.oid = l.type) s) spelled
     WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
$$;
COMMENT ON FUNCTION outbox_columns(regclass)
IS 'internal: the columns of a table, as SQL names them; their types also without domains';

-- Nothing is computed or written: what was stored once is a value like any other, and a domain would be asked about every row.
CREATE FUNCTION outbox_add_columns(of regclass, target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    missing CONSTANT text := (SELECT string_agg(format('ADD COLUMN %s %s%s', c.name, c.plain_type, CASE WHEN NOT c.is_stored THEN c.generated END), ', ')
                                FROM @extschema@.outbox_columns(of) c
                               WHERE c.name NOT IN (SELECT t.name FROM @extschema@.outbox_columns(target) t));
BEGIN
    IF missing IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s %s', target, missing);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_add_columns(regclass, regclass)
IS 'internal: gives a table those columns of another that it lacks, with nothing in them';

-- The parent has all that the partition has by now, and perhaps some that it has not. What is stored stays as it is.
CREATE FUNCTION outbox_match_columns(partition regclass, parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changes CONSTANT text := (
        SELECT string_agg(x.change, ', ')
          FROM @extschema@.outbox_columns(partition) c JOIN @extschema@.outbox_columns(parent) p USING (name)
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN c.is_stored AND p.generated IS NULL THEN format('ALTER COLUMN %s DROP EXPRESSION', name) END),
               (CASE WHEN c.type <> p.type AND c.plain_type = p.type THEN format('ALTER COLUMN %s TYPE %s', name, p.type) END)) x (change));
BEGIN
    PERFORM @extschema@.outbox_add_columns(of => parent, target => partition);
    IF changes IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s %s', partition, changes);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_match_columns(regclass, regclass)
IS 'internal: sees to it that a table can become a partition, as far as columns go';

-- Rows never change, so they may be frozen the first time that a vacuum comes by. It should come by early, and
-- take its time: producers write to the same WAL.
CREATE FUNCTION outbox_dress_partition(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    place record;
BEGIN
    SELECT p.lower_bound, p.upper_bound INTO place
      FROM pg_inherits i CROSS JOIN LATERAL @extschema@.outbox_partitions(i.inhparent) p
     WHERE i.inhrelid = p.partition AND p.partition = outbox_dress_partition.partition;
    IF NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = partition AND c.conname = 'outbox_bounds') THEN
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT outbox_bounds CHECK (occurred_at >= %L AND occurred_at < %L)',
                       partition, place.lower_bound, place.upper_bound);
    END IF;
    EXECUTE format('ALTER TABLE %s SET (autovacuum_freeze_min_age = 0, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 50,'
                   ' toast.autovacuum_freeze_min_age = 0, toast.autovacuum_vacuum_insert_scale_factor = 0.05)', partition);
    PERFORM @extschema@.outbox_finish_partition(partition);
END $$;
COMMENT ON FUNCTION outbox_dress_partition(regclass)
IS 'internal: gives a new partition the CHECK of its bounds, and settings for vacuum';

CREATE FUNCTION outbox_close_default(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spare CONSTANT regclass := (SELECT p.partition FROM @extschema@.outbox_partitions(parent) p JOIN pg_class c ON c.oid = p.partition
                                 WHERE p.is_default AND NOT c.relrowsecurity);
BEGIN
    IF spare IS NOT NULL THEN
        PERFORM @extschema@.outbox_finish_partition(spare);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_close_default(regclass)
IS 'internal: the default partition is read by its parent, too';

CREATE FUNCTION outbox_dress_partitions(parent regclass DEFAULT '@extschema@.outbox_messages') RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT @extschema@.outbox_dress_partition(p.partition) FROM @extschema@.outbox_partitions(parent) p
     WHERE NOT p.is_default AND pg_relation_size(p.partition) = 0
       AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = p.partition AND c.conname = 'outbox_bounds');
    SELECT @extschema@.outbox_close_default(parent)
$$;
COMMENT ON FUNCTION outbox_dress_partitions(regclass)
IS 'internal: outbox_dress_partition() for all that are empty and have not been dressed';

CREATE FUNCTION outbox_default_holds_events(parent regclass DEFAULT '@extschema@.outbox_messages') RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    default_partition CONSTANT regclass :=
        (SELECT partition FROM @extschema@.outbox_partitions(parent) WHERE is_default);
    found boolean;
BEGIN
    IF default_partition IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', default_partition) INTO found;
    END IF;
    RETURN found;
END $$;
COMMENT ON FUNCTION outbox_default_holds_events(regclass)
IS 'internal: is there anything in the default partition? NULL if there is no such partition';

CREATE FUNCTION outbox_partition_width(parent regclass DEFAULT '@extschema@.outbox_messages', OUT width interval, OUT unit text, OUT suffix text,
                                       OUT premake integer)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('SELECT partition_interval::interval, datetime_string, premake FROM %I.part_config WHERE parent_table = $1',
                   @extschema@.outbox_schema_of('pg_partman'))
       INTO width, suffix, premake USING @extschema@.outbox_partman_name(parent);
    unit := CASE WHEN width < '1 day' THEN 'hour' WHEN width < '1 week' THEN 'day'
                 WHEN width < '28 days' THEN 'week' ELSE 'month' END;
END $$;
COMMENT ON FUNCTION outbox_partition_width(regclass)
IS 'internal: how much time a partition of the log covers, how that shows in its name, and how many are made ahead';

-- Whoever may create something in the schema can take the name of a partition. A type is in the way, too: a table has one of its name.
CREATE FUNCTION outbox_obstacle(parent regclass, suffix text, OUT object text, OUT detail text) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, p.relname || suffix), format('is in the way: it belongs to %I and is no partition', w.rolname)
      FROM pg_class p JOIN pg_namespace n ON n.oid = p.relnamespace
     CROSS JOIN LATERAL (
            SELECT c.relowner FROM pg_class c
             WHERE c.relnamespace = p.relnamespace AND c.relname = p.relname || suffix
               AND NOT EXISTS (SELECT FROM pg_inherits i
                                WHERE i.inhrelid = c.oid AND i.inhparent IN (parent, '@extschema@.outbox_messages_archive'::regclass))
             UNION
            SELECT t.typowner FROM pg_type t
             WHERE t.typnamespace = p.relnamespace AND t.typname = p.relname || suffix AND t.typrelid = 0) o (owner)
      JOIN pg_roles w ON w.oid = o.owner
     WHERE p.oid = parent
     LIMIT 1
$$;
COMMENT ON FUNCTION outbox_obstacle(regclass, text)
IS 'internal: what has the name of a partition, and is none';

-- pg_partman passes over a name that is taken, and does not come back to it.
CREATE FUNCTION outbox_gaps(parent regclass DEFAULT '@extschema@.outbox_messages', OUT start timestamptz, OUT object text, OUT detail text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
    SELECT s.start, o.object, o.detail
      FROM @extschema@.outbox_partition_width(parent) w
     CROSS JOIN LATERAL generate_series(date_trunc(w.unit, clock_timestamp()), clock_timestamp() + w.premake * w.width, w.width) s (start)
      LEFT JOIN LATERAL @extschema@.outbox_obstacle(parent, '_p' || to_char(s.start, w.suffix)) o ON true
     WHERE NOT EXISTS (SELECT FROM @extschema@.outbox_partitions(parent) p WHERE p.lower_bound <= s.start AND p.upper_bound > s.start)
     ORDER BY s.start
$$;
COMMENT ON FUNCTION outbox_gaps(regclass)
IS 'internal: the times from now on that should have a partition and have none, and what is in the way';

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
-- a DROP SCHEMA … CASCADE leaves behind is inert, and the next log replaces it.
CREATE EVENT TRIGGER outbox_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION') EXECUTE FUNCTION outbox_before_drop();
COMMENT ON EVENT TRIGGER outbox_before_drop
IS 'DROP EXTENSION outbox leaves nothing behind in pg_partman';

----------------------------------------------------------------------------------------------------
-- The archive. It gets whole partitions of the log, with their indexes.
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_messages_archive (LIKE outbox_messages INCLUDING COMMENTS) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE outbox_messages_archive
IS 'events that every consumer has passed, and that are older than outbox.hot_retention';

-- Claims ask here whether a consumer is so far behind that it has to read the archive.
CREATE TABLE outbox_archived_partitions (
    partition   name        PRIMARY KEY,
    lower_bound timestamptz NOT NULL,
    upper_bound timestamptz NOT NULL,
    first_id    bigint      NOT NULL,
    last_id     bigint      NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    restored_at timestamptz
);
CREATE INDEX ON outbox_archived_partitions (last_id);
COMMENT ON TABLE outbox_archived_partitions
IS 'the partitions of the archive';
COMMENT ON COLUMN outbox_archived_partitions.partition IS 'its table, in the schema of the log';
COMMENT ON COLUMN outbox_archived_partitions.lower_bound IS 'the first moment that it covers';
COMMENT ON COLUMN outbox_archived_partitions.upper_bound IS 'where it ends';
COMMENT ON COLUMN outbox_archived_partitions.first_id IS 'least id in it';
COMMENT ON COLUMN outbox_archived_partitions.last_id IS 'greatest id in it';
COMMENT ON COLUMN outbox_archived_partitions.archived_at IS 'when it left the log';
COMMENT ON COLUMN outbox_archived_partitions.restored_at IS 'when it came back from cold storage; NULL: it never left';

CREATE TABLE outbox_cold_files (
    file        text        PRIMARY KEY,
    partition   name        NOT NULL,
    lower_bound timestamptz NOT NULL,
    upper_bound timestamptz NOT NULL,
    events      bigint      NOT NULL,
    bytes       bigint      NOT NULL,
    exported_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tried_at    timestamptz,
    stored_at   timestamptz
);
COMMENT ON TABLE outbox_cold_files
IS 'partitions that were exported before they were dropped';
COMMENT ON COLUMN outbox_cold_files.file IS 'its name in outbox.cold_storage_dir';
COMMENT ON COLUMN outbox_cold_files.partition IS 'the table that it was';
COMMENT ON COLUMN outbox_cold_files.lower_bound IS 'the first moment that it covers';
COMMENT ON COLUMN outbox_cold_files.upper_bound IS 'where it ends';
COMMENT ON COLUMN outbox_cold_files.events IS 'how many are in it';
COMMENT ON COLUMN outbox_cold_files.bytes IS 'its size, compressed';
COMMENT ON COLUMN outbox_cold_files.exported_at IS 'when it was written';
COMMENT ON COLUMN outbox_cold_files.tried_at IS 'when outbox.archive_command was last called for it';
COMMENT ON COLUMN outbox_cold_files.stored_at IS 'when outbox.archive_command was done with it; NULL: it is not';

----------------------------------------------------------------------------------------------------
-- Dedup keys. A plain table: uniqueness cannot span partitions. Keys are bytes: their order means
-- nothing, and comparing them by a locale's rules would be most of the work.
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_dedup_keys (
    tenant_id   bigint      NOT NULL,
    expires_at  timestamptz NOT NULL,
    tracking_id uuid        NOT NULL,
    dedup_key   text        COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, dedup_key)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE outbox_dedup_keys
IS 'dedup keys that are remembered, with the event that used each first';
COMMENT ON COLUMN outbox_dedup_keys.tenant_id IS 'keys of different tenants never meet';
COMMENT ON COLUMN outbox_dedup_keys.expires_at IS 'from then on the key counts as new';
COMMENT ON COLUMN outbox_dedup_keys.tracking_id IS 'what every further enqueue with the key returns';
COMMENT ON COLUMN outbox_dedup_keys.dedup_key IS 'as the producer gave it';

----------------------------------------------------------------------------------------------------
-- Scheduled events
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_scheduled (
    available_at   timestamptz NOT NULL,
    tenant_id      bigint      NOT NULL,
    tracking_id    uuid        NOT NULL PRIMARY KEY,
    event_version  smallint    NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL,
    trace_id       text,
    last_error     text,
    refusals       integer     NOT NULL DEFAULT 0,
    try_again_at   timestamptz
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
-- What the log refused is in nobody's way: each row is in one of these.
CREATE INDEX ON outbox_scheduled (available_at, tracking_id) WHERE try_again_at IS NULL;
CREATE INDEX ON outbox_scheduled (try_again_at) WHERE try_again_at IS NOT NULL;
COMMENT ON TABLE outbox_scheduled
IS 'events whose available_at is still to come, or that the log refused; they enter the log when due, with the same tracking_id';
COMMENT ON COLUMN outbox_scheduled.available_at IS 'when the event is to enter the log';
COMMENT ON COLUMN outbox_scheduled.tenant_id IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.tracking_id IS 'as it will stand in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.event_version IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.aggregate_type IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.aggregate_id IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.event_type IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.payload IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.metadata IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.trace_id IS 'as in outbox_messages';
COMMENT ON COLUMN outbox_scheduled.last_error IS 'why the log refused it';
COMMENT ON COLUMN outbox_scheduled.refusals IS 'how often the log refused it';
COMMENT ON COLUMN outbox_scheduled.try_again_at IS 'when it is tried again, if the log refused it';

CREATE FUNCTION outbox_release_due(max_events integer DEFAULT 1000) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release_due';
COMMENT ON FUNCTION outbox_release_due(integer)
IS 'moves scheduled events that are due into the log, the longest due first, and tries again what it refused; returns how many it took';

CREATE FUNCTION outbox_cancel(tracking_id uuid) RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel';
COMMENT ON FUNCTION outbox_cancel(uuid)
IS 'takes back a scheduled event that is not yet due, or that the log refused; false if there is no such event';

----------------------------------------------------------------------------------------------------
-- Enqueue. One C++ function behind all overloads, so that no driver has to cast. Not SECURITY
-- DEFINER: the C++ code acts for the owner by itself, and only where it has to.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as text, payload as jsonb)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as text, payload as json)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as text, payload as text)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as jsonb)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as json)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as text)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as jsonb)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as json)';

CREATE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as text)';

CREATE FUNCTION outbox_enqueue_many(events jsonb) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(jsonb)
IS 'enqueues an array of events, objects with the argument names of outbox_enqueue() as keys, in its order (as jsonb)';

CREATE FUNCTION outbox_enqueue_many(events json) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(json)
IS 'enqueues an array of events, objects with the argument names of outbox_enqueue() as keys, in its order (as json)';

CREATE FUNCTION outbox_enqueue_many(events text) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(text)
IS 'enqueues an array of events, objects with the argument names of outbox_enqueue() as keys, in its order (as text)';

----------------------------------------------------------------------------------------------------
-- Consumers
----------------------------------------------------------------------------------------------------

CREATE SEQUENCE outbox_consumers_id_seq AS integer;
COMMENT ON SEQUENCE outbox_consumers_id_seq
IS 'ids of consumers; a name can come back, its id cannot';

CREATE TABLE outbox_consumers (
    consumer_id       integer     PRIMARY KEY,
    name              text        NOT NULL UNIQUE,
    kind              text        NOT NULL DEFAULT 'worker' CHECK (kind IN ('worker', 'http', 'kafka')),
    ordered           boolean     NOT NULL DEFAULT false,
    paused            boolean     NOT NULL DEFAULT false,
    partitions        integer     NOT NULL DEFAULT 1 CHECK (partitions BETWEEN 1 AND 1024),
    tenant_id         bigint,
    event_types       text[],
    aggregate_types   text[],
    max_attempts      integer,
    immediate_retries integer,
    backoff_base      interval,
    backoff_max       interval,
    backoff_jitter    double precision,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    pause_reason      text,
    fair              boolean     NOT NULL DEFAULT false CHECK (NOT fair OR NOT ordered AND partitions = 1),
    payload_versions  jsonb
);
COMMENT ON TABLE outbox_consumers
IS 'who reads the log: filter, order, parallelism, retry policy';
COMMENT ON COLUMN outbox_consumers.consumer_id IS 'what cursors, batches and dead letters belong to';
COMMENT ON COLUMN outbox_consumers.name IS 'what callers know it by';
COMMENT ON COLUMN outbox_consumers.kind IS 'worker: callers claim; http, kafka: the relay does';
COMMENT ON COLUMN outbox_consumers.ordered IS 'are the events of an aggregate handled strictly in order?';
COMMENT ON COLUMN outbox_consumers.paused IS 'a paused consumer claims nothing';
COMMENT ON COLUMN outbox_consumers.partitions IS 'into how many batches a page of the log is dealt';
COMMENT ON COLUMN outbox_consumers.tenant_id IS 'only events of this tenant; NULL: of all';
COMMENT ON COLUMN outbox_consumers.event_types IS 'only these; NULL or empty: all';
COMMENT ON COLUMN outbox_consumers.aggregate_types IS 'only these; NULL or empty: all';
COMMENT ON COLUMN outbox_consumers.max_attempts IS 'then an event is a dead letter; NULL: outbox.max_attempts';
COMMENT ON COLUMN outbox_consumers.immediate_retries IS 'failures without a pause; NULL: outbox.immediate_retries';
COMMENT ON COLUMN outbox_consumers.backoff_base IS 'the first pause; NULL: outbox.backoff_base';
COMMENT ON COLUMN outbox_consumers.backoff_max IS 'the longest pause; NULL: outbox.backoff_max';
COMMENT ON COLUMN outbox_consumers.backoff_jitter IS 'what chance may take off a pause; NULL: outbox.backoff_jitter';
COMMENT ON COLUMN outbox_consumers.created_at IS 'when it was created';
COMMENT ON COLUMN outbox_consumers.pause_reason IS 'why the relay has paused it; NULL: somebody else did';
COMMENT ON COLUMN outbox_consumers.fair IS 'do tenants take turns?';
COMMENT ON COLUMN outbox_consumers.payload_versions IS 'in which version it gets which event type; others in the latest that upcasters reach';

----------------------------------------------------------------------------------------------------
-- Upcasters: how a payload gets from one version of its event type to the next, when it is read
----------------------------------------------------------------------------------------------------

-- Names, not oids: a dump brings them along, and a function that is made again is found again.
CREATE TABLE outbox_upcasters (
    event_type      text        NOT NULL,
    from_version    integer     NOT NULL CHECK (from_version BETWEEN 1 AND 32766),
    function_schema text        NOT NULL,
    function_name   text        NOT NULL,
    registered_by   text        NOT NULL,
    registered_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_type, from_version)
);
COMMENT ON TABLE outbox_upcasters
IS 'functions from jsonb to jsonb that bring a payload to the next version of its event type';
COMMENT ON COLUMN outbox_upcasters.event_type IS 'whose payloads it takes';
COMMENT ON COLUMN outbox_upcasters.from_version IS 'the version that it takes; it returns the one after that';
COMMENT ON COLUMN outbox_upcasters.function_schema IS 'the schema of the function';
COMMENT ON COLUMN outbox_upcasters.function_name IS 'its name; its argument is a jsonb';
COMMENT ON COLUMN outbox_upcasters.registered_by IS 'the role that it has no more rights than';
COMMENT ON COLUMN outbox_upcasters.registered_at IS 'since when';

CREATE FUNCTION outbox_upcasters_changed() RETURNS trigger
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_upcasters_changed';
COMMENT ON FUNCTION outbox_upcasters_changed()
IS 'internal: all sessions read the upcasters again';

CREATE TRIGGER outbox_upcasters_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON outbox_upcasters
FOR EACH STATEMENT EXECUTE FUNCTION outbox_upcasters_changed();
ALTER TABLE outbox_upcasters ENABLE ALWAYS TRIGGER outbox_upcasters_changed;
COMMENT ON TRIGGER outbox_upcasters_changed ON outbox_upcasters
IS 'sessions keep what they have read of the table';

CREATE FUNCTION outbox_register_upcaster(event_type text, from_version integer, function regprocedure) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_register_upcaster';
COMMENT ON FUNCTION outbox_register_upcaster(text, integer, regprocedure)
IS 'has a function bring payloads of an event type from a version to the next, whenever one is handed out';

CREATE FUNCTION outbox_unregister_upcaster(event_type text, from_version integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_unregister_upcaster()');
    IF event_type IS NULL OR from_version IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN event_type IS NULL THEN 'event_type' ELSE 'from_version' END);
    END IF;
    DELETE FROM @extschema@.outbox_upcasters u
     WHERE u.event_type = outbox_unregister_upcaster.event_type
       AND u.from_version = outbox_unregister_upcaster.from_version;
    IF NOT FOUND THEN
        RAISE undefined_object USING
            MESSAGE = format('event type "%s" has no upcaster from version %s', left(event_type, 255), from_version);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_unregister_upcaster(text, integer)
IS 'takes an upcaster away; the function stays';

CREATE FUNCTION outbox_check_payload_versions(versions jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
    latest integer;
BEGIN
    IF jsonb_typeof(versions) <> 'object' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'payload_versions must be a JSON object',
            HINT = 'It has a version for each event type, such as {"OrderConfirmed": 2}, or "stored" for what was written.';
    END IF;
    FOR wanted IN SELECT * FROM jsonb_each(versions) LOOP
        IF wanted.value = '"stored"' THEN
            CONTINUE;
        ELSIF wanted.value::text !~ '^[0-9]{1,5}$' OR wanted.value::text::integer NOT BETWEEN 1 AND 32767 THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('payload_versions: "%s" must have a version from 1 to 32767, or "stored"', left(wanted.key, 255));
        END IF;
        -- Of a type without upcasters nothing is known: all may have been written in that version.
        SELECT max(u.from_version) + 1 INTO latest FROM @extschema@.outbox_upcasters u WHERE u.event_type = wanted.key;
        IF wanted.value::text::integer > latest THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('payload_versions: upcasters bring "%s" to version %s, not to %s', left(wanted.key, 255), latest, wanted.value),
                HINT = 'Register the upcasters first.';
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_check_payload_versions(jsonb)
IS 'internal: raises an error if a consumer cannot ask for these versions';

----------------------------------------------------------------------------------------------------
-- Batches: one row per claim, never updated. The newest row of a consumer is its cursor. Claims find
-- everything from there, by token: nothing is looked up by a status, through entries of dead rows.
----------------------------------------------------------------------------------------------------

CREATE SEQUENCE outbox_token_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE outbox_token_seq
IS 'fencing tokens, with the timeline in their high bits; never set back';

CREATE TABLE outbox_batches (
    token          bigint         NOT NULL,
    consumer_id    integer        NOT NULL,
    partition      integer        NOT NULL,
    attempts       integer        NOT NULL,
    deliveries     integer        NOT NULL,
    from_retries   boolean        NOT NULL,
    last_id        bigint,
    passed_seq     bigint,
    target_seq     bigint,
    ids            int8multirange NOT NULL,
    passed_running bigint[],
    target_running bigint[],
    open_tokens    bigint[],
    PRIMARY KEY (consumer_id, token)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE outbox_batches
IS 'what was handed out together; the newest row of a consumer says where it is';
COMMENT ON COLUMN outbox_batches.token IS 'fencing token: grows with every batch';
COMMENT ON COLUMN outbox_batches.consumer_id IS 'whose batch';
COMMENT ON COLUMN outbox_batches.partition IS 'of the consumer, from 0';
COMMENT ON COLUMN outbox_batches.attempts IS 'as which attempt it counts';
COMMENT ON COLUMN outbox_batches.deliveries IS 'how often it was handed out, under this and earlier tokens';
COMMENT ON COLUMN outbox_batches.from_retries IS 'are its messages in outbox_retries, not in the log?';
COMMENT ON COLUMN outbox_batches.last_id IS 'up to where the target is drained';
COMMENT ON COLUMN outbox_batches.passed_seq IS 'everything up to here was handed out, except what passed_running brings';
COMMENT ON COLUMN outbox_batches.target_seq IS 'the state that is being drained; NULL: none';
COMMENT ON COLUMN outbox_batches.ids IS 'the messages in it; empty: only a cursor';
COMMENT ON COLUMN outbox_batches.passed_running IS 'xids that were running: from, up to but not, ids above';
COMMENT ON COLUMN outbox_batches.target_running IS 'xids that were running when the target was fixed';
COMMENT ON COLUMN outbox_batches.open_tokens IS 'batches that were not settled then, this one included';

CREATE TABLE outbox_leases (
    token         bigint      PRIMARY KEY,
    root          bigint      NOT NULL,
    first_id      bigint      NOT NULL,
    consumer_id   integer     NOT NULL,
    partition     integer     NOT NULL,
    size          integer     NOT NULL,
    lease         interval,
    claimed_at    timestamptz,
    locked_until  timestamptz,
    acked_at      timestamptz,
    superseded_by bigint,
    remaining     int8multirange,
    failed        int8multirange,
    worker        text,
    tenant_id     bigint
) WITH (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE outbox_leases
IS 'who has a batch, until when, and what is left of it';
COMMENT ON COLUMN outbox_leases.token IS 'of its batch';
COMMENT ON COLUMN outbox_leases.root IS 'the first batch that its messages were in: the order within a partition';
COMMENT ON COLUMN outbox_leases.first_id IS 'least id of the batch';
COMMENT ON COLUMN outbox_leases.consumer_id IS 'whose batch';
COMMENT ON COLUMN outbox_leases.partition IS 'of the consumer, from 0';
COMMENT ON COLUMN outbox_leases.size IS 'how many messages the batch has';
COMMENT ON COLUMN outbox_leases.lease IS 'for how long a claim or heartbeat locks it';
COMMENT ON COLUMN outbox_leases.claimed_at IS 'when it was handed out; NULL: it waits for a worker';
COMMENT ON COLUMN outbox_leases.locked_until IS 'then others may take it over; -infinity: handed back';
COMMENT ON COLUMN outbox_leases.acked_at IS 'when everything in it was settled';
COMMENT ON COLUMN outbox_leases.superseded_by IS 'the token that has taken it over';
COMMENT ON COLUMN outbox_leases.remaining IS 'what is left to settle; NULL: all of it';
COMMENT ON COLUMN outbox_leases.failed IS 'what was taken out of it';
COMMENT ON COLUMN outbox_leases.worker IS 'who has it';
COMMENT ON COLUMN outbox_leases.tenant_id IS 'whose messages they are, if the consumer is fair';

CREATE TABLE outbox_turns (
    consumer_id integer NOT NULL,
    tenant_id   bigint  NOT NULL,
    served      bigint  NOT NULL,
    PRIMARY KEY (consumer_id, tenant_id, served)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE outbox_turns
IS 'when each tenant had a turn at a fair consumer: the newest counts, others are pruned';
COMMENT ON COLUMN outbox_turns.consumer_id IS 'the consumer';
COMMENT ON COLUMN outbox_turns.tenant_id IS 'the tenant';
COMMENT ON COLUMN outbox_turns.served IS 'a token from then; whose newest is the least is next';

----------------------------------------------------------------------------------------------------
-- What went wrong
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_retries (
    xid            xid8        NOT NULL,
    id             bigint      NOT NULL,
    occurred_at    timestamptz NOT NULL,
    tenant_id      bigint      NOT NULL,
    tracking_id    uuid        NOT NULL,
    event_version  smallint    NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL,
    trace_id       text,
    consumer_id    integer     NOT NULL,
    partition      integer     NOT NULL,
    attempts       integer     NOT NULL,
    redriven       boolean     NOT NULL DEFAULT false,
    available_at   timestamptz NOT NULL,
    failed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_error     text,
    PRIMARY KEY (consumer_id, id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
CREATE INDEX ON outbox_retries (consumer_id, available_at);
CREATE INDEX ON outbox_retries (consumer_id, aggregate_type, aggregate_id, id);
COMMENT ON TABLE outbox_retries
IS 'copies of messages that wait for another attempt, or behind one that does';
COMMENT ON COLUMN outbox_retries.xid IS 'the transaction that wrote the event';
COMMENT ON COLUMN outbox_retries.id IS 'position in the log';
COMMENT ON COLUMN outbox_retries.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN outbox_retries.tenant_id IS 'whose event it is';
COMMENT ON COLUMN outbox_retries.tracking_id IS 'the event''s identity';
COMMENT ON COLUMN outbox_retries.event_version IS 'version of the payload''s shape';
COMMENT ON COLUMN outbox_retries.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN outbox_retries.aggregate_id IS 'which one';
COMMENT ON COLUMN outbox_retries.event_type IS 'what happened';
COMMENT ON COLUMN outbox_retries.payload IS 'the event itself';
COMMENT ON COLUMN outbox_retries.metadata IS 'an object beside the payload';
COMMENT ON COLUMN outbox_retries.trace_id IS 'as the producer gave it';
COMMENT ON COLUMN outbox_retries.consumer_id IS 'whose attempt failed';
COMMENT ON COLUMN outbox_retries.partition IS 'of the consumer, from 0';
COMMENT ON COLUMN outbox_retries.attempts IS 'how often it has failed';
COMMENT ON COLUMN outbox_retries.redriven IS 'came back from the dead letters: nothing waits behind it';
COMMENT ON COLUMN outbox_retries.available_at IS 'when it is due; infinity: it waits behind another of its aggregate';
COMMENT ON COLUMN outbox_retries.failed_at IS 'since when it is here';
COMMENT ON COLUMN outbox_retries.last_error IS 'what the worker said';

CREATE TABLE outbox_messages_dlq (
    xid            xid8        NOT NULL,
    id             bigint      NOT NULL,
    occurred_at    timestamptz NOT NULL,
    tenant_id      bigint      NOT NULL,
    tracking_id    uuid        NOT NULL,
    event_version  smallint    NOT NULL,
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    metadata       jsonb       NOT NULL,
    trace_id       text,
    consumer_id    integer     NOT NULL,
    attempts       integer     NOT NULL,
    died_at        timestamptz NOT NULL,
    last_error     text        NOT NULL,
    PRIMARY KEY (consumer_id, id)
);
COMMENT ON TABLE outbox_messages_dlq
IS 'dead letters: copies of messages that a consumer has given up';
COMMENT ON COLUMN outbox_messages_dlq.xid IS 'the transaction that wrote the event';
COMMENT ON COLUMN outbox_messages_dlq.id IS 'position in the log';
COMMENT ON COLUMN outbox_messages_dlq.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN outbox_messages_dlq.tenant_id IS 'whose event it is';
COMMENT ON COLUMN outbox_messages_dlq.tracking_id IS 'the event''s identity';
COMMENT ON COLUMN outbox_messages_dlq.event_version IS 'version of the payload''s shape';
COMMENT ON COLUMN outbox_messages_dlq.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN outbox_messages_dlq.aggregate_id IS 'which one';
COMMENT ON COLUMN outbox_messages_dlq.event_type IS 'what happened';
COMMENT ON COLUMN outbox_messages_dlq.payload IS 'the event itself';
COMMENT ON COLUMN outbox_messages_dlq.metadata IS 'an object beside the payload';
COMMENT ON COLUMN outbox_messages_dlq.trace_id IS 'as the producer gave it';
COMMENT ON COLUMN outbox_messages_dlq.consumer_id IS 'who has given up';
COMMENT ON COLUMN outbox_messages_dlq.attempts IS 'how often it was tried';
COMMENT ON COLUMN outbox_messages_dlq.died_at IS 'when it was given up';
COMMENT ON COLUMN outbox_messages_dlq.last_error IS 'what the worker said';

----------------------------------------------------------------------------------------------------
-- Managing consumers
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_partition_of(aggregate_type text, aggregate_id text, partitions integer)
RETURNS integer LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_partition_of';
COMMENT ON FUNCTION outbox_partition_of(text, text, integer)
IS 'internal: which partition of a consumer an aggregate belongs to';

CREATE FUNCTION outbox_place_cursor(consumer_id integer, to_time timestamptz) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_place_cursor';
COMMENT ON FUNCTION outbox_place_cursor(integer, timestamptz)
IS 'internal: gives a new consumer its first cursor';

CREATE FUNCTION outbox_wake() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_wake';
COMMENT ON FUNCTION outbox_wake()
IS 'internal: the commit of this transaction wakes those who wait';

CREATE FUNCTION outbox_lock_consumer(name text) RETURNS boolean
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_lock_consumer';
COMMENT ON FUNCTION outbox_lock_consumer(text)
IS 'internal: keeps claims away until the end of this transaction; true if anything is under way';

CREATE FUNCTION outbox_parse_time(target text, argument text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    result timestamptz;
BEGIN
    IF target IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = format('%s must not be NULL', argument);
    END IF;
    BEGIN
        result := CASE target WHEN 'earliest' THEN '-infinity' WHEN 'latest' THEN 'infinity' ELSE target END;
    EXCEPTION WHEN data_exception THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('%s %L is not understood', argument, left(target, 63)),
            HINT = 'It is earliest, latest, or a time such as 2026-01-31 12:00+00.';
    END;
    RETURN result;
END $$;
COMMENT ON FUNCTION outbox_parse_time(text, text)
IS 'internal: earliest and latest are the ends of time';

CREATE FUNCTION outbox_find_consumer(name text) RETURNS outbox_consumers
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer @extschema@.outbox_consumers;
BEGIN
    IF name IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'consumer must not be NULL';
    END IF;
    SELECT * INTO consumer FROM @extschema@.outbox_consumers c
     WHERE c.name = outbox_find_consumer.name AND @extschema@.outbox_shows_tenant(c.tenant_id);
    IF NOT FOUND THEN
        RAISE undefined_object USING
            MESSAGE = format('consumer "%s" does not exist', left(name, 63)),
            HINT = 'Create it with outbox_create_consumer().';
    END IF;
    RETURN consumer;
END $$;
COMMENT ON FUNCTION outbox_find_consumer(text)
IS 'internal: the consumer with this name, or an error';

CREATE FUNCTION outbox_check_consumer(consumer outbox_consumers) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wrong text := CASE
        WHEN consumer.name IS NULL THEN 'name must not be NULL'
        WHEN consumer.name = '' THEN 'name must not be empty'
        WHEN octet_length(consumer.name) > 63 THEN 'name must not be longer than 63 bytes'
        WHEN consumer.name ~ '[[:cntrl:]]' THEN 'name must not contain control characters'
        WHEN consumer.partitions NOT BETWEEN 1 AND 1024 THEN 'partitions must be between 1 and 1024'
        WHEN consumer.max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts must be between 1 and 1000'
        WHEN consumer.immediate_retries NOT BETWEEN 0 AND 1000
            THEN 'immediate_retries must be between 0 and 1000'
        WHEN consumer.backoff_base NOT BETWEEN '0' AND '1 day' THEN 'backoff_base must be between 0 and 1 day'
        WHEN consumer.backoff_max NOT BETWEEN '0' AND '1 day' THEN 'backoff_max must be between 0 and 1 day'
        WHEN consumer.backoff_jitter NOT BETWEEN 0 AND 1 THEN 'backoff_jitter must be between 0 and 1'
        WHEN consumer.fair AND (consumer.ordered OR consumer.partitions <> 1)
            THEN 'fair cannot be had together with ordered or with several partitions'
        WHEN array_ndims(consumer.event_types) > 1 THEN 'event_types must have one dimension'
        WHEN array_ndims(consumer.aggregate_types) > 1 THEN 'aggregate_types must have one dimension'
        WHEN array_position(consumer.event_types, NULL) > 0 THEN 'event_types must not contain NULLs'
        WHEN array_position(consumer.aggregate_types, NULL) > 0 THEN 'aggregate_types must not contain NULLs'
        END;
BEGIN
    IF wrong LIKE '%NULL%' THEN
        RAISE null_value_not_allowed USING MESSAGE = wrong;
    ELSIF wrong IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = wrong;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_check_consumer(outbox_consumers)
IS 'internal: raises an error if a consumer cannot be like this';

CREATE FUNCTION outbox_add_consumer(consumer outbox_consumers, start_at text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start CONSTANT timestamptz := @extschema@.outbox_parse_time(start_at, 'start_at');
BEGIN
    -- Names are for all tenants: that one is taken would tell of another's.
    PERFORM @extschema@.outbox_refuse_tenants('to create a consumer');
    consumer.event_types := nullif(consumer.event_types, '{}');
    consumer.aggregate_types := nullif(consumer.aggregate_types, '{}');
    consumer.payload_versions := nullif(consumer.payload_versions, '{}');
    PERFORM @extschema@.outbox_check_consumer(consumer);
    PERFORM @extschema@.outbox_check_payload_versions(consumer.payload_versions);
    consumer.consumer_id := nextval('@extschema@.outbox_consumers_id_seq');
    consumer.paused := false;
    consumer.fair := coalesce(consumer.fair, false);
    consumer.created_at := clock_timestamp();
    INSERT INTO @extschema@.outbox_consumers SELECT consumer.*;
    PERFORM @extschema@.outbox_place_cursor(consumer.consumer_id, start);
    RETURN consumer.consumer_id;
EXCEPTION WHEN unique_violation THEN
    RAISE duplicate_object USING
        MESSAGE = format('consumer "%s" already exists', consumer.name),
        HINT = 'outbox_alter_consumer() or outbox_alter_sink() changes it, outbox_seek() moves it.';
END $$;
COMMENT ON FUNCTION outbox_add_consumer(outbox_consumers, text)
IS 'internal: adds a consumer, or the consumer of a sink';

CREATE FUNCTION outbox_create_consumer(
    name text, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    tenant_id bigint DEFAULT NULL, ordered boolean DEFAULT false, partitions integer DEFAULT 1,
    max_attempts integer DEFAULT NULL, start_at text DEFAULT 'latest', fair boolean DEFAULT false,
    payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer @extschema@.outbox_consumers;
BEGIN
    consumer.name := name;
    consumer.kind := 'worker';
    consumer.ordered := coalesce(ordered, false);
    consumer.partitions := coalesce(partitions, 1);
    consumer.tenant_id := tenant_id;
    consumer.event_types := event_types;
    consumer.aggregate_types := aggregate_types;
    consumer.max_attempts := max_attempts;
    consumer.fair := fair;
    consumer.payload_versions := payload_versions;
    PERFORM @extschema@.outbox_add_consumer(consumer, start_at);
END $$;
COMMENT ON FUNCTION outbox_create_consumer(text, text[], text[], bigint, boolean, integer, integer, text, boolean,
                                           jsonb)
IS 'creates a consumer, which gets every event that commits from now on, or from start_at';

CREATE FUNCTION outbox_alter_consumer(
    name text, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    ordered boolean DEFAULT NULL, partitions integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
    immediate_retries integer DEFAULT NULL, backoff_base interval DEFAULT NULL,
    backoff_max interval DEFAULT NULL, backoff_jitter double precision DEFAULT NULL,
    fair boolean DEFAULT NULL, payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before @extschema@.outbox_consumers := @extschema@.outbox_find_consumer(name);
    busy   CONSTANT boolean := @extschema@.outbox_lock_consumer(name);
    after  @extschema@.outbox_consumers;
BEGIN
    before := @extschema@.outbox_find_consumer(name); -- again, behind the lock
    after := before;
    after.event_types := nullif(coalesce(event_types, before.event_types), '{}');
    after.aggregate_types := nullif(coalesce(aggregate_types, before.aggregate_types), '{}');
    after.ordered := coalesce(ordered, before.ordered);
    after.partitions := coalesce(partitions, before.partitions);
    after.fair := coalesce(fair, before.fair);
    after.max_attempts := coalesce(max_attempts, before.max_attempts);
    after.immediate_retries := coalesce(immediate_retries, before.immediate_retries);
    after.backoff_base := coalesce(backoff_base, before.backoff_base);
    after.backoff_max := coalesce(backoff_max, before.backoff_max);
    after.backoff_jitter := coalesce(backoff_jitter, before.backoff_jitter);
    after.payload_versions := nullif(coalesce(payload_versions, before.payload_versions), '{}');
    PERFORM @extschema@.outbox_check_consumer(after);
    PERFORM @extschema@.outbox_check_payload_versions(payload_versions);
    IF after.kind <> 'worker' AND after.partitions <> 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'a sink has no partitions';
    ELSIF after.kind <> 'worker' AND after.fair THEN
        RAISE invalid_parameter_value USING MESSAGE = 'a sink cannot be fair';
    END IF;
    -- An aggregate may change its partition, so nothing may be under way in the old one.
    IF busy AND (after.ordered, after.partitions) IS DISTINCT FROM (before.ordered, before.partitions) THEN
        RAISE object_in_use USING
            MESSAGE = 'ordered and partitions cannot change while batches are open or messages wait for a retry',
            HINT = 'Pause the consumer, let its workers finish, and try again.';
    END IF;
    UPDATE @extschema@.outbox_consumers c
       SET event_types = after.event_types, aggregate_types = after.aggregate_types,
           ordered = after.ordered, partitions = after.partitions, max_attempts = after.max_attempts,
           immediate_retries = after.immediate_retries, backoff_base = after.backoff_base,
           backoff_max = after.backoff_max, backoff_jitter = after.backoff_jitter, fair = after.fair,
           payload_versions = after.payload_versions
     WHERE c.consumer_id = before.consumer_id;
    PERFORM @extschema@.outbox_wake();
END $$;
COMMENT ON FUNCTION outbox_alter_consumer(text, text[], text[], boolean, integer, integer, integer, interval,
                                          interval, double precision, boolean, jsonb)
IS 'changes a consumer; NULL leaves things as they are, an empty list of types means all';

CREATE FUNCTION outbox_drop_consumer(name text, discard_dead_letters boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_drop_consumer';
COMMENT ON FUNCTION outbox_drop_consumer(text, boolean)
IS 'forgets a consumer with its cursor and leases, and with its dead letters only if told so';

CREATE FUNCTION outbox_set_paused(name text, paused boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer @extschema@.outbox_consumers := @extschema@.outbox_find_consumer(name);
BEGIN
    UPDATE @extschema@.outbox_consumers c SET paused = outbox_set_paused.paused, pause_reason = NULL
     WHERE c.consumer_id = consumer.consumer_id;
    -- Whoever resumes a sink in a copy of its database wants it to send from there.
    IF NOT paused THEN
        UPDATE @extschema@.outbox_sinks s SET home = @extschema@.outbox_identity()
         WHERE s.consumer_id = consumer.consumer_id;
    END IF;
    PERFORM @extschema@.outbox_wake();
END $$;
COMMENT ON FUNCTION outbox_set_paused(text, boolean)
IS 'internal: pauses or resumes a consumer';

CREATE FUNCTION outbox_pause(name text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.outbox_set_paused(name, true) $$;
COMMENT ON FUNCTION outbox_pause(text)
IS 'lets a consumer claim nothing more; what it has in hand can still be settled';

CREATE FUNCTION outbox_resume(name text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.outbox_set_paused(name, false) $$;
COMMENT ON FUNCTION outbox_resume(text)
IS 'ends a pause';

CREATE FUNCTION outbox_seek(consumer text, to_time timestamptz) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_seek';
COMMENT ON FUNCTION outbox_seek(text, timestamptz)
IS 'moves a consumer to the first event that entered the log at that time or later';

CREATE FUNCTION outbox_seek(consumer text, target text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_seek(consumer, @extschema@.outbox_parse_time(target, 'target'));
END $$;
COMMENT ON FUNCTION outbox_seek(text, text)
IS 'moves a consumer to earliest, latest, or a time';

----------------------------------------------------------------------------------------------------
-- Workers
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_claim(
    consumer text, batch_size integer DEFAULT NULL, lease interval DEFAULT NULL, worker text DEFAULT NULL,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer,
    OUT lock_token bigint, OUT locked_until timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_claim';
COMMENT ON FUNCTION outbox_claim(text, integer, interval, text)
IS 'hands out the next batch of a consumer under one lock_token';

CREATE FUNCTION outbox_consume(
    consumer text, batch_size integer DEFAULT NULL,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_consume';
COMMENT ON FUNCTION outbox_consume(text, integer)
IS 'reads the next batch and settles it, both in this transaction: exactly once for what is done in it';

CREATE FUNCTION outbox_peek(
    consumer text, max_rows integer DEFAULT 10,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_peek';
COMMENT ON FUNCTION outbox_peek(text, integer)
IS 'what a consumer would get next; nothing is claimed';

CREATE FUNCTION outbox_ack(lock_token bigint, ids bigint[] DEFAULT NULL) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_ack';
COMMENT ON FUNCTION outbox_ack(bigint, bigint[])
IS 'settles messages of a batch, or all that is left of it; returns how many';

CREATE FUNCTION outbox_fail(lock_token bigint, id bigint, error text, retry_in interval DEFAULT NULL,
                            dead boolean DEFAULT false) RETURNS text
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_fail';
COMMENT ON FUNCTION outbox_fail(bigint, bigint, text, interval, boolean)
IS 'says that a message failed; returns what becomes of it: retry or dead';

CREATE FUNCTION outbox_fail(lock_token bigint, ids bigint[], error text, retry_in interval DEFAULT NULL,
                            dead boolean DEFAULT false) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_fail_many';
COMMENT ON FUNCTION outbox_fail(bigint, bigint[], text, interval, boolean)
IS 'says that messages failed; returns how many';

CREATE FUNCTION outbox_heartbeat(lock_token bigint, lease interval DEFAULT NULL) RETURNS timestamptz
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_heartbeat';
COMMENT ON FUNCTION outbox_heartbeat(bigint, interval)
IS 'starts the lease of a batch anew; returns until when it lasts';

CREATE FUNCTION outbox_release(lock_token bigint) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release';
COMMENT ON FUNCTION outbox_release(bigint)
IS 'hands back what is left of a batch, without counting an attempt; returns how many';

CREATE PROCEDURE outbox_wait(consumer text, timeout interval, INOUT ready boolean DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_wait';
COMMENT ON PROCEDURE outbox_wait(text, interval, boolean)
IS 'waits until there is something to claim; says whether there is';

----------------------------------------------------------------------------------------------------
-- Dead letters
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_check_ids(ids bigint[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(ids) > 100000 THEN
        RAISE program_limit_exceeded USING
            MESSAGE = format('ids has %s elements, more than 100000', cardinality(ids)),
            HINT = 'Split the call.';
    ELSIF EXISTS (SELECT FROM unnest(ids) i WHERE i IS NULL) THEN
        RAISE null_value_not_allowed USING MESSAGE = 'ids must not contain NULLs';
    END IF;
END $$;
COMMENT ON FUNCTION outbox_check_ids(bigint[])
IS 'internal: raises an error if the array cannot be a list of ids';

-- What a transaction saw at its beginning is no cursor: with the lock comes a look of its own.
CREATE FUNCTION outbox_newest_batch(consumer_id integer) RETURNS outbox_batches
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_newest_batch';
COMMENT ON FUNCTION outbox_newest_batch(integer)
IS 'internal: the newest batch of a consumer whose lock is held, which says where it is';

CREATE FUNCTION outbox_redrive(consumer text, event_type text DEFAULT NULL, ids bigint[] DEFAULT NULL,
                               since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    reader   @extschema@.outbox_consumers := @extschema@.outbox_find_consumer(consumer);
    redriven integer;
    newest   @extschema@.outbox_batches;
BEGIN
    PERFORM @extschema@.outbox_check_ids(ids);
    -- Its partitions must not change under the messages that are about to be dealt to them.
    PERFORM @extschema@.outbox_lock_consumer(consumer);
    SELECT * INTO STRICT reader FROM @extschema@.outbox_consumers c WHERE c.name = consumer FOR SHARE;
    newest := @extschema@.outbox_newest_batch(reader.consumer_id);
    WITH chosen AS (
        DELETE FROM @extschema@.outbox_messages_dlq d
         WHERE d.consumer_id = reader.consumer_id
           AND (outbox_redrive.event_type IS NULL OR d.event_type = outbox_redrive.event_type)
           AND (outbox_redrive.ids IS NULL OR d.id = ANY (outbox_redrive.ids))
           AND (since IS NULL OR d.died_at >= since) AND (until IS NULL OR d.died_at < until)
        RETURNING *),
    waiting AS (
        INSERT INTO @extschema@.outbox_retries
               (xid, id, occurred_at, tenant_id, tracking_id, event_version, aggregate_type, aggregate_id,
                event_type, payload, metadata, trace_id, consumer_id, partition, attempts, redriven,
                available_at, last_error)
        SELECT xid, id, occurred_at, tenant_id, tracking_id, event_version, aggregate_type, aggregate_id,
               event_type, payload, metadata, trace_id, consumer_id,
               @extschema@.outbox_partition_of(aggregate_type, aggregate_id, reader.partitions), 0, true,
               clock_timestamp(), last_error
          FROM chosen d
         -- Since a seek it may be still to come out of the log: once is enough, and two could have it at a time.
         WHERE @extschema@.outbox_has_passed(newest, d.xid, d.id)
            OR (d.event_type = ANY (reader.event_types)) IS FALSE OR (d.aggregate_type = ANY (reader.aggregate_types)) IS FALSE
            OR NOT EXISTS (SELECT FROM @extschema@.outbox_messages m WHERE m.id = d.id AND m.occurred_at = d.occurred_at
                           UNION ALL SELECT FROM @extschema@.outbox_messages_archive m WHERE m.id = d.id AND m.occurred_at = d.occurred_at)
        ON CONFLICT DO NOTHING)
    SELECT count(*) INTO redriven FROM chosen;
    PERFORM @extschema@.outbox_wake();
    RETURN redriven;
END $$;
COMMENT ON FUNCTION outbox_redrive(text, text, bigint[], timestamptz, timestamptz)
IS 'gives dead letters of a consumer another life; since and until are about the time of death';

CREATE FUNCTION outbox_discard(consumer text, ids bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reader    @extschema@.outbox_consumers := @extschema@.outbox_find_consumer(consumer);
    discarded integer;
BEGIN
    IF ids IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'ids must not be NULL';
    END IF;
    PERFORM @extschema@.outbox_check_ids(ids);
    DELETE FROM @extschema@.outbox_messages_dlq d
     WHERE d.consumer_id = reader.consumer_id AND d.id = ANY (ids);
    GET DIAGNOSTICS discarded = ROW_COUNT;
    RETURN discarded;
END $$;
COMMENT ON FUNCTION outbox_discard(text, bigint[])
IS 'removes dead letters for good; returns how many';

----------------------------------------------------------------------------------------------------
-- Sinks: consumers that the relay serves
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_sinks (
    consumer_id integer PRIMARY KEY,
    config      jsonb   NOT NULL,
    home        text    NOT NULL
);
COMMENT ON TABLE outbox_sinks
IS 'where the relay brings events; the rest of each sink is in outbox_consumers';
COMMENT ON COLUMN outbox_sinks.consumer_id IS 'the consumer that it is';
COMMENT ON COLUMN outbox_sinks.config IS 'what the sink needs to know; secrets only by their names';
COMMENT ON COLUMN outbox_sinks.home IS 'the database it was made in: a copy of that database keeps it paused';

CREATE FUNCTION outbox_identity() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_identity';
COMMENT ON FUNCTION outbox_identity()
IS 'internal: which database this is, unlike any copy of it';

CREATE FUNCTION outbox_check_sink(kind text, config text) RETURNS void
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_check_sink';
COMMENT ON FUNCTION outbox_check_sink(text, text)
IS 'internal: raises an error if there can be no such sink';

CREATE FUNCTION outbox_find_sink(name text) RETURNS outbox_consumers
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer @extschema@.outbox_consumers := @extschema@.outbox_find_consumer(name);
BEGIN
    IF consumer.kind = 'worker' THEN
        RAISE wrong_object_type USING MESSAGE = format('consumer "%s" is not a sink', name);
    END IF;
    RETURN consumer;
END $$;
COMMENT ON FUNCTION outbox_find_sink(text)
IS 'internal: the sink with this name, or an error';

CREATE FUNCTION outbox_create_sink(
    name text, kind text, config jsonb, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    tenant_id bigint DEFAULT NULL, ordered boolean DEFAULT true, max_attempts integer DEFAULT NULL,
    start_at text DEFAULT 'latest', payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer @extschema@.outbox_consumers;
BEGIN
    IF kind IS NULL OR config IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN kind IS NULL THEN 'kind' ELSE 'config' END);
    END IF;
    consumer.name := name;
    consumer.kind := kind;
    consumer.ordered := coalesce(ordered, true);
    consumer.partitions := 1;
    consumer.tenant_id := tenant_id;
    consumer.event_types := event_types;
    consumer.aggregate_types := aggregate_types;
    consumer.max_attempts := max_attempts;
    consumer.payload_versions := payload_versions;
    PERFORM @extschema@.outbox_check_consumer(consumer);
    PERFORM @extschema@.outbox_check_sink(kind, config::text);
    INSERT INTO @extschema@.outbox_sinks (consumer_id, config, home)
    VALUES (@extschema@.outbox_add_consumer(consumer, start_at), config, @extschema@.outbox_identity());
    PERFORM @extschema@.outbox_wake();
END $$;
COMMENT ON FUNCTION outbox_create_sink(text, text, jsonb, text[], text[], bigint, boolean, integer, text, jsonb)
IS 'creates a sink: the relay brings it every event that commits from now on, or from start_at';

CREATE FUNCTION outbox_alter_sink(
    name text, config jsonb DEFAULT NULL, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    ordered boolean DEFAULT NULL, max_attempts integer DEFAULT NULL, immediate_retries integer DEFAULT NULL,
    backoff_base interval DEFAULT NULL, backoff_max interval DEFAULT NULL,
    backoff_jitter double precision DEFAULT NULL, payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    sink CONSTANT @extschema@.outbox_consumers := @extschema@.outbox_find_sink(name);
BEGIN
    IF outbox_alter_sink.config IS NOT NULL THEN
        -- It can name every secret in the file.
        PERFORM @extschema@.outbox_refuse_tenants('to change the config of a sink');
        PERFORM @extschema@.outbox_check_sink(sink.kind, outbox_alter_sink.config::text);
        UPDATE @extschema@.outbox_sinks s SET config = outbox_alter_sink.config
         WHERE s.consumer_id = sink.consumer_id;
    END IF;
    PERFORM @extschema@.outbox_alter_consumer(
        name, event_types, aggregate_types, ordered, NULL, max_attempts, immediate_retries, backoff_base,
        backoff_max, backoff_jitter, NULL, payload_versions);
END $$;
COMMENT ON FUNCTION outbox_alter_sink(text, jsonb, text[], text[], boolean, integer, integer, interval, interval,
                                      double precision, jsonb)
IS 'changes a sink; NULL leaves things as they are, a config replaces the whole config';

CREATE FUNCTION outbox_drop_sink(name text, discard_dead_letters boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_find_sink(name);
    PERFORM @extschema@.outbox_drop_consumer(name, discard_dead_letters);
END $$;
COMMENT ON FUNCTION outbox_drop_sink(text, boolean)
IS 'forgets a sink, and its dead letters only if told so';

CREATE PROCEDURE outbox_test_sink(name text, INOUT ok boolean DEFAULT NULL, INOUT detail text DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_test_sink';
COMMENT ON PROCEDURE outbox_test_sink(text, boolean, text)
IS 'has the relay send a made-up event to a sink, now, and says what came back';

CREATE FUNCTION outbox_sink_states(
    OUT consumer_id integer, OUT in_hand integer, OUT on_the_way integer, OUT troubles integer,
    OUT delivered bigint, OUT rejected bigint, OUT resume_at timestamptz, OUT last_error_at timestamptz,
    OUT last_error text)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_sink_states';
COMMENT ON FUNCTION outbox_sink_states()
IS 'internal: what the relay is doing for each sink of this database that the session may see';

----------------------------------------------------------------------------------------------------
-- The inbox: a consumer's memory of what it has handled
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_inbox (
    tracking_id uuid        NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id   bigint      NOT NULL DEFAULT 0,
    consumer    text        NOT NULL,
    PRIMARY KEY (consumer, tracking_id, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE outbox_inbox
IS 'events that consumers have accepted, so that they handle each once';
COMMENT ON COLUMN outbox_inbox.tracking_id IS 'of the event';
COMMENT ON COLUMN outbox_inbox.accepted_at IS 'when';
COMMENT ON COLUMN outbox_inbox.tenant_id IS 'of the session; inboxes of different tenants never meet';
COMMENT ON COLUMN outbox_inbox.consumer IS 'by whom; any name, the log may be in another database';

CREATE FUNCTION inbox_accept(consumer text, tracking_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF consumer IS NULL OR tracking_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN consumer IS NULL THEN 'consumer' ELSE 'tracking_id' END);
    ELSIF consumer = '' OR octet_length(consumer) > 63 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'consumer must have between 1 and 63 bytes';
    END IF;
    INSERT INTO @extschema@.outbox_inbox (consumer, tracking_id, tenant_id)
    VALUES (consumer, tracking_id, coalesce(@extschema@.outbox_session_tenant(), 0))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION inbox_accept(text, uuid)
IS 'true the first time that a consumer sees the event, as long as this transaction commits';

----------------------------------------------------------------------------------------------------
-- Idempotency keys. A plain table: uniqueness cannot span partitions. An attempt that is begun and
-- finished in one transaction is one row, written once, and has one entry in one index.
----------------------------------------------------------------------------------------------------

CREATE TABLE idempotency_keys (
    tenant_id    bigint      NOT NULL,
    token        bigint      NOT NULL,
    expires_at   timestamptz NOT NULL,
    locked_until timestamptz,
    begun_at     timestamptz NOT NULL,
    finished_at  timestamptz,
    status_code  smallint,
    failed       boolean     NOT NULL,
    request_hash bytea       NOT NULL,
    scope        text        COLLATE "C" NOT NULL,
    key          text        COLLATE "C" NOT NULL,
    response     jsonb,
    -- The key comes first because it alone tells most rows apart: one comparison instead of three.
    PRIMARY KEY (key, scope, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off,
       autovacuum_vacuum_insert_scale_factor = 0.02);
COMMENT ON TABLE idempotency_keys
IS 'idempotency keys in use, with the answers to them';
COMMENT ON COLUMN idempotency_keys.tenant_id IS 'keys of different tenants never meet';
COMMENT ON COLUMN idempotency_keys.token IS 'of the attempt that has the key; grows with every attempt';
COMMENT ON COLUMN idempotency_keys.expires_at IS 'from then on the key counts as new';
COMMENT ON COLUMN idempotency_keys.locked_until IS 'then another attempt may take over; NULL: it is finished';
COMMENT ON COLUMN idempotency_keys.begun_at IS 'when the attempt was first written down';
COMMENT ON COLUMN idempotency_keys.finished_at IS 'when the answer was known; NULL: it runs';
COMMENT ON COLUMN idempotency_keys.status_code IS 'of the answer; NULL: it runs';
COMMENT ON COLUMN idempotency_keys.failed IS 'is the answer a failure? It is replayed like any other';
COMMENT ON COLUMN idempotency_keys.request_hash IS 'SHA-256 of the request in canonical JSON';
COMMENT ON COLUMN idempotency_keys.scope IS 'what the request is about: keys of different scopes never meet';
COMMENT ON COLUMN idempotency_keys.key IS 'as the client gave it';
COMMENT ON COLUMN idempotency_keys.response IS 'of the answer';

CREATE TABLE idempotency_scopes (
    scope    text    COLLATE "C" PRIMARY KEY,
    required boolean NOT NULL
);
COMMENT ON TABLE idempotency_scopes
IS 'scopes that have a rule of their own for calls without a key';
COMMENT ON COLUMN idempotency_scopes.scope IS 'as calls name it';
COMMENT ON COLUMN idempotency_scopes.required IS 'is a call without a key an error?';

CREATE FUNCTION idempotency_hash(request jsonb) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idempotency_hash';
COMMENT ON FUNCTION idempotency_hash(jsonb)
IS 'SHA-256 of the request in canonical JSON (RFC 8785), as 64 hex digits';

CREATE FUNCTION idempotency_hash(request json) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idempotency_hash';
COMMENT ON FUNCTION idempotency_hash(json)
IS 'SHA-256 of the request in canonical JSON (RFC 8785), as 64 hex digits';

CREATE FUNCTION idempotency_hash(request text) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idempotency_hash';
COMMENT ON FUNCTION idempotency_hash(text)
IS 'SHA-256 of the request in canonical JSON (RFC 8785), as 64 hex digits';

-- A type with a name, because the server makes the row type of OUT parameters anew for every call.
CREATE TYPE idempotency_verdict AS (
    decision    text,
    token       bigint,
    status_code integer,
    response    jsonb,
    http_hint   integer
);
COMMENT ON TYPE idempotency_verdict
IS 'what idempotency_begin() says of a request';
COMMENT ON COLUMN idempotency_verdict.decision IS 'execute, replay, conflict or in_progress';
COMMENT ON COLUMN idempotency_verdict.token IS 'for idempotency_finish(), if the request is to be executed under a key';
COMMENT ON COLUMN idempotency_verdict.status_code IS 'of the answer that is to be replayed';
COMMENT ON COLUMN idempotency_verdict.response IS 'of the answer that is to be replayed';
COMMENT ON COLUMN idempotency_verdict.http_hint IS 'the status with which an HTTP layer answers; NULL: the request is to be executed';

CREATE FUNCTION idempotency_begin(
    scope text, key text, request jsonb, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin';
COMMENT ON FUNCTION idempotency_begin(text, text, jsonb, bigint, interval, interval, interval)
IS 'is this request to be executed, or was it? execute, replay, conflict or in_progress';

CREATE FUNCTION idempotency_begin(
    scope text, key text, request json, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin';
COMMENT ON FUNCTION idempotency_begin(text, text, json, bigint, interval, interval, interval)
IS 'is this request to be executed, or was it? execute, replay, conflict or in_progress';

CREATE FUNCTION idempotency_begin(
    scope text, key text, request text, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin';
COMMENT ON FUNCTION idempotency_begin(text, text, text, bigint, interval, interval, interval)
IS 'is this request to be executed, or was it? execute, replay, conflict or in_progress';

CREATE FUNCTION idempotency_begin_hashed(
    scope text, key text, request_hash text, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin_hashed';
COMMENT ON FUNCTION idempotency_begin_hashed(text, text, text, bigint, interval, interval, interval)
IS 'idempotency_begin() for a request that the caller has hashed: 64 hex digits';

CREATE FUNCTION idempotency_finish(
    scope text, key text, token bigint, status_code integer, response jsonb, failed boolean DEFAULT false,
    tenant_id bigint DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_finish';
COMMENT ON FUNCTION idempotency_finish(text, text, bigint, integer, jsonb, boolean, bigint)
IS 'the answer to a request, for all who ask again';

CREATE FUNCTION idempotency_finish(
    scope text, key text, token bigint, status_code integer, response json, failed boolean DEFAULT false,
    tenant_id bigint DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_finish';
COMMENT ON FUNCTION idempotency_finish(text, text, bigint, integer, json, boolean, bigint)
IS 'the answer to a request, for all who ask again';

CREATE FUNCTION idempotency_finish(
    scope text, key text, token bigint, status_code integer, response text, failed boolean DEFAULT false,
    tenant_id bigint DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_finish';
COMMENT ON FUNCTION idempotency_finish(text, text, bigint, integer, text, boolean, bigint)
IS 'the answer to a request, for all who ask again';

CREATE FUNCTION idempotency_abandon(scope text, key text, token bigint, tenant_id bigint DEFAULT NULL)
RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_abandon';
COMMENT ON FUNCTION idempotency_abandon(text, text, bigint, bigint)
IS 'the attempt never happened: the key is free again';

CREATE FUNCTION idempotency_required(scope text, required boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('idempotency_required()');
    IF scope IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'scope must not be NULL';
    ELSIF octet_length(scope) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'scope must have between 1 and 255 bytes';
    ELSIF required IS NULL THEN
        DELETE FROM @extschema@.idempotency_scopes s WHERE s.scope = idempotency_required.scope;
    ELSE
        INSERT INTO @extschema@.idempotency_scopes AS s VALUES (scope, required)
            ON CONFLICT ON CONSTRAINT idempotency_scopes_pkey DO UPDATE SET required = excluded.required;
    END IF;
END $$;
COMMENT ON FUNCTION idempotency_required(text, boolean)
IS 'is a call without a key an error in this scope? NULL: as outbox.idempotency_required says';

-- Old rows of tables that have no index on their time, because every row would pay for it when it is written. A clock hand goes
-- round instead: each run of maintenance looks through a 12th of the table, from where the last one ended. Rows come, and grow
-- old, next to each other: where many are found, it goes on.
CREATE TABLE outbox_sweeps (
    swept regclass PRIMARY KEY,
    block bigint   NOT NULL,
    rest  bigint
);
INSERT INTO outbox_sweeps VALUES ('outbox_dedup_keys', 0), ('outbox_inbox', 0), ('idempotency_keys', 0);
COMMENT ON TABLE outbox_sweeps
IS 'where to look next for rows that are to be removed: only a hint';
COMMENT ON COLUMN outbox_sweeps.swept IS 'the table';
COMMENT ON COLUMN outbox_sweeps.block IS 'the block of it';
COMMENT ON COLUMN outbox_sweeps.rest IS 'how many blocks the run that is under way has yet to look through; negative: more than it had to; NULL: none is under way';

-- Nobody waits here: whoever is using a row keeps it, and who cannot have the hint begins anywhere.
CREATE FUNCTION outbox_sweep(swept regclass, condition text, max_rows integer, whole boolean DEFAULT false,
                             max_blocks integer DEFAULT 10000, OUT removed integer, OUT again boolean)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    blocks   CONSTANT bigint := pg_relation_size(swept) / current_setting('block_size')::integer;
    hint     @extschema@.outbox_sweeps;
    place    bigint;
    still    bigint;
    next     bigint;
    looked   bigint := 1;   -- or an empty table would never have been looked through
    last     tid;
    found    integer;
BEGIN
    removed := 0;
    -- Under one snapshot for the whole transaction, a hint that has changed would be an error.
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT * INTO hint FROM @extschema@.outbox_sweeps s WHERE s.swept = outbox_sweep.swept FOR UPDATE SKIP LOCKED;
    END IF;
    place := coalesce(hint.block, floor(random() * blocks));
    still := coalesce(hint.rest, blocks / 12 + 1);
    -- Both the part that the table ends in and the last one may be short.
    FOR part IN 0 .. CASE WHEN whole THEN blocks / max_blocks + 1 ELSE 0 END LOOP
        IF place >= blocks THEN
            place := 0;
        END IF;
        next := least(place + max_blocks, blocks);
        EXECUTE format('WITH gone AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY('
                       'SELECT ctid FROM %1$s WHERE ctid >= %2$L AND ctid < %3$L AND (%4$s) LIMIT %5$L FOR UPDATE SKIP LOCKED))'
                       ' RETURNING ctid) SELECT count(*), max(ctid) FROM gone', swept, format('(%s,0)', place),
                       format('(%s,0)', next), condition, max_rows - removed)
           INTO found, last;
        removed := removed + found;
        IF removed >= max_rows THEN
            next := (last::text::point)[0];   -- which may have others
        END IF;
        looked := looked + next - place;
        place := next;
        EXIT WHEN removed >= max_rows;
    END LOOP;
    still := still - looked;
    -- At most once around.
    again := hint.swept IS NOT NULL AND (still > 0 OR (removed >= looked AND still > -blocks));
    UPDATE @extschema@.outbox_sweeps s
       SET block = place, rest = CASE WHEN whole THEN hint.rest WHEN again THEN still END
     WHERE s.swept = hint.swept;
END $$;
COMMENT ON FUNCTION outbox_sweep(regclass, text, integer, boolean, integer)
IS 'internal: removes rows of which a condition is true, no more than so many, from some blocks of a table or from the whole; is there more to do at once?';

CREATE FUNCTION idempotency_expire(max_keys integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('idempotency_expire()');
    IF max_keys IS NULL OR max_keys < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'max_keys must be at least 1';
    END IF;
    RETURN (@extschema@.outbox_sweep('@extschema@.idempotency_keys', 'expires_at <= clock_timestamp()', max_keys, whole => true)).removed;
END $$;
COMMENT ON FUNCTION idempotency_expire(integer)
IS 'removes expired keys, no more than so many; returns how many';

----------------------------------------------------------------------------------------------------
-- Where everything is
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_has_passed(batch outbox_batches, xid xid8, id bigint) RETURNS boolean
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_has_passed';
COMMENT ON FUNCTION outbox_has_passed(outbox_batches, xid8, bigint)
IS 'internal: has the cursor in this batch passed the message?';

CREATE FUNCTION outbox_known_upto(batch outbox_batches) RETURNS bigint
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_known_upto';
COMMENT ON FUNCTION outbox_known_upto(outbox_batches)
IS 'internal: up to which id nothing can come any more that the cursor in this batch has not passed';

CREATE FUNCTION outbox_last_id() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pg_sequence_last_value('@extschema@.outbox_messages_id_seq'), 0)
$$;
COMMENT ON FUNCTION outbox_last_id()
IS 'internal: the last id that was drawn';

-- A view is read with the search_path of whoever creates it: not with one that has the extension's
-- schema in it, where others may have put operators.
--
-- A barrier, or a function in somebody's WHERE would be asked first, and would see rows of other tenants.
DO $do$
DECLARE
    path CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

CREATE VIEW @extschema@.consumer_offsets WITH (security_barrier) AS
SELECT c.name AS consumer_name,
       CASE WHEN c.partitions = 1 THEN '' ELSE p::text END AS partition_key,
       least(@extschema@.outbox_known_upto(b.newest), waiting.first_id - 1, open.first_id - 1) AS last_processed_id,
       done.at AS last_processed_at,
       greatest(@extschema@.outbox_last_id() - coalesce(b.target_seq, b.passed_seq), 0)
       + CASE WHEN b.target_seq IS NULL THEN 0
              ELSE greatest(b.target_seq - greatest(b.last_id, b.passed_seq), 0) END
       + open.waiting AS lag
  FROM @extschema@.outbox_consumers c
 CROSS JOIN LATERAL generate_series(0, c.partitions - 1) p
 CROSS JOIN LATERAL (SELECT o.*, o AS newest FROM @extschema@.outbox_batches o WHERE o.consumer_id = c.consumer_id
                      ORDER BY o.token DESC LIMIT 1) b
 CROSS JOIN LATERAL (SELECT min(r.id) AS first_id FROM @extschema@.outbox_retries r
                      WHERE r.consumer_id = c.consumer_id AND r.partition = p) waiting
 CROSS JOIN LATERAL (SELECT min(lower(coalesce(l.remaining, o.ids))) AS first_id,
                            coalesce(sum(e.count) FILTER (WHERE (l.locked_until >= clock_timestamp()) IS NOT TRUE), 0)::bigint AS waiting
                       FROM @extschema@.outbox_leases l
                       JOIN @extschema@.outbox_batches o USING (consumer_id, token)
                      CROSS JOIN LATERAL (SELECT coalesce(sum(upper(run) - lower(run)), l.size) AS count FROM unnest(l.remaining) run) e
                      WHERE l.token = ANY (b.open_tokens) AND l.acked_at IS NULL
                        AND l.superseded_by IS NULL AND l.partition = p) open
 CROSS JOIN LATERAL (SELECT max(l.acked_at) AS at FROM @extschema@.outbox_leases l
                      WHERE l.consumer_id = c.consumer_id AND l.partition = p) done
 WHERE @extschema@.outbox_shows_tenant(c.tenant_id);

CREATE VIEW @extschema@.outbox_deliveries WITH (security_barrier) AS
SELECT c.name AS consumer_name, m.id, m.tracking_id, m.tenant_id, m.aggregate_type, m.aggregate_id,
       m.event_type, m.occurred_at,
       CASE WHEN d.id IS NOT NULL THEN 'DEAD_LETTER'
            WHEN s.in_hand THEN 'PROCESSING'
            WHEN r.id IS NOT NULL THEN 'RETRY'
            WHEN s.open OR NOT @extschema@.outbox_has_passed(n.newest, m.xid, m.id) THEN 'PENDING'
            ELSE 'COMPLETED' END AS status,
       CASE WHEN d.id IS NOT NULL THEN d.attempts
            WHEN s.in_hand THEN coalesce(r.attempts, 0) + s.attempts
            WHEN r.id IS NOT NULL THEN r.attempts
            WHEN s.open THEN s.attempts - 1
            ELSE coalesce(s.handed_out, 0) END AS attempts,
       CASE WHEN d.id IS NULL AND r.id IS NULL AND NOT s.open THEN s.acked_at END AS processed_at,
       CASE WHEN s.in_hand THEN s.locked_until END AS locked_until,
       CASE WHEN s.in_hand AND c.is_shown THEN s.token END AS lock_token,
       CASE WHEN s.in_hand AND c.is_shown THEN s.worker END AS worker,
       coalesce(d.died_at, CASE WHEN s.in_hand THEN s.claimed_at END, r.failed_at, s.acked_at, m.occurred_at) AS since,
       CASE WHEN d.id IS NULL THEN r.available_at END AS available_at,
       coalesce(d.last_error, r.last_error,
                CASE WHEN c.is_shown AND (s.open OR NOT @extschema@.outbox_has_passed(n.newest, m.xid, m.id))
                     THEN coalesce(t.last_error, c.pause_reason) END)
       AS last_error
       -- To a tenant a consumer of all tenants shows what became of the tenant's events, and nothing of itself.
  FROM (SELECT *, @extschema@.outbox_shows_tenant(tenant_id) AS is_shown FROM @extschema@.outbox_consumers) c
  LEFT JOIN @extschema@.outbox_sink_states() t ON t.consumer_id = c.consumer_id AND t.troubles > 0
 CROSS JOIN @extschema@.outbox_messages m
 CROSS JOIN LATERAL (SELECT o FROM @extschema@.outbox_batches o WHERE o.consumer_id = c.consumer_id
                      ORDER BY o.token DESC LIMIT 1) n (newest)
  LEFT JOIN @extschema@.outbox_messages_dlq d ON d.consumer_id = c.consumer_id AND d.id = m.id
  LEFT JOIN @extschema@.outbox_retries r ON r.consumer_id = c.consumer_id AND r.id = m.id
  LEFT JOIN LATERAL (
      SELECT b.token, b.attempts, (count(*) FILTER (WHERE l.token IS NULL OR l.claimed_at IS NOT NULL) OVER ())::integer AS handed_out, l.locked_until, l.worker, l.claimed_at, l.acked_at,
             o.open, o.open AND l.locked_until IS NOT NULL AND l.locked_until <> '-infinity' AS in_hand
        FROM @extschema@.outbox_batches b LEFT JOIN @extschema@.outbox_leases l USING (consumer_id, token),
             LATERAL (SELECT l.token IS NOT NULL AND l.acked_at IS NULL AND l.superseded_by IS NULL
                             AND coalesce(l.remaining @> m.id, true)) o (open)
       WHERE b.consumer_id = c.consumer_id AND b.ids @> m.id
       ORDER BY b.token DESC LIMIT 1) s ON true
 WHERE @extschema@.outbox_shows_tenant(m.tenant_id)
   AND (c.tenant_id IS NULL OR m.tenant_id = c.tenant_id)
   AND (c.event_types IS NULL OR m.event_type = ANY (c.event_types))
   AND (c.aggregate_types IS NULL OR m.aggregate_type = ANY (c.aggregate_types));

PERFORM set_config('search_path', path, true);
END $do$;

COMMENT ON VIEW consumer_offsets
IS 'how far each consumer is';
COMMENT ON COLUMN consumer_offsets.consumer_name IS 'the consumer';
COMMENT ON COLUMN consumer_offsets.partition_key IS 'its partition; empty where there is only one';
COMMENT ON COLUMN consumer_offsets.last_processed_id IS 'the highest id up to which everything is settled';
COMMENT ON COLUMN consumer_offsets.last_processed_at IS 'when a batch was settled last';
COMMENT ON COLUMN consumer_offsets.lag IS 'ids that were drawn and not yet read, gaps included, and what was read and nobody has in hand';

COMMENT ON VIEW outbox_deliveries
IS 'every message in the log and every consumer that wants it: where is it, and what happened to it?';
COMMENT ON COLUMN outbox_deliveries.consumer_name IS 'the consumer';
COMMENT ON COLUMN outbox_deliveries.id IS 'position in the log';
COMMENT ON COLUMN outbox_deliveries.tracking_id IS 'the event''s identity';
COMMENT ON COLUMN outbox_deliveries.tenant_id IS 'whose event it is';
COMMENT ON COLUMN outbox_deliveries.aggregate_type IS 'what kind of thing the event is about';
COMMENT ON COLUMN outbox_deliveries.aggregate_id IS 'which one';
COMMENT ON COLUMN outbox_deliveries.event_type IS 'what happened';
COMMENT ON COLUMN outbox_deliveries.occurred_at IS 'when the event entered the log';
COMMENT ON COLUMN outbox_deliveries.status IS 'PENDING, PROCESSING, COMPLETED, RETRY or DEAD_LETTER';
COMMENT ON COLUMN outbox_deliveries.attempts IS 'how often it was tried, the one in hand included';
COMMENT ON COLUMN outbox_deliveries.processed_at IS 'when its batch was settled';
COMMENT ON COLUMN outbox_deliveries.locked_until IS 'until when its worker has it';
COMMENT ON COLUMN outbox_deliveries.lock_token IS 'of the batch that it is in; not for a tenant, if the consumer is for all';
COMMENT ON COLUMN outbox_deliveries.worker IS 'who has it; likewise';
COMMENT ON COLUMN outbox_deliveries.since IS 'since when it is in this status, as far as that is known';
COMMENT ON COLUMN outbox_deliveries.available_at IS 'when a retry is due; infinity: it waits behind another';
COMMENT ON COLUMN outbox_deliveries.last_error IS 'what the worker said, or what is wrong with the sink';

CREATE FUNCTION outbox_find(
    tracking_id uuid, OUT place text, OUT id bigint, OUT consumer_name text, OUT status text,
    OUT attempts integer, OUT since timestamptz, OUT worker text, OUT available_at timestamptz,
    OUT last_error text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted  CONSTANT uuid := outbox_find.tracking_id;
    -- A UUIDv7 begins with its time, and most events enter the log right then.
    made_at CONSTANT timestamptz := CASE WHEN substr(wanted::text, 15, 1) = '7' THEN
        to_timestamp(('x' || translate(left(wanted::text, 13), '-', ''))::bit(48)::bigint / 1000.0) END;
    entry   record;
BEGIN
    IF wanted IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'tracking_id must not be NULL';
    END IF;
    RETURN QUERY SELECT 'scheduled', NULL::bigint, NULL::text, 'SCHEDULED', s.refusals, made_at, NULL::text,
                        coalesce(s.try_again_at, s.available_at), s.last_error
                   FROM @extschema@.outbox_scheduled s
                  WHERE s.tracking_id = wanted AND @extschema@.outbox_shows_tenant(s.tenant_id);

    SELECT m.id, m.occurred_at INTO entry FROM @extschema@.outbox_messages m
     WHERE m.tracking_id = wanted AND @extschema@.outbox_shows_tenant(m.tenant_id)
       AND m.occurred_at BETWEEN made_at - interval '1 hour' AND made_at + interval '1 hour';
    IF NOT FOUND THEN
        SELECT m.id, m.occurred_at INTO entry FROM @extschema@.outbox_messages m
         WHERE m.tracking_id = wanted AND @extschema@.outbox_shows_tenant(m.tenant_id);
    END IF;
    RETURN QUERY SELECT 'log', entry.id, d.consumer_name, d.status, d.attempts, coalesce(d.since, entry.occurred_at),
                        d.worker, d.available_at, d.last_error
                   FROM (VALUES (entry.id)) found (id)
                   LEFT JOIN @extschema@.outbox_deliveries d ON d.id = found.id AND d.occurred_at = entry.occurred_at
                  WHERE found.id IS NOT NULL ORDER BY d.consumer_name;
    IF entry.id IS NOT NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 'retries', r.id, c.name, 'RETRY', r.attempts, r.failed_at, NULL::text, r.available_at,
                        r.last_error
                   FROM @extschema@.outbox_retries r JOIN @extschema@.outbox_consumers c USING (consumer_id)
                  WHERE r.tracking_id = wanted AND @extschema@.outbox_shows_tenant(r.tenant_id);
    RETURN QUERY SELECT 'dead letters', l.id, c.name, 'DEAD_LETTER', l.attempts, l.died_at, NULL::text,
                        NULL::timestamptz, l.last_error
                   FROM @extschema@.outbox_messages_dlq l JOIN @extschema@.outbox_consumers c USING (consumer_id)
                  WHERE l.tracking_id = wanted AND @extschema@.outbox_shows_tenant(l.tenant_id);
END $$;
COMMENT ON FUNCTION outbox_find(uuid)
IS 'where an event is, and what each consumer has made of it';

CREATE FUNCTION outbox_history(
    aggregate_type text, aggregate_id text, OUT id bigint, OUT tracking_id uuid, OUT event_type text,
    OUT event_version integer, OUT occurred_at timestamptz, OUT consumer_name text, OUT status text,
    OUT attempts integer, OUT since timestamptz, OUT last_error text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF outbox_history.aggregate_type IS NULL OR outbox_history.aggregate_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN outbox_history.aggregate_type IS NULL
                                                         THEN 'aggregate_type' ELSE 'aggregate_id' END);
    END IF;
    RETURN QUERY SELECT m.id, m.tracking_id, m.event_type, m.event_version::integer, m.occurred_at,
                        d.consumer_name, d.status, d.attempts, d.since, d.last_error
                   FROM @extschema@.outbox_messages m
                   -- OFFSET: for one message after the other, or the view would be asked about all of them.
                   LEFT JOIN LATERAL (SELECT * FROM @extschema@.outbox_deliveries x
                                       WHERE x.id = m.id AND x.occurred_at = m.occurred_at OFFSET 0) d ON true
                  WHERE m.aggregate_type = outbox_history.aggregate_type
                    AND m.aggregate_id = outbox_history.aggregate_id
                    AND @extschema@.outbox_shows_tenant(m.tenant_id)
                  ORDER BY m.id, d.consumer_name;
END $$;
COMMENT ON FUNCTION outbox_history(text, text)
IS 'the events of an aggregate that are in the log, and what each consumer has made of them';

----------------------------------------------------------------------------------------------------
-- Maintenance. Each step is a function of its own: the worker runs each in its own transaction, and
-- outbox_maintain() all of them in the caller's. Whatever needs a strong lock waits for it no longer than
-- producers can bear, and comes again later.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_setting(name text) RETURNS interval
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_setting';
COMMENT ON FUNCTION outbox_setting(text)
IS 'internal: a setting that is a time; NULL if it means for ever';

CREATE FUNCTION outbox_holders(partition regclass, OUT consumer text, OUT reason text)
RETURNS SETOF record LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_holders';
COMMENT ON FUNCTION outbox_holders(regclass)
IS 'internal: the consumers that still need a partition, and what for';

CREATE FUNCTION outbox_catch_up(consumer text) RETURNS boolean
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_catch_up';
COMMENT ON FUNCTION outbox_catch_up(text)
IS 'internal: moves a cursor past what its consumer does not want; true if it was moved';

CREATE FUNCTION outbox_due_partitions(OUT partition regclass, OUT lower_bound timestamptz, OUT upper_bound timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.partition, p.lower_bound, p.upper_bound FROM @extschema@.outbox_partitions() p
     WHERE NOT p.is_default AND p.upper_bound <= clock_timestamp() - @extschema@.outbox_setting('outbox.hot_retention')
     ORDER BY p.upper_bound
$$;
COMMENT ON FUNCTION outbox_due_partitions()
IS 'internal: the partitions of the log whose time to be archived has come, the oldest first';

CREATE FUNCTION outbox_expired_partitions(OUT partition regclass, OUT upper_bound timestamptz, OUT restored boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass, a.upper_bound, a.restored_at IS NOT NULL
      FROM @extschema@.outbox_archived_partitions a
      JOIN pg_class c ON c.relname = a.partition
       AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '@extschema@.outbox_messages'::regclass)
      JOIN pg_inherits i ON i.inhrelid = c.oid AND i.inhparent = '@extschema@.outbox_messages_archive'::regclass
     WHERE CASE WHEN a.restored_at IS NULL
                THEN a.upper_bound <= clock_timestamp() - @extschema@.outbox_setting('outbox.archive_retention')
                ELSE a.restored_at <= clock_timestamp() - @extschema@.outbox_setting('outbox.hot_retention') END
     ORDER BY a.upper_bound
$$;
COMMENT ON FUNCTION outbox_expired_partitions()
IS 'internal: the partitions of the archive whose time is over, the oldest first';

-- Who keeps partitions from being archived or dropped. Cheap enough to be asked often: a consumer that is
-- far behind is found by one look into the partition's index.
CREATE FUNCTION outbox_held_partitions(OUT partition regclass, OUT consumer text, OUT reason text,
                                       OUT since timestamptz, OUT bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH due AS (
        SELECT p.partition, p.upper_bound + @extschema@.outbox_setting('outbox.hot_retention') AS since
          FROM @extschema@.outbox_due_partitions() p
         UNION ALL
        SELECT e.partition, e.upper_bound + @extschema@.outbox_setting('outbox.archive_retention')
          FROM @extschema@.outbox_expired_partitions() e)
    SELECT d.partition, h.consumer, h.reason, d.since, pg_total_relation_size(d.partition)
      FROM due d CROSS JOIN LATERAL @extschema@.outbox_holders(d.partition) h
     WHERE @extschema@.outbox_shows_tenant(NULL)
     ORDER BY d.since, h.consumer
$$;
COMMENT ON FUNCTION outbox_held_partitions()
IS 'the partitions whose time is over and that a consumer still needs: which, since when, and how large they are';

-- One at a time: until the end of its transaction nobody else does maintenance. And what is decided here must be
-- decided by what is there now, not by what was there when a transaction began.
CREATE FUNCTION outbox_begin_maintenance() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE active_sql_transaction USING
            MESSAGE = format('maintenance cannot be done in a transaction that is %s', current_setting('transaction_isolation')),
            HINT = 'Use READ COMMITTED.';
    END IF;
    LOCK TABLE @extschema@.outbox_home IN SHARE UPDATE EXCLUSIVE MODE;
END $$;
COMMENT ON FUNCTION outbox_begin_maintenance()
IS 'internal: keeps others from doing maintenance, or raises an error if they are at it for long';

-- Leaves the error for the caller: its locks go with the subtransaction.
CREATE FUNCTION outbox_refuse_held(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holders CONSTANT text := (SELECT string_agg(format('%s (%s)', h.consumer, h.reason), ', ' ORDER BY h.consumer)
                                FROM @extschema@.outbox_holders(partition) h);
BEGIN
    IF holders IS NOT NULL THEN
        RAISE object_in_use USING MESSAGE = 'held back by ' || holders;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_refuse_held(regclass)
IS 'internal: raises an error that names the consumers which still need a partition';

CREATE FUNCTION outbox_archive_partition(partition regclass) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET lock_timeout = '50ms' AS $$
DECLARE
    place    record;
    spare    regclass;
    first_id bigint;
    last_id  bigint;
BEGIN
    -- Before anybody is kept waiting, and again behind the locks.
    PERFORM @extschema@.outbox_refuse_held(partition);
    spare := (SELECT p.partition FROM @extschema@.outbox_partitions() p WHERE p.is_default);
    LOCK TABLE ONLY @extschema@.outbox_messages IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    IF spare IS NOT NULL THEN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', spare);
    END IF;
    LOCK TABLE ONLY @extschema@.outbox_messages_archive IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
    PERFORM @extschema@.outbox_refuse_held(partition);

    SELECT p.lower_bound, p.upper_bound INTO STRICT place FROM @extschema@.outbox_partitions() p
     WHERE p.partition = outbox_archive_partition.partition AND NOT p.is_default;
    EXECUTE format('SELECT min(id), max(id) FROM %s', partition) INTO first_id, last_id;
    IF first_id IS NULL THEN
        EXECUTE format('DROP TABLE %s', partition);
        RETURN 'dropped, because it is empty';
    END IF;
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', '@extschema@.outbox_messages'::regclass, partition);
    PERFORM @extschema@.outbox_match_columns(partition, '@extschema@.outbox_messages_archive');
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                   '@extschema@.outbox_messages_archive'::regclass, partition, place.lower_bound, place.upper_bound);
    INSERT INTO @extschema@.outbox_archived_partitions (partition, lower_bound, upper_bound, first_id, last_id)
    SELECT c.relname, place.lower_bound, place.upper_bound, first_id, last_id FROM pg_class c WHERE c.oid = partition;
    RETURN 'archived';
END $$;
COMMENT ON FUNCTION outbox_archive_partition(regclass)
IS 'internal: moves a partition from the log to the archive, or drops it if it is empty; or raises an error that says why not';

CREATE FUNCTION outbox_drop_partition(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_held(partition);
    LOCK TABLE ONLY @extschema@.outbox_messages_archive IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    PERFORM @extschema@.outbox_refuse_held(partition);
    DELETE FROM @extschema@.outbox_archived_partitions a USING pg_class c
     WHERE c.oid = outbox_drop_partition.partition AND a.partition = c.relname;
    EXECUTE format('DROP TABLE %s', partition);
END $$;
COMMENT ON FUNCTION outbox_drop_partition(regclass)
IS 'internal: drops a partition of the archive, or raises an error that says why not';

CREATE FUNCTION outbox_is_stored(partition regclass) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT max(f.stored_at) IS NOT NULL
      FROM @extschema@.outbox_cold_files f
      JOIN @extschema@.outbox_archived_partitions a ON a.partition = f.partition AND f.exported_at >= a.archived_at
      JOIN pg_class c ON c.relname = a.partition
     WHERE c.oid = outbox_is_stored.partition
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION outbox_is_stored(regclass)
IS 'internal: is what is in this partition in cold storage? NULL if it has not been exported';

CREATE FUNCTION outbox_can_lock(target regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
    RAISE SQLSTATE 'OB999'; -- gives it back
EXCEPTION
    WHEN lock_not_available THEN RETURN false;
    WHEN SQLSTATE 'OB999' THEN RETURN true;
END $$;
COMMENT ON FUNCTION outbox_can_lock(regclass)
IS 'internal: could a table be locked now, if others are kept waiting for 50 ms at most?';

-- Others are kept waiting for 50 ms at most, and have their turn in between.
CREATE FUNCTION outbox_lock_patiently(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    FOR try IN 1..20 LOOP
        BEGIN
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', target);
END $$;
COMMENT ON FUNCTION outbox_lock_patiently(regclass)
IS 'internal: locks a table, without keeping others waiting for long at a time';

-- The rows that came while there was no partition for their time. They are moved with xid and id as they are,
-- into a table that nobody reads yet. For a time that is over, the default is locked at the end only.
CREATE FUNCTION outbox_move_strays(parent regclass DEFAULT '@extschema@.outbox_messages') RETURNS TABLE (partition regclass, events bigint, object text, detail text)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET lock_timeout = '50ms' AS $$
DECLARE
    spare   CONSTANT regclass := (SELECT p.partition FROM @extschema@.outbox_partitions(parent) p WHERE p.is_default);
    place   record;
    start   timestamptz;
    own     text;
    is_over boolean;
    moved   boolean := false;
BEGIN
    IF @extschema@.outbox_default_holds_events(parent) IS NOT TRUE THEN
        RETURN;
    END IF;
    SELECT * INTO place FROM @extschema@.outbox_partition_width(parent);
    IF place.width IS NULL THEN
        RETURN; -- pg_partman knows nothing of the log: whoever makes partitions says so
    END IF;
    FOR start IN EXECUTE format('SELECT DISTINCT date_trunc(%L, occurred_at) FROM %s WHERE isfinite(occurred_at) ORDER BY 1 LIMIT 100', place.unit, spare) LOOP
        SELECT format('%I.%I', n.nspname, c.relname || '_p' || to_char(start, place.suffix)) INTO own
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent;
        partition := NULL;
        events := NULL;
        SELECT o.object, o.detail INTO object, detail FROM @extschema@.outbox_obstacle(parent, '_p' || to_char(start, place.suffix)) o;
        IF FOUND THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A time that was archived, and that the clock has come back to.
        CONTINUE WHEN to_regclass(own) IS NOT NULL;
        IF moved THEN
            -- The default is locked by now, until the end of the transaction.
            RETURN NEXT;
            RETURN;
        END IF;
        is_over := start + place.width <= clock_timestamp();
        IF is_over THEN
            -- Is it to be had at all? Otherwise everything would be moved for nothing.
            CONTINUE WHEN NOT @extschema@.outbox_can_lock(spare);
        ELSE
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', spare);
        END IF;
        PERFORM @extschema@.outbox_create_partition(own, start, start + place.width, parent);
        PERFORM @extschema@.audit_begin_removal();
        EXECUTE format('WITH moved AS (DELETE FROM %1$s WHERE occurred_at >= %2$L AND occurred_at < %3$L RETURNING *)'
                       ' INSERT INTO %4$s (%5$s) SELECT %5$s FROM moved', spare, start, start + place.width, own,
                       (SELECT string_agg(c.name, ', ') FROM @extschema@.outbox_columns(spare) c WHERE c.generated IS NULL));
        GET DIAGNOSTICS events = ROW_COUNT;
        PERFORM @extschema@.audit_end_removal();
        IF is_over THEN
            PERFORM @extschema@.outbox_lock_patiently(spare);
        END IF;
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                       parent, own, start, start + place.width);
        partition := own::regclass;
        PERFORM @extschema@.outbox_dress_partition(partition);
        moved := true;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_move_strays(regclass)
IS 'internal: moves the events of one day from the default partition to a partition of their own; an object is in the way; all NULL: there are more';

-- The delivery record. What stays: the newest batch of each consumer, which is its cursor, and all that is open.
CREATE FUNCTION outbox_prune_batches(max_batches integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    cutoff  CONSTANT timestamptz := clock_timestamp() - @extschema@.outbox_setting('outbox.delivery_retention');
    reader  integer;
    newest  @extschema@.outbox_batches;
    removed integer;
    total   integer := 0;
BEGIN
    FOR reader IN SELECT c.consumer_id FROM @extschema@.outbox_consumers c ORDER BY 1 LOOP
        SELECT * INTO newest FROM @extschema@.outbox_batches b WHERE b.consumer_id = reader ORDER BY b.token DESC LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        WITH old AS (
            SELECT b.token FROM (SELECT o.token FROM @extschema@.outbox_batches o
                                  WHERE o.consumer_id = reader AND o.token < newest.token
                                  ORDER BY o.token LIMIT max_batches - total) b
              LEFT JOIN @extschema@.outbox_leases l ON l.token = b.token
             WHERE b.token <> ALL (coalesce(newest.open_tokens, '{}'))
               AND coalesce(l.acked_at, l.claimed_at, '-infinity') < cutoff),
        leases AS (DELETE FROM @extschema@.outbox_leases l USING old WHERE l.token = old.token)
        DELETE FROM @extschema@.outbox_batches b USING old WHERE b.consumer_id = reader AND b.token = old.token;
        GET DIAGNOSTICS removed = ROW_COUNT;
        total := total + removed;
        EXIT WHEN total >= max_batches;
    END LOOP;
    RETURN total;
END $$;
COMMENT ON FUNCTION outbox_prune_batches(integer)
IS 'internal: removes the record of old deliveries, no more than so many batches; returns how many';

-- Makes partitions. Before that, rows that would be in the way of a new one leave the default.
CREATE FUNCTION outbox_keep_partitions(parent regclass, OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    before CONSTANT regclass[] := ARRAY(SELECT p.partition FROM @extschema@.outbox_partitions(parent) p);
    told   text[] := '{}';
    count  bigint;
    moved  regclass;
BEGIN
    again := false;
    PERFORM @extschema@.outbox_guard_partman();
    FOR moved, count, object, detail IN SELECT * FROM @extschema@.outbox_move_strays(parent) LOOP
        done := moved IS NOT NULL;
        IF object IS NOT NULL THEN
            told := told || object;
            RETURN NEXT;
            CONTINUE;
        END IF;
        again := NOT done;
        IF again THEN
            object := parent;
            detail := 'waits for its turn';
            RETURN NEXT;
            RETURN;
        END IF;
        object := moved;
        detail := format('made for %s %s from the default partition', count,
                         CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 'events' ELSE 'rows' END);
        RETURN NEXT;
    END LOOP;
    IF parent = '@extschema@.outbox_messages'::regclass THEN
        PERFORM @extschema@.outbox_setup();
    ELSE
        PERFORM @extschema@.audit_setup();
    END IF;
    done := false;
    FOR object, detail IN SELECT g.object, g.detail FROM @extschema@.outbox_gaps(parent) g WHERE g.object <> ALL (told) LOOP
        RETURN NEXT;
    END LOOP;
    done := true;
    FOR object IN SELECT p.partition FROM @extschema@.outbox_partitions(parent) p
                   WHERE p.partition <> ALL (before) AND pg_relation_size(p.partition) = 0 ORDER BY p.lower_bound LOOP
        detail := 'made';
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_keep_partitions(regclass)
IS 'internal: makes partitions ahead, and empties the default';

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

CREATE FUNCTION outbox_has_cold_storage() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_has_cold_storage';
COMMENT ON FUNCTION outbox_has_cold_storage()
IS 'internal: do partitions have to be exported before they are dropped?';

CREATE FUNCTION outbox_export_partition(partition regclass) RETURNS text
LANGUAGE c VOLATILE STRICT SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS 'MODULE_PATHNAME', 'outbox_export_partition';
COMMENT ON FUNCTION outbox_export_partition(regclass)
IS 'internal: writes a partition of the archive to a file in outbox.cold_storage_dir; returns its name';

CREATE FUNCTION outbox_remove_cold_file(file text) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_remove_cold_file';
COMMENT ON FUNCTION outbox_remove_cold_file(text)
IS 'internal: removes a file from outbox.cold_storage_dir, if it is there';

CREATE FUNCTION outbox_cold_prefix() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_cold_prefix';
COMMENT ON FUNCTION outbox_cold_prefix()
IS 'internal: what the names of files that are exported from this database begin with';

CREATE FUNCTION outbox_read_cold_file(file text) RETURNS SETOF text
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_read_cold_file';
COMMENT ON FUNCTION outbox_read_cold_file(text)
IS 'internal: the lines of a file in outbox.cold_storage_dir';

-- The file's name says what it is. Its rows come back with xid and id as they were: consumers that have passed them
-- stay behind them, and outbox_seek() makes one read them again.
CREATE FUNCTION outbox_restore_partition(file text) RETURNS regclass
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    parts CONSTANT text[] := regexp_match(file, '^[^./]+\.(outbox_messages_p[0-9a-z_]{1,46})\.([0-9]{8}T[0-9]{6}Z)-([0-9]{8}T[0-9]{6}Z)'
                                                '\.[0-9]+\.ndjson\.zst$');
    own   CONSTANT text := quote_ident(@extschema@.outbox_schema_of('outbox')) || '.' || quote_ident(parts[1]);
    columns  text;
    values   text;
    first_id bigint;
    last_id  bigint;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_restore_partition()');
    IF file IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'file must not be NULL';
    ELSIF parts IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'file must be the name of an exported partition',
            HINT = 'Such as shop.outbox_messages_p2026_01_31.20260131T000000Z-20260201T000000Z.1.ndjson.zst;'
                   ' outbox_cold_files has them.';
    ELSIF split_part(file, '.', 1) <> @extschema@.outbox_cold_prefix()
          AND NOT EXISTS (SELECT FROM @extschema@.outbox_cold_files f WHERE f.file = outbox_restore_partition.file) THEN
        -- The directory is one for all databases, and an admin is an admin of one. A database that was renamed, or restored
        -- under another name, knows its files by its list.
        RAISE invalid_parameter_value USING
            MESSAGE = 'file must be one that was exported from this database',
            HINT = format('Its name would begin with %s. Whoever can rename files there can bring it here all the same.',
                          @extschema@.outbox_cold_prefix());
    ELSIF to_regclass(own) IS NOT NULL THEN
        RAISE duplicate_table USING
            MESSAGE = format('partition %s exists already', parts[1]),
            HINT = 'Its events can be read where they are.';
    END IF;
    LOCK TABLE @extschema@.outbox_home IN SHARE UPDATE EXCLUSIVE MODE;
    PERFORM @extschema@.outbox_create_partition(own, parts[2]::timestamptz, parts[3]::timestamptz, '@extschema@.outbox_messages_archive');
    -- JSON null is a payload, and the function would make it NULL.
    SELECT string_agg(c.name, ', '),
           string_agg(format(CASE WHEN c.name IN ('payload', 'metadata') THEN 'coalesce(r.%s, ''null'')' ELSE 'r.%s' END, c.name), ', ')
      INTO STRICT columns, values
      FROM @extschema@.outbox_columns(own::regclass) c WHERE c.generated IS NULL;
    BEGIN
        EXECUTE format('INSERT INTO %1$s (%2$s) SELECT %3$s FROM %4$s line, json_populate_record(NULL::%1$s, line::json) r',
                       own, columns, values, '@extschema@.outbox_read_cold_file($1)') USING file;
    EXCEPTION WHEN data_exception OR not_null_violation OR unique_violation THEN
        RAISE data_corrupted USING MESSAGE = 'the file has something else than events in it', DETAIL = SQLERRM;
    END;
    EXECUTE format('SELECT min(id), max(id) FROM %s', own) INTO first_id, last_id;
    IF last_id IS NULL THEN
        RAISE data_corrupted USING MESSAGE = 'the file has no events';
    ELSIF last_id > @extschema@.outbox_last_id() THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the file has ids up to %s, and this log has come to %s', last_id, @extschema@.outbox_last_id()),
            HINT = 'It is from another database. Only a copy of that one can take it back.';
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                   '@extschema@.outbox_messages_archive'::regclass, own, parts[2]::timestamptz, parts[3]::timestamptz);
    INSERT INTO @extschema@.outbox_archived_partitions (partition, lower_bound, upper_bound, first_id, last_id, restored_at)
    VALUES (parts[1], parts[2]::timestamptz, parts[3]::timestamptz, first_id, last_id, clock_timestamp());
    RETURN own::regclass;
END $$;
COMMENT ON FUNCTION outbox_restore_partition(text)
IS 'brings a partition back from a file in outbox.cold_storage_dir into the archive, for a replay; returns its table';

-- Not those that wait for cold storage, of which outbox_status() speaks by itself.
CREATE FUNCTION outbox_stuck_partitions(OUT partition regclass, OUT since timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT d.partition, d.since
      FROM (SELECT p.partition, p.upper_bound + @extschema@.outbox_setting('outbox.hot_retention')
              FROM @extschema@.outbox_due_partitions() p
             UNION ALL
            SELECT e.partition, e.upper_bound + @extschema@.outbox_setting('outbox.archive_retention')
              FROM @extschema@.outbox_expired_partitions() e
             WHERE NOT e.restored AND (NOT @extschema@.outbox_has_cold_storage() OR @extschema@.outbox_is_stored(e.partition))) d (partition, since)
     WHERE d.since < clock_timestamp() - 2 * @extschema@.outbox_setting('outbox.maintenance_interval')
       AND NOT EXISTS (SELECT FROM @extschema@.outbox_holders(d.partition))
     ORDER BY d.since
$$;
COMMENT ON FUNCTION outbox_stuck_partitions()
IS 'internal: the partitions whose time is over, that nobody needs, and that are still where they were';

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

----------------------------------------------------------------------------------------------------
-- Statistics. Counters are in shared memory. Everything else is looked up, and nothing scans the log.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_consumer_counts(
    OUT consumer_id integer, OUT delivered bigint, OUT failed bigint, OUT dead bigint, OUT bytes bigint,
    OUT per_second double precision, OUT p50_ms double precision, OUT p95_ms double precision,
    OUT p99_ms double precision, OUT latency bigint[], OUT latency_sum double precision,
    OUT last_error text, OUT last_error_at timestamptz, OUT since timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_consumer_counts';
COMMENT ON FUNCTION outbox_consumer_counts()
IS 'internal: what was counted for each consumer; 0 is all that have no place of their own. latency[i] took less than 2^(i+5) microseconds, and not less than half of that';

CREATE FUNCTION outbox_event_counts(
    OUT event_type text, OUT enqueued bigint, OUT delivered bigint, OUT failed bigint, OUT dead bigint,
    OUT since timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_event_counts';
COMMENT ON FUNCTION outbox_event_counts()
IS 'internal: what was counted for each event type; NULL is all that have no place of their own';

CREATE FUNCTION outbox_stats_overflowed() RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_stats_overflowed';
COMMENT ON FUNCTION outbox_stats_overflowed()
IS 'internal: is anything counted under "other", because there are no more places?';

CREATE FUNCTION outbox_give_back_places(consumers integer[]) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_give_back_places';
COMMENT ON FUNCTION outbox_give_back_places(integer[])
IS 'internal: frees the places of databases that are gone, and of all consumers of this one except these';

CREATE FUNCTION outbox_stats_reset() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_stats_reset';
COMMENT ON FUNCTION outbox_stats_reset()
IS 'starts the counters of this database anew';

CREATE FUNCTION outbox_oldest_unsettled(consumer text, OUT occurred_at timestamptz, OUT is_exact boolean)
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_oldest_unsettled';
COMMENT ON FUNCTION outbox_oldest_unsettled(text)
IS 'internal: the oldest event that a consumer has yet to settle, retries aside';

-- Not for times without end, whose difference is an error before PostgreSQL 17.
CREATE FUNCTION outbox_age(since timestamptz) RETURNS double precision
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN isfinite(since) THEN greatest(extract(epoch FROM clock_timestamp() - since), 0)
                WHEN since < clock_timestamp() THEN 'Infinity' ELSE 0 END
$$;
COMMENT ON FUNCTION outbox_age(timestamptz)
IS 'internal: how many seconds ago that was; 0: it is yet to come, or never was';

CREATE FUNCTION outbox_collect_stats(
    OUT consumer text, OUT kind text, OUT paused boolean,
    OUT lag_seconds double precision, OUT lag_is_exact boolean, OUT lag_messages bigint,
    OUT delivered bigint, OUT failed bigint, OUT retried bigint, OUT dead bigint, OUT bytes bigint,
    OUT per_second double precision, OUT p50_ms double precision, OUT p95_ms double precision, OUT p99_ms double precision,
    OUT open_leases bigint, OUT stale_leases bigint, OUT in_flight bigint,
    OUT waiting_retries bigint, OUT oldest_retry_at timestamptz, OUT max_attempts integer, OUT dlq_depth bigint,
    OUT backoff_until timestamptz, OUT last_error text, OUT last_error_at timestamptz, OUT stats_reset timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
    SELECT c.name, c.kind, c.paused,
           @extschema@.outbox_age(least(o.occurred_at, r.oldest)),
           o.is_exact OR coalesce(r.oldest <= o.occurred_at, false),
           greatest(@extschema@.outbox_last_id() - coalesce(b.target_seq, b.passed_seq), 0)
           + CASE WHEN b.target_seq IS NULL THEN 0 ELSE greatest(b.target_seq - greatest(b.last_id, b.passed_seq), 0) END
           + l.waiting,
           coalesce(n.delivered, 0), coalesce(n.failed, 0), coalesce(n.failed - n.dead, 0), coalesce(n.dead, 0),
           coalesce(n.bytes, 0), coalesce(n.per_second, 0), n.p50_ms, n.p95_ms, n.p99_ms,
           l.open, l.stale, coalesce(s.in_hand, l.in_hand), r.count, r.next, r.attempts, d.count,
           CASE WHEN s.resume_at > clock_timestamp() THEN s.resume_at END,
           CASE WHEN s.last_error_at > n.last_error_at IS NOT FALSE AND s.last_error_at IS NOT NULL
                THEN s.last_error ELSE n.last_error END,
           greatest(s.last_error_at, n.last_error_at), n.since
      FROM @extschema@.outbox_consumers c
      LEFT JOIN @extschema@.outbox_consumer_counts() n USING (consumer_id)
      LEFT JOIN @extschema@.outbox_sink_states() s USING (consumer_id)
     CROSS JOIN LATERAL (SELECT * FROM @extschema@.outbox_batches x WHERE x.consumer_id = c.consumer_id
                          ORDER BY x.token DESC LIMIT 1) b
     CROSS JOIN LATERAL @extschema@.outbox_oldest_unsettled(c.name) o
     CROSS JOIN LATERAL (SELECT count(*) AS open, count(*) FILTER (WHERE x.locked_until < clock_timestamp()
                                                                     AND x.locked_until <> '-infinity') AS stale,
                                coalesce(sum(e.count) FILTER (WHERE x.locked_until >= clock_timestamp()), 0)::bigint AS in_hand,
                                coalesce(sum(e.count) FILTER (WHERE (x.locked_until >= clock_timestamp()) IS NOT TRUE), 0)::bigint AS waiting
                           FROM @extschema@.outbox_leases x
                          CROSS JOIN LATERAL (SELECT coalesce(sum(upper(run) - lower(run)), x.size) AS count FROM unnest(x.remaining) run) e
                          WHERE x.token = ANY (b.open_tokens) AND x.acked_at IS NULL AND x.superseded_by IS NULL) l
     CROSS JOIN LATERAL (SELECT count(*) AS count, min(x.occurred_at) AS oldest,
                                min(x.available_at) FILTER (WHERE x.available_at <> 'infinity') AS next,
                                coalesce(max(x.attempts), 0) AS attempts
                           FROM @extschema@.outbox_retries x WHERE x.consumer_id = c.consumer_id) r
     CROSS JOIN LATERAL (SELECT count(*) AS count FROM @extschema@.outbox_messages_dlq x
                          WHERE x.consumer_id = c.consumer_id) d
     WHERE @extschema@.outbox_shows_tenant(c.tenant_id)
$$;
COMMENT ON FUNCTION outbox_collect_stats()
IS 'internal: the rows of outbox_stats';

CREATE FUNCTION outbox_collect_event_stats(
    OUT event_type text, OUT enqueued bigint, OUT delivered bigint, OUT failed bigint, OUT dead bigint,
    OUT stats_reset timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(event_type, 'other'), enqueued, delivered, failed, dead, since FROM @extschema@.outbox_event_counts()
     WHERE enqueued + delivered + failed > 0 AND @extschema@.outbox_shows_tenant(NULL)
$$;
COMMENT ON FUNCTION outbox_collect_event_stats()
IS 'internal: the rows of outbox_stats_events';

CREATE FUNCTION outbox_health(OUT status text, OUT reasons text[])
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH consumers AS MATERIALIZED (SELECT * FROM @extschema@.outbox_collect_stats()),
         problems AS (
        SELECT s.component IN ('relay', 'preload') -- where a partition is missing, the default one takes the events
               OR s.component = 'partitions' AND (SELECT count(*) FILTER (WHERE p.is_default) = 0 OR count(*) FILTER (WHERE p.upper_bound > clock_timestamp()) = 0
                                                    FROM @extschema@.outbox_partitions() p) AS fails, format('%s: %s', s.component, s.detail) AS reason
          FROM @extschema@.outbox_status() s WHERE NOT s.ok
         UNION ALL
        SELECT c.lag_seconds > 300, format('consumer %s is %s s behind', c.consumer, round(c.lag_seconds)) FROM consumers c
         WHERE c.lag_seconds > 60 AND c.lag_is_exact AND NOT c.paused
         UNION ALL
        SELECT false, format('consumer %s has %s dead letters', c.consumer, c.dlq_depth) FROM consumers c
         WHERE c.dlq_depth > 0)
    SELECT CASE WHEN bool_or(fails) THEN 'failing' WHEN count(*) > 0 THEN 'degraded' ELSE 'ok' END,
           coalesce(array_agg(reason ORDER BY fails DESC, reason), '{}')
      FROM problems
$$;
COMMENT ON FUNCTION outbox_health()
IS 'ok, degraded or failing, and why';

-- Cumulative, as histograms are in Prometheus; what took longer than the last bound is in the count alone.
CREATE FUNCTION outbox_collect_latency(
    OUT consumer text, OUT latency_seconds double precision[], OUT latency_seconds_bucket bigint[],
    OUT latency_seconds_sum double precision, OUT latency_seconds_count bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.name, h.bounds, h.counts, coalesce(n.latency_sum, 0), coalesce((SELECT sum(x) FROM unnest(n.latency) x), 0)::bigint
      FROM @extschema@.outbox_consumers c
      LEFT JOIN @extschema@.outbox_consumer_counts() n USING (consumer_id)
     CROSS JOIN LATERAL (SELECT array_agg(2 ^ (i + 5) / 1e6 ORDER BY i) AS bounds,
                                array_agg(coalesce((SELECT sum(x) FROM unnest(n.latency[:i]) x), 0)::bigint ORDER BY i) AS counts
                           FROM generate_series(1, 28) i) h
     WHERE @extschema@.outbox_shows_tenant(c.tenant_id)
$$;
COMMENT ON FUNCTION outbox_collect_latency()
IS 'internal: the rows of outbox_stats_latency';

CREATE FUNCTION outbox_collect_dead_letters(OUT consumer text, OUT event_type text, OUT dead_letters bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.name, d.event_type, count(*)
      FROM @extschema@.outbox_messages_dlq d JOIN @extschema@.outbox_consumers c USING (consumer_id)
     WHERE @extschema@.outbox_shows_tenant(c.tenant_id) GROUP BY 1, 2
$$;
COMMENT ON FUNCTION outbox_collect_dead_letters()
IS 'internal: the rows of outbox_stats_dead_letters';

CREATE FUNCTION outbox_collect_tables(OUT "table" text, OUT dead_tuples bigint, OUT bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.relname, sum(pg_stat_get_dead_tuples(coalesce(p.relid, t.oid)))::bigint, sum(pg_total_relation_size(coalesce(p.relid, t.oid)))::bigint
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.classid = 'pg_class'::regclass
      JOIN pg_class t ON t.oid = d.objid AND t.relkind IN ('r', 'p')
      LEFT JOIN LATERAL pg_partition_tree(t.oid) p ON p.isleaf
     WHERE e.extname = 'outbox' AND d.deptype = 'e' AND @extschema@.outbox_shows_tenant(NULL)
     GROUP BY 1
$$;
COMMENT ON FUNCTION outbox_collect_tables()
IS 'internal: the rows of outbox_stats_tables';

CREATE FUNCTION outbox_collect_held(OUT consumer text, OUT held_partition_seconds double precision, OUT held_partition_bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.consumer, max(@extschema@.outbox_age(h.since)), sum(h.bytes)::bigint
      FROM @extschema@.outbox_held_partitions() h GROUP BY 1
$$;
COMMENT ON FUNCTION outbox_collect_held()
IS 'internal: the rows of outbox_stats_held';

CREATE FUNCTION outbox_collect_database(
    OUT health integer, OUT relay_up integer, OUT scheduled_overdue bigint, OUT default_partition_events integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_position('{ok,degraded,failing}', h.status) - 1, (r.worker IS NOT NULL)::integer,
           (SELECT count(*) FROM @extschema@.outbox_scheduled s
             WHERE s.available_at <= clock_timestamp() - interval '1 second' AND s.try_again_at IS NULL),
           coalesce(@extschema@.outbox_default_holds_events(), false)::integer
      FROM @extschema@.outbox_health() h, @extschema@.outbox_relay_status() r
$$;
COMMENT ON FUNCTION outbox_collect_database()
IS 'internal: the row of outbox_stats_database';

DO $do$
DECLARE
    path CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
CREATE VIEW @extschema@.outbox_stats AS SELECT * FROM @extschema@.outbox_collect_stats();
CREATE VIEW @extschema@.outbox_stats_events AS SELECT * FROM @extschema@.outbox_collect_event_stats();
CREATE VIEW @extschema@.outbox_stats_latency AS SELECT * FROM @extschema@.outbox_collect_latency();
CREATE VIEW @extschema@.outbox_stats_dead_letters AS SELECT * FROM @extschema@.outbox_collect_dead_letters();
CREATE VIEW @extschema@.outbox_stats_tables AS SELECT * FROM @extschema@.outbox_collect_tables();
CREATE VIEW @extschema@.outbox_stats_held AS SELECT * FROM @extschema@.outbox_collect_held();
CREATE VIEW @extschema@.outbox_stats_database AS SELECT * FROM @extschema@.outbox_collect_database();
PERFORM set_config('search_path', path, true);
END $do$;

COMMENT ON VIEW outbox_stats
IS 'how each consumer is doing, sinks included';
COMMENT ON COLUMN outbox_stats.consumer IS 'the consumer';
COMMENT ON COLUMN outbox_stats.kind IS 'worker, http or kafka';
COMMENT ON COLUMN outbox_stats.paused IS 'is it paused?';
COMMENT ON COLUMN outbox_stats.lag_seconds IS 'age of the oldest event that it has yet to settle; 0: there is none';
COMMENT ON COLUMN outbox_stats.lag_is_exact IS 'false: an upper bound, because the next events may not be for it';
COMMENT ON COLUMN outbox_stats.lag_messages IS 'ids that were drawn and not yet read, gaps and what it does not want included, and events that were read and nobody has in hand';
COMMENT ON COLUMN outbox_stats.delivered IS 'events that were settled as done';
COMMENT ON COLUMN outbox_stats.failed IS 'attempts that failed';
COMMENT ON COLUMN outbox_stats.retried IS 'of these, those that were to be tried again';
COMMENT ON COLUMN outbox_stats.dead IS 'of these, those that became dead letters';
COMMENT ON COLUMN outbox_stats.bytes IS 'payloads of what was delivered, as they are stored';
COMMENT ON COLUMN outbox_stats.per_second IS 'deliveries per second over the last minute';
COMMENT ON COLUMN outbox_stats.p50_ms IS 'half of the events were settled within so many milliseconds of being enqueued';
COMMENT ON COLUMN outbox_stats.p95_ms IS '95 percent of them were';
COMMENT ON COLUMN outbox_stats.p99_ms IS '99 percent of them were';
COMMENT ON COLUMN outbox_stats.open_leases IS 'batches that are handed out or wait for a worker';
COMMENT ON COLUMN outbox_stats.stale_leases IS 'of these, those whose lease has run out';
COMMENT ON COLUMN outbox_stats.in_flight IS 'events that a worker or the relay has in hand';
COMMENT ON COLUMN outbox_stats.waiting_retries IS 'events that wait for another attempt, or behind one that does';
COMMENT ON COLUMN outbox_stats.oldest_retry_at IS 'when the first of them is due';
COMMENT ON COLUMN outbox_stats.max_attempts IS 'how often the one was tried that was tried most often';
COMMENT ON COLUMN outbox_stats.dlq_depth IS 'dead letters';
COMMENT ON COLUMN outbox_stats.backoff_until IS 'when the sink is tried again; NULL: it is not in trouble';
COMMENT ON COLUMN outbox_stats.last_error IS 'of a message, or of the sink';
COMMENT ON COLUMN outbox_stats.last_error_at IS 'when that was';
COMMENT ON COLUMN outbox_stats.stats_reset IS 'since when it is counted';

COMMENT ON VIEW outbox_stats_events
IS 'what happened to events of each type, since the server started or the counters were reset';
COMMENT ON COLUMN outbox_stats_events.event_type IS 'other: all for which there was no place';
COMMENT ON COLUMN outbox_stats_events.enqueued IS 'events that entered the log';
COMMENT ON COLUMN outbox_stats_events.delivered IS 'deliveries, of all consumers';
COMMENT ON COLUMN outbox_stats_events.failed IS 'attempts that failed, of all consumers';
COMMENT ON COLUMN outbox_stats_events.dead IS 'dead letters, of all consumers';
COMMENT ON COLUMN outbox_stats_events.stats_reset IS 'since when it is counted';

COMMENT ON VIEW outbox_stats_latency
IS 'how long it took from enqueue to settlement, as histograms that Prometheus understands';
COMMENT ON COLUMN outbox_stats_latency.consumer IS 'the consumer';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds IS 'upper bounds';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds_bucket IS 'how many events were settled within each of them';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds_sum IS 'what all events took together';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds_count IS 'how many events there were';

COMMENT ON VIEW outbox_stats_dead_letters
IS 'what is in outbox_messages_dlq, by consumer and event type';
COMMENT ON COLUMN outbox_stats_dead_letters.consumer IS 'who has given them up';
COMMENT ON COLUMN outbox_stats_dead_letters.event_type IS 'their type';
COMMENT ON COLUMN outbox_stats_dead_letters.dead_letters IS 'how many there are';

COMMENT ON VIEW outbox_stats_tables
IS 'the tables of the extension; the log and the archive with all of their partitions';
COMMENT ON COLUMN outbox_stats_tables."table" IS 'the table';
COMMENT ON COLUMN outbox_stats_tables.dead_tuples IS 'dead rows that autovacuum has yet to remove';
COMMENT ON COLUMN outbox_stats_tables.bytes IS 'its size, with indexes';

COMMENT ON VIEW outbox_stats_held
IS 'consumers that hold back partitions which are due to be archived or dropped';
COMMENT ON COLUMN outbox_stats_held.consumer IS 'the consumer';
COMMENT ON COLUMN outbox_stats_held.held_partition_seconds IS 'for how long';
COMMENT ON COLUMN outbox_stats_held.held_partition_bytes IS 'how large they are';

COMMENT ON VIEW outbox_stats_database
IS 'how the database is doing, in one row';
COMMENT ON COLUMN outbox_stats_database.health IS 'outbox_health(): 0 ok, 1 degraded, 2 failing';
COMMENT ON COLUMN outbox_stats_database.relay_up IS '1: there is a worker for this database';
COMMENT ON COLUMN outbox_stats_database.scheduled_overdue IS 'scheduled events that should have entered the log, but for those that it refused';
COMMENT ON COLUMN outbox_stats_database.default_partition_events IS '1: the default partition holds events';

-- Escaped as Prometheus wants it.
CREATE FUNCTION outbox_metric_label(label text, value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s="%s"', label, replace(replace(replace(value, '\', '\\'), '"', '\"'), E'\n', '\n'))
$$;
COMMENT ON FUNCTION outbox_metric_label(text, text)
IS 'internal: a label of a metric';

CREATE FUNCTION outbox_metric_samples(OUT name text, OUT type text, OUT help text, OUT labels text, OUT value double precision)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH consumers AS MATERIALIZED (SELECT s.*, @extschema@.outbox_metric_label('consumer', s.consumer) AS label
                                      FROM @extschema@.outbox_collect_stats() s),
         types AS MATERIALIZED (SELECT t.*, @extschema@.outbox_metric_label('event_type', t.event_type) AS label
                                  FROM @extschema@.outbox_collect_event_stats() t)
    SELECT m.* FROM consumers c CROSS JOIN LATERAL (VALUES
        ('outbox_lag_seconds', 'gauge', 'Age of the oldest event that a consumer has yet to settle.', c.label, c.lag_seconds),
        ('outbox_lag_is_exact', 'gauge', '0: the lag is an upper bound, because the next events may not be for the consumer.', c.label, c.lag_is_exact::integer),
        ('outbox_lag_messages', 'gauge', 'Ids that were drawn and not yet read by a consumer, and events that were read and nobody has in hand.', c.label, c.lag_messages),
        ('outbox_throughput_total', 'counter', 'Events that a consumer has settled as done.', c.label, c.delivered),
        ('outbox_delivered_bytes_total', 'counter', 'Payloads of these events.', c.label, c.bytes),
        ('outbox_retries_total', 'counter', 'Attempts that failed and were to be repeated.', c.label, c.retried),
        ('outbox_given_up_total', 'counter', 'Events that a consumer has given up.', c.label, c.dead),
        ('outbox_dlq_depth', 'gauge', 'Dead letters.', c.label, c.dlq_depth),
        ('outbox_waiting_retries', 'gauge', 'Events that wait for another attempt.', c.label, c.waiting_retries),
        ('outbox_max_attempts', 'gauge', 'How often the event was tried that was tried most often, of those that wait.', c.label, c.max_attempts),
        ('outbox_in_flight', 'gauge', 'Events that a worker or the relay has in hand.', c.label, c.in_flight),
        ('outbox_open_leases', 'gauge', 'Batches that are handed out or wait for a worker.', c.label, c.open_leases),
        ('outbox_stale_leases', 'gauge', 'Batches whose lease has run out.', c.label, c.stale_leases),
        ('outbox_paused', 'gauge', 'Is the consumer paused?', c.label, c.paused::integer),
        ('outbox_backing_off', 'gauge', 'Is the sink left alone for a while, because it is in trouble?', c.label,
         (c.backoff_until IS NOT NULL)::integer)
        ) m (name, type, help, labels, value)
    UNION ALL
    SELECT m.* FROM types t CROSS JOIN LATERAL (VALUES
        ('outbox_enqueued_total', 'counter', 'Events that entered the log.', t.label, t.enqueued::double precision),
        ('outbox_delivered_total', 'counter', 'Deliveries, of all consumers.', t.label, t.delivered),
        ('outbox_failures_total', 'counter', 'Attempts that failed, of all consumers.', t.label, t.failed),
        ('outbox_dead_events_total', 'counter', 'Events that became dead letters, of all consumers.', t.label, t.dead)) m
    UNION ALL
    SELECT 'outbox_dlq_messages', 'gauge', 'Dead letters by event type.',
           concat_ws(',', @extschema@.outbox_metric_label('consumer', d.consumer), @extschema@.outbox_metric_label('event_type', d.event_type)), d.dead_letters
      FROM @extschema@.outbox_collect_dead_letters() d
    UNION ALL
    SELECT m.* FROM @extschema@.outbox_collect_held() h CROSS JOIN LATERAL (VALUES
        ('outbox_held_partition_seconds', 'gauge', 'For how long a consumer has held back a partition that is due to be archived or dropped.',
         @extschema@.outbox_metric_label('consumer', h.consumer), h.held_partition_seconds),
        ('outbox_held_partition_bytes', 'gauge', 'Size of the partitions that a consumer holds back.',
         @extschema@.outbox_metric_label('consumer', h.consumer), h.held_partition_bytes)) m
    UNION ALL
    SELECT m.* FROM @extschema@.outbox_collect_tables() t CROSS JOIN LATERAL (VALUES
        ('outbox_dead_tuples', 'gauge', 'Dead rows that autovacuum has yet to remove.',
         @extschema@.outbox_metric_label('table', t."table"), t.dead_tuples::double precision),
        ('outbox_table_bytes', 'gauge', 'Size of a table, with its indexes and partitions.',
         @extschema@.outbox_metric_label('table', t."table"), t.bytes)) m
    UNION ALL
    SELECT m.* FROM @extschema@.outbox_collect_database() d CROSS JOIN LATERAL (VALUES
        ('outbox_health_status', 'gauge', 'What outbox_health() says: 0 ok, 1 degraded, 2 failing.', '', d.health::double precision),
        ('outbox_relay_up', 'gauge', 'Is there a worker for this database?', '', d.relay_up),
        ('outbox_scheduled_overdue', 'gauge', 'Scheduled events that should have entered the log.', '', d.scheduled_overdue),
        ('outbox_default_partition_events', 'gauge', 'Does the default partition hold events?', '', d.default_partition_events)) m
$$;
COMMENT ON FUNCTION outbox_metric_samples()
IS 'internal: what outbox_metrics() shows, histograms aside';

CREATE FUNCTION outbox_metric_histograms(OUT name text, OUT help text, OUT lines text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'outbox_latency_seconds', 'Time from enqueue to settlement.',
           string_agg(format(E'%4$soutbox_latency_seconds_bucket{%1$s,le="+Inf"} %2$s\noutbox_latency_seconds_sum{%1$s} %3$s\noutbox_latency_seconds_count{%1$s} %2$s',
                             l.label, l.latency_seconds_count, l.latency_seconds_sum, l.buckets), E'\n' ORDER BY l.label)
      FROM (SELECT h.*, x.label,
                   (SELECT string_agg(format(E'outbox_latency_seconds_bucket{%s,le="%s"} %s\n', x.label, b.bound, b.count), '' ORDER BY b.bound)
                      FROM unnest(h.latency_seconds, h.latency_seconds_bucket) b (bound, count)) AS buckets
              FROM @extschema@.outbox_collect_latency() h
             CROSS JOIN LATERAL (SELECT @extschema@.outbox_metric_label('consumer', h.consumer) AS label) x) l
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION outbox_metric_histograms()
IS 'internal: the histograms of outbox_metrics()';

CREATE FUNCTION outbox_metrics() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n%4$s\n', name, help, type, lines), '' ORDER BY name)
      FROM (SELECT name, min(help) AS help, min(type) AS type,
                   string_agg(format('%s%s %s', name, '{' || nullif(labels, '') || '}', value), E'\n' ORDER BY labels) AS lines
              FROM @extschema@.outbox_metric_samples() GROUP BY name
             UNION ALL
            SELECT name, help, 'histogram', lines FROM @extschema@.outbox_metric_histograms()) m
$$;
COMMENT ON FUNCTION outbox_metrics()
IS 'all figures in the text format of Prometheus';

----------------------------------------------------------------------------------------------------
-- What the statistics were, for outbox_report()
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_stats_history (
    at              timestamptz      NOT NULL,
    consumer_id     integer          NOT NULL,
    lag_seconds     double precision,
    lag_messages    bigint,
    delivered       bigint,
    failed          bigint,
    dead            bigint,
    bytes           bigint,
    waiting_retries bigint,
    dlq_depth       bigint,
    in_flight       bigint,
    enqueued        bigint,
    latency         bigint[],
    stats_reset     timestamptz,
    PRIMARY KEY (consumer_id, at)
);
COMMENT ON TABLE outbox_stats_history
IS 'outbox_stats as it was at each maintenance, for as long as outbox.stats_retention says';
COMMENT ON COLUMN outbox_stats_history.at IS 'when that was';
COMMENT ON COLUMN outbox_stats_history.consumer_id IS '0: all of the database';
COMMENT ON COLUMN outbox_stats_history.lag_seconds IS 'as in outbox_stats';
COMMENT ON COLUMN outbox_stats_history.lag_messages IS 'as in outbox_stats';
COMMENT ON COLUMN outbox_stats_history.delivered IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN outbox_stats_history.failed IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN outbox_stats_history.dead IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN outbox_stats_history.bytes IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN outbox_stats_history.waiting_retries IS 'as in outbox_stats';
COMMENT ON COLUMN outbox_stats_history.dlq_depth IS 'as in outbox_stats';
COMMENT ON COLUMN outbox_stats_history.in_flight IS 'as in outbox_stats';
COMMENT ON COLUMN outbox_stats_history.enqueued IS 'events that entered the log since stats_reset; only of the whole database';
COMMENT ON COLUMN outbox_stats_history.latency IS 'the i-th took less than 2^(i+5) microseconds, and not less than half of that; since stats_reset';
COMMENT ON COLUMN outbox_stats_history.stats_reset IS 'since when it was counted';

CREATE FUNCTION outbox_stats_now() RETURNS SETOF @extschema@.outbox_stats_history
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT clock_timestamp(), c.consumer_id, s.lag_seconds, s.lag_messages, s.delivered, s.failed, s.dead, s.bytes,
           s.waiting_retries, s.dlq_depth, s.in_flight, NULL::bigint, n.latency, s.stats_reset
      FROM @extschema@.outbox_collect_stats() s
      JOIN @extschema@.outbox_consumers c ON c.name = s.consumer
      LEFT JOIN @extschema@.outbox_consumer_counts() n USING (consumer_id)
     UNION ALL
    SELECT clock_timestamp(), 0, NULL, NULL, sum(t.delivered)::bigint, sum(t.failed)::bigint, sum(t.dead)::bigint, NULL,
           NULL, NULL, NULL, sum(t.enqueued)::bigint, NULL, min(t.stats_reset)
      FROM @extschema@.outbox_collect_event_stats() t HAVING count(*) > 0
$$;
COMMENT ON FUNCTION outbox_stats_now()
IS 'internal: what outbox_stats_history would hold if it were written now';

-- A sink that wants few of the events is not woken for the others. Where its cursor is shall not look like a lag.
CREATE FUNCTION outbox_step_catch_up(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    detail := 'its cursor is past what it does not want';
    done := true;
    again := true;
    FOR object IN SELECT s.consumer FROM @extschema@.outbox_collect_stats() s WHERE NOT s.lag_is_exact AND NOT s.paused LOOP
        IF @extschema@.outbox_catch_up(object) THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_step_catch_up()
IS 'internal: moves cursors past events that nobody would claim';

CREATE FUNCTION outbox_step_sample(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM @extschema@.outbox_stats_history h
     WHERE h.at < clock_timestamp() - @extschema@.outbox_setting('outbox.stats_retention');
    IF @extschema@.outbox_setting('outbox.stats_retention') > '0' THEN
        INSERT INTO @extschema@.outbox_stats_history SELECT * FROM @extschema@.outbox_stats_now();
    END IF;
    PERFORM @extschema@.outbox_give_back_places(ARRAY(SELECT c.consumer_id FROM @extschema@.outbox_consumers c));
END $$;
COMMENT ON FUNCTION outbox_step_sample()
IS 'internal: remembers what the statistics are';

----------------------------------------------------------------------------------------------------
-- The report: one page of HTML with nothing from elsewhere in it, and no script. What others have written gets
-- into it through outbox_html() alone.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_html(value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT replace(replace(replace(replace(replace(value, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#39;')
$$;
COMMENT ON FUNCTION outbox_html(text)
IS 'internal: text for a page, between tags or in quotes';

CREATE FUNCTION outbox_html_number(value numeric) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN '&ndash;'
                WHEN abs(value) < 1 AND value <> 0 THEN trim_scale(round(value, 1 - floor(log(abs(value)))::integer))::text
                WHEN abs(value) < 10 THEN trim_scale(round(value, 1))::text
                ELSE to_char(value, 'FM999,999,999,999,999,999,990') END
$$;
COMMENT ON FUNCTION outbox_html_number(numeric)
IS 'internal: a number for people';

CREATE FUNCTION outbox_html_seconds(value double precision) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN '&ndash;' WHEN value <= 0 THEN '0 s'
                ELSE (SELECT @extschema@.outbox_html_number((value / u.seconds)::numeric) || ' ' || u.name
                        FROM (VALUES (86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's'), (0.001, 'ms'), (0.000001, '&micro;s'))
                             u (seconds, name)
                       WHERE value >= u.seconds * 0.9999 OR u.seconds = 0.000001 ORDER BY u.seconds DESC LIMIT 1) END
$$;
COMMENT ON FUNCTION outbox_html_seconds(double precision)
IS 'internal: how long something takes, for people';

CREATE FUNCTION outbox_html_time(value timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(to_char(value AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), '&ndash;')
$$;
COMMENT ON FUNCTION outbox_html_time(timestamptz)
IS 'internal: a moment for people, in UTC';

CREATE FUNCTION outbox_html_table(headings text[], rows text, otherwise text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN rows IS NULL THEN format('<p>%s</p>', otherwise)
                ELSE format(E'<div class="wide"><table>\n<thead><tr>%s</tr></thead>\n<tbody>%s</tbody>\n</table></div>',
                            (SELECT string_agg(CASE WHEN h LIKE '#%' THEN format('<th class="n">%s</th>', substr(h, 2))
                                                    ELSE format('<th>%s</th>', h) END, '' ORDER BY n)
                               FROM unnest(headings) WITH ORDINALITY AS x (h, n)), rows) END
$$;
COMMENT ON FUNCTION outbox_html_table(text[], text, text)
IS 'internal: a table, or what is said if it has no rows; a heading with # in front is that of numbers';

-- Lines over time. `value` has a row for each moment and a column for each line; where it is NULL, and where moments
-- are further apart than `gap`, a line is interrupted. Scales: spark (a small chart without axes), number, seconds, and
-- latency, which is seconds on a logarithmic scale.
CREATE FUNCTION outbox_svg_line(label text, scale text, since timestamptz, until timestamptz, gap interval,
                                at timestamptz[], value double precision[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_small  CONSTANT boolean := scale = 'spark';
    width     CONSTANT integer := CASE WHEN is_small THEN 120 ELSE 480 END;
    height    CONSTANT integer := CASE WHEN is_small THEN 28 ELSE 164 END;
    x_first   CONSTANT integer := CASE WHEN is_small THEN 3 ELSE 68 END;
    x_last    CONSTANT integer := CASE WHEN is_small THEN 117 ELSE 454 END;
    y_least   CONSTANT integer := CASE WHEN is_small THEN 25 ELSE 132 END;
    y_most    CONSTANT integer := CASE WHEN is_small THEN 3 ELSE 10 END;
    durations CONSTANT double precision[] := '{0.0001,0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5,1,2,5,10,20,30,60,120,300,600,1200,
                                               1800,3600,7200,14400,21600,43200,86400,172800,345600,604800,1209600,2592000,31536000}';
    decades   CONSTANT double precision[] := '{0.00001,0.0001,0.001,0.01,0.1,1,10,60,600,3600,21600,86400,604800,6048000}';
    span      CONSTANT double precision := extract(epoch FROM until - since);
    step      interval;
    ticks     double precision[];
    least     double precision;
    most      double precision;
    bottom    double precision := 0;
    top       double precision;
    parts     text := '';
    path      text;
    dots      text;
BEGIN
    SELECT min(v) FILTER (WHERE v > 0), max(v) INTO least, most FROM unnest(value) AS v;
    IF scale = 'latency' THEN
        least := coalesce(least, 0.001);
        SELECT max(d) INTO bottom FROM unnest(decades) AS d WHERE d <= least;
        SELECT min(d) INTO top FROM unnest(decades) AS d WHERE d >= greatest(most, least * 1.01);
        SELECT array_agg(d) INTO ticks FROM unnest(decades) AS d WHERE d BETWEEN bottom AND top;
    ELSIF scale = 'seconds' THEN
        SELECT min(d) INTO top FROM unnest(durations) AS d WHERE d >= greatest(most, 1);
    ELSIF most > 0 THEN
        top := power(10, floor(log(most)));
        top := top * CASE WHEN most <= top THEN 1 WHEN most <= 2 * top THEN 2 WHEN most <= 5 * top THEN 5 ELSE 10 END;
    END IF;
    top := coalesce(top, nullif(most, 0), 1);
    ticks := coalesce(ticks, ARRAY[0, top / 2, top]);

    IF NOT is_small THEN
        SELECT parts || string_agg(format('<path class="grid" d="M%s,%sH%s"/><text class="y" x="%s" y="%s">%s</text>',
                                          x_first, t.y, x_last, x_first - 7, t.y + 4,
                                          CASE WHEN scale = 'number' THEN @extschema@.outbox_html_number(t.tick::numeric)
                                               ELSE @extschema@.outbox_html_seconds(t.tick) END), '' ORDER BY t.tick)
          INTO parts
          FROM (SELECT tick, round((y_least - (y_least - y_most) *
                                    CASE WHEN scale = 'latency' THEN ln(tick / bottom) / ln(top / bottom) ELSE tick / top END)::numeric, 1) AS y
                  FROM unnest(ticks) AS tick) t;
        SELECT s INTO step FROM unnest('{10 min,20 min,30 min,1 h,2 h,4 h,12 h,24 h}'::interval[]) AS s
         WHERE extract(epoch FROM s) * 7 >= span ORDER BY s LIMIT 1;
        SELECT parts || string_agg(format('<path class="grid" d="M%s,%sv4"/><text class="x" x="%s" y="%s">%s</text>',
                                          t.x, y_least, t.x, y_least + 23,
                                          to_char(t.tick AT TIME ZONE 'UTC',
                                                  CASE WHEN t.tick AT TIME ZONE 'UTC' = date_trunc('day', t.tick AT TIME ZONE 'UTC')
                                                       THEN 'DD Mon' ELSE 'HH24:MI' END)), '' ORDER BY t.tick)
          INTO parts
          FROM (SELECT tick, round((x_first + (x_last - x_first) * extract(epoch FROM tick - since) / span)::numeric, 1) AS x
                  FROM generate_series(date_bin(step, since, '2000-01-01 00:00+00') + step, until, step) AS tick) t;
    END IF;

    -- A dot for the last point of each line, and for points that no line leads to or from.
    FOR line IN 1 .. array_length(value, 2) LOOP
        SELECT string_agg(CASE WHEN l.follows THEN 'L' ELSE 'M' END || l.place, '' ORDER BY l.at) FILTER (WHERE l.follows OR l.leads),
               string_agg(format('M%sh.1', l.place), '' ORDER BY l.at) FILTER (WHERE l.is_last OR NOT (l.follows OR l.leads))
          INTO path, dots
          FROM (SELECT p.at, coalesce(p.at - lag(p.at) OVER later <= gap AND lag(p.v) OVER later IS NOT NULL, false) AS follows,
                       coalesce(lead(p.at) OVER later - p.at <= gap AND lead(p.v) OVER later IS NOT NULL, false) AS leads,
                       p.at = max(p.at) FILTER (WHERE p.v IS NOT NULL) OVER () AS is_last, p.v IS NOT NULL AS is_known,
                       format('%s,%s', round((x_first + (x_last - x_first) * extract(epoch FROM p.at - since) / span)::numeric, 1),
                              round((y_least - (y_least - y_most) *
                                     CASE WHEN scale = 'latency' THEN ln(greatest(p.v, bottom) / bottom) / ln(top / bottom)
                                          ELSE p.v / top END)::numeric, 1)) AS place
                  FROM (SELECT at[i] AS at, value[i][line] AS v FROM generate_subscripts(at, 1) AS i) p
                WINDOW later AS (ORDER BY p.at)) l
         WHERE l.is_known;
        parts := parts || CASE WHEN path IS NULL THEN '' ELSE format('<path class="line s%s" d="%s"/>', line, path) END
                       || CASE WHEN dots IS NULL THEN '' ELSE format('<path class="dot s%s" d="%s"/>', line, dots) END;
    END LOOP;
    RETURN format(E'<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>\n',
                  CASE WHEN is_small THEN 'spark' ELSE 'chart' END, width, height, @extschema@.outbox_html(label), parts);
END $$;
COMMENT ON FUNCTION outbox_svg_line(text, text, timestamptz, timestamptz, interval, timestamptz[], double precision[])
IS 'internal: a chart of lines over time';

-- Within a bucket, times are taken to be spread evenly.
CREATE FUNCTION outbox_percentiles(counts bigint[], before bigint[], parts double precision[]) RETURNS double precision[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added  bigint[] := '{}';
    total  bigint := 0;
    seen   bigint := 0;
    wanted double precision;
    found  double precision[] := array_fill(NULL::double precision, ARRAY[cardinality(parts)]);
    p      integer := 1;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(counts), 0) LOOP
        added[i] := counts[i] - coalesce(before[i], 0);
        IF added[i] < 0 THEN
            RETURN @extschema@.outbox_percentiles(counts, NULL, parts);
        END IF;
        total := total + added[i];
    END LOOP;
    IF total > 0 THEN
        FOR i IN 1 .. cardinality(counts) LOOP
            WHILE p <= cardinality(parts) AND seen + added[i] >= total * parts[p] AND added[i] > 0 LOOP
                wanted := (total * parts[p] - seen) / added[i];
                found[p] := power(2.0, i + 4) * (CASE WHEN i = 1 THEN 2 * wanted ELSE 1 + wanted END) / 1000000;
                p := p + 1;
            END LOOP;
            seen := seen + added[i];
        END LOOP;
    END IF;
    RETURN found;
END $$;
COMMENT ON FUNCTION outbox_percentiles(bigint[], bigint[], double precision[])
IS 'internal: percentiles, in seconds and in rising order, of what was counted in powers of two since it was counted before';

-- What a consumer does not want is among the messages that it has yet to read.
CREATE FUNCTION outbox_waiting(lag_seconds double precision, lag_messages bigint, in_flight bigint, waiting_retries bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN lag_seconds = 0 THEN 0 ELSE lag_messages + in_flight + waiting_retries END
$$;
COMMENT ON FUNCTION outbox_waiting(double precision, bigint, bigint, bigint)
IS 'internal: how many events a consumer has yet to settle, at most';

-- Counters become what was added to them: all of it, if they began anew meanwhile.
CREATE FUNCTION outbox_report_series(
    present outbox_stats_history[], since timestamptz, width interval,
    OUT consumer_id integer, OUT samples bigint, OUT at timestamptz[], OUT lag double precision[], OUT waiting double precision[],
    OUT enqueued bigint, OUT enqueued_rate double precision[], OUT delivered bigint, OUT delivered_rate double precision[],
    OUT dead bigint, OUT dead_letters double precision[], OUT latency double precision[])
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH samples AS (
        SELECT h.*, false AS is_now FROM unnest(present) p JOIN @extschema@.outbox_stats_history h USING (consumer_id)
         WHERE h.at < p.at AND h.at > since - @extschema@.outbox_setting('outbox.maintenance_interval')
         UNION ALL
        SELECT p.*, true FROM unnest(present) p
    ), followed AS (
        SELECT s.*, date_bin(width, s.at, since) AS bin,
               lag(s.at) OVER w AS earlier,
               -- NULL: nobody knows how much of it is from before.
               CASE WHEN s.stats_reset = lag(s.stats_reset) OVER w THEN false
                    WHEN lag(s.at) OVER w IS NOT NULL OR coalesce(s.stats_reset, since) >= since THEN true END AS anew,
               lag(s.enqueued) OVER w AS enqueued_before, lag(s.delivered) OVER w AS delivered_before,
               lag(s.dead) OVER w AS dead_before
          FROM samples s WINDOW w AS (PARTITION BY s.consumer_id ORDER BY s.at)
    ), added AS (
        SELECT f.*, @extschema@.outbox_waiting(f.lag_seconds, f.lag_messages, f.in_flight, f.waiting_retries) AS waiting,
               extract(epoch FROM f.at - coalesce(f.earlier, CASE WHEN f.anew THEN f.stats_reset END)) AS seconds,
               f.enqueued - CASE WHEN f.anew OR f.enqueued < f.enqueued_before THEN 0 ELSE f.enqueued_before END AS new_enqueued,
               f.delivered - CASE WHEN f.anew OR f.delivered < f.delivered_before THEN 0 ELSE f.delivered_before END AS new_delivered,
               f.dead - CASE WHEN f.anew OR f.dead < f.dead_before THEN 0 ELSE f.dead_before END AS new_dead
          FROM followed f
    ), bins AS (
        SELECT a.consumer_id, a.bin, count(*) FILTER (WHERE NOT a.is_now) AS samples, max(a.at) AS at,
               -- The last point is the present.
               coalesce(max(a.lag_seconds) FILTER (WHERE a.is_now), max(a.lag_seconds)) AS lag,
               coalesce(max(a.waiting) FILTER (WHERE a.is_now), max(a.waiting)) AS waiting,
               coalesce(max(a.dlq_depth) FILTER (WHERE a.is_now), max(a.dlq_depth)) AS dlq_depth,
               sum(a.new_enqueued) AS enqueued, sum(a.new_delivered) AS delivered, sum(a.new_dead) AS dead,
               nullif(sum(a.seconds), 0) AS seconds
          FROM added a WHERE a.at >= since GROUP BY 1, 2
    ), percentiles AS (
        SELECT l.consumer_id, l.bin, @extschema@.outbox_percentiles(l.latency, l.before, '{0.5,0.95,0.99}') AS latency
          FROM (SELECT f.consumer_id, f.bin, f.at, f.latency,
                       CASE WHEN f.stats_reset = lag(f.stats_reset) OVER w THEN lag(f.latency) OVER w END AS before,
                       f.stats_reset >= since OR lag(f.at) OVER w IS NOT NULL AS is_known
                  FROM (SELECT DISTINCT ON (x.consumer_id, x.bin) x.* FROM followed x WHERE x.latency IS NOT NULL
                         ORDER BY x.consumer_id, x.bin, x.at DESC) f
                WINDOW w AS (PARTITION BY f.consumer_id ORDER BY f.at)) l
         WHERE l.at >= since AND l.is_known
    )
    SELECT b.consumer_id, sum(b.samples)::bigint, array_agg(b.at ORDER BY b.bin),
           array_agg(ARRAY[b.lag] ORDER BY b.bin), array_agg(ARRAY[b.waiting::double precision] ORDER BY b.bin),
           sum(b.enqueued)::bigint, array_agg(ARRAY[(b.enqueued / b.seconds)::double precision] ORDER BY b.bin),
           sum(b.delivered)::bigint, array_agg(ARRAY[(b.delivered / b.seconds)::double precision] ORDER BY b.bin),
           sum(b.dead)::bigint, array_agg(ARRAY[b.dlq_depth::double precision] ORDER BY b.bin),
           array_agg(coalesce(p.latency, '{NULL,NULL,NULL}') ORDER BY b.bin)
      FROM bins b LEFT JOIN percentiles p USING (consumer_id, bin) GROUP BY 1
$$;
COMMENT ON FUNCTION outbox_report_series(outbox_stats_history[], timestamptz, interval)
IS 'internal: the last hours of each consumer, as charts want them';

-- The worst come first, and so many are shown.
CREATE FUNCTION outbox_report_consumers(hours integer, max_shown integer, OUT flow text, OUT charts text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    is_counted CONSTANT boolean := @extschema@.outbox_is_preloaded();
    present    CONSTANT @extschema@.outbox_stats_history[] := ARRAY(SELECT n FROM @extschema@.outbox_stats_now() n);
    until      CONSTANT timestamptz := clock_timestamp();
    since      CONSTANT timestamptz := until - make_interval(hours => hours);
    width      CONSTANT interval := make_interval(secs => hours * 50); -- 72 points to a line
    gap        CONSTANT interval := 3 * greatest(width, @extschema@.outbox_setting('outbox.maintenance_interval'));
    produced   record;
    c          record;
    others     bigint;
BEGIN
    SELECT * INTO produced
      FROM @extschema@.outbox_report_series(ARRAY(SELECT p FROM unnest(present) p WHERE p.consumer_id = 0), since, width);
    IF NOT FOUND AND is_counted THEN
        produced.enqueued := 0;
    END IF;
    flow := format(E'<p>From %s to %s UTC.%s</p>\n', @extschema@.outbox_html_time(since), @extschema@.outbox_html_time(until),
                   CASE WHEN NOT is_counted
                        THEN ' The library is not in shared_preload_libraries: there are no statistics, and only what can be'
                             ' looked up is shown.' END);
    charts := CASE WHEN produced.samples > 0
                   THEN format(E'<figure><figcaption>Produced, events per second</figcaption>\n%s</figure>\n'
                               '<figure><figcaption>Delivered to all, events per second</figcaption>\n%s</figure>\n',
                               @extschema@.outbox_svg_line('events produced per second', 'number', since, until, gap,
                                                           produced.at, produced.enqueued_rate),
                               @extschema@.outbox_svg_line('events delivered per second', 'number', since, until, gap,
                                                           produced.at, produced.delivered_rate))
                   ELSE '' END;
    FOR c IN
        WITH worst AS MATERIALIZED (
            SELECT s.*, o.consumer_id,
                   @extschema@.outbox_waiting(s.lag_seconds, s.lag_messages, s.in_flight, s.waiting_retries) AS waiting_now,
                   coalesce(o.event_types <> '{}', false) OR coalesce(o.aggregate_types <> '{}', false)
                       OR o.tenant_id IS NOT NULL AS is_picky,
                   row_number() OVER (ORDER BY (s.lag_seconds > 60 AND s.lag_is_exact) DESC, s.backoff_until IS NOT NULL DESC,
                                               s.dlq_depth > 0 DESC, s.waiting_retries > 0 DESC, s.lag_seconds DESC,
                                               s.dlq_depth DESC, s.consumer) AS place,
                   count(*) OVER () - max_shown AS others
              FROM @extschema@.outbox_collect_stats() s JOIN @extschema@.outbox_consumers o ON o.name = s.consumer
             ORDER BY place LIMIT max_shown)
        SELECT w.consumer, w.kind, w.paused, w.is_picky, w.place, w.others, w.lag_seconds, w.lag_is_exact, w.backoff_until,
               w.waiting_now, w.dlq_depth, w.last_error, w.last_error_at, coalesce(v.samples, 0) > 0 AS has_past,
               v.at, v.lag, v.waiting, v.delivered, v.delivered_rate, v.dead, v.dead_letters, v.latency,
               EXISTS (SELECT FROM unnest(v.latency) l WHERE l IS NOT NULL) AS has_latency
          FROM worst w
          LEFT JOIN @extschema@.outbox_report_series(
                        ARRAY(SELECT p FROM unnest(present) p WHERE p.consumer_id IN (SELECT x.consumer_id FROM worst x)), since, width) v
                 USING (consumer_id)
         ORDER BY w.place
    LOOP
        others := c.others;
        flow := flow || format(E'<article><h3>%s <small>%s</small></h3>\n%s</article>\n', @extschema@.outbox_html(c.consumer),
            concat_ws(', ', c.kind, CASE WHEN c.paused THEN 'paused' END, CASE WHEN c.backoff_until IS NOT NULL THEN 'in trouble' END,
                      'lag ' || CASE WHEN c.lag_is_exact OR c.lag_seconds = 0 THEN '' ELSE 'at most ' END
                             || @extschema@.outbox_html_seconds(c.lag_seconds)),
            (SELECT string_agg(format(E'<div><b>%s</b> <span>%s</span>%s</div>\n', f.figure, f.label,
                                      CASE WHEN c.has_past AND f.line IS NOT NULL
                                           THEN @extschema@.outbox_svg_line(f.label, 'spark', since, until, gap, f.at, f.line) END),
                               '' ORDER BY f.n)
               FROM (VALUES (1, 'produced', CASE WHEN c.is_picky AND produced.enqueued > 0 THEN '&le; ' ELSE '' END
                                            || @extschema@.outbox_html_number(produced.enqueued), produced.at, produced.enqueued_rate),
                            (2, 'delivered', @extschema@.outbox_html_number(CASE WHEN is_counted THEN c.delivered END), c.at, c.delivered_rate),
                            (3, 'waiting', CASE WHEN c.is_picky AND c.waiting_now > 0 THEN '&le; ' ELSE '' END
                                           || @extschema@.outbox_html_number(c.waiting_now), c.at, c.waiting),
                            (4, 'dead' || CASE WHEN is_counted AND c.dead > 0 THEN format(' (%s came)', c.dead) ELSE '' END,
                             @extschema@.outbox_html_number(c.dlq_depth), c.at, c.dead_letters)) f (n, label, figure, at, line))
            || CASE WHEN c.last_error IS NOT NULL
                    THEN format('<p>%s <small>%s UTC</small></p>', @extschema@.outbox_html(left(c.last_error, 300)),
                                @extschema@.outbox_html_time(c.last_error_at)) ELSE '' END);
        IF c.has_past THEN
            charts := charts || format(E'<figure><figcaption>%s: lag</figcaption>\n%s</figure>\n'
                                       '<figure><figcaption>%s: latency%s</figcaption>\n%s</figure>\n',
                @extschema@.outbox_html(c.consumer),
                @extschema@.outbox_svg_line('lag of ' || c.consumer, 'seconds', since, until, gap, c.at, c.lag),
                @extschema@.outbox_html(c.consumer),
                CASE WHEN c.has_latency THEN ' <i class="s1">p50</i> <i class="s2">p95</i> <i class="s3">p99</i>' END,
                CASE WHEN c.has_latency
                     THEN @extschema@.outbox_svg_line('latency of ' || c.consumer, 'latency', since, until, gap, c.at, c.latency)
                     ELSE '<p>Nothing was delivered.</p>' END);
        END IF;
    END LOOP;
    IF NOT FOUND THEN
        flow := flow || '<p>There are no consumers.</p>';
    ELSIF others > 0 THEN
        flow := flow || format('<p>%s more consumers are left out, which are doing better: see outbox_stats.</p>', others);
    END IF;
    charts := coalesce('<div class="charts">' || nullif(charts, '') || '</div>',
                       '<p>No history yet: maintenance adds to it every outbox.maintenance_interval.</p>');
END $$;
COMMENT ON FUNCTION outbox_report_consumers(integer, integer)
IS 'internal: the parts of the report about consumers';

CREATE FUNCTION outbox_report_types() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT @extschema@.outbox_html_table('{Event type,#Enqueued,#Delivered,#Failed attempts,#Share,#Dead}',
               string_agg(format('<tr><td>%s</td><td class="n">%s</td><td class="n">%s</td><td class="n">%s</td>'
                                 '<td class="n">%s %%</td><td class="n">%s</td></tr>',
                                 @extschema@.outbox_html(t.event_type), @extschema@.outbox_html_number(t.enqueued),
                                 @extschema@.outbox_html_number(t.delivered), @extschema@.outbox_html_number(t.failed),
                                 @extschema@.outbox_html_number(100.0 * t.failed / (t.delivered + t.failed)),
                                 @extschema@.outbox_html_number(t.dead)), E'\n' ORDER BY t.failed DESC, t.event_type),
               'No attempt has failed.')
           || CASE WHEN count(*) > 0 THEN format('<p>Counted since %s UTC.</p>', @extschema@.outbox_html_time(min(t.stats_reset))) ELSE '' END
      FROM (SELECT * FROM @extschema@.outbox_collect_event_stats() WHERE failed > 0 ORDER BY failed DESC, event_type LIMIT 20) t
$$;
COMMENT ON FUNCTION outbox_report_types()
IS 'internal: the part of the report about event types';

-- No more than the newest of each consumer are looked at, so that it is quick with millions, too.
CREATE FUNCTION outbox_report_dead_letters() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT @extschema@.outbox_html_table('{Event type,Consumer,#Dead,First,Last,Last error}',
               string_agg(format('<tr><td>%s</td><td>%s</td><td class="n">%s%s</td><td class="t">%s</td><td class="t">%s</td><td>%s</td></tr>',
                                 @extschema@.outbox_html(t.event_type), @extschema@.outbox_html(t.name),
                                 CASE WHEN t.is_part THEN '&ge; ' END, @extschema@.outbox_html_number(t.count),
                                 @extschema@.outbox_html_time(t.first), @extschema@.outbox_html_time(t.last),
                                 @extschema@.outbox_html(t.error)), E'\n' ORDER BY t.count DESC, t.event_type, t.name),
               'There are none.')
      FROM (SELECT d.event_type, c.name, count(*) AS count, min(d.died_at) AS first, max(d.died_at) AS last,
                   (array_agg(d.error ORDER BY d.died_at DESC))[1] AS error, bool_or(d.is_part) AS is_part
              FROM @extschema@.outbox_consumers c
             CROSS JOIN LATERAL (SELECT x.event_type, x.died_at, left(x.last_error, 300) AS error,
                                        count(*) OVER () = 10000 AS is_part
                                   FROM (SELECT * FROM @extschema@.outbox_messages_dlq y WHERE y.consumer_id = c.consumer_id
                                          ORDER BY y.id DESC LIMIT 10000) x) d
             GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 20) t
$$;
COMMENT ON FUNCTION outbox_report_dead_letters()
IS 'internal: the part of the report about dead letters';

CREATE FUNCTION outbox_report_partitions() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws(E'\n',
        (SELECT format('<p>The log: %s, %s partitions, %s of them for times to come. The archive: %s, %s partitions%s.'
                       ' Cold storage: %s files, %s, with %s events%s.</p>',
                       l.size, l.count, l.ahead, a.size, a.count,
                       CASE WHEN a.count > 0
                            THEN format(' from %s to %s UTC', @extschema@.outbox_html_time(a.first), @extschema@.outbox_html_time(a.last)) END,
                       f.count, f.size, @extschema@.outbox_html_number(f.events),
                       CASE WHEN f.unstored > 0 THEN format('; %s of the files wait for outbox.archive_command', f.unstored) END)
           FROM (SELECT count(*), count(*) FILTER (WHERE lower_bound > clock_timestamp()) AS ahead,
                        pg_size_pretty(coalesce(sum(pg_total_relation_size(partition)), 0)) AS size FROM @extschema@.outbox_partitions()) l,
                (SELECT count(*), min(p.lower_bound) AS first, max(p.upper_bound) AS last,
                        pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid)), 0)) AS size
                   FROM @extschema@.outbox_archived_partitions p
                   LEFT JOIN pg_class c ON c.relname = p.partition AND c.relnamespace =
                             (SELECT relnamespace FROM pg_class WHERE oid = '@extschema@.outbox_messages'::regclass)) a,
                (SELECT count(*), pg_size_pretty(coalesce(sum(bytes), 0)) AS size, coalesce(sum(events), 0) AS events,
                        count(*) FILTER (WHERE stored_at IS NULL) AS unstored FROM @extschema@.outbox_cold_files) f),
        (SELECT @extschema@.outbox_html_table('{Partition,From (UTC),To (UTC),#Events&#44; about,#Size}',
                    string_agg(format('<tr><td>%s</td><td class="t">%s</td><td class="t">%s</td><td class="n">%s</td><td class="n">%s</td></tr>',
                                      @extschema@.outbox_html(c.relname), @extschema@.outbox_html_time(p.lower_bound),
                                      @extschema@.outbox_html_time(p.upper_bound),
                                      @extschema@.outbox_html_number(nullif(c.reltuples, -1)::numeric),
                                      pg_size_pretty(pg_total_relation_size(p.partition))), E'\n' ORDER BY p.lower_bound DESC NULLS FIRST),
                    'The log has no partitions yet.')
           FROM (SELECT * FROM @extschema@.outbox_partitions() WHERE lower_bound <= clock_timestamp() OR is_default
                  ORDER BY lower_bound DESC NULLS FIRST LIMIT 20) p
           JOIN pg_class c ON c.oid = p.partition),
        (SELECT '<h3>Held back</h3>' || @extschema@.outbox_html_table('{Partition,By,Why,Since (UTC),#Size}',
                    string_agg(format('<tr><td>%s</td><td>%s</td><td>%s</td><td class="t">%s</td><td class="n">%s</td></tr>',
                                      @extschema@.outbox_html(c.relname), @extschema@.outbox_html(h.consumer),
                                      @extschema@.outbox_html(h.reason), @extschema@.outbox_html_time(h.since), pg_size_pretty(h.bytes)),
                               E'\n' ORDER BY h.since, h.consumer), 'Nothing.')
           FROM (SELECT * FROM @extschema@.outbox_held_partitions() ORDER BY since, consumer LIMIT 20) h
           JOIN pg_class c ON c.oid = h.partition))
$$;
COMMENT ON FUNCTION outbox_report_partitions()
IS 'internal: the part of the report about partitions';

CREATE FUNCTION outbox_report_advice(OUT urgency integer, OUT subject text, OUT reason text, OUT call text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH consumers AS MATERIALIZED (SELECT * FROM @extschema@.outbox_collect_stats())
    SELECT CASE WHEN s.component IN ('preload', 'relay', 'partitions') THEN 1 ELSE 2 END, s.component, concat_ws('. ', s.detail, s.hint),
           CASE WHEN c.paused THEN format('SELECT outbox_resume(%L);', c.consumer)
                WHEN c.consumer IS NOT NULL THEN format('CALL outbox_test_sink(%L);', c.consumer)
                WHEN s.component = 'preload' THEN 'SHOW shared_preload_libraries;'
                WHEN s.component = 'relay' THEN 'SELECT name, setting FROM pg_settings'
                                                ' WHERE name IN (''outbox.relay'', ''outbox.databases'', ''max_worker_processes'');'
                WHEN s.component = 'partitions' THEN 'SELECT outbox_setup();'
                WHEN s.component = 'archive' THEN 'SELECT * FROM outbox_held_partitions();'
                WHEN s.component = 'scheduled' THEN 'SELECT outbox_release_due();'
                WHEN s.component = 'statistics' THEN 'SELECT * FROM outbox_stats_events ORDER BY enqueued;'
                ELSE 'SELECT * FROM outbox_maintain();' END
      FROM @extschema@.outbox_status() s LEFT JOIN consumers c ON c.kind <> 'worker' AND s.component = 'sink ' || c.consumer
     WHERE NOT s.ok
    UNION ALL
    SELECT 3, 'consumer ' || c.consumer,
           format('%s behind. ', @extschema@.outbox_html_seconds(c.lag_seconds)) ||
           CASE WHEN c.stale_leases > 0 THEN 'Leases of its workers have run out: they died, or need longer ones.'
                WHEN c.lag_messages = 0 AND c.waiting_retries > 0 THEN 'What it has yet to settle waits for another attempt.'
                WHEN c.kind <> 'worker' THEN 'Its receiver takes events more slowly than they come.'
                WHEN c.open_leases = 0 THEN 'Nobody claims its events. This is what waits.'
                ELSE 'More workers side by side, or larger batches, let it catch up.' END,
           CASE WHEN c.stale_leases > 0 THEN format('SELECT * FROM outbox_claim(%L, lease => ''5 min'');', c.consumer)
                WHEN c.lag_messages = 0 AND c.waiting_retries > 0
                     THEN format('SELECT waiting_retries, oldest_retry_at, last_error FROM outbox_stats WHERE consumer = %L;', c.consumer)
                WHEN c.kind <> 'worker' THEN format('CALL outbox_test_sink(%L);', c.consumer)
                WHEN c.open_leases = 0 THEN format('SELECT * FROM outbox_peek(%L);', c.consumer)
                ELSE format('SELECT * FROM outbox_claim(%L, 1000);', c.consumer) END
      FROM consumers c WHERE c.lag_seconds > 60 AND c.lag_is_exact AND NOT c.paused AND c.backoff_until IS NULL
    UNION ALL
    SELECT 4, 'consumer ' || c.consumer, 'Paused, and what it has yet to read is kept.', format('SELECT outbox_resume(%L);', c.consumer)
      FROM consumers c WHERE c.paused AND c.kind = 'worker'
    UNION ALL
    SELECT 5, 'consumer ' || c.consumer,
           format('%s dead letters. Once their cause is mended, give them another life.', c.dlq_depth),
           format('SELECT outbox_redrive(%L);', c.consumer)
      FROM consumers c WHERE c.dlq_depth > 0
    UNION ALL
    SELECT 6, 'event type ' || t.event_type, format('%s of %s attempts failed.', t.failed, t.delivered + t.failed),
           'SELECT consumer, last_error, last_error_at FROM outbox_stats WHERE failed > 0;'
      FROM @extschema@.outbox_collect_event_stats() t WHERE t.failed >= 10 AND t.failed > 0.05 * (t.delivered + t.failed)
$$;
COMMENT ON FUNCTION outbox_report_advice()
IS 'internal: what is to be done, why, and what to call; the most urgent has the least number';

CREATE FUNCTION outbox_report_style() RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT '
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #5d6570; --line: #d9dde2; --page: #fff; --box: #f5f6f8;
        --s1: #2563ab; --s2: #b4690e; --s3: #b3261e; --ok: #1f7a3d; --degraded: #b4690e; --failing: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --soft: #9aa3af; --line: #3a4048; --page: #16181c; --box: #1f2329;
          --s1: #6cabf0; --s2: #e0a24a; --s3: #f28b82; --ok: #5fc183; --degraded: #e0a24a; --failing: #f28b82; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page); }
h1 { margin: 0; font-size: 1.5rem; } h2 { margin: 2rem 0 .6rem; font-size: 1.15rem; border-bottom: 1px solid var(--line); }
h3 { margin: .8rem 0 .3rem; font-size: 1rem; } p { margin: .4rem 0; } small { font-size: .85em; color: var(--soft); font-weight: normal; }
h1, h3, li, td, figcaption, article p { overflow-wrap: anywhere; unicode-bidi: isolate; } td { overflow-wrap: break-word; }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; margin: .4rem 0; } dt { color: var(--soft); font-size: .85em; } dd { margin: 0; }
.ok { color: var(--ok); } .degraded { color: var(--degraded); } .failing { color: var(--failing); }
ul { margin: .3rem 0; padding-left: 1.2rem; }
article { display: grid; grid-template-columns: minmax(10rem, 1.4fr) repeat(4, minmax(0, 1fr)); gap: .2rem 1rem; align-items: start;
          padding: .5rem .7rem; margin: .4rem 0; background: var(--box); border-radius: 6px; }
article h3 { margin: 0; } article h3 small { display: block; } article p { grid-column: 1 / -1; margin: 0; color: var(--failing); }
article b { font-variant-numeric: tabular-nums; white-space: nowrap; } article span { color: var(--soft); font-size: .85em; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: .8rem 1.5rem; }
figure { margin: 0; min-width: 0; } figcaption { font-size: .9em; font-weight: 600; }
figcaption i { font-style: normal; font-weight: normal; margin-left: .5em; }
figcaption i::before { content: ""; display: inline-block; width: 1.2em; margin-right: .3em; vertical-align: .25em; border-top: 2px solid; }
i.s1 { color: var(--s1); } i.s2 { color: var(--s2); } i.s3 { color: var(--s3); }
i.s2::before { border-top-style: dashed; } i.s3::before { border-top-style: dotted; }
svg { display: block; width: 100%; } svg.spark { max-width: 11rem; }
svg text { font-size: 12px; fill: var(--soft); } text.y { text-anchor: end; } text.x { text-anchor: middle; }
path { fill: none; stroke-width: 1; } .grid { stroke: var(--line); }
.line, .dot { stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; } .dot { stroke-width: 5; }
path.s1 { stroke: var(--s1); } path.s2 { stroke: var(--s2); } path.s3 { stroke: var(--s3); }
.s2.line { stroke-dasharray: 6 4; } .s3.line { stroke-dasharray: 1 4; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92em; }
th, td { padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: normal; font-size: .9em; white-space: nowrap; }
td { max-width: 22rem; } .t { white-space: nowrap; } .n + td, .n + th { padding-left: .8rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { display: block; margin: .2rem 0 .5rem; padding: .3rem .5rem; overflow-wrap: anywhere; white-space: pre-wrap; background: var(--box);
       border-radius: 4px; font: .88em ui-monospace, monospace; }
@media (max-width: 40rem) {
  article { grid-template-columns: 1fr 1fr; } article h3 { grid-column: 1 / -1; } svg.chart text { font-size: 15px; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } article, figure, tr, li { break-inside: avoid; } h2 { break-after: avoid; }
  .charts { grid-template-columns: 1fr 1fr; } .wide { overflow: visible; } }
'
$$;
COMMENT ON FUNCTION outbox_report_style()
IS 'internal: how the report looks';

CREATE FUNCTION outbox_report(hours integer DEFAULT 6) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    health    record;
    consumers record;
    advice    text;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_report()');
    IF hours IS NULL OR hours NOT BETWEEN 1 AND 168 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('hours must be between 1 and 168, not %s', coalesce(hours::text, 'NULL')),
            HINT = 'The report is about so many of the last hours.';
    END IF;
    SELECT * INTO health FROM @extschema@.outbox_health();
    SELECT * INTO consumers FROM @extschema@.outbox_report_consumers(hours, max_shown => 20);
    SELECT '<ul>' || string_agg(format('<li><b>%s</b>: %s<code>%s</code></li>', @extschema@.outbox_html(a.subject),
                                       @extschema@.outbox_html(left(a.reason, 1000)), @extschema@.outbox_html(a.call)),
                                E'\n' ORDER BY a.place) FILTER (WHERE a.place <= 30) || '</ul>'
           || CASE WHEN count(*) > 30 THEN format('<p>And %s more like these.</p>', count(*) - 30) ELSE '' END
      INTO advice
      FROM (SELECT x.*, row_number() OVER (ORDER BY x.urgency, x.subject) AS place FROM @extschema@.outbox_report_advice() x) a;

    RETURN format($page$<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>outbox report: %1$s</title>
<style>%2$s</style>
</head>
<body>
<header>
<h1>outbox: %1$s</h1>
<dl><div><dt>Written</dt><dd>%3$s UTC</dd></div><div><dt>PostgreSQL</dt><dd>%4$s</dd></div><div><dt>outbox</dt><dd>%5$s</dd></div>
<div><dt>Health</dt><dd class="%6$s">%6$s</dd></div></dl>
%7$s
</header>
<section><h2>Flow, last %8$s</h2>
%9$s
</section>
<section><h2>Lag and latency</h2>
%10$s
</section>
<section><h2>What fails most</h2>
%11$s
</section>
<section><h2>Dead letters by type</h2>
%12$s
</section>
<section><h2>Partitions</h2>
%13$s
</section>
<section><h2>What to do next</h2>
%14$s
</section>
</body>
</html>$page$,
        @extschema@.outbox_html(current_database()), @extschema@.outbox_report_style(),
        @extschema@.outbox_html_time(clock_timestamp()), @extschema@.outbox_html(current_setting('server_version')),
        (SELECT @extschema@.outbox_html(e.extversion) FROM pg_extension e WHERE e.extname = 'outbox'),
        health.status,
        (SELECT '<ul>' || string_agg(format('<li>%s</li>', @extschema@.outbox_html(left(r, 500))), '' ORDER BY n) || '</ul>'
                || CASE WHEN cardinality(health.reasons) > 20 THEN format('<p>And %s more.</p>', cardinality(health.reasons) - 20) ELSE '' END
           FROM unnest(health.reasons[:20]) WITH ORDINALITY AS x (r, n)),
        CASE WHEN hours = 1 THEN 'hour' ELSE format('%s hours', hours) END,
        consumers.flow, consumers.charts, @extschema@.outbox_report_types(), @extschema@.outbox_report_dead_letters(),
        @extschema@.outbox_report_partitions(), coalesce(advice, '<p>Nothing to do.</p>'));
END $$;
COMMENT ON FUNCTION outbox_report(integer)
IS 'the last hours as one page of HTML, with charts, and what is to be done';

----------------------------------------------------------------------------------------------------
-- The audit log: who did what to what. It is no event source. Rows are appended, and leave by retention
-- alone. As with the log, parents only are made here.
----------------------------------------------------------------------------------------------------

-- CACHE 1, as for the log.
CREATE SEQUENCE audit_log_id_seq AS bigint CACHE 1 NO CYCLE;
COMMENT ON SEQUENCE audit_log_id_seq
IS 'ids of rows of the audit log; gaps are normal, and it is never set back';

CREATE FUNCTION audit_next_id() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_next_id';
COMMENT ON FUNCTION audit_next_id()
IS 'internal: the next id in the audit log, drawn after this transaction has its xid';

CREATE TABLE audit_log (
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id          bigint      NOT NULL DEFAULT audit_next_id(),
    occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id   bigint      NOT NULL DEFAULT 0,
    actor       text        NOT NULL,
    action      text        NOT NULL,
    entity_type text        NOT NULL,
    entity_id   text        NOT NULL,
    before      jsonb,
    after       jsonb,
    context     jsonb       NOT NULL DEFAULT '{}'
) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE audit_log IS 'who did what to what: append-only, partitioned by month';
COMMENT ON COLUMN audit_log.xid IS 'the transaction that wrote the row';
COMMENT ON COLUMN audit_log.id IS 'what audit_record() returned';
COMMENT ON COLUMN audit_log.occurred_at IS 'when the row was written';
COMMENT ON COLUMN audit_log.tenant_id IS 'whose row it is; 0 where there are no tenants';
COMMENT ON COLUMN audit_log.actor IS 'who did it';
COMMENT ON COLUMN audit_log.action IS 'what was done';
COMMENT ON COLUMN audit_log.entity_type IS 'what kind of thing it was done to; retention goes by it';
COMMENT ON COLUMN audit_log.entity_id IS 'which one';
COMMENT ON COLUMN audit_log.before IS 'how the thing was before; NULL: it was not, or does not matter';
COMMENT ON COLUMN audit_log.after IS 'how it is now; NULL: it is not, or does not matter';
COMMENT ON COLUMN audit_log.context IS 'an object: where from, why, on whose behalf';

-- The second one is unique because pg_partman copies no other.
CREATE TABLE audit_log_template (LIKE audit_log INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON audit_log_template (id);
CREATE UNIQUE INDEX ON audit_log_template (entity_type, entity_id, id);
COMMENT ON TABLE audit_log_template
IS 'always empty: the indexes that each partition of the audit log gets';

CREATE FUNCTION audit_refuse_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'audit_refuse_change';
COMMENT ON FUNCTION audit_refuse_change()
IS 'internal: refuses UPDATE, DELETE and TRUNCATE, but for retention';

CREATE FUNCTION audit_begin_removal() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_begin_removal';
COMMENT ON FUNCTION audit_begin_removal()
IS 'internal: from here on this transaction may remove rows of the audit log';

CREATE FUNCTION audit_end_removal() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_end_removal';
COMMENT ON FUNCTION audit_end_removal()
IS 'internal: from here on it may not';

-- One for all of them: partitions get it too, by themselves or from audit_guard_partitions().
CREATE TRIGGER audit_refuse_change BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_refuse_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate;
COMMENT ON TRIGGER audit_refuse_change ON audit_log IS 'the audit log is append-only';
COMMENT ON TRIGGER audit_refuse_truncate ON audit_log IS 'the audit log is append-only';

-- One chain per month, whichever partition its rows are in. Nothing here refers to a row by more than its id:
-- rows that retention has removed stay in it as hashes.
CREATE TABLE audit_chain (
    period     date        NOT NULL,
    position   bigint      NOT NULL,
    id         bigint      UNIQUE,
    removed    int8multirange,
    content    bytea       NOT NULL,
    hash       bytea       NOT NULL,
    chained_at timestamptz NOT NULL,
    PRIMARY KEY (period, position)
);
CREATE INDEX ON audit_chain (period, position) WHERE removed IS NOT NULL;
COMMENT ON TABLE audit_chain IS 'the hash chain over the audit log: append-only';
COMMENT ON COLUMN audit_chain.period IS 'the first day of the month, in UTC';
COMMENT ON COLUMN audit_chain.position IS 'the place in the chain of that month, from 1';
COMMENT ON COLUMN audit_chain.id IS 'the row; NULL: this is about what retention has removed';
COMMENT ON COLUMN audit_chain.removed IS 'the ids of rows that retention has removed; {(,)}: all before this';
COMMENT ON COLUMN audit_chain.content IS 'SHA-256 over the row, or over what is in removed';
COMMENT ON COLUMN audit_chain.hash IS 'SHA-256 over the hash before it, and over all else in this row';
COMMENT ON COLUMN audit_chain.chained_at IS 'when it was put in the chain';

CREATE TRIGGER audit_refuse_change BEFORE UPDATE OR DELETE ON audit_chain
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
ALTER TABLE audit_chain ENABLE ALWAYS TRIGGER audit_refuse_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate;
COMMENT ON TRIGGER audit_refuse_change ON audit_chain IS 'the chain is append-only';
COMMENT ON TRIGGER audit_refuse_truncate ON audit_chain IS 'the chain is append-only';

CREATE TABLE audit_progress (
    identity    text    NOT NULL,
    settled_id  bigint  NOT NULL,
    horizon     xid8    NOT NULL,
    pending_id  bigint  NOT NULL,
    pending_xid xid8    NOT NULL
);
ALTER TABLE audit_progress REPLICA IDENTITY FULL; -- see outbox_finish_partition()
COMMENT ON TABLE audit_progress IS 'one row, since the audit log is in use: how far the chain is';
COMMENT ON COLUMN audit_progress.identity IS 'the database whose transactions these are';
COMMENT ON COLUMN audit_progress.settled_id IS 'all rows up to this id are in the chain; one that comes later was slipped in';
COMMENT ON COLUMN audit_progress.horizon IS 'what transactions before this one have written is in the chain';
COMMENT ON COLUMN audit_progress.pending_id IS 'what settled_id will be once all transactions before pending_xid have ended';
COMMENT ON COLUMN audit_progress.pending_xid IS 'see pending_id';

CREATE TABLE audit_retention (
    entity_type text     PRIMARY KEY,
    retention   interval NOT NULL
);
COMMENT ON TABLE audit_retention IS 'what audit_set_retention() was told';
COMMENT ON COLUMN audit_retention.entity_type IS 'rows of this entity type';
COMMENT ON COLUMN audit_retention.retention IS 'are removed when they are as old as this, with their month';

CREATE FUNCTION audit_record(
    actor text, action text, entity_type text, entity_id text, before jsonb DEFAULT NULL, after jsonb DEFAULT NULL,
    context jsonb DEFAULT '{}', tenant_id bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_record';
COMMENT ON FUNCTION audit_record(text, text, text, text, jsonb, jsonb, jsonb, bigint)
IS 'appends a row to the audit log in this transaction; returns its id';

CREATE FUNCTION audit_set_retention(entity_type text, retention interval) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('audit_set_retention()');
    IF entity_type IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'entity_type must not be NULL';
    ELSIF entity_type = '' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'entity_type must not be empty';
    ELSIF octet_length(entity_type) > 255 THEN
        RAISE string_data_right_truncation USING
            MESSAGE = format('entity_type is too long: %s bytes, at most 255 are allowed', octet_length(entity_type));
    ELSIF retention <= '0' OR retention > '1000 years' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('retention must be positive and at most 1000 years, not %s', retention),
            HINT = 'NULL makes outbox.audit_retention hold again.';
    END IF;
    IF retention IS NULL THEN
        DELETE FROM @extschema@.audit_retention r WHERE r.entity_type = audit_set_retention.entity_type;
    ELSE
        INSERT INTO @extschema@.audit_retention AS r VALUES (entity_type, retention)
            ON CONFLICT ON CONSTRAINT audit_retention_pkey DO UPDATE SET retention = EXCLUDED.retention;
    END IF;
END $$;
COMMENT ON FUNCTION audit_set_retention(text, interval)
IS 'how long rows of an entity type stay in the audit log; NULL: as long as outbox.audit_retention says';

CREATE FUNCTION audit_may_read(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION audit_may_read(bigint)
IS 'for the policy of the audit log: may this session see rows of a tenant?';

-- What is an object on both sides, or only on one, is gone into. Arrays are values.
CREATE FUNCTION audit_diff(id bigint) RETURNS TABLE (path text[], before jsonb, after jsonb)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_row @extschema@.audit_log;
BEGIN
    IF audit_diff.id IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'id must not be NULL';
    END IF;
    SELECT * INTO found_row FROM @extschema@.audit_log a WHERE a.id = audit_diff.id;
    IF NOT FOUND THEN
        RAISE no_data_found USING
            MESSAGE = format('the audit log has no row %s', audit_diff.id),
            HINT = 'Its id is what audit_record() returned. Retention may have removed it.';
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk(path, b, a) AS (
        SELECT '{}'::text[], found_row.before, found_row.after
         UNION ALL
        SELECT w.path || k.key, w.b -> k.key, w.a -> k.key
          FROM walk w CROSS JOIN LATERAL (
               SELECT jsonb_object_keys(w.b) UNION SELECT jsonb_object_keys(w.a)) k(key)
         WHERE w.b IS DISTINCT FROM w.a
           AND coalesce(jsonb_typeof(w.b), 'object') = 'object' AND coalesce(jsonb_typeof(w.a), 'object') = 'object')
    SELECT w.path, w.b, w.a FROM walk w
     WHERE w.b IS DISTINCT FROM w.a
       -- Unless it was gone into.
       AND NOT (coalesce(jsonb_typeof(w.b), 'object') = 'object' AND coalesce(jsonb_typeof(w.a), 'object') = 'object'
                AND (coalesce(w.b <> '{}', false) OR coalesce(w.a <> '{}', false)))
     ORDER BY w.path;
END $$;
COMMENT ON FUNCTION audit_diff(bigint)
IS 'what a row of the audit log has changed: the path to each key, and its value before and after';

----------------------------------------------------------------------------------------------------
-- The chain over the audit log, and its retention. Writers know nothing of it: it is made by maintenance.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION audit_next_xid() RETURNS xid8
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'audit_next_xid';
COMMENT ON FUNCTION audit_next_xid()
IS 'internal: all transactions that have an xid have a lesser one';

CREATE FUNCTION audit_content(recorded audit_log) RETURNS bytea
LANGUAGE c STABLE STRICT PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME', 'audit_content';
COMMENT ON FUNCTION audit_content(audit_log)
IS 'internal: SHA-256 over every column of a row, whatever the settings of the session';

CREATE FUNCTION audit_link(previous bytea, entry audit_chain) RETURNS bytea
LANGUAGE c STABLE PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME', 'audit_link';
COMMENT ON FUNCTION audit_link(bytea, audit_chain)
IS 'internal: what the hash of an entry of the chain has to be';

-- Ranges have one form, and no letters but digits.
CREATE FUNCTION audit_content(removed int8multirange) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT sha256(convert_to(removed::text, 'SQL_ASCII'))
$$;
COMMENT ON FUNCTION audit_content(int8multirange)
IS 'internal: SHA-256 over the ids of rows that were removed';

CREATE FUNCTION audit_period(occurred_at timestamptz) RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT date_trunc('month', occurred_at AT TIME ZONE 'UTC')::date
$$;
COMMENT ON FUNCTION audit_period(timestamptz)
IS 'internal: the month whose chain a row belongs to';

-- The newest entry of a month, or what comes before the first one.
CREATE FUNCTION audit_newest(period date) RETURNS audit_chain
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT c FROM @extschema@.audit_chain c WHERE c.period = audit_newest.period
                      ORDER BY c.position DESC LIMIT 1),
                    ROW(period, 0, NULL, NULL, '', NULL, '-infinity')::@extschema@.audit_chain)
$$;
COMMENT ON FUNCTION audit_newest(date)
IS 'internal: the newest entry in the chain of a month';

-- Of either a row or what was removed.
CREATE FUNCTION audit_append(newest audit_chain, id bigint, removed int8multirange, content bytea) RETURNS audit_chain
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry @extschema@.audit_chain := newest;
BEGIN
    entry.position := newest.position + 1;
    entry.id := id;
    entry.removed := removed;
    entry.content := content;
    entry.chained_at := clock_timestamp();
    entry.hash := @extschema@.audit_link(newest.hash, entry);
    INSERT INTO @extschema@.audit_chain SELECT entry.*;
    RETURN entry;
END $$;
COMMENT ON FUNCTION audit_append(audit_chain, bigint, int8multirange, bytea)
IS 'internal: puts an entry behind the newest one of its month';

-- Which rows: those that have committed and are not in the chain yet, written by transactions before the oldest
-- one that is still running. All transactions before that have ended, so what is not visible now never will be.
--
-- Where to begin looking: a writer has its xid before it draws an id. When the sequence is read first and the next
-- xid after it, ids up to the one belong to xids below the other; once all of those have ended, nothing
-- is to come up to that id (pending_id, pending_xid), and that is settled_id.
--
-- xids mean nothing in another cluster. There the audit log is locked against writers instead, once: what
-- is visible then is all there is.
CREATE FUNCTION audit_chain_rows(max_rows integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' SET enable_seqscan = off SET jit = off AS $$
DECLARE
    progress @extschema@.audit_progress;
    is_home  boolean;
    last_id  bigint;
    next_xid xid8;
    ended    xid8;
    recorded @extschema@.audit_log;
    newest   @extschema@.audit_chain;
    period   date;
    count    integer := 0;
BEGIN
    SELECT * INTO progress FROM @extschema@.audit_progress;
    is_home := FOUND AND progress.identity = @extschema@.outbox_identity();
    IF NOT is_home THEN
        LOCK TABLE @extschema@.audit_log IN SHARE MODE;
    END IF;
    -- What is passed over now is never looked at again.
    PERFORM @extschema@.outbox_refresh_partitions('@extschema@.audit_log');
    last_id := coalesce(pg_sequence_last_value('@extschema@.audit_log_id_seq'), 0);
    next_xid := @extschema@.audit_next_xid();
    ended := pg_snapshot_xmin(pg_current_snapshot());
    IF is_home AND ended <= progress.horizon THEN
        RETURN 0;
    END IF;

    FOR recorded IN SELECT * FROM @extschema@.audit_log a
                     WHERE a.id > coalesce(progress.settled_id, 0) AND (a.xid < ended OR NOT is_home)
                       AND NOT EXISTS (SELECT FROM @extschema@.audit_chain c WHERE c.id = a.id)
                     ORDER BY a.id LIMIT max_rows LOOP
        period := @extschema@.audit_period(recorded.occurred_at);
        IF newest.period IS DISTINCT FROM period THEN
            newest := @extschema@.audit_newest(period);
        END IF;
        newest := @extschema@.audit_append(newest, recorded.id, NULL, @extschema@.audit_content(recorded));
        count := count + 1;
    END LOOP;
    IF count = max_rows THEN
        RETURN count;
    END IF;

    IF is_home THEN
        UPDATE @extschema@.audit_progress p SET
            horizon = ended,
            settled_id = CASE WHEN ended >= p.pending_xid THEN p.pending_id ELSE p.settled_id END,
            pending_id = CASE WHEN ended >= p.pending_xid THEN last_id ELSE p.pending_id END,
            pending_xid = CASE WHEN ended >= p.pending_xid THEN next_xid ELSE p.pending_xid END;
    ELSE
        DELETE FROM @extschema@.audit_progress;
        INSERT INTO @extschema@.audit_progress VALUES (@extschema@.outbox_identity(), last_id, ended, last_id, next_xid);
    END IF;
    RETURN count;
END $$;
COMMENT ON FUNCTION audit_chain_rows(integer)
IS 'internal: puts rows of the audit log into the chain, no more than so many; returns how many';

-- Every month that anything is known of.
CREATE FUNCTION audit_periods() RETURNS SETOF date
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    spare CONSTANT regclass := (SELECT p.partition FROM @extschema@.outbox_partitions('@extschema@.audit_log') p WHERE p.is_default);
BEGIN
    RETURN QUERY
    WITH RECURSIVE chained(period) AS (
        (SELECT c.period FROM @extschema@.audit_chain c ORDER BY 1 LIMIT 1)
         UNION ALL
        SELECT (SELECT c.period FROM @extschema@.audit_chain c WHERE c.period > d.period ORDER BY 1 LIMIT 1) FROM chained d
         WHERE d.period IS NOT NULL)
    SELECT d.period FROM chained d WHERE d.period IS NOT NULL
     UNION
    SELECT @extschema@.audit_period(p.lower_bound) FROM @extschema@.outbox_partitions('@extschema@.audit_log') p
     WHERE NOT p.is_default AND pg_relation_size(p.partition) > 0;
    IF spare IS NOT NULL THEN
        RETURN QUERY EXECUTE format('SELECT DISTINCT %s(occurred_at) FROM %s', '@extschema@.audit_period', spare);
    END IF;
END $$;
COMMENT ON FUNCTION audit_periods()
IS 'internal: the months that have rows or a chain, some perhaps twice';

-- One statement for a month, so that rows and chain are of one moment.
CREATE FUNCTION audit_verify_period(
    period date, known text, OUT rows_checked bigint, OUT not_yet_chained bigint, OUT broken_id bigint, OUT problem text,
    OUT last_position bigint, OUT last_hash text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH ended AS (
        -- Behind the last time that all of it was dropped.
        SELECT max(c.position) AS position, max(c.chained_at) AS at FROM @extschema@.audit_chain c
         WHERE c.period = $1 AND c.removed IS NOT NULL AND c.removed = '{(,)}'
    ), gone AS (
        SELECT range_agg(c.removed) AS ids FROM @extschema@.audit_chain c, ended e
         WHERE c.period = $1 AND c.removed IS NOT NULL AND c.position > coalesce(e.position, 0)
    ), links AS (
        SELECT c AS entry, c.position, c.id, c.removed, c.content, c.hash,
               lag(c.hash) OVER (ORDER BY c.position) AS previous,
               lag(c.position, 1, 0::bigint) OVER (ORDER BY c.position) AS previous_position, c.position = e.position AS is_end
          FROM @extschema@.audit_chain c, ended e WHERE c.period = $1 AND c.position >= coalesce(e.position, 0)
    ), recorded AS (
        SELECT a.id, @extschema@.audit_content(a) AS content FROM @extschema@.audit_log a
         WHERE a.occurred_at >= $1::timestamp AT TIME ZONE 'UTC'
           AND a.occurred_at <= CASE WHEN isfinite($1) THEN ($1 + interval '1 month' - interval '1 microsecond') ELSE $1::timestamp END AT TIME ZONE 'UTC'
    ), judged AS (
        SELECT l.position, coalesce(l.id, r.id) AS id, r.id IS NOT NULL AND l.position IS NOT NULL AS is_checked,
               r.id IS NOT NULL AND l.position IS NULL AND r.id > coalesce((SELECT p.settled_id FROM @extschema@.audit_progress p), 0) AS is_new,
               CASE WHEN l.position IS NULL THEN
                         CASE WHEN r.id <= (SELECT p.settled_id FROM @extschema@.audit_progress p) THEN 'the row is not in the chain' END
                    WHEN l.is_end THEN NULL
                    WHEN l.previous_position <> l.position - 1 THEN 'the entry of the chain before it is missing'
                    WHEN l.hash <> @extschema@.audit_link(l.previous, l.entry) THEN 'its entry in the chain was changed'
                    WHEN l.id IS NULL THEN
                         CASE WHEN l.removed IS NULL OR l.content <> @extschema@.audit_content(l.removed) THEN 'an entry about retention was changed' END
                    WHEN r.id IS NULL THEN CASE WHEN l.id <@ g.ids THEN NULL ELSE 'the row is missing' END
                    WHEN l.content <> r.content THEN 'the row was changed' END AS problem
          FROM links l FULL JOIN recorded r ON r.id = l.id CROSS JOIN gone g
    ), compared AS (
        SELECT NULL::bigint AS position, NULL::bigint AS id, 'no entry of the chain has the hash that is known' AS problem
         WHERE known IS NOT NULL AND NOT EXISTS (SELECT FROM links l WHERE encode(l.hash, 'hex') = known)
           AND NOT EXISTS (SELECT FROM ended e WHERE e.position IS NOT NULL)
    ), first AS (
        SELECT x.id, x.problem FROM (SELECT j.position, j.id, j.problem FROM judged j WHERE j.problem IS NOT NULL
                                      UNION ALL TABLE compared) x
         ORDER BY x.position NULLS LAST, x.id NULLS LAST LIMIT 1
    ), newest AS (
        SELECT l.position, l.hash FROM links l ORDER BY l.position DESC LIMIT 1
    )
    SELECT (SELECT count(*) FROM judged j WHERE j.is_checked), (SELECT count(*) FROM judged j WHERE j.is_new),
           (SELECT f.id FROM first f), (SELECT f.problem FROM first f),
           (SELECT n.position FROM newest n), (SELECT encode(n.hash, 'hex') FROM newest n)
$$;
COMMENT ON FUNCTION audit_verify_period(date, text)
IS 'internal: audit_verify() for one month';

CREATE FUNCTION audit_verify(since timestamptz DEFAULT NULL, known jsonb DEFAULT '{}')
RETURNS TABLE (month text, ok boolean, rows_checked bigint, not_yet_chained bigint, broken_id bigint, problem text,
               last_position bigint, last_hash text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    period date;
    wrong  text;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('audit_verify()');
    IF known IS NULL OR jsonb_typeof(known) <> 'object' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'known must be a JSON object of months and hashes',
            HINT = 'Such as SELECT jsonb_object_agg(month, last_hash) FROM audit_verify().';
    END IF;
    SELECT k.key INTO wrong FROM jsonb_each(known) k
     WHERE k.key !~ '^(\d{4,}-\d\d|-?infinity)$' OR jsonb_typeof(k.value) <> 'string' OR k.value #>> '{}' !~ '^[0-9a-f]{64}$' LIMIT 1;
    IF FOUND THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('known has something else than a hash for a month: %L', wrong),
            HINT = 'Such as {"2026-01": "…"} with the last_hash that audit_verify() returned, 64 hexadecimal digits.';
    END IF;
    PERFORM @extschema@.outbox_refresh_partitions('@extschema@.audit_log');
    FOR period IN SELECT DISTINCT p FROM @extschema@.audit_periods() p
                   WHERE since IS NULL OR p >= @extschema@.audit_period(since) ORDER BY p LOOP
        month := CASE WHEN isfinite(period) THEN to_char(period, 'YYYY-MM') ELSE period::text END;
        SELECT v.rows_checked, v.not_yet_chained, v.broken_id, v.problem, v.last_position, v.last_hash
          INTO rows_checked, not_yet_chained, broken_id, problem, last_position, last_hash
          FROM @extschema@.audit_verify_period(period, known ->> month) v;
        ok := problem IS NULL;
        known := known - month;
        RETURN NEXT;
    END LOOP;
    -- A hash of a month of which nothing is left. A month before that was asked for is not looked at.
    FOR month IN SELECT k FROM jsonb_object_keys(known) k
                  WHERE since IS NULL OR k >= to_char(@extschema@.audit_period(since), 'YYYY-MM') ORDER BY k LOOP
        ok := false;
        rows_checked := 0;
        not_yet_chained := 0;
        broken_id := NULL;
        problem := 'there is no chain for this month';
        last_position := NULL;
        last_hash := NULL;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION audit_verify(timestamptz, jsonb)
IS 'checks the audit log against its chain, month by month from a time on: the first row that is wrong, and the last hash, to be kept elsewhere and given as known';

-- Row triggers come to partitions by themselves, those for TRUNCATE do not.
CREATE FUNCTION audit_guard_partitions() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN SELECT p.partition FROM @extschema@.outbox_partitions('@extschema@.audit_log') p
                      WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = p.partition AND t.tgname = 'audit_refuse_truncate') LOOP
        EXECUTE format('CREATE TRIGGER audit_refuse_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s',
                       partition, '@extschema@.audit_refuse_change()'::regprocedure);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER audit_refuse_truncate', partition);
    END LOOP;
END $$;
COMMENT ON FUNCTION audit_guard_partitions()
IS 'internal: refuses TRUNCATE of partitions of the audit log';

CREATE FUNCTION outbox_step_audit_partitions(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    -- The first audit_record() makes them.
    IF EXISTS (SELECT FROM @extschema@.outbox_partitions('@extschema@.audit_log')) THEN
        RETURN QUERY SELECT * FROM @extschema@.outbox_keep_partitions('@extschema@.audit_log');
    END IF;
END $$;
COMMENT ON FUNCTION outbox_step_audit_partitions()
IS 'internal: makes partitions of the audit log ahead, and empties the default';

CREATE FUNCTION outbox_step_audit_chain(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_rows CONSTANT integer := 10000;
    chained  integer;
BEGIN
    IF EXISTS (SELECT FROM @extschema@.outbox_partitions('@extschema@.audit_log')) THEN
        chained := @extschema@.audit_chain_rows(max_rows);
        object := 'audit_chain';
        detail := format('%s rows chained', chained);
        done := true;
        again := chained >= max_rows;
        IF chained > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_step_audit_chain()
IS 'internal: puts rows of the audit log into the chain';

CREATE FUNCTION audit_cutoff(entity_type text) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT clock_timestamp() - coalesce((SELECT r.retention FROM @extschema@.audit_retention r WHERE r.entity_type = $1),
                                        @extschema@.outbox_setting('outbox.audit_retention'))
$$;
COMMENT ON FUNCTION audit_cutoff(text)
IS 'internal: rows of an entity type that are older are past their retention; NULL if they stay for ever';

-- From one to the next in the index, because there are few.
CREATE FUNCTION audit_types(partition regclass) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    type text;
BEGIN
    LOOP
        EXECUTE format('SELECT entity_type FROM %s WHERE $1 IS NULL OR entity_type > $1 ORDER BY entity_type LIMIT 1', partition)
           INTO type USING type;
        EXIT WHEN type IS NULL;
        RETURN NEXT type;
    END LOOP;
END $$;
COMMENT ON FUNCTION audit_types(regclass)
IS 'internal: the entity types in a partition of the audit log';

-- What can be done to an old partition: removing rows of some types, dropping it, or nothing.
CREATE FUNCTION audit_due(partition regclass, upper_bound timestamptz, OUT types text[], OUT is_all boolean)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(t.type) FILTER (WHERE t.is_over), coalesce(bool_and(t.is_over),
           -- Nothing is left in it. Everything that could have been is past its time.
           (SELECT bool_and(coalesce(upper_bound <= clock_timestamp() - r.retention, false))
              FROM (SELECT a.retention FROM @extschema@.audit_retention a
                     UNION ALL SELECT @extschema@.outbox_setting('outbox.audit_retention')) r))
      FROM (SELECT type, coalesce(upper_bound <= @extschema@.audit_cutoff(type), false) AS is_over
              FROM @extschema@.audit_types(partition) AS type) t
$$;
COMMENT ON FUNCTION audit_due(regclass, timestamptz)
IS 'internal: the entity types whose time is over in a partition, and whether that is all that is in it';

-- What is not as the chain has it must not be covered up by dropping it.
CREATE FUNCTION audit_refuse_missing(partition regclass, period date) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    missing bigint;
BEGIN
    EXECUTE format('SELECT c.id FROM %s c WHERE c.period = $1 AND c.id IS NOT NULL'
                   ' AND NOT EXISTS (SELECT FROM %s a WHERE a.id = c.id)'
                   ' AND NOT EXISTS (SELECT FROM %s r WHERE r.period = $1 AND r.position > c.position AND r.removed IS NOT NULL AND c.id <@ r.removed)'
                   ' ORDER BY c.position LIMIT 1', '@extschema@.audit_chain'::regclass, partition, '@extschema@.audit_chain'::regclass)
       INTO missing USING period;
    IF missing IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('stays, because row %s is missing from it: see audit_verify()', missing);
    END IF;
END $$;
COMMENT ON FUNCTION audit_refuse_missing(regclass, date)
IS 'internal: raises an error if a row is missing that retention has not removed';

CREATE FUNCTION audit_drop_partition(partition regclass, period date, upper_bound timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    spare  CONSTANT regclass := (SELECT p.partition FROM @extschema@.outbox_partitions('@extschema@.audit_log') p WHERE p.is_default);
    newest @extschema@.audit_chain;
BEGIN
    -- Before anybody is kept waiting.
    PERFORM @extschema@.audit_refuse_missing(partition, period);
    LOCK TABLE ONLY @extschema@.audit_log IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', partition);
    IF spare IS NOT NULL THEN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE NOWAIT', spare);
    END IF;
    IF (@extschema@.audit_due(partition, upper_bound)).is_all IS NOT TRUE OR NOT @extschema@.audit_is_settled(partition) THEN
        RAISE object_in_use USING MESSAGE = 'stays, because there are new rows in it';
    END IF;
    EXECUTE format('DROP TABLE %s', partition);
    newest := @extschema@.audit_newest(period);
    IF newest.position > 0 THEN
        PERFORM @extschema@.audit_append(newest, NULL, '{(,)}', @extschema@.audit_content('{(,)}'::int8multirange));
    END IF;
END $$;
COMMENT ON FUNCTION audit_drop_partition(regclass, date, timestamptz)
IS 'internal: drops a partition of the audit log, or raises an error that says why not';

CREATE FUNCTION audit_is_settled(partition regclass) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    newest bigint;
BEGIN
    EXECUTE format('SELECT max(id) FROM %s', partition) INTO newest;
    RETURN newest IS NULL OR newest <= (SELECT p.settled_id FROM @extschema@.audit_progress p);
END $$;
COMMENT ON FUNCTION audit_is_settled(regclass)
IS 'internal: is all that is in a partition of the audit log in the chain?';

CREATE FUNCTION audit_remove_rows(partition regclass, period date, types text[], max_rows integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ids   int8multirange;
    count integer;
BEGIN
    PERFORM @extschema@.audit_begin_removal();
    EXECUTE format('WITH gone AS (DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$s WHERE entity_type = ANY ($1) LIMIT $2)) RETURNING id)'
                   ' SELECT range_agg(int8range(id, id, ''[]'')), count(*) FROM gone', partition)
       INTO ids, count USING types, max_rows;
    PERFORM @extschema@.audit_end_removal();
    IF count > 0 THEN
        PERFORM @extschema@.audit_append(@extschema@.audit_newest(period), NULL, ids, @extschema@.audit_content(ids));
    END IF;
    RETURN count;
END $$;
COMMENT ON FUNCTION audit_remove_rows(regclass, date, text[], integer)
IS 'internal: removes rows of some entity types, no more than so many, and says so in the chain; returns how many';

-- Of a month that was dropped the last entry stays, with the last hash.
CREATE FUNCTION audit_prune_chain(max_rows integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    removed integer;
BEGIN
    PERFORM @extschema@.audit_begin_removal();
    DELETE FROM @extschema@.audit_chain WHERE ctid = ANY (ARRAY(
        SELECT c.ctid FROM @extschema@.audit_chain e JOIN @extschema@.audit_chain c ON c.period = e.period AND c.position < e.position
         WHERE e.removed IS NOT NULL AND e.removed = '{(,)}' LIMIT max_rows));
    GET DIAGNOSTICS removed = ROW_COUNT;
    PERFORM @extschema@.audit_end_removal();
    RETURN removed;
END $$;
COMMENT ON FUNCTION audit_prune_chain(integer)
IS 'internal: removes entries of the chain whose partition was dropped, no more than so many; returns how many';

CREATE FUNCTION outbox_step_audit_retention(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    max_rows CONSTANT integer := 10000;
    removed  integer;
    old      record;
    due      record;
BEGIN
    removed := @extschema@.audit_prune_chain(max_rows);
    IF removed > 0 THEN
        object := 'audit_chain';
        detail := format('%s entries removed', removed);
        done := true;
        again := removed >= max_rows;
        RETURN NEXT;
    END IF;
    FOR old IN SELECT p.partition, p.upper_bound, @extschema@.audit_period(p.lower_bound) AS period
                 FROM @extschema@.outbox_partitions('@extschema@.audit_log') p
                WHERE NOT p.is_default AND p.upper_bound <= clock_timestamp() ORDER BY p.upper_bound LOOP
        SELECT * INTO due FROM @extschema@.audit_due(old.partition, old.upper_bound);
        CONTINUE WHEN due.types IS NULL AND due.is_all IS NOT TRUE;
        object := old.partition;
        done := false;
        again := false;
        BEGIN
            IF NOT @extschema@.audit_is_settled(old.partition) THEN
                detail := 'stays until all of it is in the chain';
            ELSIF due.is_all THEN
                PERFORM @extschema@.audit_drop_partition(old.partition, old.period, old.upper_bound);
                detail := 'dropped';
                done := true;
                again := true; -- its chain goes, too
            ELSE
                removed := @extschema@.audit_remove_rows(old.partition, old.period, due.types, max_rows);
                detail := format('%s rows removed', removed);
                done := true;
                again := removed >= max_rows;
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                detail := 'stays, because the audit log is in use';
                again := true;
            WHEN others THEN
                detail := SQLERRM; -- of this one
        END;
        RETURN NEXT;
        -- Locks stay until the end of the transaction.
        EXIT WHEN again;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_step_audit_retention()
IS 'internal: removes rows of the audit log whose time is over, and drops partitions that have no others';

----------------------------------------------------------------------------------------------------
-- The catalog of events: what they are called, whose they are, and what they look like. Enqueue asks it, as
-- outbox.catalog_mode says.
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_event_types (
    event_type    text        NOT NULL,
    event_version integer     NOT NULL,
    owner_module  text        NOT NULL,
    json_schema   jsonb,
    description   text,
    consumers     text[]      NOT NULL,
    replay_safe   boolean     NOT NULL,
    pii_fields    text[]      NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_type, event_version)
);
COMMENT ON TABLE outbox_event_types IS 'the catalog of events';
COMMENT ON COLUMN outbox_event_types.event_type IS 'its name: <Aggregate><PastTenseVerb>';
COMMENT ON COLUMN outbox_event_types.event_version IS 'each version has a schema of its own';
COMMENT ON COLUMN outbox_event_types.owner_module IS 'the one module that emits the event, in all versions';
COMMENT ON COLUMN outbox_event_types.json_schema IS 'what its payload looks like; NULL: anything';
COMMENT ON COLUMN outbox_event_types.description IS 'what it means, for people';
COMMENT ON COLUMN outbox_event_types.consumers IS 'who is known to listen, for people';
COMMENT ON COLUMN outbox_event_types.replay_safe IS 'whether consumers may get it again, for people';
COMMENT ON COLUMN outbox_event_types.pii_fields
IS 'JSON pointers to what must not be in a payload; * stands for all members or elements';
COMMENT ON COLUMN outbox_event_types.registered_at IS 'when it was registered';
COMMENT ON COLUMN outbox_event_types.changed_at IS 'when what is said about it changed';

-- A trigger, so that also what is done by hand or by a restore reaches all sessions.
CREATE FUNCTION outbox_event_types_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_event_types_changed';
COMMENT ON FUNCTION outbox_event_types_changed()
IS 'internal: has all sessions forget what they know of the catalog';

CREATE TRIGGER outbox_event_types_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON outbox_event_types
FOR EACH STATEMENT EXECUTE FUNCTION outbox_event_types_changed();
ALTER TABLE outbox_event_types ENABLE ALWAYS TRIGGER outbox_event_types_changed;

CREATE FUNCTION outbox_check_schema(json_schema jsonb) RETURNS void
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_check_schema';
COMMENT ON FUNCTION outbox_check_schema(jsonb)
IS 'internal: raises an error if a JSON Schema cannot be used';

CREATE FUNCTION outbox_breaking_change(before jsonb, after jsonb) RETURNS text
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_breaking_change';
COMMENT ON FUNCTION outbox_breaking_change(jsonb, jsonb)
IS 'internal: why one schema cannot follow another under the same version; NULL if it can';

CREATE FUNCTION outbox_doubt_about_name(event_type text) RETURNS text
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_doubt_about_name';
COMMENT ON FUNCTION outbox_doubt_about_name(text)
IS 'internal: why a name is probably not <Aggregate><PastTenseVerb>; NULL if it is';

CREATE FUNCTION outbox_is_pointer(pointer text) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_is_pointer';
COMMENT ON FUNCTION outbox_is_pointer(text)
IS 'internal: is this a JSON pointer to a part of something?';

CREATE FUNCTION outbox_check_event_name(event_type text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- First: it loads the library, and until then anybody can set anything.
    doubt CONSTANT text := @extschema@.outbox_doubt_about_name(event_type);
    rule  CONSTANT text := current_setting('outbox.event_name_pattern');
BEGIN
    IF rule <> '' THEN
        IF event_type !~ rule THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('event_type "%s" does not match outbox.event_name_pattern', event_type),
                HINT = format('The pattern is %s', rule);
        END IF;
        RETURN;
    END IF;
    IF doubt IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('event_type "%s" does not look like the name of an event: %s', event_type, doubt),
            HINT = 'An event says what has happened, and to what: OrderConfirmed.';
    END IF;
END $$;
COMMENT ON FUNCTION outbox_check_event_name(text)
IS 'internal: refuses or doubts the name of an event';

CREATE FUNCTION outbox_check_event_type(new outbox_event_types) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pointer text;
    wrong   text := CASE
        WHEN new.event_type IS NULL THEN 'event_type must not be NULL'
        WHEN new.event_version IS NULL THEN 'event_version must not be NULL'
        WHEN new.owner_module IS NULL THEN 'owner_module must not be NULL'
        WHEN (SELECT bool_or(e IS NULL) FROM unnest(new.consumers) e) THEN 'consumers must not contain NULLs'
        WHEN (SELECT bool_or(e IS NULL) FROM unnest(new.pii_fields) e) THEN 'pii_fields must not contain NULLs'
        END;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = wrong;
    END IF;
    wrong := CASE
        WHEN new.event_type = '' THEN 'event_type must not be empty'
        WHEN octet_length(new.event_type) > 255 THEN 'event_type must not be longer than 255 bytes'
        WHEN new.event_type ~ '[[:cntrl:]]' THEN 'event_type must not contain control characters'
        WHEN new.event_version NOT BETWEEN 1 AND 32767 THEN 'event_version must be between 1 and 32767'
        WHEN new.owner_module = '' THEN 'owner_module must not be empty'
        WHEN octet_length(new.owner_module) > 255 THEN 'owner_module must not be longer than 255 bytes'
        WHEN array_ndims(new.consumers) > 1 THEN 'consumers must have one dimension'
        WHEN array_ndims(new.pii_fields) > 1 THEN 'pii_fields must have one dimension'
        WHEN cardinality(new.pii_fields) > 100 THEN 'pii_fields must not have more than 100 elements'
        END;
    IF wrong IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = wrong;
    END IF;
    FOREACH pointer IN ARRAY new.pii_fields LOOP
        IF NOT @extschema@.outbox_is_pointer(pointer) THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('pii_fields must be JSON pointers, and "%s" is none', left(pointer, 63)),
                HINT = 'For example /customer/email, or /travellers/*/passport.';
        END IF;
    END LOOP;
    PERFORM @extschema@.outbox_check_schema(new.json_schema);
END $$;
COMMENT ON FUNCTION outbox_check_event_type(outbox_event_types)
IS 'internal: raises an error if the catalog cannot have an event like this';

CREATE FUNCTION outbox_register_event(
    event_type text, event_version integer, owner_module text, json_schema jsonb DEFAULT NULL,
    description text DEFAULT NULL, consumers text[] DEFAULT '{}', replay_safe boolean DEFAULT true,
    pii_fields text[] DEFAULT '{}')
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    before @extschema@.outbox_event_types;
    after  @extschema@.outbox_event_types;
    owner  text;
    breaks text;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_register_event()');
    after.event_type := event_type;
    after.event_version := event_version;
    after.owner_module := owner_module;
    after.json_schema := json_schema;
    after.description := description;
    after.consumers := coalesce(consumers, '{}');
    after.replay_safe := coalesce(replay_safe, true);
    after.pii_fields := coalesce(pii_fields, '{}');
    PERFORM @extschema@.outbox_check_event_type(after);

    -- One at a time: whose an event is depends on all versions.
    LOCK TABLE @extschema@.outbox_event_types IN SHARE ROW EXCLUSIVE MODE;
    SELECT t.owner_module INTO owner FROM @extschema@.outbox_event_types t
     WHERE t.event_type = event_type LIMIT 1;
    IF owner <> owner_module THEN
        RAISE object_in_use USING
            MESSAGE = format('event_type "%s" belongs to "%s"', event_type, owner),
            HINT = 'One module emits an event. outbox_set_event_owner() hands it over, in all versions.';
    END IF;

    SELECT * INTO before FROM @extschema@.outbox_event_types t
     WHERE t.event_type = event_type AND t.event_version = event_version;
    IF NOT FOUND THEN
        PERFORM @extschema@.outbox_check_event_name(event_type);
        INSERT INTO @extschema@.outbox_event_types
        VALUES (event_type, event_version, owner_module, json_schema, description, after.consumers,
                after.replay_safe, after.pii_fields);
        RETURN 'registered';
    END IF;

    after.registered_at := before.registered_at;
    after.changed_at := before.changed_at;
    IF after IS NOT DISTINCT FROM before THEN
        RETURN 'unchanged';
    END IF;
    IF (before.json_schema IS NULL) <> (json_schema IS NULL) THEN
        breaks := CASE WHEN json_schema IS NULL THEN 'there is no schema any more' ELSE 'there was no schema' END;
    ELSE
        breaks := @extschema@.outbox_breaking_change(before.json_schema, json_schema);
    END IF;
    IF breaks IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('json_schema would break "%s" version %s: %s', event_type, event_version, breaks),
            HINT = format('Register it as version %s.',
                (SELECT max(t.event_version) + 1 FROM @extschema@.outbox_event_types t
                  WHERE t.event_type = event_type));
    END IF;
    UPDATE @extschema@.outbox_event_types t
       SET json_schema = after.json_schema, description = after.description, consumers = after.consumers,
           replay_safe = after.replay_safe, pii_fields = after.pii_fields, changed_at = clock_timestamp()
     WHERE t.event_type = event_type AND t.event_version = event_version;
    RETURN 'changed';
END $$;
COMMENT ON FUNCTION outbox_register_event(text, integer, text, jsonb, text, text[], boolean, text[])
IS 'puts an event into the catalog, or changes what it says; a change that would break somebody is refused';

CREATE FUNCTION outbox_unregister_event(event_type text, event_version integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_unregister_event()');
    IF event_type IS NULL OR event_version IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = CASE WHEN event_type IS NULL THEN 'event_type' ELSE 'event_version' END || ' must not be NULL';
    END IF;
    DELETE FROM @extschema@.outbox_event_types t
     WHERE t.event_type = outbox_unregister_event.event_type
       AND t.event_version = outbox_unregister_event.event_version;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION outbox_unregister_event(text, integer)
IS 'takes a version of an event out of the catalog; false if it was not there';

CREATE FUNCTION outbox_set_event_owner(event_type text, owner_module text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    versions integer;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_set_event_owner()');
    IF event_type IS NULL OR owner_module IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = CASE WHEN event_type IS NULL THEN 'event_type' ELSE 'owner_module' END || ' must not be NULL';
    ELSIF owner_module = '' OR octet_length(owner_module) > 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'owner_module must have between 1 and 255 bytes';
    END IF;
    LOCK TABLE @extschema@.outbox_event_types IN SHARE ROW EXCLUSIVE MODE;
    UPDATE @extschema@.outbox_event_types t
       SET owner_module = outbox_set_event_owner.owner_module, changed_at = clock_timestamp()
     WHERE t.event_type = outbox_set_event_owner.event_type;
    GET DIAGNOSTICS versions = ROW_COUNT;
    IF versions = 0 THEN
        RAISE undefined_object USING
            MESSAGE = format('event_type "%s" is not registered', left(event_type, 255)),
            HINT = 'Register it with outbox_register_event().';
    END IF;
    RETURN versions;
END $$;
COMMENT ON FUNCTION outbox_set_event_owner(text, text)
IS 'hands an event, in all versions, over to another module';

-- Characters that mean something in Markdown are written as entities, which no renderer takes for markup.
CREATE FUNCTION outbox_markdown_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(string_agg(CASE
               WHEN c IN (E'\n', E'\r', E'\t') THEN ' '
               WHEN c ~ '[][\\`*_{}()#+.!|<>&~:@$^=-]' THEN '&#' || ascii(c) || ';'
               ELSE c END, '' ORDER BY n), '')
      FROM string_to_table(value, NULL) WITH ORDINALITY AS r(c, n)
$$;
COMMENT ON FUNCTION outbox_markdown_text(text)
IS 'internal: a text that means in Markdown nothing but itself';

-- A fence longer than any run of backticks inside: nothing in the schema ends it.
CREATE FUNCTION outbox_markdown_code(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT format(E'%1$sjson\n%2$s\n%1$s', repeat('`', 1 + greatest(2, max(length(r[1])))), value)
      FROM (SELECT ARRAY['``']::text[] AS r UNION ALL SELECT regexp_matches(value, '`+', 'g')) runs
$$;
COMMENT ON FUNCTION outbox_markdown_code(text)
IS 'internal: a block of code in Markdown';

CREATE FUNCTION outbox_catalog_markdown() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH event AS (
        SELECT t.event_type, t.event_version, t.owner_module, t.json_schema,
               @extschema@.outbox_markdown_text(t.event_type) AS title,
               @extschema@.outbox_markdown_text(t.owner_module) AS module,
               @extschema@.outbox_markdown_text(t.description) AS description,
               (SELECT string_agg(@extschema@.outbox_markdown_text(c), ', ' ORDER BY c COLLATE "C")
                  FROM unnest(t.consumers) c) AS consumers,
               (SELECT string_agg(@extschema@.outbox_markdown_text(f), ', ' ORDER BY f COLLATE "C")
                  FROM unnest(t.pii_fields) f) AS pii_fields,
               CASE WHEN t.replay_safe THEN 'yes' ELSE 'no' END AS replay_safe
          FROM @extschema@.outbox_event_types t
    ), line AS (
        SELECT string_agg(format('| %s | %s | %s | %s | %s |', title, event_version, module,
                                 coalesce(consumers, '–'), replay_safe), E'\n'
                          ORDER BY event_type COLLATE "C", event_version) AS lines,
               string_agg(concat_ws(E'\n\n',
                              format('## %s, version %s', title, event_version),
                              nullif(description, ''),
                              concat_ws(E'\n', '- Owner: ' || module,
                                        '- Consumers: ' || coalesce(consumers, 'none known'),
                                        '- Safe to replay: ' || replay_safe,
                                        '- Personal data, never published: ' || pii_fields),
                              CASE WHEN json_schema IS NULL THEN 'Its payload has no schema.'
                                   ELSE @extschema@.outbox_markdown_code(jsonb_pretty(json_schema)) END), E'\n\n'
                          ORDER BY event_type COLLATE "C", event_version) AS sections
          FROM event
    )
    SELECT E'# Events\n\n' || coalesce(
        E'| Event | Version | Owner | Consumers | Safe to replay |\n|---|---|---|---|---|\n' || lines || E'\n\n' ||
        sections, 'None are registered.') || E'\n'
      FROM line
$$;
COMMENT ON FUNCTION outbox_catalog_markdown()
IS 'internal: the catalog of events as Markdown';

-- One channel, message and operation for each version of an event. What names one of them may only consist of
-- [A-Za-z0-9_-], so other characters become their bytes in hex; _ does, too, so no two are alike.
CREATE FUNCTION outbox_asyncapi_key(event_type text, event_version integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(CASE WHEN c ~ '[A-Za-z0-9-]' THEN c ELSE '_' || encode(convert_to(c, 'UTF8'), 'hex') END, ''
                      ORDER BY n) || '_v' || event_version
      FROM string_to_table(event_type, NULL) WITH ORDINALITY AS r(c, n)
$$;
COMMENT ON FUNCTION outbox_asyncapi_key(text, integer)
IS 'internal: what a version of an event is called inside an AsyncAPI document';

CREATE FUNCTION outbox_catalog_asyncapi() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH event AS (
        SELECT t.*, @extschema@.outbox_asyncapi_key(t.event_type, t.event_version) AS key
          FROM @extschema@.outbox_event_types t
    ), message AS (
        SELECT key, event_type, jsonb_strip_nulls(jsonb_build_object(
                   'name', event_type,
                   'title', format('%s, version %s', event_type, event_version),
                   'description', description,
                   'contentType', 'application/json',
                   'tags', jsonb_build_array(jsonb_build_object('name', owner_module)),
                   'x-event-version', event_version,
                   'x-owner-module', owner_module,
                   'x-consumers', to_jsonb(consumers),
                   'x-replay-safe', replay_safe,
                   'x-pii-fields', to_jsonb(pii_fields)))
               || jsonb_build_object('payload', CASE WHEN json_schema IS NULL THEN '{}' ELSE jsonb_build_object(
                   'schemaFormat', CASE WHEN json_schema ->> '$schema' LIKE '%draft-07%'
                                        THEN 'application/schema+json;version=draft-07'
                                        ELSE 'application/schema+json;version=draft-2020-12' END,
                   -- The document is another now: what a reference refers to has moved down.
                   'schema', replace(json_schema::text, '"$ref": "#',
                                     format('"$ref": "#/components/messages/%s/payload/schema', key))::jsonb) END) AS body
          FROM event
    )
    SELECT jsonb_pretty(jsonb_build_object(
        'asyncapi', '3.0.0',
        'info', jsonb_build_object(
            'title', 'Events of ' || current_database(),
            'version', '1.0.0',
            'description', 'What outbox_event_types says.'),
        'defaultContentType', 'application/json',
        'channels', coalesce(jsonb_object_agg(key, jsonb_build_object(
            'address', event_type,
            'messages', jsonb_build_object(key, jsonb_build_object('$ref', '#/components/messages/' || key)))), '{}'),
        'operations', coalesce(jsonb_object_agg('send_' || key, jsonb_build_object(
            'action', 'send',
            'channel', jsonb_build_object('$ref', '#/channels/' || key),
            'messages', jsonb_build_array(jsonb_build_object(
                '$ref', format('#/channels/%s/messages/%s', key, key))))), '{}'),
        'components', jsonb_build_object('messages', coalesce(jsonb_object_agg(key, body), '{}'))))
      FROM message
$$;
COMMENT ON FUNCTION outbox_catalog_asyncapi()
IS 'internal: the catalog of events as an AsyncAPI document';

CREATE FUNCTION outbox_catalog(format text DEFAULT 'markdown') RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE format
    WHEN 'markdown' THEN
        RETURN @extschema@.outbox_catalog_markdown();
    WHEN 'asyncapi' THEN
        RETURN @extschema@.outbox_catalog_asyncapi();
    ELSE
        RAISE invalid_parameter_value USING
            MESSAGE = pg_catalog.format('format %s is not known', coalesce(quote_literal(left(format, 63)), 'NULL')),
            HINT = 'Formats are markdown and asyncapi.';
    END CASE;
END $$;
COMMENT ON FUNCTION outbox_catalog(text)
IS 'the catalog of events as Markdown, or as an AsyncAPI 3.0 document in JSON';

----------------------------------------------------------------------------------------------------
-- Tenants. Whoever is let into a table sees the rows of the session's tenant, or all if it has none. The
-- functions of the extension work as the owner, to whom this does not apply: they look for themselves.
----------------------------------------------------------------------------------------------------

DO $do$
DECLARE
    owned regclass;
    path  CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR owned IN
        SELECT c.oid FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('r', 'p')
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
         WHERE e.extname = 'outbox' AND d.deptype = 'e'
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', owned);
        EXECUTE format('CREATE POLICY outbox_tenant ON %s USING (%s(tenant_id))', owned,
                       CASE owned WHEN '@extschema@.audit_log'::regclass THEN '@extschema@.audit_may_read'::regproc
                                  ELSE '@extschema@.outbox_may_read'::regproc END);
        EXECUTE format('COMMENT ON POLICY outbox_tenant ON %s IS %L', owned, 'a session of a tenant sees that tenant''s rows');
    END LOOP;
    PERFORM set_config('search_path', path, true);
END $do$;

----------------------------------------------------------------------------------------------------
-- The functions here call each other by name, with the rights of the owner. Whoever can create something in
-- their schema could create what such a call fits better: a function with other arguments, or a type, to which a
-- call with one argument is a cast. Whoever can rename the schema could put another in its place. And a trigger
-- runs with the rights of whoever writes to the table, also if the table is another that a foreign key cascades to.
----------------------------------------------------------------------------------------------------

-- As whoever gives the command, and so with nothing but the catalogs, which all can read.
CREATE FUNCTION outbox_guard() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outbox  CONSTANT pg_extension := (SELECT e FROM pg_extension e WHERE e.extname = 'outbox');
    partman CONSTANT pg_extension := (SELECT e FROM pg_extension e WHERE e.extname = 'pg_partman');
    wrong   text;
BEGIN
    IF tg_tag = 'ALTER SCHEMA' AND to_regnamespace('@extschema@') IS DISTINCT FROM outbox.extnamespace THEN
        RAISE feature_not_supported USING
            MESSAGE = 'the schema of extension "outbox" cannot be renamed',
            DETAIL = 'Its functions know it by this name.';
    ELSIF tg_tag = 'CREATE TRIGGER' THEN
        SELECT r.oid::regclass INTO wrong
          FROM pg_event_trigger_ddl_commands() c JOIN pg_trigger t ON t.oid = c.objid JOIN pg_class r ON r.oid = t.tgrelid
         WHERE c.classid = 'pg_trigger'::regclass AND NOT pg_has_role(r.relowner, 'USAGE')
           AND (r.relname IN ('part_config', 'part_config_sub') AND r.relnamespace = partman.extnamespace
                OR EXISTS (SELECT FROM pg_depend d
                            WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = outbox.oid
                              AND d.objid IN (SELECT r.oid UNION SELECT relid FROM pg_partition_ancestors(r.oid))));
        IF FOUND THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('triggers on %s are its owner''s alone', wrong),
                DETAIL = 'They run with the rights of the owner of the log.';
        END IF;
    END IF;

    SELECT x.name INTO wrong
      FROM (SELECT DISTINCT p.proname AS name FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
             WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = outbox.oid) own
     CROSS JOIN LATERAL (
            SELECT 'function ' || p.oid::regprocedure FROM pg_proc p
             WHERE p.proname = own.name AND p.pronamespace = outbox.extnamespace
               AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                                  AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = outbox.oid)
             UNION ALL
            SELECT 'type ' || t.oid::regtype FROM pg_type t
             WHERE t.typname = own.name AND t.typnamespace = outbox.extnamespace AND t.typrelid = 0) x (name)
     LIMIT 1;
    IF FOUND THEN
        RAISE reserved_name USING
            MESSAGE = format('%s has the name of a function of extension "outbox"', wrong),
            DETAIL = 'It could be called in its place.',
            HINT = 'Give it another name, or another schema.';
    END IF;
END $$;
COMMENT ON FUNCTION outbox_guard()
IS 'internal: refuses what could be called in place of a function of the extension, and triggers of others';

CREATE EVENT TRIGGER outbox_guard ON ddl_command_end
    WHEN TAG IN ('CREATE FUNCTION', 'CREATE PROCEDURE', 'CREATE AGGREGATE', 'CREATE TYPE', 'CREATE DOMAIN', 'CREATE EXTENSION',
                 'CREATE TRIGGER', 'ALTER FUNCTION', 'ALTER PROCEDURE', 'ALTER ROUTINE', 'ALTER AGGREGATE', 'ALTER TYPE',
                 'ALTER DOMAIN', 'ALTER EXTENSION', 'ALTER SCHEMA')
    EXECUTE FUNCTION outbox_guard();
COMMENT ON EVENT TRIGGER outbox_guard
IS 'nothing is called in place of a function of the extension';

-- With commands that are as frequent as these, nothing else is asked: most of them make no key. Step by step, because a join would
-- read all keys there are. Those of other tables are in nobody's way, and outbox_status() shows them.
CREATE FUNCTION outbox_guard_keys() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    changed  oid;
    part     oid;
    referred regclass;
    owner    name;
BEGIN
    FOR changed IN SELECT c.objid FROM pg_event_trigger_ddl_commands() c WHERE c.classid = 'pg_class'::regclass LOOP
        -- Not by pg_partition_tree(), which would lock them all until the end of somebody's transaction.
        FOR part IN WITH RECURSIVE parts (oid) AS (
                        SELECT changed UNION SELECT i.inhrelid FROM pg_inherits i JOIN parts p ON p.oid = i.inhparent)
                    SELECT p.oid FROM parts p WHERE EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = p.oid AND k.contype = 'f') LOOP
            FOR referred IN SELECT DISTINCT k.confrelid FROM pg_constraint k WHERE k.conrelid = part AND k.contype = 'f' LOOP
                SELECT w.rolname INTO owner FROM pg_class t JOIN pg_roles w ON w.oid = t.relowner
                 WHERE t.oid = part AND NOT w.rolsuper
                   AND w.oid <> (SELECT l.relowner FROM pg_class l JOIN pg_extension e ON e.extnamespace = l.relnamespace
                                  WHERE e.extname = 'outbox' AND l.relname = 'outbox_messages');
                EXIT WHEN NOT FOUND;
                PERFORM FROM (WITH RECURSIVE parents (oid) AS (
                                  SELECT referred::oid UNION SELECT i.inhparent FROM pg_inherits i JOIN parents p ON p.oid = i.inhrelid)
                              SELECT p.oid FROM parents p) p JOIN pg_class r ON r.oid = p.oid
                  WHERE EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
                                 WHERE e.extname = 'outbox' AND d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype = 'e')
                     OR r.relname IN ('part_config', 'part_config_sub') AND r.relowner <> (SELECT t.relowner FROM pg_class t WHERE t.oid = part)
                        AND r.relnamespace = (SELECT e.extnamespace FROM pg_extension e WHERE e.extname = 'pg_partman');
                IF FOUND THEN
                    RAISE insufficient_privilege USING
                        MESSAGE = format('foreign keys to %s are its owner''s alone', referred),
                        DETAIL = format('%s belongs to %I: triggers on it would run with the rights of the owner of the log.', part::regclass, owner),
                        HINT = 'Keep the values without a foreign key.';
                END IF;
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_guard_keys()
IS 'internal: refuses foreign keys of others to tables of the extension';

CREATE EVENT TRIGGER outbox_guard_keys ON ddl_command_end
    WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA')
    EXECUTE FUNCTION outbox_guard_keys();
COMMENT ON EVENT TRIGGER outbox_guard_keys
IS 'nothing of others cascades from a table of the extension';

-- It is asked for the first time: what was there before?
ALTER FUNCTION outbox_guard() CALLED ON NULL INPUT;

----------------------------------------------------------------------------------------------------
-- Privileges
----------------------------------------------------------------------------------------------------

-- The sets are disjoint, so that taking one back never takes from another. The last five of an admin
-- are what the views call, as whoever reads them.
CREATE FUNCTION outbox_privilege_functions(privilege text) RETURNS SETOF regprocedure
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
        WHEN 'reader' THEN '{outbox_may_read}'::text[]
        WHEN 'monitor' THEN
            '{outbox_collect_stats, outbox_collect_event_stats, outbox_collect_latency, outbox_collect_dead_letters,
              outbox_collect_tables, outbox_collect_held, outbox_collect_database, outbox_metrics, outbox_health, outbox_report,
              outbox_catalog}'::text[]
        WHEN 'admin' THEN
            '{outbox_stats_reset, audit_set_retention, idempotency_required, idempotency_expire, outbox_setup, outbox_maintain, outbox_held_partitions, outbox_restore_partition,
              outbox_release_due, outbox_status, outbox_grant, outbox_revoke,
              outbox_create_consumer, outbox_alter_consumer, outbox_drop_consumer, outbox_pause, outbox_resume,
              outbox_create_sink, outbox_alter_sink, outbox_drop_sink, outbox_test_sink,
              outbox_register_upcaster, outbox_unregister_upcaster,
              outbox_register_event, outbox_unregister_event, outbox_set_event_owner,
              outbox_seek, outbox_redrive, outbox_discard, outbox_find, outbox_history,
              outbox_has_passed, outbox_known_upto, outbox_last_id, outbox_sink_states, outbox_shows_tenant}'::text[]
        END;
BEGIN
    IF names IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('unknown privilege %L', privilege),
            HINT = 'Privileges are producer, consumer, idempotency, audit, auditor, reader, monitor and admin.';
    END IF;
    -- Members of the extension only: the schema may hold functions of other people.
    RETURN QUERY SELECT p.oid::regprocedure FROM pg_proc p
        JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
       WHERE e.extname = 'outbox' AND p.proname = ANY (names)
       ORDER BY p.oid;
END $$;
COMMENT ON FUNCTION outbox_privilege_functions(text)
IS 'internal: the functions that a privilege consists of';

CREATE FUNCTION outbox_privilege_views(privilege text) RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass FROM pg_class c
      JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
      JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'outbox' AND c.relkind IN ('v', 'r', 'p')
       AND c.relname = ANY (CASE privilege
               WHEN 'reader' THEN '{outbox_messages, outbox_messages_archive, outbox_scheduled, outbox_retries,
                                    outbox_messages_dlq, idempotency_keys}'::text[]
               WHEN 'admin' THEN '{consumer_offsets, outbox_deliveries}'::text[]
               WHEN 'auditor' THEN '{audit_log}'::text[]
               WHEN 'monitor' THEN '{outbox_stats, outbox_stats_events, outbox_stats_latency, outbox_stats_dead_letters,
                                     outbox_stats_tables, outbox_stats_held, outbox_stats_database}'::text[] END)
$$;
COMMENT ON FUNCTION outbox_privilege_views(text)
IS 'internal: the views and tables that a privilege lets read';

CREATE FUNCTION outbox_check_role(role name) RETURNS void
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
            MESSAGE = format('role %I owns the log and can do everything', role);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_check_role(name)
IS 'internal: is this a role that privileges can be granted to?';

CREATE FUNCTION outbox_grant(role name, privilege text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    function regprocedure;
    readable regclass;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_grant()');
    PERFORM @extschema@.outbox_check_role(role);
    FOR function IN SELECT @extschema@.outbox_privilege_functions(privilege) LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %I', function, role);
    END LOOP;
    FOR readable IN SELECT @extschema@.outbox_privilege_views(privilege) LOOP
        EXECUTE format('GRANT SELECT ON %s TO %I', readable, role);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', @extschema@.outbox_schema_of('outbox'), role);
END $$;
COMMENT ON FUNCTION outbox_grant(name, text)
IS 'lets a role do what a producer, a consumer, a user of idempotency keys, a writer or a reader of the audit log, a reader, a monitor or an admin does';

-- USAGE on the schema stays: it may serve other objects there, and alone it gives nothing.
CREATE FUNCTION outbox_revoke(role name, privilege text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    function regprocedure;
    readable regclass;
BEGIN
    PERFORM @extschema@.outbox_refuse_tenants('outbox_revoke()');
    PERFORM @extschema@.outbox_check_role(role);
    FOR function IN SELECT @extschema@.outbox_privilege_functions(privilege) LOOP
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM %I', function, role);
    END LOOP;
    FOR readable IN SELECT @extschema@.outbox_privilege_views(privilege) LOOP
        EXECUTE format('REVOKE SELECT ON %s FROM %I', readable, role);
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_revoke(name, text)
IS 'takes back what outbox_grant() gave';

-- Nobody but the owner may do anything until outbox_grant() says so, whatever the default
-- privileges of this database are.
DO $$
DECLARE
    member    record;
    other     text;
    path      CONSTANT text := pg_catalog.current_setting('search_path');
    intruders text;
BEGIN
    -- Nothing that others may have put into the extension's schema is to be found from here on.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR member IN
        SELECT d.objid, p.proacl, p.proowner FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
         WHERE e.extname = 'outbox' AND d.deptype = 'e' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
    LOOP
        IF member.proowner IS NULL THEN
            PERFORM @extschema@.outbox_close(member.objid::regclass);
            CONTINUE;
        END IF;
        FOR other IN SELECT @extschema@.outbox_others(coalesce(member.proacl, acldefault('f', member.proowner)), member.proowner) LOOP
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s', member.objid::regprocedure, other);
        END LOOP;
    END LOOP;
    PERFORM @extschema@.outbox_guard_partman();
    intruders := @extschema@.outbox_partman_intruders();
    IF intruders IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('pg_partman''s schema is open to %s', intruders),
            HINT = 'The log gets no partitions until that schema is a superuser''s alone.';
    END IF;
    PERFORM set_config('search_path', path, true);
END $$;

----------------------------------------------------------------------------------------------------
-- What pg_dump takes along besides the partitions, which are ordinary tables to it
----------------------------------------------------------------------------------------------------

SELECT pg_catalog.pg_extension_config_dump('outbox_messages_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_archived_partitions', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_cold_files', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_dedup_keys', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_scheduled', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_consumers_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_consumers', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_upcasters', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_sinks', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_token_seq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_batches', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_leases', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_retries', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_messages_dlq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_inbox', '');
SELECT pg_catalog.pg_extension_config_dump('idempotency_keys', '');
SELECT pg_catalog.pg_extension_config_dump('idempotency_scopes', '');
SELECT pg_catalog.pg_extension_config_dump('audit_log_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('audit_chain', '');
SELECT pg_catalog.pg_extension_config_dump('audit_progress', '');
SELECT pg_catalog.pg_extension_config_dump('audit_retention', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_event_types', '');
