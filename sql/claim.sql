TRUNCATE outbox_messages;
-- Helpers: events named by their aggregate, and leases that run out at once.
CREATE FUNCTION pg_temp.enqueue(VARIADIC ids text[]) RETURNS bigint LANGUAGE sql AS
$$ SELECT count(outbox_enqueue('Order', i, 'OrderConfirmed', '{}'::jsonb)) FROM unnest(ids) i $$;
CREATE FUNCTION pg_temp.expire() RETURNS void LANGUAGE sql AS
$$ UPDATE _outbox.leases SET locked_until = clock_timestamp() - interval '1 ms'
    WHERE locked_until > clock_timestamp() AND acked_at IS NULL AND superseded_by IS NULL $$;
CREATE TABLE claimed (worker text, aggregate_id text, id bigint, attempts int, lock_token bigint, locked_until timestamptz);
CREATE FUNCTION pg_temp.claim(consumer text, batch_size int, worker text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM claimed c WHERE c.worker = claim.worker;
    RETURN QUERY WITH c AS (SELECT * FROM outbox_claim(consumer, batch_size, worker => worker)),
        kept AS (INSERT INTO claimed SELECT worker, c.aggregate_id, c.id, c.attempts, c.lock_token, c.locked_until FROM c)
        SELECT format('%s, attempt %s', c.aggregate_id, c.attempts) FROM c ORDER BY c.id;
END $$;
CREATE FUNCTION pg_temp.token(worker text) RETURNS bigint LANGUAGE sql AS
$$ SELECT DISTINCT lock_token FROM claimed c WHERE c.worker = token.worker $$;

-- A consumer gets what commits after its creation, unless it starts earlier.
SELECT pg_temp.enqueue('before');
SELECT outbox_create_consumer('new');
SELECT outbox_create_consumer('old', start_at => 'earliest');
SELECT pg_temp.enqueue('a', 'b', 'c', 'd', 'e');
SELECT aggregate_id, attempts FROM outbox_peek('new', 3);
SELECT pg_temp.claim('new', 3, 'w1');
SELECT count(*) > 5 AS old_too, bool_or(aggregate_id = 'before') AS before FROM outbox_claim('old', 1000);

-- Batches are disjoint, and an empty answer changes nothing.
SELECT pg_temp.claim('new', 3, 'w2');
SELECT pg_temp.claim('new', 3, 'w3');
SELECT max(token) AS newest FROM _outbox.batches \gset
SELECT pg_temp.claim('new', 3, 'w3');
SELECT max(token) = :newest AS nothing_written, pg_current_xact_id_if_assigned() IS NULL FROM _outbox.batches;
SELECT aggregate_id FROM outbox_peek('new');

-- What a delivery looks like from outside.
SELECT aggregate_id, status, attempts, worker, lock_token = pg_temp.token(worker) AS token,
       locked_until > clock_timestamp() + interval '20 s' AS locked, last_error
  FROM outbox_deliveries WHERE consumer_name = 'new' ORDER BY id DESC LIMIT 6;

-- Some of a batch, the rest of it; twice counts once.
SELECT outbox_ack(pg_temp.token('w1'), ARRAY(SELECT id FROM claimed WHERE aggregate_id IN ('b')));
SELECT outbox_ack(pg_temp.token('w1'), ARRAY(SELECT id FROM claimed WHERE aggregate_id IN ('a', 'b')));
SELECT aggregate_id, status FROM outbox_deliveries WHERE consumer_name = 'new' AND aggregate_id < 'd' ORDER BY id;
SELECT outbox_ack(pg_temp.token('w1'), '{}');
SELECT outbox_ack(pg_temp.token('w1'));
\set VERBOSITY sqlstate
SELECT outbox_ack(pg_temp.token('w1'));
SELECT outbox_ack(pg_temp.token('w2'), ARRAY(SELECT id FROM claimed WHERE aggregate_id = 'a'));
SELECT outbox_ack(42);
SELECT outbox_heartbeat(42), outbox_release(42);
SELECT outbox_fail(42, 1, 'error');
\set VERBOSITY default
-- last_processed_id is the id below which everything is settled.
SELECT o.last_processed_id = c.id - 1 AS up_to_d, o.partition_key, o.lag
  FROM consumer_offsets o, claimed c WHERE o.consumer_name = 'new' AND c.aggregate_id = 'd';
SELECT outbox_ack(pg_temp.token('w2'));
SELECT o.last_processed_id = c.id AS up_to_e, o.last_processed_at IS NOT NULL AS at
  FROM consumer_offsets o, claimed c WHERE o.consumer_name = 'new' AND c.aggregate_id = 'e';

-- A lease that has run out can still be used until another takes it over; then it is lost.
SELECT pg_temp.enqueue('f', 'g');
SELECT pg_temp.claim('new', 10, 'w1');
SELECT pg_temp.expire();
SELECT outbox_heartbeat(pg_temp.token('w1'), '1 hour') > now() + interval '59 min' AS longer;
SELECT outbox_heartbeat(pg_temp.token('w1')) > now() + interval '59 min' AS as_long_again;
SELECT pg_temp.claim('new', 10, 'w2');
SELECT pg_temp.expire();
SELECT pg_temp.claim('new', 10, 'w2');
SELECT pg_temp.token('w2') > pg_temp.token('w1') AS greater;
\set VERBOSITY sqlstate
SELECT outbox_ack(pg_temp.token('w1'));
SELECT outbox_heartbeat(pg_temp.token('w1'));
SELECT outbox_release(pg_temp.token('w1'));
SELECT outbox_fail(pg_temp.token('w1'), (SELECT min(id) FROM claimed WHERE worker = 'w1'), 'late');
\set VERBOSITY default

-- Handed back: no attempt is counted, and the token is gone.
SELECT outbox_release(pg_temp.token('w2'));
DO $$
BEGIN
    PERFORM outbox_ack(pg_temp.token('w2'));
EXCEPTION WHEN SQLSTATE 'OB001' THEN
    RAISE NOTICE '%', regexp_replace(SQLERRM, '\d+', 'N');
END $$;
SELECT pg_temp.claim('new', 1, 'w3');
SELECT pg_temp.claim('new', 10, 'w1');
SELECT outbox_ack(pg_temp.token('w3')), outbox_ack(pg_temp.token('w1'));
SELECT pg_temp.claim('new', 10, 'w1');

-- The newest row of a consumer is all that is needed of its past.
SELECT count(*) AS open FROM _outbox.leases l JOIN outbox_consumers USING (consumer_id)
 WHERE name = 'new' AND acked_at IS NULL AND superseded_by IS NULL;

-- A claim that is rolled back never was.
SELECT pg_temp.enqueue('h');
BEGIN;
SELECT pg_temp.claim('new', 10, 'w1');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT pg_temp.claim('new', 10, 'w1');
ROLLBACK TO s;
SELECT pg_temp.claim('new', 10, 'w1');
-- In one transaction: a second claim goes on behind the first, and may settle at once.
SELECT pg_temp.claim('new', 10, 'w2');
SELECT outbox_ack(pg_temp.token('w1'));
COMMIT;

-- Events of the claiming transaction itself come with the next claim, also when that is the same one.
BEGIN;
SELECT pg_temp.enqueue('i');
SELECT pg_temp.claim('new', 10, 'w1');
COMMIT;
SELECT pg_temp.claim('new', 10, 'w1');
SELECT outbox_ack(pg_temp.token('w1'));

-- Filters.
SELECT outbox_create_consumer('filtered', event_types => '{Wanted}', aggregate_types => '{Order,Item}', tenant_id => 7);
SELECT outbox_enqueue('Order', 'right', 'Wanted', '{}', tenant_id => 7) IS NOT NULL,
       outbox_enqueue('Item', 'right too', 'Wanted', '{}', tenant_id => 7) IS NOT NULL,
       outbox_enqueue('Order', 'tenant', 'Wanted', '{}', tenant_id => 8) IS NOT NULL,
       outbox_enqueue('Order', 'event', 'Unwanted', '{}', tenant_id => 7) IS NOT NULL,
       outbox_enqueue('User', 'aggregate', 'Wanted', '{}', tenant_id => 7) IS NOT NULL;
SELECT pg_temp.claim('filtered', 10, 'w1');
SELECT aggregate_id, status FROM outbox_deliveries WHERE consumer_name = 'filtered' ORDER BY id;
SELECT outbox_alter_consumer('filtered', event_types => '{}', aggregate_types => '{}');
SELECT event_types, aggregate_types, tenant_id FROM outbox_consumers WHERE name = 'filtered';
-- Who reads far without finding anything remembers how far.
SELECT outbox_alter_consumer('filtered', event_types => '{Never}');
SELECT count(*) AS rows FROM _outbox.batches JOIN outbox_consumers USING (consumer_id) WHERE name = 'filtered' \gset
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
SELECT 'Many', i, 'Unwanted', '{}' FROM generate_series(1, 1500) i;
SELECT pg_temp.claim('filtered', 10, 'w2');
SELECT count(*) - :rows AS cursor_rows FROM _outbox.batches JOIN outbox_consumers USING (consumer_id) WHERE name = 'filtered';
SELECT pg_temp.claim('filtered', 10, 'w2');
SELECT count(*) - :rows AS cursor_rows FROM _outbox.batches JOIN outbox_consumers USING (consumer_id) WHERE name = 'filtered';
SELECT lag FROM consumer_offsets WHERE consumer_name = 'filtered';

-- A page is dealt to the partitions; each claim takes one batch of it, cut if it wants less.
SELECT outbox_create_consumer('dealt', partitions => 4);
SELECT pg_temp.enqueue(VARIADIC ARRAY(SELECT lpad(i::text, 2, '0') FROM generate_series(1, 10) i));
SELECT count(*) <= 3 AS one_batch FROM pg_temp.claim('dealt', 3, 'w1');
SELECT count(*) <= 2 AS one_batch FROM pg_temp.claim('dealt', 2, 'w2');
SELECT count(*) = count(DISTINCT aggregate_id) AS disjoint FROM claimed WHERE worker IN ('w1', 'w2');
DO $$
DECLARE
    token bigint;
BEGIN
    PERFORM outbox_ack(lock_token) FROM (SELECT DISTINCT lock_token FROM claimed WHERE worker IN ('w1', 'w2')) t;
    LOOP
        SELECT max(lock_token) INTO token FROM outbox_claim('dealt', 3);
        EXIT WHEN token IS NULL;
        PERFORM outbox_ack(token);
    END LOOP;
END $$;
SELECT status, count(*) FROM outbox_deliveries WHERE consumer_name = 'dealt' AND aggregate_id <= '10' GROUP BY 1;
SELECT partition_key, lag FROM consumer_offsets WHERE consumer_name = 'dealt' ORDER BY 1;

-- A small batch is not dealt thinner than it is worth.
SELECT pg_temp.enqueue('x', 'y', 'z');
SELECT pg_temp.claim('dealt', 10, 'w1');
SELECT outbox_ack(pg_temp.token('w1'));

-- Paused: nothing is claimed, what is in hand can be settled.
SELECT pg_temp.enqueue('p', 'q');
SELECT pg_temp.claim('new', 2, 'w1') \g /dev/null
SELECT outbox_pause('new');
SELECT pg_temp.claim('new', 10, 'w2');
SELECT outbox_ack(pg_temp.token('w1'));
SELECT outbox_resume('new');
SELECT count(*) > 0 AS goes_on FROM pg_temp.claim('new', 2000, 'w2');
SELECT outbox_ack(pg_temp.token('w2')) > 0 AS ok;

-- Read and settled in the caller's transaction: with a rollback, neither has happened.
SELECT pg_temp.enqueue('r', 's');
BEGIN;
SELECT aggregate_id, attempts FROM outbox_consume('new', 1);
ROLLBACK;
BEGIN;
SELECT aggregate_id, attempts FROM outbox_consume('new', 1);
COMMIT;
SELECT aggregate_id FROM outbox_consume('new');
SELECT aggregate_id FROM outbox_consume('new');
SELECT aggregate_id, status FROM outbox_deliveries WHERE consumer_name = 'new' AND aggregate_id IN ('r', 's') ORDER BY id;

-- The inbox remembers what was accepted.
SELECT inbox_accept('mail', '00000000-0000-7000-8000-000000000002');
SELECT inbox_accept('mail', '00000000-0000-7000-8000-000000000002'), inbox_accept('sms', '00000000-0000-7000-8000-000000000002');
BEGIN;
SELECT inbox_accept('mail', '00000000-0000-7000-8000-000000000003');
ROLLBACK;
SELECT inbox_accept('mail', '00000000-0000-7000-8000-000000000003');

-- Everything can be found.
SELECT outbox_enqueue('Order', 'found', 'OrderConfirmed', '{}') AS found \gset
SELECT outbox_enqueue('Order', 'found', 'OrderShipped', '{}', available_at => now() + interval '1 day') AS later \gset
SELECT place, consumer_name, status, attempts FROM outbox_find(:'found');
SELECT place, consumer_name, status, available_at > now() AS waits FROM outbox_find(:'later');
SELECT * FROM outbox_find('00000000-0000-4000-8000-000000000000');
SELECT event_type, consumer_name, status FROM outbox_history('Order', 'found');
SELECT outbox_cancel(:'later');

DROP TABLE claimed;
SELECT outbox_drop_consumer(name) FROM outbox_consumers ORDER BY name;
SELECT count(*) AS batches FROM _outbox.batches;
SELECT count(*) AS leases FROM _outbox.leases;

-- An index of somebody else's, in another order, is not taken for ours: the cursor would go back.
CREATE INDEX in_another_order ON _outbox.batches (consumer_id, token DESC);
REINDEX INDEX CONCURRENTLY _outbox.batches_pkey;
SELECT outbox_create_consumer('reindexed');
SELECT count(outbox_enqueue('Order', i, 'Reindexed', '{}')) FROM generate_series(1, 3) i;
SELECT aggregate_id FROM outbox_consume('reindexed', 1);
SELECT aggregate_id FROM outbox_consume('reindexed', 1);
SELECT aggregate_id FROM outbox_consume('reindexed', 1);
DROP INDEX _outbox.in_another_order;
-- Where ours is gone, the error says what to do.
\set SHOW_CONTEXT never
BEGIN;
ALTER TABLE _outbox.batches DROP CONSTRAINT batches_pkey;
SELECT outbox_consume('reindexed', 1);
ROLLBACK;
SELECT outbox_drop_consumer('reindexed');

-- A peek shows what a claim gives: what has run out, and what was dealt to another partition.
CREATE FUNCTION pg_temp.claimed(consumer text) RETURNS TABLE (aggregate_id text, attempts int) LANGUAGE sql AS
$$ SELECT c.aggregate_id, c.attempts FROM outbox_claim(consumer) c $$;
SELECT outbox_create_consumer('peeks'), outbox_create_consumer('peeks too', ordered => true, partitions => 2);
SELECT pg_temp.enqueue('a', 'b', 'c', 'd', 'e', 'f');
SELECT count(*) FROM pg_temp.claimed('peeks');
SELECT * FROM outbox_peek('peeks');
SELECT pg_temp.expire();
CREATE TEMP TABLE peeked AS SELECT aggregate_id, attempts FROM outbox_peek('peeks');
SELECT *, peeked IS NOT DISTINCT FROM claimed AS same FROM peeked FULL JOIN pg_temp.claimed('peeks') USING (aggregate_id, attempts) ORDER BY 1;
SELECT count(*) BETWEEN 1 AND 5 AS one_partition FROM pg_temp.claimed('peeks too');
TRUNCATE peeked;
INSERT INTO peeked SELECT aggregate_id, attempts FROM outbox_peek('peeks too');
SELECT count(*) BETWEEN 1 AND 5 AS the_other, bool_and(peeked IS NOT DISTINCT FROM claimed) AS same
  FROM peeked FULL JOIN pg_temp.claimed('peeks too') USING (aggregate_id, attempts);
DROP TABLE peeked;

-- Triggers of somebody else's are fired, and batches are what they are without them.
CREATE FUNCTION pg_temp.notice() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE NOTICE '% of %', TG_OP, TG_TABLE_NAME; RETURN NEW; END $$;
CREATE TRIGGER noticed BEFORE INSERT OR UPDATE ON _outbox.batches FOR EACH ROW EXECUTE FUNCTION pg_temp.notice();
CREATE TRIGGER noticed BEFORE INSERT OR UPDATE ON _outbox.leases FOR EACH ROW EXECUTE FUNCTION pg_temp.notice();
SELECT pg_temp.enqueue('g');
SELECT aggregate_id, attempts, lock_token AS token FROM outbox_claim('peeks') \gset got_
SELECT :'got_aggregate_id' AS aggregate_id, :got_attempts AS attempts, outbox_ack(:got_token) AS acked;
SELECT count(*) FROM outbox_claim('peeks');
DROP TRIGGER noticed ON _outbox.batches;
DROP TRIGGER noticed ON _outbox.leases;
SELECT outbox_drop_consumer(name) FROM outbox_consumers ORDER BY name;

-- A partition of the log that is partitioned itself is neither read nor passed over.
SELECT outbox_create_consumer('nested');
SELECT pg_temp.enqueue('h');
BEGIN;
CREATE TABLE nested (LIKE outbox_messages INCLUDING ALL) PARTITION BY RANGE (occurred_at);
ALTER TABLE outbox_messages ATTACH PARTITION nested FOR VALUES FROM ('2001-01-01') TO ('2001-01-02');
SELECT count(*) FROM outbox_claim('nested');
ROLLBACK;
SELECT count(*) FROM outbox_consume('nested');
SELECT outbox_drop_consumer('nested');
-- One that somebody detaches concurrently, and has not finished with, is none of the log's.
BEGIN;
SELECT count(*) AS before FROM _outbox.partitions() \gset
UPDATE pg_inherits SET inhdetachpending = true
 WHERE inhrelid = (SELECT partition FROM _outbox.partitions() ORDER BY lower_bound NULLS LAST LIMIT 1);
SELECT :before - count(*) AS fewer FROM _outbox.partitions();
ROLLBACK;
