----------------------------------------------------------------------------------------------------
-- Partitions
----------------------------------------------------------------------------------------------------

-- Bodies in quotes, here and below: one in BEGIN ATOMIC would be read with the search_path of this
-- script, and could be made to use operators that others have put into the extension's schema.
CREATE OR REPLACE FUNCTION _outbox.schema_of(extension name) RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
     WHERE e.extname = extension
$$;
COMMENT ON FUNCTION _outbox.schema_of(name)
IS 'internal: the schema that an extension lives in';

-- Sessions with an outbox.tenant_id are a tenant's. This is asked in C: while the library is not loaded,
-- anybody could set a parameter of that name.
CREATE OR REPLACE FUNCTION _outbox.shows_tenant(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION _outbox.shows_tenant(bigint)
IS 'internal: may this session see what belongs to a tenant? NULL: to all of them';

CREATE OR REPLACE FUNCTION _outbox.may_read(tenant_id bigint) RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_shows_tenant';
COMMENT ON FUNCTION _outbox.may_read(bigint)
IS 'for policies: may this session see rows of a tenant?';

CREATE OR REPLACE FUNCTION _outbox.session_tenant() RETURNS bigint
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_session_tenant';
COMMENT ON FUNCTION _outbox.session_tenant()
IS 'internal: the tenant that this session acts for; NULL: it is none''s';

CREATE OR REPLACE FUNCTION _outbox.require_no_tenant(function text) RETURNS void
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_require_no_tenant';
COMMENT ON FUNCTION _outbox.require_no_tenant(text)
IS 'internal: an error in the session of a tenant';

-- A table or view has a type of its name. Arrays come with their elements.
CREATE OR REPLACE FUNCTION _outbox.catalog_shadowing(schema oid, OUT name name, OUT owner oid) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.typname, t.typowner FROM pg_type t
     WHERE t.typnamespace = schema AND NOT (t.typtype = 'b' AND t.typelem <> 0)
       AND (EXISTS (SELECT FROM pg_type o WHERE o.typname = t.typname AND o.typnamespace = 'pg_catalog'::regnamespace)
            OR EXISTS (SELECT FROM pg_class o WHERE o.relname = t.typname AND o.relnamespace = 'pg_catalog'::regnamespace))
$$;
COMMENT ON FUNCTION _outbox.catalog_shadowing(oid)
IS 'internal: types, tables and views of a schema that have the name of one in pg_catalog, and whose they are';

