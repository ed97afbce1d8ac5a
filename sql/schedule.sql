-- What is available later waits outside the log and keeps its tracking_id.
SELECT outbox_enqueue('Reminder', 1, 'ReminderDue', '{"n": 1}', available_at => clock_timestamp() + interval '1 hour',
                      tenant_id => 3, event_version => 2, metadata => '{"k": 1}', trace_id => 't') AS first \gset
SELECT outbox_enqueue('Reminder', 2, 'ReminderDue', '{"n": 2}', available_at => clock_timestamp() + interval '1 day') AS second \gset
SELECT outbox_enqueue('Reminder', 3, 'ReminderDue', '{"n": 3}', available_at => now() - interval '1 day') AS third \gset
SELECT payload FROM outbox_messages WHERE aggregate_type = 'Reminder';
SELECT payload, available_at > now() AS future FROM outbox_scheduled ORDER BY available_at;
SELECT outbox_release_due();
UPDATE _outbox.scheduled SET available_at = now() WHERE tracking_id = :'first';
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
INSERT INTO _outbox.scheduled SELECT now() - (10 - i % 10) * interval '1 minute', 0, _outbox.new_tracking_id(), 1,
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
INSERT INTO _outbox.scheduled SELECT now(), 0, _outbox.new_tracking_id(), 1, 'Document', 'large', 'DocumentDue',
    jsonb_build_object('text', string_agg(md5(i::text), '')), '{}' FROM generate_series(1, 10000) i;
SELECT pg_column_size(payload) > 100000 AS out_of_line FROM outbox_scheduled WHERE aggregate_id = 'large';
SELECT outbox_release_due();
VACUUM _outbox.scheduled;
SELECT payload = (SELECT jsonb_build_object('text', string_agg(md5(i::text), '')) FROM generate_series(1, 10000) i) AS intact
  FROM outbox_messages WHERE aggregate_id = 'large';

-- Events that the log refuses hold back no others, and stay. 21 are due, and three of them are refused.
ALTER TABLE outbox_messages ADD CONSTRAINT shop_rule CHECK (payload ->> 'n' NOT IN ('3', '4', '20')) NOT VALID;
SELECT outbox_create_consumer('picky', start_at => 'latest');
INSERT INTO _outbox.scheduled SELECT now() - (30 - i) * interval '1 second', i % 2, _outbox.new_tracking_id(), 1,
    'Order', 'refused', 'RefusedDue', jsonb_build_object('n', i), '{}' FROM generate_series(1, 21) i;
CREATE TEMP TABLE due AS SELECT tracking_id, available_at FROM outbox_scheduled;
SELECT outbox_release_due();
SELECT string_agg(payload ->> 'n', ' ' ORDER BY id) FROM outbox_messages WHERE event_type = 'RefusedDue';
SELECT string_agg(payload ->> 'n', ' ') FROM outbox_consume('picky', 100);
CREATE TEMP VIEW refused AS
    SELECT payload ->> 'n' AS n, refusals, round(extract(epoch FROM try_again_at - clock_timestamp()) / 60) AS minutes, last_error
      FROM outbox_scheduled ORDER BY available_at, tracking_id;
SELECT n, refusals, minutes, regexp_replace(last_error, '_p[0-9_]+', '_p') AS last_error FROM refused;
SELECT tracking_id AS refused FROM outbox_scheduled WHERE payload ->> 'n' = '4' \gset
SELECT status, attempts, available_at > clock_timestamp() AS later, left(last_error, 40) AS last_error FROM outbox_find(:'refused');
SELECT component, ok, detail, hint FROM outbox_status() WHERE component = 'scheduled';
SELECT scheduled_overdue FROM outbox_stats_database;
-- They can be had back, although they are due.
SELECT outbox_cancel(:'refused');
SELECT outbox_cancel(:'refused');
-- By hand they are tried at once. Each refusal doubles the pause, up to a day, and the due time stays.
SELECT outbox_release_due();
SELECT n, refusals, minutes FROM refused;
SELECT outbox_release_due(), outbox_release_due();
SELECT n, refusals, minutes FROM refused;
UPDATE _outbox.scheduled SET refusals = CASE payload ->> 'n' WHEN '3' THEN 10 ELSE 11 END;
SELECT outbox_release_due();
SELECT n, refusals, minutes FROM refused;
UPDATE _outbox.scheduled SET refusals = 2000000000;
SELECT outbox_release_due();
SELECT n, refusals, minutes FROM refused;
SELECT count(*) FROM outbox_scheduled s JOIN due d USING (tracking_id, available_at);
-- What was refused is tried first, and max_events is for both.
SELECT outbox_enqueue('Order', 'refused', 'RefusedDue', '{"n": 101}', available_at => clock_timestamp() + interval '1 ms') IS NOT NULL AS enqueued;
SELECT pg_sleep(0.01);
SELECT outbox_release_due(1);
-- Refused again, in a transaction that has other things to do
BEGIN;
SELECT outbox_enqueue('Order', 'refused', 'RefusedDue', '{"n": 100}') IS NOT NULL AS enqueued;
SELECT outbox_release_due(1), outbox_release_due(2);
COMMIT;
-- Until the log takes them
ALTER TABLE outbox_messages DROP CONSTRAINT shop_rule;
SELECT outbox_release_due();
SELECT string_agg(payload ->> 'n', ' ') FROM outbox_consume('picky', 100);
SELECT component, ok, detail FROM outbox_status() WHERE component = 'scheduled';

