-- Whatever workers do, in whatever order: no message is in two live leases, none comes back once it
-- is settled, none is lost, and an ordered consumer never gets one before an earlier one of its
-- aggregate is settled. Random steps against a model of what must hold.
CREATE TABLE model (id bigint PRIMARY KEY, aggregate text, state text DEFAULT 'new', token bigint);

CREATE FUNCTION model_claim(consumer text, ordered boolean, batch_size integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    got bigint[];
    r   record;
BEGIN
    CREATE TEMP TABLE batch ON COMMIT DROP AS SELECT id, lock_token FROM outbox_claim(consumer, batch_size, '1 hour');
    -- What died on the way, because its worker vanished once too often.
    UPDATE model m SET state = 'dead' FROM outbox_messages_dlq d WHERE d.id = m.id AND m.state <> 'dead';
    got := ARRAY(SELECT id FROM batch);
    FOR r IN SELECT m.* FROM model m WHERE m.id = ANY (got) AND m.state NOT IN ('new', 'waiting') LOOP
        RAISE 'message % was handed out although it is %', r.id, r.state;
    END LOOP;
    FOR r IN SELECT m.id, e.id AS earlier, e.state FROM model m JOIN model e USING (aggregate)
              WHERE ordered AND m.id = ANY (got) AND e.id < m.id AND e.id <> ALL (got) AND e.state NOT IN ('acked', 'dead') LOOP
        RAISE 'message % was handed out before % of its aggregate, which is %', r.id, r.earlier, r.state;
    END LOOP;
    UPDATE model m SET state = 'live', token = b.lock_token FROM batch b WHERE b.id = m.id;
    DROP TABLE batch;
    RETURN cardinality(got) > 0;
END $$;

-- What a batch still has, and what has left it.
CREATE FUNCTION model_after_fail(failed_token bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE model m SET state = CASE WHEN EXISTS (SELECT FROM outbox_messages_dlq d WHERE d.id = m.id) THEN 'dead' ELSE 'waiting' END
      FROM _outbox.leases l JOIN _outbox.batches b USING (token)
     WHERE l.token = failed_token AND m.token = failed_token AND m.state = 'live'
       AND (l.acked_at IS NOT NULL OR NOT coalesce(l.remaining, b.ids) @> m.id) $$;

CREATE FUNCTION model_step(consumer text, ordered boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    dice   float := random();
    held   bigint := (SELECT m.token FROM model m WHERE state = 'live' ORDER BY random() LIMIT 1);
    chosen bigint[];
BEGIN
    IF dice < 0.2 THEN
        PERFORM outbox_enqueue('Model', chr(65 + floor(random() * 4)::int), 'E', '{}'::jsonb) FROM generate_series(1, 1 + floor(random() * 4)::int);
        INSERT INTO model (id, aggregate) SELECT m.id, m.aggregate_id FROM outbox_messages m WHERE m.aggregate_type = 'Model' ON CONFLICT DO NOTHING;
    ELSIF dice < 0.55 OR held IS NULL THEN
        PERFORM model_claim(consumer, ordered, (ARRAY[1, 2, 3, 5, 10])[1 + floor(random() * 5)::int]);
    ELSIF dice < 0.63 THEN
        PERFORM outbox_ack(held);
        UPDATE model m SET state = 'acked' WHERE m.token = held AND state = 'live';
    ELSIF dice < 0.70 THEN
        -- Some of it; in order, from its beginning.
        chosen := ARRAY(SELECT id FROM model m WHERE m.token = held AND state = 'live'
                         ORDER BY CASE WHEN ordered THEN id ELSE random() * 1000 END LIMIT 2);
        IF outbox_ack(held, chosen) <> cardinality(chosen) THEN
            RAISE 'ack of % did not count all', chosen;
        END IF;
        UPDATE model m SET state = 'acked' WHERE m.id = ANY (chosen);
    ELSIF dice < 0.86 THEN
        chosen := ARRAY(SELECT id FROM model m WHERE m.token = held AND state = 'live' ORDER BY random() LIMIT 2);
        PERFORM outbox_fail(held, chosen, 'broken', (ARRAY[NULL, '0', '0', '1 hour'])[1 + floor(random() * 4)::int]::interval, random() < 0.1);
        PERFORM model_after_fail(held);
    ELSIF dice < 0.93 THEN
        PERFORM outbox_release(held);
        UPDATE model m SET state = 'waiting' WHERE m.token = held AND state = 'live';
    ELSE
        UPDATE _outbox.leases l SET locked_until = now() - interval '1 s' WHERE l.token = held;
        UPDATE model m SET state = 'waiting' WHERE m.token = held AND state = 'live';
    END IF;
END $$;

CREATE PROCEDURE run_model(seed float, ordered boolean, partitions integer, steps integer) LANGUAGE plpgsql AS $$
DECLARE
    quiet integer := 0;
BEGIN
    TRUNCATE model;
    PERFORM outbox_create_consumer('model', aggregate_types => '{Model}', ordered => ordered, partitions => partitions, max_attempts => 6);
    COMMIT;
    DELETE FROM outbox_messages WHERE aggregate_type = 'Model';
    COMMIT;
    PERFORM setseed(seed);
    FOR step IN 1..steps LOOP
        BEGIN
            PERFORM model_step('model', ordered);
        EXCEPTION WHEN raise_exception THEN
            RAISE EXCEPTION 'seed %, step %: %', seed, step, SQLERRM;
        END;
        COMMIT;
    END LOOP;
    -- In the end everything is due, and somebody does it all.
    WHILE quiet < 12 LOOP
        UPDATE _outbox.retries SET available_at = now() WHERE available_at <> 'infinity';
        UPDATE _outbox.leases SET locked_until = now() - interval '1 s' WHERE locked_until > now() AND acked_at IS NULL AND superseded_by IS NULL;
        UPDATE model SET state = 'waiting' WHERE state = 'live';
        COMMIT;
        IF model_claim('model', ordered, 5) THEN
            PERFORM outbox_ack(token) FROM (SELECT DISTINCT token FROM model WHERE state = 'live') t;
            UPDATE model SET state = 'acked' WHERE state = 'live';
            quiet := 0;
        ELSE
            quiet := quiet + 1;
        END IF;
        COMMIT;
    END LOOP;
    IF EXISTS (SELECT FROM model WHERE state NOT IN ('acked', 'dead')) OR EXISTS (SELECT FROM outbox_retries) THEN
        RAISE EXCEPTION 'seed %: not everything was settled: %', seed, (SELECT string_agg(m::text, ' ') FROM model m WHERE state NOT IN ('acked', 'dead'));
    END IF;
    PERFORM outbox_drop_consumer('model', true);
    COMMIT;
END $$;

DO $$
BEGIN
    FOR n IN 1..3 LOOP
        CALL run_model(n / 100.0, true, 1, 150);
        CALL run_model(n / 100.0, true, 3, 150);
        CALL run_model(n / 100.0, false, 1, 150);
        CALL run_model(n / 100.0, false, 3, 150);
    END LOOP;
END $$;
SELECT count(*) > 0 AS something_happened, bool_and(state IN ('acked', 'dead')) AS all_settled FROM model;

DROP TABLE model;
DROP PROCEDURE run_model(float, boolean, integer, integer);
DROP FUNCTION model_claim(text, boolean, integer), model_after_fail(bigint), model_step(text, boolean);
