-- outbox 1.0. In the order of the flow: log, partitions, dedup, schedule, enqueue, status, privileges.
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
    trace_id       text
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

-- Unique indexes without the partition key can only exist on each partition by itself; pg_partman
-- copies them from here.
CREATE TABLE outbox_messages_template (LIKE outbox_messages INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON outbox_messages_template (id);
CREATE UNIQUE INDEX ON outbox_messages_template (xid, id);
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

-- pg_partman puts its own schema in front of pg_catalog. Whoever can create functions there, or has
-- done so, would have them called by the owner of the log.
CREATE FUNCTION outbox_partman_intruders() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH partman AS (
        SELECT n.oid, n.nspacl, n.nspowner
          FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'pg_partman'
    ), creators AS (
        SELECT nspowner AS role FROM partman
         UNION
        SELECT a.grantee FROM partman, aclexplode(nspacl) AS a WHERE a.privilege_type = 'CREATE'
         UNION
        SELECT p.proowner FROM partman n JOIN pg_proc p ON p.pronamespace = n.oid
         UNION
        SELECT o.oprowner FROM partman n JOIN pg_operator o ON o.oprnamespace = n.oid
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

CREATE FUNCTION outbox_partitions(OUT partition regclass, OUT is_default boolean,
                                  OUT upper_bound timestamptz)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.oid::regclass, bound = 'DEFAULT',
           substring(bound FROM $re$TO \('([^']+)'\)$re$)::timestamptz
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
           pg_get_expr(c.relpartbound, c.oid) AS bound
     WHERE i.inhparent = '@extschema@.outbox_messages'::regclass
$$;
COMMENT ON FUNCTION outbox_partitions()
IS 'internal: the partitions of the log, and where each ends';

CREATE FUNCTION outbox_default_holds_events() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    default_partition CONSTANT regclass :=
        (SELECT partition FROM @extschema@.outbox_partitions() WHERE is_default);
    found boolean;
BEGIN
    IF default_partition IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', default_partition) INTO found;
    END IF;
    RETURN found;
END $$;
COMMENT ON FUNCTION outbox_default_holds_events()
IS 'internal: is there anything in the default partition? NULL if there is no such partition';

-- In UTC whatever the session's time zone is: bounds made in two time zones would overlap.
CREATE FUNCTION outbox_make_partitions(partition_interval text, first_time boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET default_tablespace = '' SET default_table_access_method = 'heap' AS $$
DECLARE
    -- As pg_partman wants it: without quotes.
    log     CONSTANT text := @extschema@.outbox_schema_of('outbox') || '.outbox_messages';
    partman CONSTANT name := @extschema@.outbox_schema_of('pg_partman');
    version CONSTANT int  := (SELECT split_part(extversion, '.', 1) FROM pg_extension
                               WHERE extname = 'pg_partman');
    words   CONSTANT jsonb := '{"hourly": "1 hour", "daily": "1 day",
                                "weekly": "1 week", "monthly": "1 month"}';
    start   CONSTANT timestamptz := date_trunc(split_part(words ->> partition_interval, ' ', 2),
                                               clock_timestamp());
    intruders CONSTANT text := @extschema@.outbox_partman_intruders();
    wanted    int;
    ahead     int;
BEGIN
    IF intruders IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('pg_partman''s schema %I is open to %s', partman, intruders),
            DETAIL = 'Functions created there would run with the rights of the owner of the log.',
            HINT = 'Install pg_partman into a schema of its own that a superuser owns, or revoke'
                   ' CREATE on this one and drop what others have created in it.';
    END IF;
    IF first_time THEN
        -- A row without partitions is left over from a log that was dropped with its schema.
        EXECUTE format('DELETE FROM %I.part_config WHERE parent_table = $1', partman) USING log;
        -- Version 4 wants the kind of partitioning and knows intervals by words, version 5 neither.
        EXECUTE format('SELECT %I.create_parent(p_parent_table := $1, p_control := ''occurred_at'','
                       ' p_type := $2, p_interval := $3, p_premake := 7, p_jobmon := false,'
                       ' p_automatic_maintenance := ''off'', p_template_table := $4,'
                       ' p_start_partition := $5)', partman)
          USING log,
                CASE WHEN version < 5 THEN 'native' ELSE 'range' END,
                CASE WHEN version < 5 THEN partition_interval ELSE words ->> partition_interval END,
                log || '_template',
                start::text;
        EXECUTE format('UPDATE %I.part_config SET infinite_time_partitions = true,'
                       ' ignore_default_data = true WHERE parent_table = $1', partman)
          USING log;
        RETURN;
    END IF;

    IF NOT EXISTS (SELECT FROM @extschema@.outbox_partitions() WHERE NOT is_default) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'the log has no partition but the default one',
            HINT = 'If that one is empty, drop it and run outbox_setup() again.';
    END IF;
    -- What goes wrong here, some versions raise anew without its SQLSTATE, and some only mention.
    BEGIN
        EXECUTE format('SELECT %I.run_maintenance(p_parent_table := $1, p_analyze := false,'
                       ' p_jobmon := false)', partman)
          USING log;
    EXCEPTION WHEN raise_exception OR check_violation THEN
        IF @extschema@.outbox_default_holds_events() IS NOT TRUE THEN
            RAISE;
        END IF;
    END;
    EXECUTE format('SELECT premake FROM %I.part_config WHERE parent_table = $1', partman)
       INTO wanted USING log;
    SELECT count(*) INTO ahead FROM @extschema@.outbox_partitions()
     WHERE upper_bound > clock_timestamp();
    IF ahead < wanted THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('pg_partman made %s partitions ahead instead of %s', ahead, wanted),
            HINT = CASE WHEN @extschema@.outbox_default_holds_events()
                        THEN 'The default partition holds events of a time that a new partition'
                             ' would cover. They are safe, and further ones go there too.'
                        ELSE 'pg_partman''s warnings in the server log say why.' END;
    END IF;
END $$;
COMMENT ON FUNCTION outbox_make_partitions(text, boolean)
IS 'internal: has pg_partman make the partitions of the log, seven ahead, and a default';

CREATE FUNCTION outbox_setup() RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_setup';
COMMENT ON FUNCTION outbox_setup()
IS 'makes the partitions of the log that are missing, seven ahead and a default; returns how many there are';

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
-- Dedup keys. A plain table: uniqueness cannot span partitions. Keys are bytes: their order means
-- nothing, and comparing them by a locale's rules would be most of the work.
----------------------------------------------------------------------------------------------------

CREATE TABLE outbox_dedup_keys (
    tenant_id   bigint      NOT NULL,
    expires_at  timestamptz NOT NULL,
    tracking_id uuid        NOT NULL,
    dedup_key   text        COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, dedup_key)
);
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
    trace_id       text
);
CREATE INDEX ON outbox_scheduled (available_at, tracking_id);
COMMENT ON TABLE outbox_scheduled
IS 'events whose available_at is still to come; they enter the log when due, with the same tracking_id';
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

