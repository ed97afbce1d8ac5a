-- The parameter parent, here and below: the log or the audit log.
CREATE OR REPLACE FUNCTION _outbox.partitions(
    parent regclass DEFAULT '@extschema@.outbox_messages', OUT partition regclass, OUT is_default boolean,
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
COMMENT ON FUNCTION _outbox.partitions(regclass)
IS 'internal: partitions of the log or the audit log, with their bounds';

-- pg_partman's configuration has names without quotes.
CREATE OR REPLACE FUNCTION _outbox.partman_name(parent regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.nspname || '.' || c.relname
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent
$$;
COMMENT ON FUNCTION _outbox.partman_name(regclass)
IS 'internal: returns the name of a table as pg_partman''s configuration has it';

CREATE OR REPLACE FUNCTION _outbox.template_of(parent regclass) RETURNS regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE parent WHEN '@extschema@.audit_log'::regclass THEN '_outbox.audit_log_template'::regclass
                       ELSE '_outbox.messages_template'::regclass END
$$;
COMMENT ON FUNCTION _outbox.template_of(regclass)
IS 'internal: returns the template table with the indexes of the partitions';

CREATE OR REPLACE FUNCTION _outbox.display_name(parent regclass) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE parent WHEN '@extschema@.outbox_messages'::regclass THEN 'the log' ELSE 'the audit log' END
$$;
COMMENT ON FUNCTION _outbox.display_name(regclass)
IS 'internal: returns the name of the log or the audit log for messages';

-- ALTER DEFAULT PRIVILEGES of the database can grant privileges on new objects to other roles.
CREATE OR REPLACE FUNCTION _outbox.other_grantees(acl aclitem[], owner oid) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END
      FROM aclexplode(acl) a LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE a.grantee <> owner
$$;
COMMENT ON FUNCTION _outbox.other_grantees(aclitem[], oid)
IS 'internal: roles with a privilege besides the owner, quoted for REVOKE';

CREATE OR REPLACE FUNCTION _outbox.revoke_all(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other text;
BEGIN
    FOR other IN SELECT _outbox.other_grantees(c.relacl, c.relowner) FROM pg_class c WHERE c.oid = target LOOP
        EXECUTE format('REVOKE ALL ON TABLE %s FROM %s', target, other);
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.revoke_all(regclass)
IS 'internal: revokes all privileges on a table or sequence from all roles but its owner';

-- Row security without a policy: a role with SELECT on all tables of the schema reads the log only through the parent.
-- REPLICA IDENTITY FULL: with a publication FOR ALL TABLES, rows of a table without a replica identity cannot be
-- deleted or moved. Inserts do not become slower.
CREATE OR REPLACE FUNCTION _outbox.secure_partition(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.revoke_all(partition);
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, REPLICA IDENTITY FULL', partition);
END $$;
COMMENT ON FUNCTION _outbox.secure_partition(regclass)
IS 'internal: revokes privileges on a partition, enables row security, sets REPLICA IDENTITY FULL';

-- pg_partman creates partitions in the same way: columns and constraints of the parent, indexes of the template.
CREATE OR REPLACE FUNCTION _outbox.copy_indexes(of regclass, target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    definition text; -- of the index, beginning with USING
BEGIN
    FOR definition IN
        SELECT substr(pg_get_indexdef(i.oid),
                      length(format('CREATE UNIQUE INDEX %I ON %I.%I', i.relname, n.nspname, t.relname)) + 1)
          FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
          JOIN pg_namespace n ON n.oid = t.relnamespace
         WHERE x.indrelid = of AND x.indisunique ORDER BY i.oid LOOP
        EXECUTE format('CREATE UNIQUE INDEX ON %s%s', target, definition);
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.copy_indexes(regclass, regclass)
IS 'internal: creates the unique indexes of one table on another';

-- The CHECK repeats the partition bounds. It is added while the table is empty, so that ATTACH PARTITION to the
-- archive needs no scan.
CREATE OR REPLACE FUNCTION _outbox.create_partition(
    new_table text, lower_bound timestamptz, upper_bound timestamptz, parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD'
SET default_tablespace = '' SET default_table_access_method = 'heap' AS $$
BEGIN
    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL EXCLUDING IDENTITY,'
                   ' CONSTRAINT outbox_bounds CHECK (occurred_at >= %L AND occurred_at < %L))',
                   new_table, parent, lower_bound, upper_bound);
    PERFORM _outbox.copy_indexes(_outbox.template_of(parent), new_table::regclass);
    PERFORM _outbox.secure_partition(new_table::regclass);
END $$;
COMMENT ON FUNCTION _outbox.create_partition(text, timestamptz, timestamptz, regclass)
IS 'internal: creates a table that ATTACH PARTITION accepts without a scan';

-- Users can add columns of any type to the log. A type name includes the collation if it is not the type's default.
CREATE OR REPLACE FUNCTION _outbox.table_columns(
    target regclass, OUT name text, OUT type text, OUT plain_type text, OUT generated text, OUT is_stored boolean)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT quote_ident(a.attname), type_names.declared, type_names.without_domains,
           CASE WHEN a.attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%s)', pg_get_expr(d.adbin, d.adrelid)) END,
           a.attgenerated = 's'
      FROM pg_attribute a
      LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     CROSS JOIN LATERAL (
            WITH RECURSIVE layers AS (
                SELECT 0 AS depth, a.atttypid AS type, a.atttypmod AS modifier
                 UNION ALL
                SELECT l.depth + 1, t.typbasetype, t.typtypmod
                  FROM layers l JOIN pg_type t ON t.oid = l.type WHERE t.typtype = 'd')
            SELECT min(s.name) FILTER (WHERE s.depth = 0) AS declared,
                   (array_agg(s.name ORDER BY s.depth DESC))[1] AS without_domains
              FROM (SELECT l.depth, format_type(l.type, l.modifier)
                                    || coalesce((SELECT ' COLLATE ' || o.oid::regcollation FROM pg_collation o
                                                  WHERE o.oid = a.attcollation AND o.oid <> t.typcollation), '') AS name
                      FROM layers l JOIN pg_type t ON t.oid = l.type) s) type_names
     WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
$$;
COMMENT ON FUNCTION _outbox.table_columns(regclass)
IS 'internal: columns of a table in SQL syntax, with their types, and their types without domains';

-- ADD COLUMN must not rewrite or scan the table. A stored generated column is therefore added as an ordinary column,
-- and a domain as its base type: ADD COLUMN would check a domain's constraints.
CREATE OR REPLACE FUNCTION _outbox.add_columns(of regclass, target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    missing CONSTANT text := (
        SELECT string_agg(format('ADD COLUMN %s %s%s', c.name, c.plain_type,
                                 CASE WHEN NOT c.is_stored THEN c.generated END), ', ')
          FROM _outbox.table_columns(of) c
         WHERE c.name NOT IN (SELECT t.name FROM _outbox.table_columns(target) t));
BEGIN
    IF missing IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s %s', target, missing);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.add_columns(regclass, regclass)
IS 'internal: adds the columns that a table lacks compared with another, with NULLs';

-- The parent has all columns of the partition, and possibly more. Stored values do not change.
CREATE OR REPLACE FUNCTION _outbox.match_columns(partition regclass, parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changes CONSTANT text := (
        SELECT string_agg(x.change, ', ')
          FROM _outbox.table_columns(partition) c JOIN _outbox.table_columns(parent) p USING (name)
         CROSS JOIN LATERAL (VALUES
               (CASE WHEN c.is_stored AND p.generated IS NULL THEN format('ALTER COLUMN %s DROP EXPRESSION', name) END),
               (CASE WHEN c.type <> p.type AND c.plain_type = p.type
                     THEN format('ALTER COLUMN %s TYPE %s', name, p.type) END)) x (change));
BEGIN
    PERFORM _outbox.add_columns(of => parent, target => partition);
    IF changes IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s %s', partition, changes);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.match_columns(regclass, regclass)
IS 'internal: alters the columns of a table until ATTACH PARTITION accepts them';

-- Rows are never updated, so the first vacuum freezes them. Autovacuum runs early and with a low cost limit,
-- because producers share the WAL.
CREATE OR REPLACE FUNCTION _outbox.configure_partition(partition regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    bounds record;
BEGIN
    SELECT p.lower_bound, p.upper_bound INTO bounds
      FROM pg_inherits i CROSS JOIN LATERAL _outbox.partitions(i.inhparent) p
     WHERE i.inhrelid = p.partition AND p.partition = configure_partition.partition;
    IF NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = partition AND c.conname = 'outbox_bounds') THEN
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT outbox_bounds CHECK (occurred_at >= %L AND occurred_at < %L)',
                       partition, bounds.lower_bound, bounds.upper_bound);
    END IF;
    EXECUTE format('ALTER TABLE %s SET (autovacuum_freeze_min_age = 0, autovacuum_vacuum_insert_scale_factor = 0.05,'
                   ' autovacuum_vacuum_cost_limit = 50, toast.autovacuum_freeze_min_age = 0,'
                   ' toast.autovacuum_vacuum_insert_scale_factor = 0.05)', partition);
    PERFORM _outbox.secure_partition(partition);
END $$;
COMMENT ON FUNCTION _outbox.configure_partition(regclass)
IS 'internal: adds the CHECK of the bounds and the autovacuum settings to a new partition';

CREATE OR REPLACE FUNCTION _outbox.revoke_all_on_default(parent regclass) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unsecured CONSTANT regclass := (
        SELECT p.partition FROM _outbox.partitions(parent) p JOIN pg_class c ON c.oid = p.partition
         WHERE p.is_default AND NOT c.relrowsecurity);
BEGIN
    IF unsecured IS NOT NULL THEN
        PERFORM _outbox.secure_partition(unsecured);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.revoke_all_on_default(regclass)
IS 'internal: calls secure_partition() for a default partition without row security';

CREATE OR REPLACE FUNCTION _outbox.configure_partitions(parent regclass DEFAULT '@extschema@.outbox_messages')
RETURNS void LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT _outbox.configure_partition(p.partition) FROM _outbox.partitions(parent) p
     WHERE NOT p.is_default AND pg_relation_size(p.partition) = 0
       AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conrelid = p.partition AND c.conname = 'outbox_bounds');
    SELECT _outbox.revoke_all_on_default(parent)
$$;
COMMENT ON FUNCTION _outbox.configure_partitions(regclass)
IS 'internal: calls configure_partition() for each empty partition without the CHECK of its bounds';

CREATE OR REPLACE FUNCTION _outbox.default_partition_has_rows(parent regclass DEFAULT '@extschema@.outbox_messages')
RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    default_partition CONSTANT regclass :=
        (SELECT partition FROM _outbox.partitions(parent) WHERE is_default);
    found boolean;
BEGIN
    IF default_partition IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', default_partition) INTO found;
    END IF;
    RETURN found;
END $$;
COMMENT ON FUNCTION _outbox.default_partition_has_rows(regclass)
IS 'internal: returns true if the default partition has rows; NULL if there is none';

CREATE OR REPLACE FUNCTION _outbox.partition_width(
    parent regclass DEFAULT '@extschema@.outbox_messages', OUT width interval, OUT unit text, OUT suffix text,
    OUT premake integer)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('SELECT partition_interval::interval, datetime_string, premake FROM %I.part_config'
                   ' WHERE parent_table = $1', _outbox.schema_of('pg_partman'))
       INTO width, suffix, premake USING _outbox.partman_name(parent);
    unit := CASE WHEN width < '1 day' THEN 'hour' WHEN width < '1 week' THEN 'day'
                 WHEN width < '28 days' THEN 'week' ELSE 'month' END;
END $$;
COMMENT ON FUNCTION _outbox.partition_width(regclass)
IS 'internal: pg_partman''s interval, date_trunc() unit, name suffix and premake of a partitioned table';

-- A role with CREATE on the schema can create an object with the name of a future partition. A type conflicts, too,
-- because each table has a composite type of its name.
CREATE OR REPLACE FUNCTION _outbox.name_conflict(parent regclass, suffix text, OUT object text, OUT detail text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, p.relname || suffix),
           format('has the name of a partition, but is another object, owned by %I', w.rolname)
      FROM pg_class p JOIN pg_namespace n ON n.oid = p.relnamespace
     CROSS JOIN LATERAL (
            SELECT c.relowner FROM pg_class c
             WHERE c.relnamespace = p.relnamespace AND c.relname = p.relname || suffix
               AND NOT EXISTS (SELECT FROM pg_inherits i
                                WHERE i.inhrelid = c.oid
                                  AND i.inhparent IN (parent, '@extschema@.outbox_messages_archive'::regclass))
             UNION
            SELECT t.typowner FROM pg_type t
             WHERE t.typnamespace = p.relnamespace AND t.typname = p.relname || suffix AND t.typrelid = 0) o (owner)
      JOIN pg_roles w ON w.oid = o.owner
     WHERE p.oid = parent
     LIMIT 1
$$;
COMMENT ON FUNCTION _outbox.name_conflict(regclass, text)
IS 'internal: object that has the name of a partition, but is not one';

-- pg_partman skips a partition if its name is taken, and does not retry.
CREATE OR REPLACE FUNCTION _outbox.missing_partitions(
    parent regclass DEFAULT '@extschema@.outbox_messages', OUT start timestamptz, OUT object text, OUT detail text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
    SELECT s.start, o.object, o.detail
      FROM _outbox.partition_width(parent) w
     CROSS JOIN LATERAL generate_series(
               date_trunc(w.unit, clock_timestamp()), clock_timestamp() + w.premake * w.width, w.width) s (start)
      LEFT JOIN LATERAL _outbox.name_conflict(parent, '_p' || to_char(s.start, w.suffix)) o ON true
     WHERE NOT EXISTS (SELECT FROM _outbox.partitions(parent) p
                        WHERE p.lower_bound <= s.start AND p.upper_bound > s.start)
     ORDER BY s.start
$$;
COMMENT ON FUNCTION _outbox.missing_partitions(regclass)
IS 'internal: missing partitions from now on, with the object that has the name of each, if any';

