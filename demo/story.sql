\set QUIET on
\pset footer off
\pset null '-'
SET client_min_messages = warning;
SET TimeZone = 'UTC';
\echo
\echo '1. Install. One command, which also installs pg_partman.'
\set ECHO queries
CREATE EXTENSION outbox CASCADE;
\set ECHO none
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric NOT NULL, status text NOT NULL);
INSERT INTO orders VALUES (42, 99.50, 'new'), (43, 12.00, 'new');

\echo
\echo '2. An order is confirmed and its event enqueued: one transaction.'
\set ECHO queries
BEGIN;
UPDATE orders SET status = 'confirmed' WHERE id = 42;
SELECT outbox_enqueue('Order', 42, 'OrderConfirmed', '{"total": 99.50, "currency": "EUR"}',
                      trace_id => '4bf92f3577b34da6a3ce929d0e0e4736') AS tracking_id;
COMMIT;
\set ECHO none

\echo
\echo '3. Another order is rolled back: no order, no event.'
\set ECHO queries
BEGIN;
UPDATE orders SET status = 'confirmed' WHERE id = 43;
SELECT outbox_enqueue('Order', 43, 'OrderConfirmed', '{"total": 12.00}') AS tracking_id;
ROLLBACK;
SELECT id, status, (SELECT count(*) FROM outbox_messages m
                     WHERE m.aggregate_type = 'Order' AND m.aggregate_id = o.id::text) AS events
  FROM orders o ORDER BY id;
\set ECHO none

\echo
\echo '4. A client retries its request. The second call enqueues nothing and returns the same tracking id.'
\set ECHO queries
SELECT outbox_enqueue('Payment', 7, 'PaymentTaken', '{"amount": 99.50}', dedup_key => 'req-8f3a') AS tracking_id;
SELECT outbox_enqueue('Payment', 7, 'PaymentTaken', '{"amount": 99.50}', dedup_key => 'req-8f3a') AS tracking_id;
SELECT count(*) AS payment_events FROM outbox_messages WHERE aggregate_type = 'Payment';
\set ECHO none

\echo
\echo '5. A scheduled reminder. It waits outside the log until the relay, a background worker, moves it there.'
\set ECHO queries
SELECT outbox_enqueue('Order', 42, 'ReviewRequested', '{}',
                      available_at => clock_timestamp() + interval '1 second') AS tracking_id;
SELECT event_type, available_at - clock_timestamp() AS due_in FROM outbox_scheduled;
SELECT pg_sleep(1.1), 'a second later' AS time;
SELECT event_type, occurred_at FROM outbox_messages WHERE event_type = 'ReviewRequested';
\set ECHO none

\echo
\echo '6. A thousand events in one call.'
\set ECHO queries
SELECT cardinality(outbox_enqueue_many((
    SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'Stock', 'aggregate_id', i,
                                        'event_type', 'StockCounted', 'payload', jsonb_build_object('left', i % 10)))
      FROM generate_series(1, 1000) i))) AS enqueued;
\set ECHO none

\echo
\echo '7. The log. Ids are positions; gaps, here of the rolled-back order, are normal.'
\set ECHO queries
SELECT id, xid, event_type, aggregate_type || '/' || aggregate_id AS aggregate, payload, trace_id
  FROM outbox_messages WHERE aggregate_type <> 'Stock' ORDER BY id;
\set ECHO none

\echo
\echo '8. A consumer reads the log. It claims a batch under a lease, which the token identifies.'
\set ECHO queries
SELECT outbox_create_consumer('mailer', event_types => '{OrderConfirmed,PaymentTaken,ReviewRequested}',
                              start_at => 'earliest');
SELECT id, event_type, aggregate_id, attempts, lock_token, date_trunc('second', locked_until) AS locked_until
  FROM outbox_claim('mailer', worker => 'mail-1');
\set ECHO none
SELECT max(lock_token) AS token, min(id) AS confirmed, max(id) AS review FROM outbox_deliveries
 WHERE consumer_name = 'mailer' AND status = 'PROCESSING' \gset

\echo
\echo '9. One mail is sent, one can never be sent, one fails and is retried at once.'
\set ECHO queries
SELECT outbox_ack(:token, ARRAY[:confirmed::bigint]) AS acked;
SELECT outbox_fail(:token, :review, 'mailbox does not exist', dead => true) AS becomes;
SELECT outbox_fail(:token, id, 'timeout') AS becomes FROM outbox_messages WHERE event_type = 'PaymentTaken';
SELECT event_type, status, attempts, last_error FROM outbox_deliveries WHERE consumer_name = 'mailer' ORDER BY id;
SELECT event_type, attempts, outbox_ack(lock_token) AS acked FROM outbox_claim('mailer', worker => 'mail-2');
\set ECHO none

\echo
\echo '10. A worker crashes with a claimed batch. When the lease expires, another worker gets it; the old token is rejected.'
\set ECHO queries
SELECT outbox_create_consumer('stock', aggregate_types => '{Stock}', start_at => 'earliest');
SELECT lock_token AS dead_token, count(*) FROM outbox_claim('stock', 400, lease => '1 second', worker => 'will die') GROUP BY 1;
SELECT pg_sleep(1.1), 'a second later' AS time;
SELECT lock_token AS new_token, count(*), min(attempts) AS attempt FROM outbox_claim('stock', 400, worker => 'lives') GROUP BY 1;
\set ECHO none
SELECT min(token) AS dead_token, max(token) AS new_token FROM _outbox.leases JOIN outbox_consumers USING (consumer_id)
 WHERE name = 'stock' \gset
\set ON_ERROR_STOP off
\set ECHO queries
SELECT outbox_ack(:dead_token);
\set ECHO none
\set ON_ERROR_STOP on
\set ECHO queries
SELECT outbox_ack(:new_token) AS acked;
\set ECHO none

