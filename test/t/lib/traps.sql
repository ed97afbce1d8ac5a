-- A schema "trap" with copies of the objects of pg_catalog and the extension: functions,
-- aggregates, operators, types, tables. Each use raises an error and, unless the object is built
-- in, counts, because a caller may catch the error. Tests put the schema in front of the
-- search_path.
SET search_path = pg_catalog;
SET session_replication_role = replica; -- avoids the event triggers of the extension
SET check_function_bodies = off;
SET client_min_messages = error;
CREATE SCHEMA trap;
GRANT USAGE ON SCHEMA trap TO PUBLIC;

CREATE SEQUENCE trap.sprung_count;
GRANT USAGE ON SEQUENCE trap.sprung_count TO PUBLIC;
CREATE FUNCTION trap.sprung() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.nextval('trap.sprung_count');
    RAISE EXCEPTION 'trapped';
END $$;

DO $$
DECLARE
    body  CONSTANT text := 'BEGIN PERFORM pg_catalog.nextval(''trap.sprung_count''); RAISE EXCEPTION ''trapped''; END';
    found record;
BEGIN
    -- Functions that only the server calls have an argument of type internal.
    FOR found IN
        SELECT p.proname, oidvectortypes(p.proargtypes) AS arguments,
               CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || format_type(p.prorettype, NULL) AS result
          FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
         WHERE p.prokind = 'f' AND (p.pronamespace = 'pg_catalog'::regnamespace OR p.proname ~ '^(outbox|audit|idempotency|inbox)_')
           AND p.proname !~ '(in|out|recv|send|cmp|sel|support)$' AND p.provariadic = 0 AND t.typtype <> 'p'
           AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) a JOIN pg_type x ON x.oid = a WHERE x.typtype = 'p')
    LOOP
        EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', found.proname, found.arguments, found.result, body);
    END LOOP;
    -- Variadic and polymorphic functions: only a C function can have these arguments, so shell_in()
    -- raises its own error.
    FOR found IN
        SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
          FROM pg_proc p
         WHERE p.prokind = 'f' AND p.pronamespace = 'pg_catalog'::regnamespace AND p.proname !~ '(in|out|recv|send|cmp|sel|support)$'
           AND (p.provariadic <> 0 OR EXISTS (SELECT FROM unnest(p.proargtypes) a JOIN pg_type x ON x.oid = a WHERE x.typtype = 'p'))
           AND NOT EXISTS (SELECT FROM unnest(p.proargtypes || p.prorettype) a
                            WHERE a IN ('internal'::regtype, 'cstring'::regtype, 'trigger'::regtype, 'language_handler'::regtype))
           AND pg_get_function_result(p.oid) !~ '^(TABLE|SETOF record)'
    LOOP
        EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE internal AS %L', found.proname, found.arguments, found.result, 'shell_in');
    END LOOP;

    FOR found IN
        SELECT o.oprname, format_type(nullif(o.oprleft, 0), NULL) AS l, format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result,
               'operator_' || o.oid AS name
          FROM pg_operator o
         WHERE o.oprnamespace = 'pg_catalog'::regnamespace
           AND NOT EXISTS (SELECT FROM pg_type x WHERE x.oid IN (o.oprleft, o.oprright, o.oprresult) AND x.typtype = 'p')
    LOOP
        EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', found.name, concat_ws(', ', found.l, found.r), found.result, body);
        EXECUTE format('CREATE OPERATOR trap.%s (%sRIGHTARG = %s, FUNCTION = trap.%I)', found.oprname,
                       'LEFTARG = ' || found.l || ', ', found.r, found.name);
    END LOOP;

    FOR found IN
        SELECT p.proname, oidvectortypes(p.proargtypes) AS arguments, format_type(p.prorettype, NULL) AS result,
               'aggregate_' || p.oid AS step
          FROM pg_proc p JOIN pg_aggregate a ON a.aggfnoid = p.oid
         WHERE p.pronamespace = 'pg_catalog'::regnamespace AND a.aggkind = 'n' AND p.pronargs > 0
           AND p.prorettype NOT IN ('anyenum'::regtype, 'record'::regtype) -- no step can be declared
    LOOP
        EXECUTE format('CREATE FUNCTION trap.%1$I(%2$s, %3$s) RETURNS %2$s LANGUAGE internal AS %4$L', found.step, found.result, found.arguments, 'shell_in');
        EXECUTE format('CREATE AGGREGATE trap.%I(%s) (SFUNC = trap.%I, STYPE = %s)', found.proname, found.arguments, found.step, found.result);
    END LOOP;
    EXECUTE format('CREATE FUNCTION trap.step(bigint) RETURNS bigint LANGUAGE plpgsql AS %L', body);
    CREATE AGGREGATE trap.count(*) (SFUNC = trap.step, STYPE = bigint);

    FOR found IN
        SELECT t.typname FROM pg_type t WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype IN ('b', 'm', 'r') AND t.typelem = 0
    LOOP
        EXECUTE format('CREATE DOMAIN trap.%1$I AS pg_catalog.%1$I CHECK (trap.sprung())', found.typname);
    END LOOP;
    FOR found IN
        SELECT c.oid::regclass AS relation, c.relname,
               (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND t.typtype <> 'p' AND t.oid <> 'pg_statistic[]'::regtype) AS columns
          FROM pg_class c
         WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
            OR c.relname ~ '^(outbox|audit|idempotency|consumer)_' AND c.relkind IN ('r', 'p', 'v') AND c.relnamespace <> '_outbox'::regnamespace
            OR c.relnamespace = '_outbox'::regnamespace AND c.relkind = 'r' AND c.relname <> 'idempotency_keys'
    LOOP
        EXECUTE format('CREATE VIEW trap.%I AS SELECT %s FROM %s WHERE (SELECT trap.sprung())', found.relname, found.columns, found.relation);
    END LOOP;
END $$;
