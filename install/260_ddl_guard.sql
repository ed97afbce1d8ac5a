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