\echo
\echo '11. The dead letter is delivered again, to this consumer alone. Then: the position of each consumer.'
\set ECHO queries
SELECT outbox_redrive('mailer') AS redriven;
SELECT event_type, attempts, outbox_ack(lock_token) AS acked FROM outbox_claim('mailer');
SELECT consumer_name, last_processed_id, lag FROM consumer_offsets ORDER BY 1;
\set ECHO none

\echo
\echo '12. A sink: the relay sends events to a webhook. This one is at' :receiver
\echo '    The signing secret is in a file on the server; the config has only its name.'
\set ECHO queries
SELECT outbox_create_sink('shop-webhook', 'http',
                          jsonb_build_object('url', :'receiver' || '/hook', 'secret', '${secret:shop}'),
                          event_types => '{OrderShipped,OrderDelivered}');
CALL outbox_test_sink('shop-webhook');
\set ECHO none
\! demo/stage requests 1
\echo
\echo '    Each commit wakes the relay. The receiver prints the age of an event, which includes the commit.'
\set ECHO queries
SELECT outbox_enqueue('Order', 42, 'OrderShipped', '{"parcel": 1}') AS tracking_id;
\set ECHO none
\! demo/stage requests 1
\set ECHO queries
SELECT outbox_enqueue('Order', 42, 'OrderShipped', '{"parcel": 2}') AS tracking_id;
\set ECHO none
\! demo/stage requests 1

\echo
\echo '13. The receiver stops. Events wait; none is lost, and none becomes a dead letter.'
\! demo/stage close
\set ECHO queries
SELECT outbox_alter_sink('shop-webhook', backoff_max => '1 second');
SELECT outbox_enqueue('Order', id, type, '{}') AS tracking_id
  FROM (VALUES (42, 'OrderDelivered'), (43, 'OrderShipped'), (43, 'OrderDelivered')) AS e (id, type);
SELECT pg_sleep(1.5), 'a second and a half later' AS time;
SELECT detail, hint FROM outbox_status() WHERE component = 'sink shop-webhook' \gx
SELECT aggregate_type || '/' || aggregate_id AS aggregate, event_type, status, attempts
  FROM outbox_deliveries WHERE consumer_name = 'shop-webhook' ORDER BY id;
\set ECHO none
\echo '    The receiver starts, and gets them: each aggregate in order, with the ids that outbox_enqueue returned.'
\! demo/stage open
\! demo/stage requests 3

SELECT :'broker' <> '' AS has_broker \gset
\if :has_broker
\echo
\echo '14. Another sink: Kafka. It starts at the beginning of the log, and delivers all of it.'
\set ECHO queries
SELECT outbox_create_sink('events', 'kafka',
                          jsonb_build_object('bootstrap.servers', :'broker', 'topic', 'shop.{aggregate_type}'),
                          aggregate_types => '{Order,Payment}', start_at => 'earliest');
SELECT pg_sleep(3), 'three seconds later, most of them to create the topics' AS time;
\set ECHO none
\echo '    The records, as an independent reader, kcat, sees them:'
\! for topic in shop.Order shop.Payment; do kcat -C -b $BROKER -t $topic -e -q -f 'topic %t, key %k: %s\n    %h\n'; done
\set ECHO queries
SELECT component, ok, detail FROM outbox_status() WHERE component = 'sink events';
\set ECHO none
\endif

\echo
\echo '15. Events of 10 and 100 days ago, and a consumer that has not read them: they stay in the log.'
\set ECHO queries
SELECT outbox_create_consumer('mails');
INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
SELECT now() - interval '1 day' * days, 'Order', days, 'OrderConfirmed', '{}' FROM unnest('{10,100}'::int[]) days;
SELECT step, object, detail FROM outbox_maintain();
\set ECHO none
\echo '    When it has read them, and the other consumers are dropped, both partitions move to the archive. The older one has expired there, too.'
\set ECHO queries
SELECT aggregate_id, occurred_at::date, outbox_ack(lock_token, ARRAY[id]) AS acked FROM outbox_claim('mails');
SELECT outbox_drop_consumer(name, discard_dead_letters => true) FROM outbox_consumers WHERE name IN ('mailer', 'stock');
SELECT pg_sleep(0.3), 'sinks have passed them, too' AS time;
SELECT step, object, detail FROM outbox_maintain();
SELECT step, object, detail FROM outbox_maintain();
SELECT tableoid::regclass AS partition, aggregate_id, occurred_at::date FROM outbox_messages_archive;
\set ECHO none

\echo
\echo '16. The log partitions, created a week ahead by pg_partman. And the state of all components.'
\set ECHO queries
SELECT c.relname AS partition, pg_get_expr(c.relpartbound, c.oid) AS bounds, count(m.id) AS events
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
  LEFT JOIN outbox_messages m ON m.tableoid = c.oid
 WHERE i.inhparent = 'outbox_messages'::regclass GROUP BY c.oid, c.relname ORDER BY c.relname;
\set ECHO none
SELECT pg_sleep(0.2) \g /dev/null
\set ECHO queries
SELECT * FROM outbox_status();
\set ECHO none

\echo
\echo '17. Monitoring: in a terminal, for Prometheus, and for a load balancer.'
\echo '$ outbox_top --once'
\! COLUMNS=110 bin/outbox_top --once
\echo
\set ECHO queries
SELECT line FROM regexp_split_to_table(outbox_metrics(), '\n') AS line
 WHERE line ~ '^outbox_(lag_seconds|throughput_total|failures_total|dlq_depth)';
SELECT * FROM outbox_health();
\set ECHO none
