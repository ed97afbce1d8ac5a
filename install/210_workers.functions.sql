----------------------------------------------------------------------------------------------------
-- Workers
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION outbox_claim(
    consumer text, batch_size integer DEFAULT NULL, lease interval DEFAULT NULL, worker text DEFAULT NULL,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer,
    OUT lock_token bigint, OUT locked_until timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_claim';
COMMENT ON FUNCTION outbox_claim(text, integer, interval, text)
IS 'claims the next batch of a consumer and returns its messages with one lock_token';

CREATE OR REPLACE FUNCTION outbox_consume(
    consumer text, batch_size integer DEFAULT NULL,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_consume';
COMMENT ON FUNCTION outbox_consume(text, integer)
IS 'returns and settles the next batch in this transaction: exactly once for effects in this transaction';

CREATE OR REPLACE FUNCTION outbox_peek(
    consumer text, max_rows integer DEFAULT 10,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_peek';
COMMENT ON FUNCTION outbox_peek(text, integer)
IS 'returns the messages that a consumer would get next, without claiming them';

CREATE OR REPLACE FUNCTION outbox_ack(lock_token bigint, ids bigint[] DEFAULT NULL) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_ack';
COMMENT ON FUNCTION outbox_ack(bigint, bigint[])
IS 'acknowledges messages of a batch, or all unsettled ones; returns how many';

CREATE OR REPLACE FUNCTION outbox_fail(lock_token bigint, id bigint, error text, retry_in interval DEFAULT NULL,
                            dead boolean DEFAULT false) RETURNS text
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_fail';
COMMENT ON FUNCTION outbox_fail(bigint, bigint, text, interval, boolean)
IS 'reports a failed message; returns retry or dead';

CREATE OR REPLACE FUNCTION outbox_fail(lock_token bigint, ids bigint[], error text, retry_in interval DEFAULT NULL,
                            dead boolean DEFAULT false) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_fail_many';
COMMENT ON FUNCTION outbox_fail(bigint, bigint[], text, interval, boolean)
IS 'reports failed messages; returns how many';

CREATE OR REPLACE FUNCTION outbox_heartbeat(lock_token bigint, lease interval DEFAULT NULL) RETURNS timestamptz
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_heartbeat';
COMMENT ON FUNCTION outbox_heartbeat(bigint, interval) IS 'restarts the lease of a batch; returns its end';

CREATE OR REPLACE FUNCTION outbox_release(lock_token bigint) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release';
COMMENT ON FUNCTION outbox_release(bigint)
IS 'releases the unsettled messages of a batch without counting an attempt; returns how many';

CREATE OR REPLACE PROCEDURE outbox_wait(consumer text, timeout interval, INOUT ready boolean DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_wait';
COMMENT ON PROCEDURE outbox_wait(text, interval, boolean)
IS 'waits until messages can be claimed or the timeout ends; ready is true if there are messages';

