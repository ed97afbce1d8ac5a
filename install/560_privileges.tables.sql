-- Only the owner has privileges before outbox_grant(), independent of the default privileges of the database.
DO $$
DECLARE
    member    record;
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
        SELECT d.objid, p.proacl, p.proowner FROM pg_depend d
          JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
          LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
         WHERE e.extname = 'outbox' AND d.deptype = 'e' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass)
    LOOP
        IF member.proowner IS NULL THEN
            PERFORM _outbox.revoke_all(member.objid::regclass);
            CONTINUE;
        END IF;
        FOR other IN SELECT _outbox.other_grantees(coalesce(member.proacl, acldefault('f', member.proowner)),
                                                   member.proowner) LOOP
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s', member.objid::regprocedure, other);
        END LOOP;
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

