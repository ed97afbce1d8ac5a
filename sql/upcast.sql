-- Upcasters: claims hand out the version that is asked for, the tables keep what was written.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA shop;
CREATE FUNCTION shop.up1(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT $1 || '{"currency": "EUR"}' $$;
CREATE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p - 'amount' || jsonb_build_object('cents', (p ->> 'amount')::numeric * 100);
END $$;

-- What cannot be an upcaster
CREATE FUNCTION shop.text_up(text) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1::jsonb $$;
CREATE FUNCTION shop.two(jsonb, jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION shop.to_text(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT $1::text $$;
CREATE FUNCTION shop.many(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE PROCEDURE shop.proc(jsonb) LANGUAGE sql AS $$ SELECT $1 $$;
CREATE AGGREGATE shop.agg(jsonb) (sfunc = jsonb_concat, stype = jsonb);
CREATE FUNCTION shop.win(jsonb) RETURNS jsonb LANGUAGE internal WINDOW AS 'window_first_value';
CREATE FUNCTION pg_temp.gone(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
DO $$
DECLARE
    call  text;
    state text;
    said  text;
    hint  text;
BEGIN
    FOREACH call IN ARRAY ARRAY[
        $q$ outbox_register_upcaster('T', 1, 'shop.text_up(text)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.two(jsonb, jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.to_text(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.many(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.proc(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.agg(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.win(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'pg_temp.gone(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 'shop.nowhere(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, 1::oid::regprocedure) $q$,
        $q$ outbox_register_upcaster('T', 0, 'shop.up1(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 32767, 'shop.up1(jsonb)') $q$,
        $q$ outbox_register_upcaster('', 1, 'shop.up1(jsonb)') $q$,
        $q$ outbox_register_upcaster(repeat('x', 256), 1, 'shop.up1(jsonb)') $q$,
        $q$ outbox_register_upcaster(NULL, 1, 'shop.up1(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', NULL, 'shop.up1(jsonb)') $q$,
        $q$ outbox_register_upcaster('T', 1, NULL) $q$,
        $q$ outbox_unregister_upcaster('T', 1) $q$,
        $q$ outbox_unregister_upcaster(NULL, 1) $q$,
        $q$ outbox_unregister_upcaster('T', NULL) $q$]
    LOOP
        BEGIN
            EXECUTE 'SELECT' || call;
            RAISE EXCEPTION 'it was accepted: %', call;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, said = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
            said := regexp_replace(said, 'pg_temp_[0-9]+', 'pg_temp');
            RAISE INFO '%: % (%)', state, said, hint;
        END;
    END LOOP;
END $$;
SELECT count(*) FROM _outbox.upcasters;

SET outbox.tenant_id = 7;
SELECT outbox_register_upcaster('T', 1, 'shop.up1(jsonb)');
SELECT outbox_unregister_upcaster('T', 1);
RESET outbox.tenant_id;

-- None registered: everything as it was written
SELECT outbox_create_consumer('c', start_at => 'latest');
SELECT outbox_create_consumer('v2', start_at => 'latest', payload_versions => '{"OrderConfirmed": 2, "Other": "stored"}');
SELECT outbox_create_consumer('stored', start_at => 'latest', payload_versions => '{"OrderConfirmed": "stored"}');
SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{"amount": 12.5}', event_version => 1) IS NOT NULL AS enqueued;
SELECT event_type, event_version, payload FROM outbox_peek('c');

-- A chain of two
SELECT outbox_register_upcaster('OrderConfirmed', 1, 'shop.up1(jsonb)');
SELECT event_type, event_version, payload FROM outbox_peek('c');
SELECT outbox_register_upcaster('OrderConfirmed', 2, 'shop.up2(jsonb)');
SELECT event_type, event_version, payload FROM outbox_peek('c');
SELECT outbox_register_upcaster('OrderConfirmed', 2, 'shop.up1(jsonb)');
SELECT event_type, from_version, function_schema, function_name, registered_by = current_user AS mine FROM _outbox.upcasters ORDER BY 1, 2;
-- A registration that is rolled back leaves nothing behind
BEGIN;
SELECT outbox_register_upcaster('OrderConfirmed', 3, 'shop.up1(jsonb)');
SELECT event_version FROM outbox_peek('c');
ROLLBACK;
SELECT event_version FROM outbox_peek('c');
BEGIN;
SAVEPOINT s;
SELECT outbox_unregister_upcaster('OrderConfirmed', 1);
SELECT event_version FROM outbox_peek('c');
ROLLBACK TO s;
SELECT event_version FROM outbox_peek('c');
COMMIT;

SELECT outbox_enqueue('Order', '2', 'OrderConfirmed', '{"amount": 3}', event_version => 2) IS NOT NULL AS enqueued;
SELECT outbox_enqueue('Order', '3', 'OrderConfirmed', '{"cents": 4}', event_version => 3) IS NOT NULL AS enqueued;
SELECT outbox_enqueue('Order', '4', 'OrderConfirmed', '{"cents": 5}', event_version => 4) IS NOT NULL AS enqueued;
SELECT outbox_enqueue('Order', '5', 'OrderShipped', '{"amount": 3}', event_version => 1) IS NOT NULL AS enqueued;
SELECT aggregate_id, event_version, payload FROM outbox_consume('c') ORDER BY id;
SELECT aggregate_id, event_version, payload FROM outbox_claim('v2') ORDER BY id;
SELECT aggregate_id, event_version, payload FROM outbox_consume('stored') ORDER BY id;
SELECT aggregate_id, event_version, payload FROM outbox_messages
 WHERE occurred_at > (SELECT created_at FROM outbox_consumers WHERE name = 'c') ORDER BY id;

-- Versions that nobody can ask for
SELECT outbox_create_consumer('no', payload_versions => '[1]');
SELECT outbox_create_consumer('no', payload_versions => '{"OrderConfirmed": 0}');
SELECT outbox_create_consumer('no', payload_versions => '{"OrderConfirmed": 32768}');
SELECT outbox_create_consumer('no', payload_versions => '{"OrderConfirmed": 1.5}');
SELECT outbox_create_consumer('no', payload_versions => '{"OrderConfirmed": "2"}');
SELECT outbox_create_consumer('no', payload_versions => '{"OrderConfirmed": null}');
SELECT outbox_create_consumer('no', payload_versions => '{"OrderConfirmed": 4}');
SELECT outbox_alter_consumer('c', payload_versions => '{"OrderConfirmed": 4}');
SELECT name, payload_versions FROM outbox_consumers ORDER BY name;
SELECT outbox_alter_consumer('v2', payload_versions => '{"OrderConfirmed": 3}');
SELECT outbox_alter_consumer('v2', max_attempts => 9);
SELECT payload_versions FROM outbox_consumers WHERE name = 'v2';
SELECT outbox_alter_consumer('v2', payload_versions => '{}');
SELECT payload_versions FROM outbox_consumers WHERE name = 'v2';

-- A failing upcaster is the message's own failure
SELECT outbox_create_consumer('f', start_at => 'latest', max_attempts => 5);
SELECT outbox_alter_consumer('f', immediate_retries => 0, backoff_base => '1 hour', backoff_jitter => 0);
SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{"amount": 1}') IS NOT NULL AS a,
       outbox_enqueue('Order', '2', 'OrderConfirmed', '{"amount": "much"}') IS NOT NULL AS b,
       outbox_enqueue('Order', '2', 'OrderConfirmed', '{"amount": 2}') IS NOT NULL AS c,
       outbox_enqueue('Order', '3', 'OrderShipped', '{}') IS NOT NULL AS d;
SELECT aggregate_id, event_version, payload FROM outbox_peek('f') ORDER BY id;
SELECT aggregate_id, event_version, payload, attempts FROM outbox_claim('f') ORDER BY id;
SELECT aggregate_id, event_version, payload, attempts, last_error, available_at > now() + interval '10 min' AS later FROM outbox_retries;
SELECT status, count(*) FROM outbox_deliveries WHERE consumer_name = 'f' AND status <> 'COMPLETED' GROUP BY 1 ORDER BY 1;
-- The rest is settled by its token; what failed is not part of it
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'f';
-- A mended function works on what has failed
CREATE OR REPLACE FUNCTION shop.up2(p jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN p - 'amount' || jsonb_build_object('cents', CASE WHEN p ->> 'amount' ~ '^[0-9.]+$' THEN (p ->> 'amount')::numeric * 100 END);
END $$;
UPDATE _outbox.retries SET available_at = now();
SELECT aggregate_id, event_version, payload, attempts FROM outbox_claim('f') ORDER BY id;
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'f';

-- All of a batch fail, until they are dead; a redriven one is handed out once the function is mended
CREATE FUNCTION shop.null_up(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT NULL::jsonb $$;
SELECT outbox_register_upcaster('Nulled', 1, 'shop.null_up(jsonb)');
SELECT outbox_alter_consumer('f', max_attempts => 2, backoff_base => '0');
SELECT count(outbox_enqueue('Order', i::text, 'Nulled', '{"n": 1}')) FROM generate_series(1, 5) i;
SELECT count(outbox_enqueue('Order', i::text, 'OrderShipped', '{"n": 1}')) FROM generate_series(1, 3) i;
SELECT aggregate_id, event_type, attempts FROM outbox_claim('f', 5) ORDER BY id;
SELECT aggregate_id, event_version, payload, attempts, last_error FROM outbox_messages_dlq ORDER BY id;
CREATE OR REPLACE FUNCTION shop.null_up(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT '{"n": 2}'::jsonb $$;
SELECT outbox_redrive('f');
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'f';
SELECT aggregate_id, event_version, payload FROM outbox_claim('f', 10) ORDER BY id;
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'f';

-- Order: what comes later of an aggregate waits behind the one that failed
CREATE FUNCTION shop.picky(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF p ? 'bad' THEN
        RAISE EXCEPTION 'no such thing as %', p ->> 'bad' USING ERRCODE = '57014';
    END IF;
    RETURN p || '{"up": true}';
END $$;
SELECT outbox_register_upcaster('Picked', 1, 'shop.picky(jsonb)');
SELECT outbox_create_consumer('o', ordered => true, start_at => 'latest', max_attempts => 2);
SELECT outbox_alter_consumer('o', immediate_retries => 0, backoff_base => '1 hour');
SELECT outbox_enqueue('A', '1', 'Picked', '{"n": 1}') IS NOT NULL AS a, outbox_enqueue('A', '1', 'Picked', '{"n": 2, "bad": "x"}') IS NOT NULL AS b,
       outbox_enqueue('A', '2', 'Picked', '{"n": 3}') IS NOT NULL AS c, outbox_enqueue('A', '1', 'Picked', '{"n": 4}') IS NOT NULL AS d,
       outbox_enqueue('A', '1', 'Plain', '{"n": 5}') IS NOT NULL AS e;
SELECT aggregate_id, payload FROM outbox_claim('o') ORDER BY id;
SELECT aggregate_id, payload, attempts, last_error, available_at = 'infinity' AS parked FROM outbox_retries ORDER BY id;
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'o';
SELECT outbox_enqueue('A', '1', 'Plain', '{"n": 6}') IS NOT NULL AS f, outbox_enqueue('A', '2', 'Plain', '{"n": 7}') IS NOT NULL AS g;
SELECT aggregate_id, payload FROM outbox_claim('o') ORDER BY id;
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'o';
-- Its last attempt: it dies, and the others have their turn at once, in order
UPDATE _outbox.retries SET available_at = now() WHERE available_at <> 'infinity';
SELECT aggregate_id, payload FROM outbox_claim('o');
SELECT payload, last_error FROM outbox_messages_dlq d JOIN outbox_consumers USING (consumer_id) WHERE name = 'o';
SELECT outbox_ack(max(b.token)) FROM _outbox.batches b JOIN outbox_consumers USING (consumer_id) WHERE name = 'o';
SELECT count(*) FROM outbox_retries;

-- outbox_consume: what failed waits, the rest is settled, all or nothing of it
SELECT outbox_create_consumer('x', start_at => 'latest', event_types => '{Picked}');
SELECT outbox_alter_consumer('x', immediate_retries => 0, backoff_base => '1 hour');
SELECT outbox_enqueue('A', '1', 'Picked', '{"n": 1}') IS NOT NULL AS a, outbox_enqueue('A', '1', 'Picked', '{"n": 2, "bad": "y"}') IS NOT NULL AS b;
BEGIN;
SELECT payload FROM outbox_consume('x');
ROLLBACK;
SELECT count(*) FROM outbox_retries;
SELECT payload FROM outbox_consume('x');
SELECT payload FROM outbox_consume('x');
SELECT payload, attempts, last_error FROM outbox_retries;
UPDATE _outbox.retries SET available_at = now(), payload = payload - 'bad';
SELECT payload, attempts FROM outbox_consume('x');
SELECT count(*) FROM outbox_retries;

-- Missing things are named
SELECT outbox_alter_consumer('x', payload_versions => '{"Picked": 2}');
CREATE FUNCTION shop."Odd name"(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
SELECT outbox_unregister_upcaster('Picked', 1);
SELECT outbox_enqueue('A', '1', 'Picked', '{"n": 1}') IS NOT NULL AS a;
SELECT payload FROM outbox_consume('x');
SELECT last_error FROM outbox_retries;
SELECT outbox_register_upcaster('Picked', 1, 'shop."Odd name"(jsonb)');
DROP FUNCTION shop."Odd name"(jsonb);
UPDATE _outbox.retries SET available_at = now();
SELECT payload FROM outbox_consume('x');
SELECT last_error FROM outbox_retries;
CREATE PROCEDURE shop."Odd name"(jsonb) LANGUAGE sql AS $$ SELECT $1 $$;
UPDATE _outbox.retries SET available_at = now();
SELECT payload FROM outbox_consume('x');
SELECT last_error FROM outbox_retries;
DROP PROCEDURE shop."Odd name"(jsonb);
CREATE FUNCTION shop."Odd name"(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
UPDATE _outbox.retries SET available_at = now();
SELECT payload, event_version, attempts FROM outbox_consume('x');

-- Who it runs as: the weaker of the two who are responsible
CREATE ROLE regress_admin;
CREATE ROLE regress_peer;
SELECT outbox_grant('regress_admin', 'admin'), outbox_grant('regress_admin', 'consumer');
CREATE TABLE shop.secret AS SELECT 'hidden' AS word;
GRANT USAGE, CREATE ON SCHEMA shop TO regress_admin, regress_peer;
SELECT outbox_unregister_upcaster('Picked', 1);
CREATE FUNCTION shop.who(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    said text;
BEGIN
    p := p || jsonb_build_object('as', current_user, 'path', current_setting('search_path'));
    BEGIN
        EXECUTE p ->> 'do';
        said := 'done';
    EXCEPTION WHEN OTHERS THEN
        said := SQLERRM;
    END;
    RETURN p || jsonb_build_object('said', said);
END $$;
REVOKE EXECUTE ON FUNCTION shop.who(jsonb) FROM PUBLIC;
SET ROLE regress_admin;
SELECT outbox_register_upcaster('Picked', 1, 'shop.who(jsonb)');
RESET ROLE;
ALTER FUNCTION shop.who(jsonb) OWNER TO regress_peer;
GRANT EXECUTE ON FUNCTION shop.who(jsonb) TO regress_admin;
SET ROLE regress_admin;
SELECT outbox_register_upcaster('Picked', 1, 'shop.who(jsonb)');
RESET ROLE;
ALTER FUNCTION shop.who(jsonb) OWNER TO regress_admin;
SET ROLE regress_admin;
SELECT outbox_register_upcaster('Picked', 1, 'shop.who(jsonb)');
RESET ROLE;
SELECT count(outbox_enqueue('A', '1', 'Picked', jsonb_build_object('do', d))) FROM unnest(ARRAY[
    'SELECT word FROM shop.secret',
    'SET ROLE postgres',
    'SET SESSION AUTHORIZATION postgres',
    'CREATE TABLE shop.mine ()',
    'CREATE TEMP TABLE mine ()',
    'CREATE FUNCTION shop.f() RETURNS int LANGUAGE sql AS ''SELECT 1''',
    'SET transaction_read_only = off',
    'SELECT nextval(''_outbox.token_seq'')',
    'DELETE FROM _outbox.consumers',
    'SELECT public.outbox_drop_consumer(''x'')',
    'SELECT public.outbox_peek(''x'')',
    'SELECT public.outbox_register_upcaster(''T'', 1, ''shop.up1(jsonb)'')',
    'SET search_path = shop',
    'SELECT pg_notify(''a'', ''b'')']) d;
LISTEN a;
SELECT payload ->> 'as' AS as, payload ->> 'path' AS path, payload ->> 'do' AS "do", payload ->> 'said' AS said FROM outbox_consume('x') ORDER BY id;
SHOW search_path;
SHOW transaction_read_only;
SELECT current_user = session_user AS same;
-- Registered by a superuser, owned by somebody else: it runs as that one
SELECT outbox_unregister_upcaster('Picked', 1);
SELECT outbox_register_upcaster('Picked', 1, 'shop.who(jsonb)');
SELECT outbox_enqueue('A', '1', 'Picked', '{"do": "SELECT word FROM shop.secret"}') IS NOT NULL AS a;
SELECT payload ->> 'as' AS as, payload ->> 'said' AS said FROM outbox_consume('x');
-- EXECUTE is asked for when it runs; so is the role
SELECT outbox_unregister_upcaster('Picked', 1);
ALTER FUNCTION shop.who(jsonb) OWNER TO CURRENT_USER;
GRANT EXECUTE ON FUNCTION shop.who(jsonb) TO regress_admin;
SET ROLE regress_admin;
SELECT outbox_register_upcaster('Picked', 1, 'shop.who(jsonb)');
RESET ROLE;
SELECT outbox_enqueue('A', '1', 'Picked', '{"do": "SELECT word FROM shop.secret"}') IS NOT NULL AS a;
SELECT payload ->> 'as' AS as, payload ->> 'said' AS said FROM outbox_peek('x');
REVOKE EXECUTE ON FUNCTION shop.who(jsonb) FROM regress_admin;
SELECT payload FROM outbox_consume('x');
SELECT last_error FROM outbox_retries;
GRANT EXECUTE ON FUNCTION shop.who(jsonb) TO regress_admin;
ALTER ROLE regress_admin RENAME TO regress_boss;
UPDATE _outbox.retries SET available_at = now();
SELECT payload FROM outbox_consume('x');
SELECT last_error FROM outbox_retries;
ALTER ROLE regress_boss RENAME TO regress_admin;
UPDATE _outbox.retries SET available_at = now();
SELECT payload ->> 'as' AS as, payload ->> 'said' AS said, attempts FROM outbox_consume('x');

-- One that loops is stopped; what it had no time for waits, and that is no attempt
CREATE FUNCTION shop.slow(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF p ? 'sleep' THEN
        PERFORM pg_sleep(1000);
    END IF;
    WHILE p ? 'loop' LOOP
    END LOOP;
    RETURN p;
END $$;
SELECT outbox_unregister_upcaster('Picked', 1);
SELECT outbox_register_upcaster('Picked', 1, 'shop.slow(jsonb)');
SELECT outbox_enqueue('A', '1', 'Picked', '{"loop": true}') IS NOT NULL AS a, outbox_enqueue('A', '2', 'Picked', '{"n": 2}') IS NOT NULL AS b;
SET outbox.upcaster_timeout = '500ms';
SELECT payload FROM outbox_consume('x');
SELECT payload, attempts, last_error FROM outbox_retries ORDER BY id;
SELECT payload, attempts FROM outbox_consume('x');
-- The caller's own limit ends the claim, and nothing has happened
SET outbox.upcaster_timeout = '1h';
SELECT outbox_enqueue('A', '1', 'Picked', '{"sleep": true}') IS NOT NULL AS a;
SET statement_timeout = '50ms';
SELECT payload FROM outbox_consume('x');
SELECT payload FROM outbox_peek('x');
RESET statement_timeout;
SELECT payload, attempts FROM outbox_retries ORDER BY id;
RESET outbox.upcaster_timeout;

-- More than are upcast at once, large ones among them, by functions of two roles; some fail
CREATE FUNCTION shop.seven(p jsonb) RETURNS jsonb LANGUAGE sql STRICT SET search_path = pg_catalog
AS $$ SELECT p || jsonb_build_object('rest', 1 / ((p ->> 'n')::int % 7), 'as', current_user) $$;
CREATE FUNCTION shop.mine(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p || jsonb_build_object('size', length(p ->> 'text'), 'then', current_user = 'regress_admin') $$;
SELECT outbox_register_upcaster('Many', 1, 'shop.mine(jsonb)');
GRANT EXECUTE ON FUNCTION shop.seven(jsonb) TO regress_admin;
SET ROLE regress_admin;
SELECT outbox_register_upcaster('Many', 2, 'shop.seven(jsonb)');
RESET ROLE;
SELECT outbox_register_upcaster('Many', 3, 'shop.mine(jsonb)');
SELECT outbox_create_consumer(name, event_types => '{Many, Few}', ordered => ordered, partitions => partitions, fair => name = 'fair', start_at => 'latest')
  FROM (VALUES ('plain', false, 1), ('ordered', true, 1), ('dealt', false, 3), ('ordered and dealt', true, 3), ('fair', false, 1)) c (name, ordered, partitions);
SELECT outbox_alter_consumer(name, immediate_retries => 0, backoff_base => '1 hour') FROM outbox_consumers WHERE event_types = '{Many, Few}';
SELECT count(outbox_enqueue('A', (i % 50)::text, CASE WHEN i % 10 = 0 THEN 'Few' ELSE 'Many' END,
                            jsonb_build_object('n', i, 'text', repeat(md5(i::text), CASE WHEN i % 100 = 1 THEN 3000 ELSE 1 END))))
  FROM generate_series(1, 600) i;
CREATE TABLE claimed (consumer text, id bigint, aggregate_id text, event_type text, event_version int, payload jsonb, lock_token bigint);
CREATE FUNCTION pg_temp.claim_all(consumer text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    token bigint;
BEGIN
    LOOP
        WITH c AS (SELECT * FROM outbox_claim(consumer, 400)),
             kept AS (INSERT INTO claimed SELECT consumer, c.id, c.aggregate_id, c.event_type, c.event_version, c.payload, c.lock_token FROM c)
        SELECT max(lock_token) INTO token FROM c;
        EXIT WHEN token IS NULL;
        PERFORM outbox_ack(token);
    END LOOP;
END $$;
SELECT pg_temp.claim_all(name) FROM outbox_consumers WHERE event_types = '{Many, Few}';
-- Without order all but those divisible by 7; with order also not what came behind them
SELECT consumer, event_type, event_version, count(*), count(*) FILTER (WHERE payload ? 'size' AND payload ->> 'size' = length(payload ->> 'text')::text) AS whole,
       min(payload ->> 'as') AS as, bool_or((payload ->> 'then')::boolean) AS as_then,
       count(*) FILTER (WHERE event_type = 'Many' AND (payload ->> 'n')::int % 7 = 0) AS wrong
  FROM claimed GROUP BY 1, 2, 3 ORDER BY 1, 2;
SELECT name, count(*), count(*) FILTER (WHERE attempts = 1 AND last_error = 'upcaster shop.seven(jsonb) of Many 2: division by zero') AS failed,
       count(*) FILTER (WHERE attempts = 0 AND available_at = 'infinity') AS parked, bool_and(event_version = 1 AND NOT payload ? 'size') AS as_written
  FROM outbox_retries JOIN outbox_consumers USING (consumer_id) WHERE event_types = '{Many, Few}' GROUP BY 1 ORDER BY 1;
WITH expected AS (
    SELECT i, i % 10 <> 0 AND i % 7 = 0 AS fails,
           EXISTS (SELECT FROM generate_series(1, i - 1) j WHERE j % 50 = i % 50 AND j % 10 <> 0 AND j % 7 = 0) AS waits
      FROM generate_series(1, 600) i)
SELECT count(*) FILTER (WHERE NOT fails) AS without_order, count(*) FILTER (WHERE NOT fails AND NOT waits) AS with_order,
       count(*) FILTER (WHERE fails) AS fail FROM expected;
SELECT count(*) AS disorder FROM (
    SELECT id, lag(id) OVER (PARTITION BY consumer, aggregate_id ORDER BY lock_token, id) AS before FROM claimed WHERE consumer LIKE 'ordered%') o
 WHERE id < before;
-- A mended function lets everything through, in order
CREATE OR REPLACE FUNCTION shop.seven(p jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT p || '{"as": "mended"}' $$;
UPDATE _outbox.retries SET available_at = now() WHERE available_at <> 'infinity';
SELECT pg_temp.claim_all(name) FROM outbox_consumers, generate_series(1, 2) WHERE event_types = '{Many, Few}';
SELECT consumer, count(*), count(DISTINCT id) FROM claimed GROUP BY 1 ORDER BY 1;
SELECT count(*) AS disorder FROM (
    SELECT id, lag(id) OVER (PARTITION BY consumer, aggregate_id ORDER BY lock_token, id) AS before FROM claimed WHERE consumer LIKE 'ordered%') o
 WHERE id < before;
SELECT count(*) FROM outbox_retries JOIN outbox_consumers USING (consumer_id) WHERE event_types = '{Many, Few}';
-- A batch that is taken over goes through it again; other isolation levels do
SELECT outbox_enqueue('A', '1', 'Many', '{"n": 1, "text": "x"}') IS NOT NULL AS a;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT payload, attempts FROM outbox_claim('plain');
COMMIT;
UPDATE _outbox.leases SET locked_until = now() WHERE acked_at IS NULL;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT payload, attempts FROM outbox_claim('plain');
COMMIT;
BEGIN READ ONLY;
SELECT payload FROM outbox_peek('dealt');
COMMIT;
DROP TABLE claimed;

-- Nor does one stop the others that pretends to be about the transaction.
CREATE FUNCTION shop.pretends(p jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF p ? 'bad' THEN
        RAISE serialization_failure USING MESSAGE = 'try again';
    END IF;
    RETURN p || '{"up": true}';
END $$;
SELECT outbox_register_upcaster('Pretended', 1, 'shop.pretends(jsonb)');
SELECT outbox_create_consumer('p', start_at => 'latest', event_types => '{Pretended}');
SELECT count(outbox_enqueue('P', i::text, 'Pretended', CASE i WHEN 2 THEN '{"bad": 1}'::jsonb ELSE '{}' END)) FROM generate_series(1, 3) i;
SELECT aggregate_id, payload FROM outbox_claim('p') ORDER BY id;
SELECT aggregate_id, last_error FROM outbox_retries WHERE event_type = 'Pretended';
-- Where it can be, it is: the caller tries again.
UPDATE _outbox.retries SET available_at = now() WHERE event_type = 'Pretended';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT aggregate_id, payload FROM outbox_peek('p') ORDER BY id;
ROLLBACK;
SELECT outbox_drop_consumer('p');

SELECT outbox_revoke('regress_admin', 'admin'), outbox_revoke('regress_admin', 'consumer');
SELECT outbox_drop_consumer(name, true) FROM outbox_consumers ORDER BY name;
DELETE FROM _outbox.upcasters;
DROP SCHEMA shop CASCADE;
DROP OWNED BY regress_admin, regress_peer;
DROP ROLE regress_admin, regress_peer;
