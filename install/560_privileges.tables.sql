-- Only the owner has privileges before outbox_grant(), independent of the default privileges of the database. Those of
-- functions are revoked above.
DO $$
DECLARE
    member    regclass;
    other     text;
    path      CONSTANT text := pg_catalog.current_setting('search_path');
    untrusted text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    FOR other IN SELECT _outbox.other_grantees(n.nspacl, n.nspowner) FROM pg_namespace n
                  WHERE n.nspname = '_outbox' LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA _outbox FROM %s', other);
    END LOOP;
    GRANT USAGE ON SCHEMA _outbox TO PUBLIC; -- functions and tables in it have privileges of their own
    FOR member IN
        SELECT d.objid::regclass FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
         WHERE e.extname = 'outbox' AND d.deptype = 'e' AND d.classid = 'pg_class'::regclass
    LOOP
        PERFORM _outbox.revoke_all(member);
    END LOOP;
    PERFORM _outbox.install_retention_guard();
    untrusted := _outbox.untrusted_partman_roles();
    IF untrusted IS NOT NULL THEN
        RAISE WARNING USING
            MESSAGE = format('pg_partman''s schema is open to %s', untrusted),
            HINT = 'No partitions are created until the schema and all objects in it belong to a superuser, and are'
                   ' closed to other roles.';
    END IF;
    PERFORM set_config('search_path', path, true);
END $$;

