-- Idempotency keys in SQL alone, for psql, and for languages without an example here.
--
-- psql -At -v ON_ERROR_STOP=1 -f order.sql
SELECT 'run-' || extract(epoch FROM clock_timestamp()) AS run \gset
CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY, item text);

-- POST /orders: all work is in the database, so one transaction is enough.
BEGIN;
SELECT decision, token, decision = 'execute' AS executes FROM idempotency_begin('order.create', :'run', '{"item": "lamp", "count": 1}') \gset
\echo the first: :decision
\if :executes
    INSERT INTO example_orders (item) VALUES (:'run') RETURNING id, jsonb_build_object('order', id) AS answer \gset
    SELECT outbox_enqueue('Order', :id, 'OrderCreated', :'answer') AS event \gset
    SELECT idempotency_finish('order.create', :'run', :token, 201, :'answer');
\endif
COMMIT;

-- The same request again, with its keys in another order.
SELECT decision, http_hint, response = :'answer' AS same FROM idempotency_begin('order.create', :'run', '{"count": 1, "item": "lamp"}') \gset
\echo again: :decision :http_hint :same
-- Another request with the same key.
SELECT decision, http_hint FROM idempotency_begin('order.create', :'run', '{"count": 2, "item": "lamp"}') \gset
\echo another request: :decision :http_hint

-- POST /payments: the provider is called between two transactions, without an open one.
SELECT decision, token FROM idempotency_begin('payment.capture', :'run', '{"amount": 10}', lease => '1 s') \gset first_
\echo the payment: :first_decision
SELECT decision, http_hint FROM idempotency_begin('payment.capture', :'run', '{"amount": 10}') \gset
\echo meanwhile: :decision :http_hint
-- The attempt that would call the provider has crashed. After its lease, the next takes over.
SELECT decision, token FROM idempotency_begin('payment.capture', :'run', '{"amount": 10}', wait => '30 s') \gset
\echo after the lease: :decision
SELECT idempotency_finish('payment.capture', :'run', :token, 402, '{"error": "card declined"}', failed => true);
-- A failure is a response, too.
SELECT decision, http_hint, response FROM idempotency_begin('payment.capture', :'run', '{"amount": 10}') \gset
\echo asked again: :decision :http_hint :response
-- The crashed attempt continues, with the old token.
\set ON_ERROR_STOP 0
SELECT idempotency_finish('payment.capture', :'run', :first_token, 200, '{}');
\echo its finish: :LAST_ERROR_SQLSTATE
