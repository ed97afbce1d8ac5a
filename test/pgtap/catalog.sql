-- What must hold for every object of the extension, those to come included.
\set ON_ERROR_STOP on
\set QUIET on
BEGIN;
SET client_min_messages = warning;
CREATE EXTENSION pgtap;
CREATE EXTENSION IF NOT EXISTS outbox CASCADE;
RESET client_min_messages;

CREATE TEMP VIEW members AS
    SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
      FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'outbox' AND d.deptype = 'e';

SELECT plan(22);

\set settings `grep -oE '^[|] .outbox[.][a-z_]+' README.md | cut -c4- | tr '\n' ' '`
SELECT cmp_ok((SELECT count(*) FROM members), '>', 20::bigint, 'the extension has members');
SELECT is_empty($$
    SELECT name FROM members WHERE classid NOT IN ('pg_type'::regclass)
       AND coalesce(obj_description(objid, (SELECT relname FROM pg_class WHERE oid = classid)), '') = ''$$,
    'every object has a comment');
SELECT is_empty($$
    SELECT c.relname, a.attname FROM members m JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     WHERE c.relkind IN ('r', 'p', 'v') AND c.relname NOT IN ('messages_template', 'audit_log_template')
       AND col_description(c.oid, a.attnum) IS NULL$$,
    'and so has every column');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
     WHERE has_function_privilege('public', p.oid, 'EXECUTE')$$,
    'no function is executable by PUBLIC');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid, aclexplode(relacl) a
     WHERE a.grantee <> c.relowner$$,
    'no table or sequence is open to anybody but its owner');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
      JOIN pg_language l ON l.oid = prolang
     WHERE (prosecdef OR lanname <> 'c')
       AND NOT coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}'$$,
    'every function that is SECURITY DEFINER, or not in C, pins its search_path');
-- Literals that follow each other are one.
CREATE TEMP VIEW made AS
    SELECT name, made[1] AS start, regexp_replace(made[2], '''\s+''', '', 'g') AS text
      FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid,
           regexp_matches(prosrc, '\mEXECUTE\s+((?!FUNCTION |ON ROUTINE )(?:format\(((?:''(?:[^'']|'''')*''\s*)+),)?.{0,40})', 'g') AS made;
SELECT cmp_ok((SELECT count(*) FROM made), '>', 40::bigint, 'some statements are made at run time');
SELECT is_empty($$SELECT name, start FROM made WHERE text IS NULL$$,
    'each of them by format(), of a constant');
SELECT is_empty($$SELECT name, text FROM made WHERE text ~ '''''%[0-9$]*[sI]|%[0-9$]*[sI]'''''$$,
    'which puts no text between quotes of its own');
-- What is put into them unquoted: the values for %s, and their types as far as they are declared. Each statement ends at its own semicolon.
CREATE FUNCTION pg_temp.arguments(list text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    arguments text[] := '{}';
    argument  text := '';
    depth     integer := 0;
    token     text;
BEGIN
    FOR token IN SELECT t[1] FROM regexp_matches(list, '''(?:[^'']|'''')*''|\s+|[\w.$@:]+|.', 'g') AS t LOOP
        EXIT WHEN token = ')' AND depth = 0;
        depth := depth + CASE WHEN token IN ('(', '[') THEN 1 WHEN token IN (')', ']') THEN -1 ELSE 0 END;
        IF token = ',' AND depth = 0 THEN
            arguments := arguments || argument;
            argument := '';
        ELSE
            argument := argument || regexp_replace(token, '^\s+$', '');
        END IF;
    END LOOP;
    RETURN arguments || argument;
END $$;
CREATE TEMP VIEW unquoted AS
    WITH statements AS (
        SELECT p, regexp_replace(made[1], '''\s+''', '', 'g') AS text, pg_temp.arguments(made[2]) AS arguments
          FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid,
               regexp_matches(prosrc, '\mEXECUTE\s+?format\(((?:''(?:[^'']|'''')*?''\s*?)+?),(.*?);', 'g') AS made),
    given AS (
        SELECT p, arguments[coalesce(nullif(place[1], '')::integer, nth::integer)] AS value
          FROM statements, regexp_matches(text, '%(?:(\d+)\$)?([sIL])', 'g') WITH ORDINALITY AS places(place, nth)
         WHERE place[2] = 's')
    SELECT DISTINCT (p).proname::text AS name, value,
           coalesce(substring(value FROM '::(\w+)$'),
                    (SELECT format_type(t, NULL) FROM unnest((p).proargnames, coalesce((p).proallargtypes, (p).proargtypes::oid[])) AS a(n, t) WHERE n = value),
                    substring((p).prosrc FROM format('\n\s*%s\s+(?:CONSTANT\s+)?(\w+)', regexp_replace(value, '\W', '', 'g')))) AS type
      FROM given;
