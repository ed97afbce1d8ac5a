CREATE FUNCTION pg_temp.enqueue(VARIADIC ids text[]) RETURNS bigint LANGUAGE sql AS
$$ SELECT count(outbox_enqueue('Seek', i, 'E', '{}'::jsonb)) FROM unnest(ids) i $$;
CREATE FUNCTION pg_temp.rest(consumer text) RETURNS text LANGUAGE sql AS
$$ SELECT string_agg(aggregate_id, ' ' ORDER BY id) FROM outbox_peek(consumer, 10000) WHERE aggregate_type = 'Seek' $$;
SELECT outbox_create_consumer('s', aggregate_types => '{Seek}');
SELECT pg_temp.enqueue('a', 'b');
SELECT clock_timestamp() AS middle \gset
SELECT pg_temp.enqueue('c', 'd');
SELECT count(*) FROM outbox_consume('s');
SELECT pg_temp.rest('s');
-- Replay, from anywhere.
SELECT outbox_seek('s', 'earliest');
SELECT pg_temp.rest('s');
SELECT outbox_seek('s', :'middle'::timestamptz);
SELECT pg_temp.rest('s');
SELECT outbox_seek('s', :'middle');
SELECT pg_temp.rest('s');
SELECT outbox_seek('s', 'latest');
SELECT pg_temp.rest('s') IS NULL AS nothing;
SELECT outbox_seek('s', now() + interval '1 year');
SELECT pg_temp.enqueue('e');
SELECT pg_temp.rest('s');
-- A new consumer can begin at a time, too.
SELECT outbox_create_consumer('since', aggregate_types => '{Seek}', start_at => :'middle');
SELECT pg_temp.rest('since');
-- The tokens of what was in hand end, and retries are forgotten: what counts is the new position.
SELECT outbox_seek('s', 'earliest');
SELECT lock_token, id FROM outbox_claim('s', 1) \gset first_
SELECT outbox_fail(:first_lock_token, :first_id, 'once');
SELECT lock_token FROM outbox_claim('s', 1) \gset retried_
SELECT DISTINCT lock_token FROM outbox_claim('s', 2) \gset second_
SELECT outbox_seek('s', :'middle');
\set VERBOSITY sqlstate
SELECT outbox_ack(:second_lock_token);
SELECT outbox_ack(:retried_lock_token);
\set VERBOSITY default
SELECT aggregate_id, attempts FROM outbox_claim('s', 10);
SELECT count(*) AS retries FROM outbox_retries;
-- And those of a dropped consumer are unknown, also to one that comes back under its name.
SELECT lock_token FROM outbox_claim('since', 10) LIMIT 1 \gset dropped_
SELECT outbox_drop_consumer('since');
SELECT outbox_create_consumer('since', start_at => 'earliest');
\set VERBOSITY sqlstate
SELECT outbox_ack(:dropped_lock_token);
\set VERBOSITY default
SELECT count(*) AS claimed FROM outbox_claim('since', 1);
SELECT outbox_drop_consumer('s'), outbox_drop_consumer('since');

-- Dead letters that the log brings again after a seek come once, not by a redrive as well.
SELECT outbox_create_consumer('again', aggregate_types => '{Again}');
SELECT count(outbox_enqueue('Again', i::text, 'E', '{}')) FROM generate_series(1, 3) i;
SELECT outbox_fail(lock_token, array_agg(id), 'dead', dead => true) FROM outbox_claim('again', 3) GROUP BY lock_token;
SELECT outbox_seek('again', 'earliest');
SELECT outbox_redrive('again', ids => ARRAY[min(id)]) FROM outbox_messages_dlq;
SELECT DISTINCT lock_token FROM outbox_claim('again', 2) \gset again_
-- One that is in hand is not handed out to anybody else, and one that is still to come does not come before its time.
SELECT outbox_redrive('again');
SELECT aggregate_id FROM outbox_claim('again', 10);
SELECT aggregate_id FROM outbox_claim('again', 10);
SELECT outbox_ack(:again_lock_token);
-- What was behind the cursor when it was redriven was wanted once more.
SELECT aggregate_id FROM outbox_claim('again', 10);
SELECT outbox_drop_consumer('again');