-- They keep their order. Second was enqueued before First, and is due after it.
ALTER TABLE outbox_messages ADD CONSTRAINT shop_rule CHECK (payload ->> 'n' NOT IN ('First', 'Second', 'Third')) NOT VALID;
INSERT INTO _outbox.scheduled SELECT now() - late * interval '1 second', 0, _outbox.new_tracking_id(), 1, 'Order', 'refused', 'RefusedDue',
    jsonb_build_object('n', n), '{}' FROM (VALUES (1, 'Second'), (2, 'First'), (0, 'Third')) v (late, n);
SELECT outbox_release_due(1);
SELECT outbox_release_due();
SELECT n, refusals, minutes FROM refused;
ALTER TABLE outbox_messages DROP CONSTRAINT shop_rule;
BEGIN;
SELECT outbox_release_due();
SELECT string_agg(payload ->> 'n', ' ' ORDER BY id) FROM outbox_messages WHERE payload ->> 'n' IN ('First', 'Second', 'Third');
ROLLBACK;
SELECT outbox_release_due(1), outbox_release_due(1);
SELECT string_agg(payload ->> 'n', ' ') FROM outbox_consume('picky', 100);
-- Those whose time has come get their turn, however many are before them.
INSERT INTO _outbox.scheduled SELECT now() - interval '1 hour', 0, _outbox.new_tracking_id(), 1, 'Order', 'refused', 'RefusedDue',
    jsonb_build_object('n', 'Zeroth'), '{}', NULL, 'refused', 1, now() + interval '1 hour';
UPDATE _outbox.scheduled SET try_again_at = now() WHERE payload ->> 'n' = 'Third';
SELECT outbox_release_due(1), outbox_release_due(1);
SELECT string_agg(payload ->> 'n', ' ') FROM outbox_consume('picky', 100);

-- What was refused goes in before what came due later.
ALTER TABLE outbox_messages ADD CONSTRAINT not_yet CHECK (payload ->> 'n' <> 'Earlier') NOT VALID;
INSERT INTO _outbox.scheduled SELECT now() - interval '2 minutes', 0, _outbox.new_tracking_id(), 1, 'Order', 'ordered', 'OrderedDue', '{"n": "Earlier"}', '{}';
SELECT outbox_release_due();
INSERT INTO _outbox.scheduled SELECT now() - interval '1 minute', 0, _outbox.new_tracking_id(), 1, 'Order', 'ordered', 'OrderedDue', '{"n": "Later"}', '{}';
ALTER TABLE outbox_messages DROP CONSTRAINT not_yet;
SELECT outbox_release_due();
SELECT string_agg(payload ->> 'n', ' ' ORDER BY id) FROM outbox_messages WHERE event_type = 'OrderedDue';

-- What says nothing about an event postpones none.
CREATE FUNCTION pg_temp.stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = TG_ARGV[0]; END $$;
DO $$
DECLARE
    state text;
BEGIN
    FOREACH state IN ARRAY '{08006,25001,40001,53100,55006,57014,58030,XX001}'::text[] LOOP
        EXECUTE format('CREATE TRIGGER stop BEFORE INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION pg_temp.stop(%L)', state);
        INSERT INTO _outbox.scheduled SELECT now(), 0, _outbox.new_tracking_id(), 1, 'Order', 'stopped', 'StoppedDue', '{}', '{}';
        BEGIN
            PERFORM outbox_release_due();
            RAISE 'released';
        EXCEPTION WHEN query_canceled OR OTHERS THEN
            IF SQLSTATE <> state THEN
                RAISE;
            END IF;
        END;
        DROP TRIGGER stop ON outbox_messages;
    END LOOP;
END $$;
SELECT count(*), count(last_error) FROM outbox_scheduled;
SELECT outbox_release_due();
SELECT outbox_drop_consumer('picky');