SELECT cmp_ok((SELECT count(*) FROM unquoted WHERE type LIKE 'reg%'), '>', 30::bigint, 'tables and functions quote themselves');
SELECT set_eq($$SELECT name, value FROM unquoted WHERE type IS NULL OR type NOT IN ('regclass', 'regprocedure', 'regrole', 'integer')$$,
    $$VALUES ('audit_periods', '''_outbox.audit_period'''), ('add_columns', 'missing'), ('revoke_all', 'other'), ('copy_indexes', 'definition'),
      ('create_partition', 'new_table'), ('match_columns', 'changes'), ('reset_partman_config', 'columns'),
      ('extend_partition_set', 'CASEWHENversion<5THEN'', p_analyze := false''ELSE''''END'), ('move_default_rows', 'own'),
      ('move_default_rows', '(SELECTstring_agg(c.name,'', '')FROM_outbox.table_columns(spare)cWHEREc.generatedISNULL)'), ('outbox_restore_partition', 'columns'), ('outbox_restore_partition', 'own'),
      ('outbox_restore_partition', 'values'), ('outbox_restore_partition', '''_outbox.read_cold_file($1)'''), ('delete_expired', 'condition')$$,
    'nothing else goes into a statement unquoted but constants, and what these have put together of the quoted and of definitions');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid
     WHERE relkind = 'v' AND pg_get_viewdef(c.oid) ~ 'shows_tenant|may_read' AND NOT coalesce(reloptions, '{}') @> '{security_barrier=true}'$$,
    'a view that leaves out rows of other tenants is a barrier');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_event_trigger t ON classid = 'pg_event_trigger'::regclass AND t.oid = objid
     WHERE evtenabled = 'D' OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = evtowner AND rolsuper)$$,
    'event triggers are on, and a superuser''s');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
     WHERE proparallel <> 'u' AND provolatile = 'v'$$,
    'what writes is not run in parallel');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid WHERE relispartition$$,
    'no partition belongs to the extension: pg_dump would leave it out');
SELECT is_empty($$
    SELECT f FROM unnest('{producer,consumer,idempotency,audit,auditor,reader,monitor,admin}'::text[]) AS p, _outbox.privilege_functions(p) AS f
     GROUP BY f HAVING count(*) > 1$$,
    'privileges do not overlap');
SELECT is_empty($$
    SELECT name FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid
     WHERE NOT EXISTS (SELECT FROM unnest('{producer,consumer,idempotency,audit,auditor,reader,monitor,admin}'::text[]) AS g, _outbox.privilege_functions(g) AS f
                        WHERE f = p.oid)
       AND obj_description(p.oid, 'pg_proc') NOT LIKE 'internal: %'$$,
    'every function can be granted, or says that it is internal');
SELECT is_empty($$
    SELECT name FROM pg_settings WHERE name LIKE 'outbox.%' AND (short_desc = '' OR extra_desc IS NULL)$$,
    'every setting is described');
SELECT set_eq($$SELECT name FROM pg_settings WHERE name LIKE 'outbox.%'$$,
    string_to_array(trim(:'settings'), ' '), 'the settings are those of the README');

-- Each word in code style of the documents.
\set documented `grep -ohP '\x60[a-z_]+[(\x60]' README.md docs/*.md | tr -cd 'a-z_\n' | sort -u | tr '\n' ' '`
SELECT is_empty(format($query$
    SELECT n FROM (
        SELECT p.proname::text FROM members JOIN pg_proc p ON classid = 'pg_proc'::regclass AND p.oid = objid WHERE p.pronamespace <> '_outbox'::regnamespace
         UNION ALL
        SELECT c.relname::text FROM members JOIN pg_class c ON classid = 'pg_class'::regclass AND c.oid = objid WHERE c.relnamespace <> '_outbox'::regnamespace) x (n)
     WHERE n <> ALL (%L::text[])$query$, string_to_array(trim(:'documented'), ' ')),
    'the schema of the extension has nothing that the documents do not name');
SELECT is_empty($$
    SELECT n.nspname, a.grantee, a.privilege_type FROM pg_namespace n, aclexplode(n.nspacl) a
     WHERE n.nspname = '_outbox' AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner$$,
    'only its owner creates in _outbox');
SELECT set_eq($$
    SELECT t.evtname::text, unnest(t.evttags) FROM members JOIN pg_event_trigger t ON classid = 'pg_event_trigger'::regclass AND t.oid = objid$$,
    $$VALUES ('outbox_before_drop', 'DROP EXTENSION'), ('outbox_guard', 'CREATE TRIGGER'), ('outbox_guard', 'ALTER SCHEMA')$$,
    'no event trigger runs on the creation of tables or functions');

SELECT * FROM finish();
ROLLBACK;