CREATE FUNCTION outbox_release_due(max_events integer DEFAULT 1000) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release_due';
COMMENT ON FUNCTION outbox_release_due(integer)
IS 'moves scheduled events that are due into the log, the longest due first; returns how many';

CREATE FUNCTION outbox_cancel(tracking_id uuid) RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_cancel';
COMMENT ON FUNCTION outbox_cancel(uuid)
IS 'takes back a scheduled event that is not yet due; false if there is no such event';

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
-- Status
----------------------------------------------------------------------------------------------------

CREATE FUNCTION outbox_is_preloaded() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_is_preloaded';
COMMENT ON FUNCTION outbox_is_preloaded()
IS 'internal: was the library loaded at server start?';

CREATE FUNCTION outbox_status(OUT component text, OUT ok boolean, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    intruders   text;
    partitions  int;
    last_bound  timestamptz;
    has_default boolean;
    stray       boolean;
    overdue     bigint;
    since       timestamptz;
BEGIN
    component := 'extension';
    ok := true;
    hint := NULL;
    SELECT 'version ' || extversion INTO detail FROM pg_extension WHERE extname = 'outbox';
    RETURN NEXT;

    component := 'pg_partman';
    intruders := @extschema@.outbox_partman_intruders();
    ok := intruders IS NULL;
    SELECT 'version ' || extversion || coalesce(', in a schema that is open to ' || intruders, '')
      INTO detail FROM pg_extension WHERE extname = 'pg_partman';
    hint := CASE WHEN NOT ok THEN 'No partitions are made while others could slip functions of their'
                                  ' own under pg_partman''s. Its schema must be a superuser''s alone.' END;
    RETURN NEXT;

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

    component := 'partitions';
    SELECT count(*) FILTER (WHERE NOT is_default), coalesce(bool_or(is_default), false),
           max(upper_bound)
      INTO partitions, has_default, last_bound
      FROM @extschema@.outbox_partitions();
    ok := partitions > 0 AND has_default AND last_bound > clock_timestamp();
    hint := CASE WHEN NOT ok THEN 'Run SELECT outbox_setup().' END;
    detail := CASE WHEN partitions = 0 THEN 'none yet; the first enqueue makes them'
                   ELSE format('%s, up to %s%s', partitions, last_bound,
                               CASE WHEN NOT has_default THEN ', and no default' END) END;
    RETURN NEXT;

    component := 'default partition';
    stray := @extschema@.outbox_default_holds_events();
    ok := stray IS NOT TRUE;
    detail := CASE WHEN stray IS NULL THEN 'none' WHEN stray THEN 'holds events' ELSE 'empty' END;
    hint := CASE WHEN stray THEN 'Events came while there was no partition for their time. They'
                                 ' are safe and seen by consumers, but a partition for that time'
                                 ' cannot be made.' END;
    RETURN NEXT;

    component := 'scheduled';
    SELECT count(*), min(available_at) INTO overdue, since FROM @extschema@.outbox_scheduled
     WHERE available_at <= clock_timestamp();
    ok := overdue = 0;
    detail := CASE WHEN ok THEN 'nothing overdue'
                   ELSE format('%s overdue, the oldest since %s', overdue, since) END;
    hint := CASE WHEN NOT ok THEN 'Run SELECT outbox_release_due().' END;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION outbox_status()
IS 'what runs, what does not, and a hint for each';

----------------------------------------------------------------------------------------------------
-- Privileges
----------------------------------------------------------------------------------------------------

-- The sets are disjoint, so that taking one back never takes from another.
CREATE FUNCTION outbox_privilege_functions(privilege text) RETURNS SETOF regprocedure
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[] := CASE privilege
        WHEN 'producer' THEN '{outbox_enqueue, outbox_enqueue_many, outbox_cancel}'::text[]
        WHEN 'consumer' THEN '{}'::text[]
        WHEN 'admin' THEN
            '{outbox_setup, outbox_release_due, outbox_status, outbox_grant, outbox_revoke}'::text[]
        END;
BEGIN
    IF names IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('unknown privilege %L', privilege),
            HINT = 'Privileges are producer, consumer and admin.';
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
BEGIN
    PERFORM @extschema@.outbox_check_role(role);
    FOR function IN SELECT @extschema@.outbox_privilege_functions(privilege) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function, role);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', @extschema@.outbox_schema_of('outbox'), role);
