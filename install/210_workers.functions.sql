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
IS 'hands out the next batch of a consumer under one lock_token';

CREATE OR REPLACE FUNCTION outbox_consume(
    consumer text, batch_size integer DEFAULT NULL,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_consume';
COMMENT ON FUNCTION outbox_consume(text, integer)
IS 'reads the next batch and settles it, both in this transaction: exactly once for what is done in it';

CREATE OR REPLACE FUNCTION outbox_peek(
    consumer text, max_rows integer DEFAULT 10,
    OUT id bigint, OUT tracking_id uuid, OUT tenant_id bigint, OUT aggregate_type text,
    OUT aggregate_id text, OUT event_type text, OUT event_version integer, OUT payload jsonb,
    OUT metadata jsonb, OUT trace_id text, OUT occurred_at timestamptz, OUT attempts integer)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_peek';
COMMENT ON FUNCTION outbox_peek(text, integer)
IS 'what a consumer would get next; nothing is claimed';

CREATE OR REPLACE FUNCTION outbox_ack(lock_token bigint, ids bigint[] DEFAULT NULL) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_ack';
COMMENT ON FUNCTION outbox_ack(bigint, bigint[])
IS 'settles messages of a batch, or all that is left of it; returns how many';

CREATE OR REPLACE FUNCTION outbox_fail(lock_token bigint, id bigint, error text, retry_in interval DEFAULT NULL,
                            dead boolean DEFAULT false) RETURNS text
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_fail';
COMMENT ON FUNCTION outbox_fail(bigint, bigint, text, interval, boolean)
IS 'says that a message failed; returns what becomes of it: retry or dead';

CREATE OR REPLACE FUNCTION outbox_fail(lock_token bigint, ids bigint[], error text, retry_in interval DEFAULT NULL,
                            dead boolean DEFAULT false) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_fail_many';
COMMENT ON FUNCTION outbox_fail(bigint, bigint[], text, interval, boolean)
IS 'says that messages failed; returns how many';

CREATE OR REPLACE FUNCTION outbox_heartbeat(lock_token bigint, lease interval DEFAULT NULL) RETURNS timestamptz
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_heartbeat';
COMMENT ON FUNCTION outbox_heartbeat(bigint, interval)
IS 'starts the lease of a batch anew; returns until when it lasts';

CREATE OR REPLACE FUNCTION outbox_release(lock_token bigint) RETURNS integer
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_release';
COMMENT ON FUNCTION outbox_release(bigint)
IS 'hands back what is left of a batch, without counting an attempt; returns how many';

CREATE OR REPLACE PROCEDURE outbox_wait(consumer text, timeout interval, INOUT ready boolean DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_wait';
COMMENT ON PROCEDURE outbox_wait(text, interval, boolean)
IS 'waits until there is something to claim; says whether there is';

