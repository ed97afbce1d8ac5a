-- Facts about the extension, one per line. Two databases with the same version must have the same
-- facts, whether it was installed or updated.
WITH members AS (
    SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'outbox' AND d.deptype = 'e'
), relations AS (
    SELECT c.* FROM pg_class c JOIN members ON classid = 'pg_class'::regclass AND objid = c.oid
), objects AS ( -- and dependent objects
    SELECT classid, objid FROM members
    UNION SELECT 'pg_class'::regclass, i.indexrelid FROM pg_index i JOIN relations r ON r.oid = indrelid
    UNION SELECT 'pg_constraint'::regclass, c.oid FROM pg_constraint c JOIN relations r ON r.oid = conrelid
    UNION SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t JOIN relations r ON r.oid = tgrelid WHERE NOT tgisinternal
    UNION SELECT 'pg_rewrite'::regclass, w.oid FROM pg_rewrite w JOIN relations r ON r.oid = ev_class
    UNION SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p JOIN relations r ON r.oid = polrelid
    UNION SELECT 'pg_statistic_ext'::regclass, s.oid FROM pg_statistic_ext s JOIN relations r ON r.oid = stxrelid
), privileges AS (
    SELECT 'pg_proc'::regclass AS classid, oid AS objid, 'privileges' AS kind, coalesce(proacl, acldefault('f', proowner)) AS items FROM pg_proc
    UNION ALL SELECT 'pg_class'::regclass, oid, 'privileges', coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)) FROM pg_class
    UNION ALL SELECT classoid, objoid, 'privileges by the script ' || objsubid, initprivs FROM pg_init_privs
), named AS (
    SELECT classid, objid, i.type || ' ' || i.identity AS name FROM objects, pg_identify_object(classid, objid, 0) i
), facts(name, fact, value) AS (
    SELECT name, 'is there', '' FROM named
    UNION ALL SELECT name, 'comment ' || coalesce(attname, ''), description FROM named
      JOIN pg_description d ON d.classoid = classid AND d.objoid = objid
      LEFT JOIN pg_attribute a ON d.objsubid > 0 AND attrelid = objid AND attnum = d.objsubid
    UNION ALL SELECT name, kind, (SELECT string_agg(item::text, ' ' ORDER BY item::text) FROM unnest(items) item)
      FROM named JOIN privileges USING (classid, objid)
    UNION ALL SELECT name, 'definition', pg_get_functiondef(p.oid) FROM named JOIN pg_proc p ON classid = 'pg_proc'::regclass AND objid = p.oid
    UNION ALL SELECT name, 'relation', concat_ws(' ', relkind, relpersistence, relrowsecurity, relforcerowsecurity, relreplident, reloptions,
              pg_get_partkeydef(r.oid))
      FROM named JOIN pg_class r ON classid = 'pg_class'::regclass AND objid = r.oid
    -- The number matters, too: C++ reads and writes rows by it.
    UNION ALL SELECT name, 'column ' || attname, concat_ws(' ', attnum, format_type(atttypid, atttypmod), attcollation::regcollation, attnotnull,
              attidentity, attgenerated, attstorage, attcompression, attacl, pg_get_expr(adbin, adrelid),
              (SELECT string_agg(option, ' ') FROM unnest(attoptions) option WHERE option NOT LIKE 'pg_attver=%')) -- changes count, not the value
      FROM named JOIN pg_attribute a ON classid = 'pg_class'::regclass AND objid = attrelid AND attnum > 0 AND NOT attisdropped
      LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    UNION ALL SELECT name, 'definition', pg_get_indexdef(indexrelid) FROM named JOIN pg_index ON classid = 'pg_class'::regclass AND objid = indexrelid
    UNION ALL SELECT name, 'definition', concat_ws(' ', convalidated, pg_get_constraintdef(c.oid))
      FROM named JOIN pg_constraint c ON classid = 'pg_constraint'::regclass AND objid = c.oid
    UNION ALL SELECT name, 'definition', concat_ws(' ', tgenabled, pg_get_triggerdef(t.oid))
      FROM named JOIN pg_trigger t ON classid = 'pg_trigger'::regclass AND objid = t.oid
    UNION ALL SELECT name, 'definition', pg_get_ruledef(w.oid) FROM named JOIN pg_rewrite w ON classid = 'pg_rewrite'::regclass AND objid = w.oid
    UNION ALL SELECT name, 'definition', concat_ws(' ', polcmd, polpermissive, polroles::regrole[], pg_get_expr(polqual, polrelid),
              pg_get_expr(polwithcheck, polrelid))
      FROM named JOIN pg_policy p ON classid = 'pg_policy'::regclass AND objid = p.oid
    UNION ALL SELECT name, 'definition', pg_get_statisticsobjdef(s.oid)
      FROM named JOIN pg_statistic_ext s ON classid = 'pg_statistic_ext'::regclass AND objid = s.oid
    UNION ALL SELECT name, 'definition', concat_ws(' ', evtevent, evtenabled, evttags, evtfoid::regprocedure)
      FROM named JOIN pg_event_trigger t ON classid = 'pg_event_trigger'::regclass AND objid = t.oid
    UNION ALL SELECT name, 'sequence', concat_ws(' ', seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle,
              (SELECT refobjid::regclass || ' ' || refobjsubid FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = seqrelid AND deptype IN ('a', 'i')))
      FROM named JOIN pg_sequence ON classid = 'pg_class'::regclass AND objid = seqrelid
    UNION ALL SELECT name, 'rows', query_to_xml(format('SELECT * FROM %s t ORDER BY t::text', r.oid::regclass), true, true, '')::text
      FROM named JOIN relations r ON classid = 'pg_class'::regclass AND objid = r.oid AND relkind IN ('r', 'p')
    UNION ALL SELECT 'extension', 'settings', concat_ws(' ', extrelocatable, extnamespace::regnamespace) FROM pg_extension WHERE extname = 'outbox'
    UNION ALL SELECT 'extension', 'dumps', concat_ws(' ', relation::regclass, condition) FROM pg_extension, unnest(extconfig, extcondition) u(relation, condition)
     WHERE extname = 'outbox'
    UNION ALL SELECT 'extension', 'needs', pg_describe_object(refclassid, refobjid, 0) FROM pg_depend d JOIN pg_extension e
        ON d.classid = 'pg_extension'::regclass AND d.objid = e.oid WHERE e.extname = 'outbox'
)
SELECT translate(concat_ws(': ', name, fact, value), E'\n', '  ') FROM facts ORDER BY 1
