----------------------------------------------------------------------------------------------------
-- Enqueue. The overloads let drivers pass parameters without a cast; one C++ function implements all. The
-- functions are not SECURITY DEFINER: the C++ code switches to the owner's role only for SQL statements.
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as text, payload as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as text, payload as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as text, payload as text)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as text)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues an event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as text)';

CREATE OR REPLACE FUNCTION outbox_enqueue_many(events jsonb) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(jsonb)
IS 'enqueues a jsonb array of events in its order; keys are the argument names of outbox_enqueue()';

CREATE OR REPLACE FUNCTION outbox_enqueue_many(events json) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(json)
IS 'enqueues a json array of events in its order; keys are the argument names of outbox_enqueue()';

CREATE OR REPLACE FUNCTION outbox_enqueue_many(events text) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(text)
IS 'enqueues a JSON array of events, given as text, in its order; keys are the argument names of outbox_enqueue()';

