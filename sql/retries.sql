-- Helpers.
CREATE FUNCTION pg_temp.enqueue(VARIADIC ids text[]) RETURNS bigint LANGUAGE sql AS
$$ SELECT count(outbox_enqueue('Order', split_part(i, '.', 1), i, '{}'::jsonb)) FROM unnest(ids) i $$;
CREATE FUNCTION pg_temp.expire() RETURNS void LANGUAGE sql AS
$$ UPDATE _outbox.leases SET locked_until = clock_timestamp() - interval '1 ms'
    WHERE locked_until > clock_timestamp() AND acked_at IS NULL AND superseded_by IS NULL $$;
CREATE TABLE claimed (worker text, event_type text, id bigint, lock_token bigint);
CREATE FUNCTION pg_temp.claim(consumer text, batch_size int DEFAULT 100, worker text DEFAULT 'w') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    DELETE FROM claimed c WHERE c.worker = claim.worker;
    WITH c AS (SELECT * FROM outbox_claim(consumer, batch_size, worker => worker)),
         kept AS (INSERT INTO claimed SELECT worker, c.event_type, c.id, c.lock_token FROM c)
    SELECT string_agg(format('%s#%s', c.event_type, c.attempts), ' ' ORDER BY c.id) INTO result FROM c;
    RETURN result;
END $$;
CREATE FUNCTION pg_temp.token(worker text DEFAULT 'w') RETURNS bigint LANGUAGE sql AS
$$ SELECT DISTINCT lock_token FROM claimed c WHERE c.worker = token.worker $$;
CREATE FUNCTION pg_temp.id(name text) RETURNS bigint LANGUAGE sql AS
$$ SELECT max(m.id) FROM outbox_messages m WHERE m.event_type = name $$;
CREATE FUNCTION pg_temp.fail(VARIADIC names text[]) RETURNS integer LANGUAGE sql AS
$$ SELECT outbox_fail(pg_temp.token(), ARRAY(SELECT pg_temp.id(n) FROM unnest(names) n), 'broken') $$;
CREATE FUNCTION pg_temp.ack(VARIADIC names text[]) RETURNS integer LANGUAGE sql AS
$$ SELECT outbox_ack(pg_temp.token(), ARRAY(SELECT pg_temp.id(n) FROM unnest(names) n)) $$;
CREATE FUNCTION pg_temp.where_is(consumer text) RETURNS TABLE (event text, status text, attempts int, last_error text) LANGUAGE sql AS
$$ SELECT event_type, status, attempts, last_error FROM outbox_deliveries WHERE consumer_name = consumer AND attempts + (status = 'PENDING')::int > 0 ORDER BY id $$;

-- Attempts 1 to 3 are followed by a retry at once, then come pauses that double.
SELECT outbox_create_consumer('c', max_attempts => 6);
SELECT outbox_alter_consumer('c', backoff_base => '10 s', backoff_max => '15 s', backoff_jitter => 0);
SELECT pg_temp.enqueue('a.1', 'b.1', 'c.1');
SELECT pg_temp.claim('c');
SELECT outbox_fail(pg_temp.token(), pg_temp.id('b.1'), 'no such customer');
-- Under the same token: the failed one is gone from the batch, the others are not.
\set VERBOSITY sqlstate
SELECT pg_temp.ack('b.1');
SELECT pg_temp.fail('b.1');
SELECT outbox_ack(pg_temp.token(), ARRAY[pg_temp.id('a.1')]);
SELECT outbox_fail(pg_temp.token(), pg_temp.id('a.1'), 'too late');
\set VERBOSITY default
SELECT * FROM pg_temp.where_is('c');
SELECT outbox_ack(pg_temp.token());
SELECT pg_temp.claim('c');
SELECT pg_temp.fail('b.1'), pg_temp.claim('c');
SELECT pg_temp.fail('b.1'), pg_temp.claim('c');
SELECT pg_temp.fail('b.1'), pg_temp.claim('c');
SELECT attempts, round(extract(epoch FROM available_at - clock_timestamp())) AS pause, last_error FROM outbox_retries;
UPDATE _outbox.retries SET available_at = now();
SELECT pg_temp.claim('c');
SELECT pg_temp.fail('b.1');
SELECT attempts, round(extract(epoch FROM available_at - clock_timestamp())) AS pause FROM outbox_retries;
UPDATE _outbox.retries SET available_at = now();
-- The sixth failure makes it a dead letter.
SELECT pg_temp.claim('c');
SELECT outbox_fail(pg_temp.token(), pg_temp.id('b.1'), 'for the last time');
SELECT * FROM pg_temp.where_is('c');
SELECT pg_temp.claim('c');
SELECT consumer_id IS NOT NULL AS consumer, aggregate_id, event_type, payload, attempts, last_error, died_at <= clock_timestamp() AS died
  FROM outbox_messages_dlq;

