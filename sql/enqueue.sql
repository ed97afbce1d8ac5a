CREATE TABLE orders (id bigint PRIMARY KEY, status text NOT NULL);

-- Both or neither.
BEGIN;
INSERT INTO orders VALUES (1, 'confirmed');
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{"total": 99.50}') IS NOT NULL AS enqueued;
COMMIT;
BEGIN;
INSERT INTO orders VALUES (2, 'confirmed');
SELECT outbox_enqueue('Order', 2, 'OrderConfirmed', '{"total": 10}') IS NOT NULL AS enqueued;
ROLLBACK;
BEGIN;
INSERT INTO orders VALUES (3, 'confirmed');
SAVEPOINT before_event;
SELECT outbox_enqueue('Order', 3, 'OrderShipped', '{}') IS NOT NULL AS enqueued;
ROLLBACK TO before_event;
SELECT outbox_enqueue('Order', 3, 'OrderConfirmed', '{}') IS NOT NULL AS enqueued;
COMMIT;
SELECT aggregate_type, aggregate_id, event_type, payload FROM outbox_messages ORDER BY id;

-- Every field arrives.
SELECT outbox_enqueue('Order', '4', 'OrderConfirmed', '{"a": [1, {"b": null}]}', event_version => 3,
                      tenant_id => 7, metadata => '{"source": "checkout"}',
                      trace_id => '4bf92f3577b34da6a3ce929d0e0e4736') AS tracking_id \gset
SELECT tenant_id, aggregate_type, aggregate_id, event_type, event_version, payload, metadata,
       trace_id,
       occurred_at BETWEEN now() - interval '1 minute' AND clock_timestamp() AS recent
  FROM outbox_messages WHERE tracking_id = :'tracking_id';

-- NULL in an optional place means its default.
SELECT outbox_enqueue('Order', '5', 'OrderConfirmed', 'null', NULL, NULL, NULL, NULL, NULL, NULL)
    AS tracking_id \gset
SELECT tenant_id, event_version, payload, metadata, trace_id
  FROM outbox_messages WHERE tracking_id = :'tracking_id';

-- A trace id that is none is kept, not refused.
SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}', trace_id => E'not a trace\n€')
    AS tracking_id \gset
SELECT trace_id FROM outbox_messages WHERE tracking_id = :'tracking_id';

-- The trace of a session, for those that have none of their own; also of many, and of one that enters the log later.
SET outbox.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
CREATE TEMPORARY TABLE traced AS
    SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}') AS tracking_id, 'one' AS kind
    UNION ALL SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}', trace_id => 'its own'), 'own'
    UNION ALL SELECT (outbox_enqueue_many('[{"aggregate_type": "Order", "aggregate_id": "6", "event_type": "OrderConfirmed", "payload": {}}]'))[1], 'many'
    UNION ALL SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}', available_at => clock_timestamp() + interval '1 h'), 'later';
SET outbox.traceparent = '00-00000000000000000000000000000001-0000000000000001-01';
UPDATE _outbox.scheduled SET available_at = now() WHERE aggregate_id = '6';
SELECT outbox_release_due() > 0 AS released;
BEGIN;
SET LOCAL outbox.traceparent = E'no\nheader';
INSERT INTO traced SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}'), 'nonsense';
SET LOCAL outbox.traceparent = 'Zürich';
INSERT INTO traced SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}'), 'not ASCII';
SELECT set_config('outbox.traceparent', repeat('x', 513), true) IS NOT NULL AS is_set;
INSERT INTO traced SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}'), 'too long';
COMMIT;
INSERT INTO traced SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}'), 'of the session again';
RESET outbox.traceparent;
INSERT INTO traced SELECT outbox_enqueue('Order', '6', 'OrderConfirmed', '{}'), 'none';
SELECT kind, trace_id FROM traced JOIN outbox_messages USING (tracking_id) ORDER BY id;