END $$;
COMMENT ON FUNCTION outbox_grant(name, text)
IS 'lets a role do what a producer, a consumer or an admin does';

-- USAGE on the schema stays: it may serve other objects there, and alone it gives nothing.
CREATE FUNCTION outbox_revoke(role name, privilege text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    function regprocedure;
BEGIN
    PERFORM @extschema@.outbox_check_role(role);
    FOR function IN SELECT @extschema@.outbox_privilege_functions(privilege) LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM %I', function, role);
    END LOOP;
END $$;
COMMENT ON FUNCTION outbox_revoke(name, text)
IS 'takes back what outbox_grant() gave';

-- Nobody but the owner may do anything until outbox_grant() says so, whatever the default
-- privileges of this database are.
DO $$
DECLARE
    member    record;
    path      CONSTANT text := pg_catalog.current_setting('search_path');
    intruders text;
BEGIN
    -- Nothing that others may have put into the extension's schema is to be found from here on.
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR member IN
        SELECT d.classid, d.objid, c.relkind FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
         WHERE e.extname = 'outbox' AND d.deptype = 'e'
    LOOP
        IF member.classid = 'pg_proc'::regclass THEN
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', member.objid::regprocedure);
        ELSIF member.relkind = 'S' THEN
            EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM PUBLIC', member.objid::regclass);
        ELSIF member.relkind IN ('r', 'p', 'v') THEN
            EXECUTE format('REVOKE ALL ON TABLE %s FROM PUBLIC', member.objid::regclass);
        END IF;
    END LOOP;
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
SELECT pg_catalog.pg_extension_config_dump('outbox_dedup_keys', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_scheduled', '');
