CREATE ROLE outbox_app;
CREATE ROLE "Odd ""Name""";
SET ROLE outbox_app;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}');
SELECT * FROM outbox_messages;
RESET ROLE;

-- A producer can enqueue, everything that enqueue needs included, and nothing else.
SELECT outbox_grant('outbox_app', 'producer');
SET ROLE outbox_app;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}') IS NOT NULL AS ok;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}', dedup_key => 'app-1') IS NOT NULL AS ok;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}', available_at => now() + interval '1 hour') AS later \gset
SELECT outbox_cancel(:'later');
SELECT cardinality(outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": 1, "event_type": "E", "payload": 1}]'));
SELECT current_user;
SELECT count(*) FROM outbox_messages;
SELECT count(*) FROM outbox_scheduled;
SELECT count(*) FROM _outbox.dedup_keys;
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'b', 'c', '{}');
SELECT nextval('_outbox.messages_id_seq');
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
SELECT outbox_release_due();
SELECT outbox_status();
SELECT outbox_grant('outbox_app', 'admin');
-- The tenant is not the session's to choose.
SET outbox.tenant_id = 1;
RESET ROLE;
GRANT SET ON PARAMETER outbox.tenant_id TO outbox_app;
SET ROLE outbox_app;
SET outbox.tenant_id = 1;
RESET outbox.tenant_id;
RESET ROLE;
REVOKE SET ON PARAMETER outbox.tenant_id FROM outbox_app;

-- What a producer puts in front of the search_path is not used.
CREATE SCHEMA trap AUTHORIZATION outbox_app;
SET ROLE outbox_app;
CREATE FUNCTION trap.now_wrong(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END';
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.now_wrong);
CREATE TABLE trap.outbox_scheduled (available_at timestamptz);
CREATE TABLE trap.outbox_messages (id int);
SET search_path = trap, pg_catalog, public;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}', dedup_key => 'app-1') IS NOT NULL AS ok;
SELECT outbox_enqueue('Order', 2, 'OrderConfirmed', '{}', available_at => now() + interval '1 hour') AS later \gset
SELECT outbox_cancel(:'later');
RESET search_path;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA trap CASCADE;
RESET client_min_messages;

-- Taken back, it is gone; an admin administers but does not enqueue.
SELECT outbox_revoke('outbox_app', 'producer');
SELECT outbox_grant('Odd "Name"', 'admin');
SET ROLE outbox_app;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}');
SET ROLE "Odd ""Name""";
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}');
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
SELECT outbox_release_due();
SELECT count(*) > 0 AS ok FROM outbox_status();
SELECT outbox_grant('outbox_app', 'consumer');
RESET ROLE;

\set SHOW_CONTEXT never
SELECT outbox_grant('outbox_app', 'boss');
SELECT outbox_grant('outbox_app', NULL);
SELECT outbox_grant('no_such_role', 'producer');
SELECT outbox_grant(NULL, 'producer');
SELECT outbox_grant('public', 'producer');
SELECT outbox_revoke('outbox_app', 'boss');

-- The owner's own rights are not to be taken away.
DO $$
BEGIN
    PERFORM outbox_revoke(current_user, 'admin');
EXCEPTION WHEN invalid_parameter_value THEN
    RAISE NOTICE 'refused';
END $$;

-- pg_partman calls what it finds in its schema with the rights of the owner of the log. No partitions
-- are made while others can put anything there, or have.
GRANT USAGE, CREATE ON SCHEMA partman TO outbox_app;
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
SELECT ok, detail LIKE '%open to outbox_app%' AS named FROM outbox_status() WHERE component = 'pg_partman';
SET ROLE outbox_app;
CREATE FUNCTION partman.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT $1';
RESET ROLE;
REVOKE CREATE ON SCHEMA partman FROM outbox_app;
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
GRANT CREATE ON SCHEMA partman TO PUBLIC;
DROP FUNCTION partman.format(text, text);
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
REVOKE CREATE ON SCHEMA partman FROM PUBLIC;
REVOKE USAGE ON SCHEMA partman FROM outbox_app;
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;

-- A consumer claims and settles, and nothing else.
SELECT outbox_create_consumer('app', start_at => 'earliest');
SET ROLE outbox_app;
SELECT count(*) > 0 AS ok FROM outbox_peek('app', 1);
SELECT lock_token FROM outbox_claim('app', 1) \gset
SELECT outbox_heartbeat(:lock_token) IS NOT NULL AS ok;
SELECT outbox_release(:lock_token);
SELECT lock_token, id FROM outbox_claim('app', 1) \gset
SELECT outbox_fail(:lock_token, :id, 'not now');
SELECT lock_token, id FROM outbox_claim('app', 1) \gset
SELECT outbox_ack(:lock_token);
SELECT count(*) AS consumed FROM outbox_consume('app', 1);
CALL outbox_wait('app', '1s', NULL);
SELECT inbox_accept('app', '00000000-0000-7000-8000-000000000001');
SELECT outbox_create_consumer('mine');
SELECT outbox_seek('app', 'latest');
SELECT * FROM _outbox.leases;
SELECT * FROM outbox_deliveries;
SET ROLE "Odd ""Name""";
SELECT outbox_claim('app', 1);
SELECT outbox_pause('app'), outbox_resume('app');
SELECT outbox_seek('app', 'latest');
SELECT count(*) FROM outbox_deliveries WHERE status <> 'COMPLETED';
SELECT consumer_name FROM consumer_offsets;
SELECT * FROM _outbox.batches;
SELECT outbox_redrive('app'), outbox_discard('app', '{1}');
SELECT outbox_drop_consumer('app');
RESET ROLE;
SELECT outbox_revoke('outbox_app', 'consumer');
SELECT outbox_revoke('Odd "Name"', 'admin');

REVOKE USAGE ON SCHEMA public FROM outbox_app, "Odd ""Name""";
DROP ROLE outbox_app, "Odd ""Name""";