-- A direct INSERT gives a row of the same shape, with its xid before its id.
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
    VALUES ('Order', '7', 'OrderConfirmed', '{}');
SELECT outbox_enqueue('Order', 8, 'OrderConfirmed', '{}') AS tracking_id \gset
SELECT a.tenant_id = b.tenant_id AND a.event_version = b.event_version AND a.metadata = b.metadata
       AND a.trace_id IS NOT DISTINCT FROM b.trace_id AS same_defaults,
       a.id < b.id AND a.xid < b.xid AND a.tracking_id < b.tracking_id AS same_order,
       pg_column_size(a.tracking_id) = pg_column_size(b.tracking_id)
       AND substr(a.tracking_id::text, 15, 1) = '7' AND substr(b.tracking_id::text, 15, 1) = '7'
       AND a.tableoid = b.tableoid AS same_kind
  FROM outbox_messages a, outbox_messages b WHERE a.aggregate_id = '7' AND b.aggregate_id = '8';

-- The xid in the row is the top-level transaction's, whatever subtransaction it was written in.
BEGIN;
SAVEPOINT s;
SELECT outbox_enqueue('Order', 9, 'OrderConfirmed', '{}') AS tracking_id \gset
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
    VALUES ('Order', '9', 'OrderConfirmed', '{}');
RELEASE s;
SELECT count(*), bool_and(xid = pg_current_xact_id()) AS top_level
  FROM outbox_messages WHERE aggregate_id = '9';
COMMIT;

-- The default of id assigns the xid first, not only when the sequence happens to need one.
BEGIN; SELECT _outbox.next_id() > 0 AS drawn, pg_current_xact_id_if_assigned() IS NOT NULL AS has_xid; ROLLBACK;
BEGIN; SELECT _outbox.next_id() > 0 AS drawn, pg_current_xact_id_if_assigned() IS NOT NULL AS has_xid; ROLLBACK;
BEGIN; SELECT _outbox.next_id() > 0 AS drawn, pg_current_xact_id_if_assigned() IS NOT NULL AS has_xid; ROLLBACK;

-- Sequence gaps are normal: ids grow, and that is all.
SELECT count(*) = count(DISTINCT id) AS distinct_ids, max(id) > count(*) AS gaps
  FROM outbox_messages;

-- Large, compressed and out-of-line payloads.
CREATE TABLE documents AS
    SELECT jsonb_build_object('text', string_agg(md5(i::text), '')) AS body
      FROM generate_series(1, 10000) i;
SELECT outbox_enqueue('Document', 1, 'DocumentStored', body) AS tracking_id FROM documents \gset
SELECT payload = (SELECT body FROM documents) AS intact
  FROM outbox_messages WHERE tracking_id = :'tracking_id';

-- Many in one statement, and inside a function.
SELECT count(DISTINCT outbox_enqueue('Counter', i, 'Counted', '{}'))
  FROM generate_series(1, 1000) i;
SELECT count(*) AS out_of_order FROM (
    SELECT tracking_id < lag(tracking_id) OVER (ORDER BY id) AS wrong
      FROM outbox_messages WHERE aggregate_type = 'Counter') AS w WHERE wrong;