-- The caller may know better: when, or never again.
SELECT pg_temp.enqueue('d.1', 'd.2');
SELECT pg_temp.claim('c');
SELECT outbox_fail(pg_temp.token(), pg_temp.id('d.1'), 'later', retry_in => '1 hour');
SELECT outbox_fail(pg_temp.token(), pg_temp.id('d.2'), 'never', dead => true);
SELECT event_type, round(extract(epoch FROM available_at - clock_timestamp()) / 60) AS minutes FROM outbox_retries;
-- The text of an error is cut.
SELECT pg_temp.enqueue('e.1');
SELECT pg_temp.claim('c');
SELECT outbox_fail(pg_temp.token(), pg_temp.id('e.1'), repeat('ä', 5000000), dead => true);
SELECT octet_length(last_error), rtrim(last_error, 'ä') = '' AS whole_characters FROM outbox_messages_dlq WHERE event_type = 'e.1';

-- Redrive: for this consumer alone, with attempts reset; by type, id, or time of death.
SELECT outbox_create_consumer('other');
SELECT outbox_redrive('c', event_type => 'b.1'), outbox_redrive('c', event_type => 'b.1');
SELECT pg_temp.claim('c'), pg_temp.claim('other', worker => 'o');
SELECT pg_temp.fail('b.1'), pg_temp.claim('c');
SELECT outbox_ack(pg_temp.token());
SELECT outbox_redrive('c', since => now() + interval '1 hour'), outbox_redrive('c', until => now() - interval '1 hour');
SELECT outbox_redrive('c', ids => ARRAY[pg_temp.id('d.2')]), outbox_redrive('other');
SELECT pg_temp.claim('c'), outbox_ack(pg_temp.token());
SELECT outbox_discard('c', ARRAY[pg_temp.id('e.1'), 42]);
SELECT count(*) AS dead FROM outbox_messages_dlq;
-- Also when the message has long left the log.
SELECT pg_temp.enqueue('gone.1');
SELECT pg_temp.id('gone.1') AS gone \gset
SELECT pg_temp.claim('c');
SELECT outbox_fail(pg_temp.token(), :gone, 'dead', dead => true);
DELETE FROM outbox_messages WHERE id = :gone;
SELECT place, status FROM outbox_find((SELECT tracking_id FROM outbox_messages_dlq));
SELECT outbox_redrive('c');
SELECT pg_temp.claim('c'), outbox_ack(pg_temp.token());
UPDATE _outbox.retries SET available_at = now();
SELECT pg_temp.claim('c'), outbox_ack(pg_temp.token());

-- A batch that keeps expiring is split; what kills its worker dies alone.
SELECT outbox_create_consumer('poison', max_attempts => 3);
SELECT pg_temp.enqueue('p.1', 'p.2', 'p.3', 'p.4', 'p.5');
SELECT pg_temp.claim('poison'), pg_temp.expire();
SELECT pg_temp.claim('poison'), pg_temp.expire();
DO $$
DECLARE
    got text;
