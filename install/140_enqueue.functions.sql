----------------------------------------------------------------------------------------------------
-- Enqueue. One C++ function behind all overloads, so that no driver has to cast. Not SECURITY
-- DEFINER: the C++ code acts for the owner by itself, and only where it has to.
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as text, payload as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as text, payload as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, text, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as text, payload as text)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id bigint, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, bigint, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as bigint, payload as text)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload jsonb,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, jsonb, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload json,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, json, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue(
    aggregate_type text, aggregate_id uuid, event_type text, payload text,
    event_version integer DEFAULT 1, tenant_id bigint DEFAULT NULL, metadata jsonb DEFAULT '{}',
    trace_id text DEFAULT NULL, available_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL)
RETURNS uuid LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue';
COMMENT ON FUNCTION outbox_enqueue(text, uuid, text, text, integer, bigint, jsonb, text, timestamptz, text)
IS 'enqueues one event in this transaction and returns its tracking_id (aggregate_id as uuid, payload as text)';

CREATE OR REPLACE FUNCTION outbox_enqueue_many(events jsonb) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(jsonb)
IS 'enqueues an array of events, objects with the argument names of outbox_enqueue() as keys, in its order (as jsonb)';

CREATE OR REPLACE FUNCTION outbox_enqueue_many(events json) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(json)
IS 'enqueues an array of events, objects with the argument names of outbox_enqueue() as keys, in its order (as json)';

CREATE OR REPLACE FUNCTION outbox_enqueue_many(events text) RETURNS uuid[]
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_enqueue_many';
COMMENT ON FUNCTION outbox_enqueue_many(text)
IS 'enqueues an array of events, objects with the argument names of outbox_enqueue() as keys, in its order (as text)';