-- A log that somebody has changed still gets every event, and what they added works.
CREATE TABLE seen (event_type text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO public.seen VALUES (NEW.event_type || '' by '' || current_user); RETURN NEW; END';
CREATE TRIGGER note AFTER INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION note();
SELECT outbox_enqueue('Order', 10, 'OrderConfirmed', '{}', trace_id => 'abc') IS NOT NULL AS ok;
DROP TRIGGER note ON outbox_messages;
SELECT outbox_enqueue('Order', 10, 'OrderShipped', '{}') IS NOT NULL AS ok;
SELECT replace(event_type, current_user, 'the owner') FROM seen;
ALTER TABLE outbox_messages ADD COLUMN region text DEFAULT 'eu';
SELECT outbox_enqueue('Order', 10, 'OrderReturned', '{}') IS NOT NULL AS ok;
SELECT event_type, region FROM outbox_messages WHERE aggregate_id = '10' AND aggregate_type = 'Order' ORDER BY id;
ALTER TABLE outbox_messages DROP COLUMN region;
SELECT outbox_enqueue('Order', 10, 'OrderClosed', '{}') IS NOT NULL AS ok;
ALTER TABLE outbox_messages ADD CONSTRAINT few CHECK (event_version < 10);
DO $$
BEGIN
    PERFORM outbox_enqueue('Order', 10, 'OrderConfirmed', '{}', event_version => 10);
EXCEPTION WHEN check_violation THEN
    RAISE NOTICE 'refused by the new constraint';
END $$;
ALTER TABLE outbox_messages DROP CONSTRAINT few;
DELETE FROM outbox_messages WHERE trace_id IS NULL AND aggregate_type <> 'Order';
UPDATE outbox_messages SET trace_id = '' WHERE trace_id IS NULL;
ALTER TABLE outbox_messages ALTER trace_id SET NOT NULL;
DO $$
BEGIN
    PERFORM outbox_enqueue('Order', 10, 'OrderConfirmed', '{}');
EXCEPTION WHEN not_null_violation THEN
    RAISE NOTICE 'refused by the new constraint';
END $$;
ALTER TABLE outbox_messages ALTER trace_id DROP NOT NULL;
SELECT event_type FROM outbox_messages WHERE aggregate_id = '10' AND aggregate_type = 'Order' ORDER BY id;

-- The session's lastval() still speaks of the session's own sequences.
CREATE TABLE invoices (id serial);
INSERT INTO invoices DEFAULT VALUES;
SELECT outbox_enqueue('Invoice', lastval(), 'InvoiceSent', '{}') IS NOT NULL AS ok;
SELECT lastval();
DROP TABLE invoices;

-- No transaction that must not write.
BEGIN READ ONLY;
SELECT outbox_enqueue('Order', 11, 'OrderConfirmed', '{}');
ROLLBACK;
BEGIN READ ONLY;
SELECT _outbox.next_id();
ROLLBACK;

-- A sequence that hands out blocks would lose events.
\set SHOW_CONTEXT never
ALTER SEQUENCE _outbox.messages_id_seq CACHE 20;
SELECT outbox_enqueue('Order', 12, 'OrderConfirmed', '{}');
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
    VALUES ('Order', '12', 'OrderConfirmed', '{}');
ALTER SEQUENCE _outbox.messages_id_seq CACHE 1;
SELECT outbox_enqueue('Order', 12, 'OrderConfirmed', '{}') IS NOT NULL AS ok;

-- Tenants: the session's, the argument's, or 0; never two different ones.
SET outbox.tenant_id = '42';
SELECT outbox_enqueue('Order', 13, 'OrderConfirmed', '{}') IS NOT NULL AS ok;
SELECT outbox_enqueue('Order', 13, 'OrderConfirmed', '{}', tenant_id => 42) IS NOT NULL AS ok;
SELECT outbox_enqueue('Order', 13, 'OrderConfirmed', '{}', tenant_id => 43);
RESET outbox.tenant_id;
SELECT tenant_id FROM outbox_messages WHERE aggregate_id = '13' AND aggregate_type = 'Order';
SET outbox.tenant_id = 'acme';

-- An AFTER trigger that enqueues: events beget events.
CREATE FUNCTION follow_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.outbox_enqueue('Order', NEW.id, 'OrderConfirmed', '{}');
    RETURN NEW;
END $$;
CREATE TRIGGER follow_up AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION follow_up();
INSERT INTO orders SELECT i, 'new' FROM generate_series(100, 109) i;
SELECT count(*) FROM outbox_messages WHERE aggregate_type = 'Order' AND aggregate_id ~ '^10[0-9]$';

DROP TABLE orders, documents, seen;
DROP FUNCTION note, follow_up;
