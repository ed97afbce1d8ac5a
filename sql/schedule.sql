-- What is available later waits outside the log and keeps its tracking_id.
SELECT outbox_enqueue('Reminder', 1, 'ReminderDue', '{"n": 1}', available_at => clock_timestamp() + interval '1 hour',
                      tenant_id => 3, event_version => 2, metadata => '{"k": 1}', trace_id => 't') AS first \gset
SELECT outbox_enqueue('Reminder', 2, 'ReminderDue', '{"n": 2}', available_at => clock_timestamp() + interval '1 day') AS second \gset
SELECT outbox_enqueue('Reminder', 3, 'ReminderDue', '{"n": 3}', available_at => now() - interval '1 day') AS third \gset
SELECT payload FROM outbox_messages WHERE aggregate_type = 'Reminder';
SELECT payload, available_at > now() AS future FROM outbox_scheduled ORDER BY available_at;
SELECT outbox_release_due();
UPDATE outbox_scheduled SET available_at = now() WHERE tracking_id = :'first';
SELECT component, ok FROM outbox_status() WHERE component = 'scheduled';
SELECT outbox_release_due();
SELECT outbox_release_due();
SELECT tenant_id, event_version, payload, metadata, trace_id, tracking_id = :'first' AS same_identity,
       xid > (SELECT xid FROM outbox_messages WHERE tracking_id = :'third') AS new_xid,
       id > (SELECT id FROM outbox_messages WHERE tracking_id = :'third') AS new_id
  FROM outbox_messages WHERE tracking_id = :'first';

-- Cancelling: once, before it is due, and only what is scheduled.
SELECT outbox_cancel(:'second');
SELECT outbox_cancel(:'second');
SELECT outbox_cancel(:'first');
SELECT outbox_cancel('00000000-0000-0000-0000-000000000000');
SELECT count(*) FROM outbox_scheduled;

-- Another tenant's event cannot be cancelled.
SELECT outbox_enqueue('Reminder', 4, 'ReminderDue', '{}', tenant_id => 3, available_at => now() + interval '1 day') AS fourth \gset
SET outbox.tenant_id = 4;
SELECT outbox_cancel(:'fourth');
SET outbox.tenant_id = 3;
SELECT outbox_cancel(:'fourth');
RESET outbox.tenant_id;

-- What is due is no longer to be had back, also before it is moved.
SELECT outbox_enqueue('Reminder', 5, 'ReminderDue', '{}', available_at => clock_timestamp() + interval '200 ms') AS fifth \gset
SELECT pg_sleep(0.3);
SELECT outbox_cancel(:'fifth');

-- In the order of their time, then of their enqueue; in bounded steps; rolled back with the caller.
INSERT INTO outbox_scheduled SELECT now() - (10 - i % 10) * interval '1 minute', 0, outbox_new_tracking_id(), 1,
    'Order', i::text, 'ReminderDue', jsonb_build_object('n', i), '{}' FROM generate_series(1, 100) i;
BEGIN;
SELECT outbox_release_due(1000);
ROLLBACK;
SELECT outbox_release_due(40);
SELECT outbox_release_due(40);
SELECT outbox_release_due(40);
SELECT count(*) FROM outbox_scheduled;
SELECT array_agg((payload ->> 'n')::int ORDER BY id) = (SELECT array_agg(i ORDER BY i % 10, i) FROM generate_series(1, 100) i) AS in_order
  FROM outbox_messages WHERE event_type = 'ReminderDue' AND aggregate_type = 'Order';

-- A payload that lies out of line goes over whole, though the row that it came with is deleted.
INSERT INTO outbox_scheduled SELECT now(), 0, outbox_new_tracking_id(), 1, 'Document', 'large', 'DocumentDue',
    jsonb_build_object('text', string_agg(md5(i::text), '')), '{}' FROM generate_series(1, 10000) i;
SELECT pg_column_size(payload) > 100000 AS out_of_line FROM outbox_scheduled WHERE aggregate_id = 'large';
SELECT outbox_release_due();
VACUUM outbox_scheduled;
SELECT payload = (SELECT jsonb_build_object('text', string_agg(md5(i::text), '')) FROM generate_series(1, 10000) i) AS intact
  FROM outbox_messages WHERE aggregate_id = 'large';
