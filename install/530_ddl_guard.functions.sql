----------------------------------------------------------------------------------------------------
-- A trigger runs with the privileges of the role that writes to the table, here of the owner of the log.
-- Functions of the extension refer to its schemas by name: a role that renames one of them could create
-- another in its place.
----------------------------------------------------------------------------------------------------

-- Runs as the role of the DDL command, so it reads only catalogs.
CREATE OR REPLACE FUNCTION _outbox.ddl_guard() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outbox  CONSTANT pg_extension := (SELECT e FROM pg_extension e WHERE e.extname = 'outbox');
    partman CONSTANT pg_extension := (SELECT e FROM pg_extension e WHERE e.extname = 'pg_partman');
    wrong   text;
BEGIN
    IF tg_tag = 'ALTER SCHEMA' THEN
        IF to_regnamespace('@extschema@') IS DISTINCT FROM outbox.extnamespace
           OR to_regnamespace('_outbox') IS NULL THEN
            RAISE feature_not_supported USING
                MESSAGE = 'the schemas of extension "outbox" cannot be renamed',
                DETAIL = 'Functions of the extension refer to them by name.';
        END IF;
        RETURN;
    END IF;
    SELECT r.oid::regclass INTO wrong
      FROM pg_event_trigger_ddl_commands() c JOIN pg_trigger t ON t.oid = c.objid JOIN pg_class r ON r.oid = t.tgrelid
     WHERE c.classid = 'pg_trigger'::regclass AND NOT pg_has_role(r.relowner, 'USAGE')
       AND (r.relname IN ('part_config', 'part_config_sub') AND r.relnamespace = partman.extnamespace
            OR EXISTS (SELECT FROM pg_depend d
                        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_extension'::regclass
                          AND d.refobjid = outbox.oid
                          AND d.objid IN (SELECT r.oid UNION SELECT relid FROM pg_partition_ancestors(r.oid))));
    IF FOUND THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('only the owner of %s may create triggers on it', wrong),
            DETAIL = 'Triggers run with the privileges of the owner of the log.';
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.ddl_guard()
IS 'internal: rejects triggers of other roles on tables of the extension, and renaming of its schemas';

