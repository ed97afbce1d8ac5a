-- Tenants take turns at a fair consumer.
\set VERBOSITY terse
SELECT outbox_create_consumer('fair', fair => true, aggregate_types => '{Fair}');
SELECT outbox_create_consumer('unfair', aggregate_types => '{Fair}');
CREATE TEMPORARY TABLE got (turn integer, consumer text, id bigint, tenant_id bigint, attempts integer);
CREATE TEMPORARY SEQUENCE turn;
CREATE FUNCTION pg_temp.produce(tenant bigint, count integer) RETURNS void LANGUAGE sql AS $$
    SELECT count(outbox_enqueue('Fair', i, 'OrderConfirmed', '{}', tenant_id => tenant)) FROM generate_series(1, count) i
$$;
-- Claims and acks; shows how many of which tenants.
CREATE FUNCTION pg_temp.serve(consumer text, count integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    this  integer := nextval('turn');
    token bigint;
BEGIN
    WITH claimed AS (SELECT * FROM outbox_claim(consumer, count)),
         kept AS (INSERT INTO got SELECT this, consumer, c.id, c.tenant_id, c.attempts FROM claimed c)
    SELECT max(lock_token) INTO token FROM claimed;
    IF token IS NOT NULL THEN
        PERFORM outbox_ack(token);
    END IF;
    RETURN (SELECT string_agg(format('%s of tenant %s', n, g.tenant_id), ', ' ORDER BY g.tenant_id)
              FROM (SELECT g.tenant_id, count(*) AS n FROM got g WHERE g.turn = this GROUP BY 1) g);
END $$;

-- A backlog of one tenant, and something of another behind it.
SELECT pg_temp.produce(1, 5000);
SELECT pg_temp.produce(2, 1);
SELECT pg_temp.serve('unfair', 100) AS unfair;
SELECT n, pg_temp.serve('fair', 100) AS fair FROM generate_series(1, 3) n;
-- Who comes anew is next.
SELECT pg_temp.produce(3, 250);
SELECT n, pg_temp.serve('fair', 100) AS fair FROM generate_series(1, 6) n;
-- Who has had a turn waits for those who have not, however often something of it comes.
SELECT pg_temp.produce(2, 1);
DO $$
DECLARE
    turns text[];
BEGIN
    FOR n IN 1..6 LOOP
        turns := turns || pg_temp.serve('fair', 100);
        PERFORM pg_temp.produce(2, 1);
        COMMIT;
    END LOOP;
    RAISE NOTICE '%', array_to_string(turns, '; ');
END $$;
-- Three that alternate.
SELECT count(outbox_enqueue('Fair', i, 'OrderConfirmed', '{}', tenant_id => 4 + i % 3)) FROM generate_series(1, 3000) i;
SELECT n, pg_temp.serve('fair', 300) AS fair FROM generate_series(1, 8) n;
-- Nothing is lost, and nothing comes twice.
DO $$ BEGIN WHILE pg_temp.serve('fair', 1000) IS NOT NULL LOOP END LOOP; END $$;
DO $$ BEGIN WHILE pg_temp.serve('unfair', 1000) IS NOT NULL LOOP END LOOP; END $$;
SELECT consumer, tenant_id, count(*), count(DISTINCT id) FROM got GROUP BY 1, 2 ORDER BY 1, 2;
SELECT bool_and(ordered) AS "in the order of the log within a tenant"
  FROM (SELECT id >= lag(id, 1, 0::bigint) OVER (PARTITION BY tenant_id ORDER BY turn, id) AS ordered FROM got WHERE consumer = 'fair') o;
SELECT consumer_name, last_processed_id = (SELECT max(id) FROM outbox_messages) AS at_the_end, lag FROM consumer_offsets WHERE consumer_name = 'fair';

-- Where something of each tenant comes between any two claims, no more is put aside than is served.
DO $$
BEGIN
    FOR n IN 1..60 LOOP
        PERFORM pg_temp.produce(7, 1), pg_temp.produce(8, 1), pg_temp.produce(9, 1);
        PERFORM pg_temp.serve('fair', 100);
        COMMIT;
    END LOOP;
END $$;
SELECT count(*) FILTER (WHERE l.locked_until IS NULL AND l.acked_at IS NULL AND l.superseded_by IS NULL) <= 3 AS "few wait" FROM _outbox.leases l JOIN outbox_consumers USING (consumer_id) WHERE name = 'fair';
SELECT n, pg_temp.serve('fair', 100) IS NOT NULL AS more FROM generate_series(1, 7) n;

-- Nor where one brings more than is served, however long: what waits for it is merged. What commits late goes where it belongs.
TRUNCATE got;
SELECT max(id) AS settled FROM outbox_messages \gset
BEGIN;
SELECT count(outbox_enqueue('Fair', i, 'OrderConfirmed', '{}', tenant_id => 7)) FROM generate_series(1, 5) i;
PREPARE TRANSACTION 'late';
DO $$
BEGIN
    FOR n IN 1..200 LOOP
        PERFORM pg_temp.produce(7, 15), pg_temp.produce(8, 1);
        PERFORM pg_temp.serve('fair', 10);
        COMMIT;
    END LOOP;
END $$;
COMMIT PREPARED 'late';
SELECT pg_temp.produce(7, 1);
SELECT n, pg_temp.serve('fair', 10) AS fair FROM generate_series(1, 4) n;
SELECT count(*) FILTER (WHERE l.locked_until IS NULL AND l.acked_at IS NULL AND l.superseded_by IS NULL) <= 10 AS "few wait" FROM _outbox.leases l JOIN outbox_consumers USING (consumer_id) WHERE name = 'fair';
SELECT lag FROM consumer_offsets WHERE consumer_name = 'fair';
SELECT occurred_at = (SELECT min(occurred_at) FROM outbox_messages m WHERE m.id > :settled AND NOT EXISTS (SELECT FROM got WHERE got.id = m.id)) AS "is the oldest"
  FROM _outbox.oldest_unsettled('fair');
DO $$ BEGIN WHILE pg_temp.serve('fair', 1000) IS NOT NULL LOOP END LOOP; END $$;
SELECT tenant_id, count(*), count(DISTINCT id), max(attempts) AS attempts FROM got GROUP BY 1 ORDER BY 1;
SELECT tenant_id, count(*) FILTER (WHERE NOT ordered) AS "out of order"
  FROM (SELECT tenant_id, id >= lag(id, 1, 0::bigint) OVER (PARTITION BY tenant_id ORDER BY turn, id) AS ordered FROM got) o GROUP BY 1 ORDER BY 1;
SELECT DISTINCT status, attempts FROM outbox_deliveries WHERE consumer_name = 'fair';
-- Of what somebody has in part the rest may be younger than what others wait for.
SELECT pg_temp.produce(11, 1);
SELECT pg_temp.produce(12, 1);
SELECT pg_temp.produce(11, 1);
SELECT max(lock_token) AS token, min(id) AS id, count(*) FROM outbox_claim('fair', 10) \gset
SELECT :count AS count, outbox_ack(:token, ARRAY[:id]);
SELECT occurred_at = (SELECT occurred_at FROM outbox_messages WHERE tenant_id = 12) AS "is the oldest" FROM _outbox.oldest_unsettled('fair');
SELECT outbox_ack(:token), pg_temp.serve('fair', 10) AS fair;

-- Failures, leases that run out, a claim that is rolled back, a pause.
SELECT pg_temp.produce(1, 10), pg_temp.produce(2, 10);
BEGIN;
SELECT count(*), min(tenant_id) FROM outbox_claim('fair', 5);
ROLLBACK;
SELECT max(lock_token) AS token, count(*), min(tenant_id) AS tenant FROM outbox_claim('fair', 5) \gset
SELECT :count AS count, :tenant AS tenant;
UPDATE _outbox.leases SET locked_until = now() - interval '1 s' WHERE token = :token;
SELECT pg_temp.serve('fair', 5) AS "taken over";
SELECT max(lock_token) AS token, min(id) AS id, min(tenant_id) AS tenant FROM outbox_claim('fair', 5) \gset
SELECT :tenant AS "the other one", outbox_fail(:token, :id, 'no'), outbox_ack(:token);
SELECT pg_temp.serve('fair', 5) AS "tried again";
SELECT outbox_pause('fair'), pg_temp.serve('fair', 5) AS paused;
SELECT outbox_resume('fair'), pg_temp.serve('fair', 5) AS fair, pg_temp.serve('fair', 5) AS fair, pg_temp.serve('fair', 5) AS fair;
SELECT count(*) FROM outbox_consume('fair', 5);
-- No longer fair: what waits is handed out all the same.
SELECT pg_temp.produce(1, 10), pg_temp.produce(2, 10);
SELECT pg_temp.serve('fair', 5) AS fair;
SELECT outbox_alter_consumer('fair', fair => false);
SELECT n, pg_temp.serve('fair', 7) AS "not fair" FROM generate_series(1, 5) n;
SELECT outbox_alter_consumer('fair', fair => true);
SELECT pg_temp.produce(2, 3);
SELECT pg_temp.serve('fair', 7) AS fair;
-- Moved back, it takes turns again.
SELECT outbox_seek('fair', 'earliest');
SELECT n, pg_temp.serve('fair', 2) AS fair FROM generate_series(1, 6) n;
-- Of turns the newest counts, and maintenance removes the others.
SELECT count(*) > 200 AS many FROM _outbox.tenant_turns;
CREATE TEMPORARY TABLE newest AS SELECT consumer_id, tenant_id, max(served) AS served FROM _outbox.tenant_turns GROUP BY 1, 2;
SELECT object, detail <> '0 removed' AS removed, changed, has_more FROM _outbox.step_prune() WHERE object = '_outbox.tenant_turns';
SELECT count(*) AS different FROM newest FULL JOIN _outbox.tenant_turns t USING (consumer_id, tenant_id, served) WHERE newest IS NULL OR t IS NULL;
-- However many tenants there are, a claim puts aside no more than consumers may have open.
SELECT outbox_create_consumer('many', fair => true, aggregate_types => '{Many}');
SELECT count(outbox_enqueue('Many', i, 'OrderConfirmed', '{}', tenant_id => i)) FROM generate_series(1, 5100) i;
SELECT count(*) FROM outbox_claim('many', 10);
SELECT count(*) AS open FROM _outbox.leases JOIN outbox_consumers USING (consumer_id) WHERE name = 'many';
SELECT lag FROM consumer_offsets WHERE consumer_name = 'many';
-- When there is hardly room for more, whoever comes is found all the same: here all but one have something waiting, and have had a turn.
SELECT outbox_ack(token) FROM _outbox.leases JOIN outbox_consumers USING (consumer_id) WHERE name = 'many' AND claimed_at IS NOT NULL;
INSERT INTO _outbox.tenant_turns SELECT consumer_id, l.tenant_id, token FROM _outbox.leases l JOIN outbox_consumers USING (consumer_id) WHERE name = 'many' AND locked_until IS NULL;
SELECT outbox_enqueue('Many', '1', 'OrderConfirmed', '{}', tenant_id => 9999) IS NOT NULL AS enqueued;
SELECT count(*) FROM outbox_claim('many', 10);
SELECT count(*) AS waiting FROM _outbox.leases l JOIN outbox_consumers USING (consumer_id) WHERE name = 'many' AND l.tenant_id = 9999;

-- What cannot be.
SELECT outbox_create_consumer('no', fair => true, ordered => true);
SELECT outbox_create_consumer('no', fair => true, partitions => 2);
SELECT outbox_alter_consumer('fair', ordered => true);
SELECT outbox_create_consumer('neither', fair => NULL);
SELECT fair FROM outbox_consumers WHERE name = 'neither';

SELECT outbox_drop_consumer(name) FROM unnest('{fair,unfair,many,neither}'::text[]) name;
SELECT count(*) FROM _outbox.tenant_turns;
