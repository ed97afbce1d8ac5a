----------------------------------------------------------------------------------------------------
-- Partitions
----------------------------------------------------------------------------------------------------

-- Function bodies are quoted strings, here and below. A BEGIN ATOMIC body would be parsed with the search_path
-- of this script, and could bind operators that other roles have created in the extension's schema.
CREATE OR REPLACE FUNCTION _outbox.schema_of(extension name) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
     WHERE e.extname = extension
$$;
COMMENT ON FUNCTION _outbox.schema_of(name) IS 'internal: returns the schema of an extension';

-- A session with outbox.tenant_id is a tenant session. C code reads the setting: before the library is loaded,
-- any role can set a placeholder parameter of that name.
CREATE OR REPLACE FUNCTION _outbox.shows_tenant(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION _outbox.shows_tenant(bigint)
IS 'internal: returns true if the session may see objects of the tenant; NULL: objects of all tenants';

CREATE OR REPLACE FUNCTION _outbox.may_read(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION _outbox.may_read(bigint)
IS 'returns true if the session may read rows of the tenant; for row security policies';

CREATE OR REPLACE FUNCTION _outbox.session_tenant() RETURNS bigint
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_session_tenant';
COMMENT ON FUNCTION _outbox.session_tenant()
IS 'internal: returns the tenant of the session; NULL: not a tenant session';

CREATE OR REPLACE FUNCTION _outbox.require_no_tenant(function text) RETURNS void
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_require_no_tenant';
COMMENT ON FUNCTION _outbox.require_no_tenant(text) IS 'internal: raises an error in a tenant session';

-- pg_type is enough: each table or view has a composite type of its name. Array types are skipped, because
-- their element types are listed.
CREATE OR REPLACE FUNCTION _outbox.catalog_shadowing(schema oid, OUT name name, OUT owner oid) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.typname, t.typowner FROM pg_type t
     WHERE t.typnamespace = schema AND NOT (t.typtype = 'b' AND t.typelem <> 0)
       AND (EXISTS (SELECT FROM pg_type o WHERE o.typname = t.typname AND o.typnamespace = 'pg_catalog'::regnamespace)
            OR EXISTS (SELECT FROM pg_class o
                        WHERE o.relname = t.typname AND o.relnamespace = 'pg_catalog'::regnamespace))
$$;
COMMENT ON FUNCTION _outbox.catalog_shadowing(oid)
IS 'internal: types, tables and views of a schema that have the name of a pg_catalog object, with owners';