BEGIN
    FOR round IN 1..40 LOOP
        got := pg_temp.claim('poison');
        EXIT WHEN got IS NULL;
        RAISE NOTICE '%', got;
        IF got LIKE '%p.3%' THEN
            PERFORM pg_temp.expire();
        ELSE
            PERFORM outbox_ack(pg_temp.token());
        END IF;
    END LOOP;
END $$;
SELECT * FROM pg_temp.where_is('poison');

-- Order: a failed message parks its aggregate, and only that.
SELECT outbox_create_consumer('o', ordered => true);
SELECT pg_temp.enqueue('a.1', 'b.1', 'a.2', 'b.2', 'a.3');
SELECT pg_temp.claim('o', 4);
SELECT pg_temp.claim('o', 4, 'second') IS NULL AS one_at_a_time;
SELECT pg_temp.fail('a.1');
\set VERBOSITY sqlstate
SELECT pg_temp.ack('a.2');
\set VERBOSITY default
SELECT outbox_ack(pg_temp.token());
SELECT * FROM pg_temp.where_is('o');
SELECT pg_temp.enqueue('a.4', 'b.3');
-- What comes back is the failed one with all that waits behind it, in order.
SELECT pg_temp.claim('o');
SELECT pg_temp.ack('a.1'), pg_temp.fail('a.2');
UPDATE _outbox.retries SET available_at = now() + interval '1 hour' WHERE event_type = 'a.2';
-- New messages of the aggregate wait too, those of others do not.
SELECT pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token());
SELECT event_type, available_at FROM outbox_retries JOIN outbox_consumers USING (consumer_id)
 WHERE name = 'o' AND available_at = 'infinity' ORDER BY id;
SELECT pg_temp.claim('o') IS NULL AS nothing;
UPDATE _outbox.retries SET available_at = now() WHERE event_type = 'a.2';
-- A batch that is too small for the whole chain takes its beginning.
SELECT pg_temp.claim('o', 1);
SELECT outbox_ack(pg_temp.token());
SELECT pg_temp.claim('o', 2);
SELECT pg_temp.expire(), pg_temp.claim('o', 2);
SELECT outbox_fail(pg_temp.token(), min(id), 'dead', dead => true) FROM claimed;
SELECT outbox_ack(pg_temp.token());
SELECT pg_temp.claim('o');
SELECT * FROM pg_temp.where_is('o');
-- Redriven, it comes alone: later ones have passed it, and do not wait for it.
SELECT outbox_redrive('o');
SELECT pg_temp.enqueue('a.5');
SELECT pg_temp.claim('o');
SELECT outbox_fail(pg_temp.token(), min(id), 'again') FROM claimed;
SELECT pg_temp.claim('o', 1);
SELECT outbox_ack(pg_temp.token());
SELECT pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token());

-- Two of one aggregate come back from the dead: neither waits for the other.
SELECT pg_temp.enqueue('r.1', 'r.2');
SELECT pg_temp.claim('o');
SELECT outbox_fail(pg_temp.token(), array_agg(id), 'dead', dead => true) FROM claimed;
SELECT outbox_redrive('o');
SELECT pg_temp.claim('o');
SELECT outbox_fail(pg_temp.token(), min(id), 'again'), outbox_ack(pg_temp.token(), ARRAY[max(id)]) FROM claimed;
SELECT pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token());

-- Two of one aggregate fail in one call.
SELECT pg_temp.enqueue('f.1', 'f.2', 'g.1', 'f.3');
SELECT pg_temp.claim('o');
SELECT pg_temp.fail('f.1', 'f.2');
SELECT event_type, attempts, available_at = 'infinity' AS parked FROM outbox_retries r JOIN outbox_consumers USING (consumer_id)
 WHERE name = 'o' ORDER BY id;
SELECT outbox_ack(pg_temp.token());
SELECT pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token());

