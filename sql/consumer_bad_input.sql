-- Each is an error that names the argument, and changes nothing.
\set SHOW_CONTEXT never
SELECT outbox_create_consumer('good', start_at => 'earliest');
SELECT outbox_enqueue('Bad', '1', 'E', '{}') IS NOT NULL AS ok;
SELECT lock_token, id FROM outbox_claim('good', 1) \gset
CREATE TEMP TABLE before AS SELECT (SELECT count(*) FROM outbox_consumers) AS consumers, (SELECT max(token) FROM _outbox.batches) AS token,
    (SELECT sum(hashtext(l::text)) FROM _outbox.leases l) AS leases, (SELECT count(*) FROM outbox_retries) AS retries,
    (SELECT count(*) FROM outbox_messages_dlq) AS dead;
-- consumers
SELECT outbox_create_consumer(NULL);
SELECT outbox_create_consumer('');
SELECT outbox_create_consumer(repeat('x', 64));
SELECT outbox_create_consumer(E'tab\tname');
SELECT outbox_create_consumer('good');
SELECT outbox_create_consumer('new', partitions => 0);
SELECT outbox_create_consumer('new', partitions => 1025);
SELECT outbox_create_consumer('new', max_attempts => 0);
SELECT outbox_create_consumer('new', start_at => 'yesterdayish');
SELECT outbox_create_consumer('new', start_at => NULL);
SELECT outbox_create_consumer('new', event_types => '{a,NULL}');
SELECT outbox_create_consumer('new', event_types => '{{a,b},{c,d}}');
SELECT outbox_create_consumer('new', aggregate_types => '{{a},{NULL}}');
SELECT outbox_alter_consumer('none', max_attempts => 3);
SELECT outbox_alter_consumer('good', max_attempts => 1001);
SELECT outbox_alter_consumer('good', backoff_base => '-1 s');
SELECT outbox_alter_consumer('good', backoff_max => '2 days');
SELECT outbox_alter_consumer('good', backoff_jitter => 1.5);
SELECT outbox_alter_consumer('good', immediate_retries => -1);
SELECT outbox_drop_consumer('none');
SELECT outbox_drop_consumer(NULL);
SELECT outbox_pause('none');
SELECT outbox_resume(NULL);
SELECT outbox_seek('none', 'latest');
SELECT outbox_seek('good', 'soon');
SELECT outbox_seek('good', NULL::text);
SELECT outbox_seek('good', NULL::timestamptz);
SELECT outbox_seek(NULL, 'latest');
-- claim
SELECT outbox_claim('none');
SELECT outbox_claim(NULL);
SELECT outbox_claim(repeat('ä', 1000));
SELECT outbox_claim('good', 0);
SELECT outbox_claim('good', 100001);
SELECT outbox_claim('good', lease => '0.9 s');
SELECT outbox_claim('good', lease => '1 day 1 s');
SELECT outbox_claim('good', lease => '-1 s');
SELECT outbox_claim('good', worker => '');
SELECT outbox_claim('good', worker => repeat('w', 256));
SELECT outbox_consume('good', -1);
SELECT outbox_consume('none');
SELECT outbox_peek('good', 0);
SELECT outbox_peek('none');
SELECT outbox_peek('good', NULL);
-- settle
SELECT outbox_ack(NULL);
SELECT outbox_ack(:lock_token, '{1,NULL}');
SELECT outbox_ack(:lock_token, array_fill(:id::bigint, '{10000000}'));
SELECT outbox_fail(NULL, 1, 'e');
SELECT outbox_fail(:lock_token, NULL::bigint, 'e');
SELECT outbox_fail(:lock_token, :id, NULL);
SELECT outbox_fail(:lock_token, :id, 'e', retry_in => '-1 s');
SELECT outbox_fail(:lock_token, :id, 'e', retry_in => '366 days');
SELECT outbox_fail(:lock_token, NULL::bigint[], 'e');
SELECT outbox_fail(:lock_token, ARRAY[:id, NULL], 'e');
SELECT outbox_fail(:lock_token, array_fill(:id::bigint, '{10000000}'), 'e');
SELECT outbox_heartbeat(NULL);
SELECT outbox_heartbeat(:lock_token, '0 s');
SELECT outbox_heartbeat(:lock_token, '2 days');
SELECT outbox_release(NULL);
-- dead letters
SELECT outbox_redrive('none');
SELECT outbox_redrive(NULL);
SELECT outbox_redrive('good', ids => '{1,NULL}');
SELECT outbox_redrive('good', ids => array_fill(1::bigint, '{10000000}'));
SELECT outbox_discard('good', NULL);
SELECT outbox_discard('good', '{NULL}');
SELECT outbox_discard('none', '{1}');
SELECT outbox_discard('good', '{{1,2},{3,4}}');
-- waiting, inbox, looking
CALL outbox_wait('none', '1 s', NULL);
CALL outbox_wait('good', '-1 s', NULL);
CALL outbox_wait('good', NULL, NULL);
CALL outbox_wait(NULL, '1 s', NULL);
BEGIN;
CALL outbox_wait('good', '1 s', NULL);
ROLLBACK;
SELECT inbox_accept(NULL, '00000000-0000-7000-8000-000000000001');
SELECT inbox_accept('x', NULL);
SELECT inbox_accept(repeat('x', 64), '00000000-0000-7000-8000-000000000001');
SELECT outbox_find(NULL);
SELECT outbox_history(NULL, '1');
-- A cursor that is none, to a function that an admin may call.
SELECT _outbox.has_passed(ROW(1, 1, 0, 1, 1, false, NULL, 5, 7, '{}', NULL, NULL, NULL)::_outbox.batches, '5', 3),
       _outbox.known_upto(ROW(1, 1, 0, 1, 1, false, NULL, NULL, NULL, '{}', '{1,2}', NULL, NULL)::_outbox.batches);
SELECT _outbox.has_passed(ROW(1, 1, 0, 1, 1, false, NULL, 5, NULL, '{}', '{1,2}', NULL, NULL)::_outbox.batches, '5', 3);
-- No partitions.
SELECT _outbox.partition_of('Order', '1', 0);
SELECT _outbox.partition_of('Order', '1', -1);
-- what is no partition
SELECT * FROM _outbox.partition_readers(0);
SELECT * FROM _outbox.partition_readers('outbox_messages');
SELECT * FROM _outbox.partition_readers('_outbox.batches');
-- A sink is the relay's alone.
BEGIN;
UPDATE _outbox.consumers SET kind = 'http' WHERE name = 'good';
SELECT outbox_claim('good');
ROLLBACK;
-- And a worker is no sink.
CALL outbox_test_sink('good');
CALL outbox_test_sink(NULL);
BEGIN READ ONLY;
SELECT outbox_claim('good');
ROLLBACK;
SELECT (SELECT count(*) FROM outbox_consumers) = consumers AND (SELECT max(token) FROM _outbox.batches) = token
   AND (SELECT sum(hashtext(l::text)) FROM _outbox.leases l) = leases AND (SELECT count(*) FROM outbox_retries) = retries
   AND (SELECT count(*) FROM outbox_messages_dlq) = dead AS nothing_changed FROM before;
SELECT outbox_ack(:lock_token);
SELECT outbox_drop_consumer('good');
