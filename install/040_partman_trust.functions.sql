-- pg_partman's functions search its schema before pg_catalog, and run as the owner of the log. A role could run
-- its own code with the owner's rights if it can create, or has created, objects in that schema, or owns code
-- that a write to pg_partman's configuration runs: triggers, rules, constraints, defaults, indexes, policies,
-- inheriting tables, foreign keys. A role that can write the configuration chooses the indexes of new
-- partitions. Both configuration tables count, because deletes cascade from one to the other.
CREATE OR REPLACE FUNCTION _outbox.untrusted_partman_roles() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE partman AS (
        SELECT n.oid, n.nspacl, n.nspowner
          FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
         WHERE e.extname = 'pg_partman'
    ), config AS (
        SELECT c.oid, c.relowner, c.relacl FROM partman n JOIN pg_class c ON c.relnamespace = n.oid
         WHERE c.relname IN ('part_config', 'part_config_sub')
         UNION ALL
        SELECT c.oid, c.relowner, c.relacl
          FROM config p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid
    ), attached (classid, objid) AS (
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
    ), refs AS (
        SELECT d.refclassid, d.refobjid FROM attached JOIN pg_depend d USING (classid, objid)
    ), creators AS (
        SELECT nspowner AS role FROM partman
         UNION
        SELECT a.grantee FROM partman, aclexplode(nspacl) AS a WHERE a.privilege_type = 'CREATE'
         UNION
        SELECT p.proowner FROM partman n JOIN pg_proc p ON p.pronamespace = n.oid
         UNION
        SELECT o.oprowner FROM partman n JOIN pg_operator o ON o.oprnamespace = n.oid
         UNION
        SELECT s.owner FROM partman n CROSS JOIN LATERAL _outbox.catalog_shadowing(n.oid) s
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
        SELECT p.proowner FROM refs JOIN pg_proc p ON p.oid = refobjid WHERE refclassid = 'pg_proc'::regclass
         UNION
        SELECT o.oprowner FROM refs JOIN pg_operator o ON o.oid = refobjid WHERE refclassid = 'pg_operator'::regclass
         UNION
        SELECT o.opcowner FROM refs JOIN pg_opclass o ON o.oid = refobjid WHERE refclassid = 'pg_opclass'::regclass
         UNION
        SELECT t.typowner FROM refs JOIN pg_type t ON t.oid = refobjid WHERE refclassid = 'pg_type'::regclass
         UNION
        SELECT r.relowner FROM refs JOIN pg_class r ON r.oid = refobjid WHERE refclassid = 'pg_class'::regclass
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
COMMENT ON FUNCTION _outbox.untrusted_partman_roles()
IS 'internal: roles with code that pg_partman could run as the owner of the log; NULL if none';

CREATE OR REPLACE FUNCTION _outbox.partman_version() RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT split_part(extversion, '.', 1)::integer FROM pg_extension WHERE extname = 'pg_partman'
$$;
COMMENT ON FUNCTION _outbox.partman_version() IS 'internal: returns the major version of pg_partman, 4 or 5';