-- A later one fails before an earlier one is settled: the earlier one still comes first.
SELECT pg_temp.enqueue('h.1', 'h.2', 'h.3');
SELECT pg_temp.claim('o');
SELECT pg_temp.fail('h.2');
SELECT pg_temp.expire(), pg_temp.claim('o');
SELECT pg_temp.fail('h.1'), pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token());
-- The same when a batch is cut, by a worker that wants less or because it has expired twice.
SELECT pg_temp.enqueue('i.1', 'j.1', 'i.2', 'i.3');
SELECT pg_temp.claim('o');
SELECT pg_temp.fail('i.3'), outbox_release(pg_temp.token());
SELECT pg_temp.claim('o', 1);
SELECT outbox_ack(pg_temp.token()), pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token()), pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token());
SELECT pg_temp.enqueue('l.1', 'l.2', 'l.3', 'l.4');
SELECT pg_temp.claim('o'), pg_temp.expire();
SELECT pg_temp.claim('o'), pg_temp.expire();
SELECT pg_temp.claim('o');
SELECT pg_temp.fail('l.1'), pg_temp.claim('o');
SELECT pg_temp.expire(), pg_temp.claim('o');
SELECT pg_temp.expire(), pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token()), pg_temp.claim('o');
SELECT outbox_ack(pg_temp.token()), pg_temp.claim('o');
SELECT count(*) AS retries FROM outbox_retries;

-- With partitions, each partition is in order by itself, and a dealt batch is looked at again when
-- its turn comes.
SELECT outbox_create_consumer('op', ordered => true, partitions => 3);
SELECT pg_temp.enqueue(VARIADIC ARRAY(SELECT format('k%s.%s', k, n) FROM generate_series(1, 4) n, generate_series(1, 6) k));
CREATE TABLE seen (nr serial, event_type text);
DO $$
DECLARE
    token  bigint;
    failed text[] := '{}';
    m      record;
BEGIN
    FOR round IN 1..200 LOOP
        DELETE FROM claimed WHERE worker = 'p';
        INSERT INTO claimed SELECT 'p', event_type, id, lock_token FROM outbox_claim('op', 2);
        SELECT max(lock_token) INTO token FROM claimed WHERE worker = 'p';
        EXIT WHEN token IS NULL;
        FOR m IN SELECT * FROM claimed WHERE worker = 'p' ORDER BY id LOOP
            IF m.event_type IN ('k1.2', 'k4.1') AND (SELECT count(*) FROM unnest(failed) f WHERE f = m.event_type) < 2 THEN
                failed := failed || m.event_type;
                PERFORM outbox_fail(token, m.id, 'once more');
                EXIT WHEN NOT EXISTS (SELECT FROM _outbox.leases WHERE _outbox.leases.token = m.lock_token AND acked_at IS NULL);
            ELSE
                BEGIN
                    PERFORM outbox_ack(token, ARRAY[m.id]);
                    INSERT INTO seen (event_type) VALUES (m.event_type);
                EXCEPTION WHEN SQLSTATE 'OB003' OR SQLSTATE 'OB001' THEN
                    NULL; -- it waits behind the failed one
                END;
            END IF;
        END LOOP;
    END LOOP;
END $$;
SELECT split_part(event_type, '.', 1) AS aggregate, string_agg(split_part(event_type, '.', 2), ' ' ORDER BY nr) AS in_order FROM seen GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM outbox_retries r JOIN outbox_consumers USING (consumer_id) WHERE name = 'op';

-- Order and partitions cannot change under way; a consumer with dead letters is not dropped by mistake.
SELECT pg_temp.enqueue('z.1');
SELECT pg_temp.claim('op');
SELECT outbox_alter_consumer('op', partitions => 5);
SELECT outbox_ack(pg_temp.token());
SELECT outbox_alter_consumer('op', partitions => 5, ordered => false);
SELECT ordered, partitions FROM outbox_consumers WHERE name = 'op';
SELECT outbox_drop_consumer('poison');
SELECT outbox_drop_consumer('poison', discard_dead_letters => true);
DROP TABLE claimed, seen;
SELECT outbox_drop_consumer(name, true) FROM outbox_consumers ORDER BY name;
SELECT count(*) AS retries FROM outbox_retries;
SELECT count(*) AS dead FROM outbox_messages_dlq;
