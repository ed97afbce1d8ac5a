CREATE OR REPLACE FUNCTION idempotency_hash(request jsonb) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idempotency_hash';
COMMENT ON FUNCTION idempotency_hash(jsonb)
IS 'SHA-256 of a request in canonical JSON (RFC 8785), as 64 hex digits (request as jsonb)';

CREATE OR REPLACE FUNCTION idempotency_hash(request json) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idempotency_hash';
COMMENT ON FUNCTION idempotency_hash(json)
IS 'SHA-256 of a request in canonical JSON (RFC 8785), as 64 hex digits (request as json)';

CREATE OR REPLACE FUNCTION idempotency_hash(request text) RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idempotency_hash';
COMMENT ON FUNCTION idempotency_hash(text)
IS 'SHA-256 of a request in canonical JSON (RFC 8785), as 64 hex digits (request as text)';

CREATE OR REPLACE FUNCTION idempotency_begin(
    scope text, key text, request jsonb, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin';
COMMENT ON FUNCTION idempotency_begin(text, text, jsonb, bigint, interval, interval, interval)
IS 'begins an attempt: returns execute, replay, conflict or in_progress (request as jsonb)';

CREATE OR REPLACE FUNCTION idempotency_begin(
    scope text, key text, request json, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin';
COMMENT ON FUNCTION idempotency_begin(text, text, json, bigint, interval, interval, interval)
IS 'begins an attempt: returns execute, replay, conflict or in_progress (request as json)';

CREATE OR REPLACE FUNCTION idempotency_begin(
    scope text, key text, request text, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin';
COMMENT ON FUNCTION idempotency_begin(text, text, text, bigint, interval, interval, interval)
IS 'begins an attempt: returns execute, replay, conflict or in_progress (request as text)';

CREATE OR REPLACE FUNCTION idempotency_begin_hashed(
    scope text, key text, request_hash text, tenant_id bigint DEFAULT NULL, ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL, wait interval DEFAULT NULL) RETURNS idempotency_verdict
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_begin_hashed';
COMMENT ON FUNCTION idempotency_begin_hashed(text, text, text, bigint, interval, interval, interval)
IS 'idempotency_begin() for a request hash from the caller: 64 hex digits';

CREATE OR REPLACE FUNCTION idempotency_finish(
    scope text, key text, token bigint, status_code integer, response jsonb, failed boolean DEFAULT false,
    tenant_id bigint DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_finish';
COMMENT ON FUNCTION idempotency_finish(text, text, bigint, integer, jsonb, boolean, bigint)
IS 'finishes an attempt: stores its response for replay (response as jsonb)';

CREATE OR REPLACE FUNCTION idempotency_finish(
    scope text, key text, token bigint, status_code integer, response json, failed boolean DEFAULT false,
    tenant_id bigint DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_finish';
COMMENT ON FUNCTION idempotency_finish(text, text, bigint, integer, json, boolean, bigint)
IS 'finishes an attempt: stores its response for replay (response as json)';

CREATE OR REPLACE FUNCTION idempotency_finish(
    scope text, key text, token bigint, status_code integer, response text, failed boolean DEFAULT false,
    tenant_id bigint DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_finish';
COMMENT ON FUNCTION idempotency_finish(text, text, bigint, integer, text, boolean, bigint)
IS 'finishes an attempt: stores its response for replay (response as text)';

CREATE OR REPLACE FUNCTION idempotency_abandon(scope text, key text, token bigint, tenant_id bigint DEFAULT NULL)
RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'idempotency_abandon';
COMMENT ON FUNCTION idempotency_abandon(text, text, bigint, bigint) IS 'deletes an attempt and frees its key';

CREATE OR REPLACE FUNCTION idempotency_required(scope text, required boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('idempotency_required()');
    IF scope IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'scope must not be NULL';
    ELSIF octet_length(scope) NOT BETWEEN 1 AND 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'scope must have between 1 and 255 bytes';
    ELSIF required IS NULL THEN
        DELETE FROM _outbox.idempotency_scopes s WHERE s.scope = idempotency_required.scope;
    ELSE
        INSERT INTO _outbox.idempotency_scopes AS s VALUES (scope, required)
            ON CONFLICT ON CONSTRAINT idempotency_scopes_pkey DO UPDATE SET required = excluded.required;
    END IF;
END $$;
COMMENT ON FUNCTION idempotency_required(text, boolean)
IS 'sets whether a call without a key is an error in a scope; NULL: outbox.idempotency_required applies';

