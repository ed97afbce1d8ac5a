\set SHOW_CONTEXT never
-- Before anybody uses it there is nothing, and maintenance makes nothing.
SELECT count(*) FROM _outbox.run_step('audit_partitions');
SELECT count(*) FROM _outbox.run_step('audit_chain');
SELECT count(*) FROM _outbox.run_step('audit_retention');
SELECT count(*) FROM _outbox.partitions('audit_log');
SELECT * FROM audit_verify();

-- The first row brings the partitions: this month, at least three ahead, and a default.
SELECT audit_record('alice', 'update', 'Order', '4711', '{"state": "open", "total": 10}', '{"state": "paid", "total": 10}') AS id;
SELECT count(*) FILTER (WHERE NOT is_default) BETWEEN 4 AND 5 AS ahead, count(*) FILTER (WHERE is_default) AS defaults,
       bool_and(is_default OR (extract(day FROM lower_bound AT TIME ZONE 'UTC') = 1 AND upper_bound > lower_bound + interval '27 days')) AS monthly
  FROM _outbox.partitions('audit_log');
-- pg_partman would leave its search_path to the session.
DO $$ BEGIN PERFORM _outbox.run_step('audit_partitions'); END $$;
SHOW search_path;
SELECT id, xid < pg_current_xact_id() AS earlier, occurred_at <= clock_timestamp() AS past, tenant_id, actor, action, entity_type, entity_id, before, after, context
  FROM audit_log;
SELECT audit_record(actor => 'bob', action => 'login', entity_type => 'Session', entity_id => 's-1') AS id;
SELECT audit_record('carol', 'create', 'Order', '4712', NULL, '{"state": "open"}', '{"ip": "192.0.2.1"}', 7) AS id;
SELECT audit_record('carol', 'delete', 'Order', '4712', 'null', '[1, 2]', NULL, 7) AS id;
SELECT tenant_id, actor, action, before, before IS NULL AS no_before, after, context FROM audit_log WHERE id > 1 ORDER BY id;
-- In the caller's transaction.
BEGIN;
SELECT audit_record('dave', 'delete', 'Order', '1') > 0 AS ok;
SAVEPOINT s;
SELECT audit_record('dave', 'delete', 'Order', '2') > 0 AS ok;
ROLLBACK TO s;
SELECT audit_record('dave', 'delete', 'Order', '3') > 0 AS ok;
COMMIT;
SELECT entity_id, xid = max(xid) OVER () AS same FROM audit_log WHERE actor = 'dave' ORDER BY id;
BEGIN;
SELECT audit_record('eve', 'delete', 'Order', '4') > 0 AS ok;
ROLLBACK;
SELECT count(*) FROM audit_log WHERE actor = 'eve';
BEGIN READ ONLY;
SELECT audit_record('eve', 'delete', 'Order', '4');
ROLLBACK;

-- The tenant of the session wins.
SET outbox.tenant_id = 5;
SELECT audit_record('frank', 'view', 'Order', '1') > 0 AS ok;
SELECT audit_record('frank', 'view', 'Order', '1', tenant_id => 5) > 0 AS ok;
SELECT audit_record('frank', 'view', 'Order', '1', tenant_id => 6);
RESET outbox.tenant_id;
SELECT tenant_id, count(*) FROM audit_log WHERE actor = 'frank' GROUP BY 1;

-- Bad input changes nothing.
SELECT count(*) AS rows FROM audit_log \gset
SELECT audit_record(NULL, 'a', 't', '1');
SELECT audit_record('x', NULL, 't', '1');
SELECT audit_record('x', 'a', NULL, '1');
SELECT audit_record('x', 'a', 't', NULL);
SELECT audit_record('', 'a', 't', '1');
SELECT audit_record('x', '', 't', '1');
SELECT audit_record('x', 'a', '', '1');
SELECT audit_record('x', 'a', 't', '');
SELECT audit_record(repeat('x', 256), 'a', 't', '1');
SELECT audit_record('x', 'a', 't', repeat('ä', 128));
SELECT audit_record('x', 'a', 't', repeat('ä', 127)) > 0 AS ok;
SELECT audit_record('x', 'a', 't', '1', context => '[]');
SELECT audit_record('x', 'a', 't', '1', context => 'null');
SELECT audit_record('x', 'a', 't', '1', before => to_jsonb(repeat('x', 1100000)));
SELECT audit_record('x', 'a', 't', '1', after => to_jsonb(repeat('x', 1100000)));
SELECT audit_record('x', 'a', 't', '1', context => jsonb_build_object('x', repeat('x', 1100000)));
SELECT count(*) - :rows AS new_rows FROM audit_log;
SELECT audit_set_retention(NULL, '1 day');
SELECT audit_set_retention('', '1 day');
SELECT audit_set_retention(repeat('x', 256), '1 day');
SELECT audit_set_retention('Order', '0');
SELECT audit_set_retention('Order', '-1 day');
SELECT audit_set_retention('Order', '1 month -31 days');
SELECT audit_set_retention('Order', '1001 years');
SELECT count(*) FROM _outbox.audit_retention;
SELECT audit_diff(NULL);
SELECT audit_diff(-1);
SELECT * FROM audit_verify(known => NULL);
SELECT * FROM audit_verify(known => '[]');
SELECT * FROM audit_verify(known => '{"soon": "00"}');
SELECT * FROM audit_verify(known => '{"2026-01": 1}');
SELECT month, ok, problem FROM audit_verify(known => jsonb_build_object('1999-01', repeat('0', 64))) WHERE NOT ok;
SELECT count(*) FROM audit_verify('infinity');

SELECT audit_set_retention('Order', '7 years');
SELECT audit_set_retention('Order', '10 years');
SELECT audit_set_retention('Session', '1 day');
SELECT audit_set_retention('Session', NULL);
SELECT audit_set_retention('Unknown', NULL);
SELECT * FROM _outbox.audit_retention;

-- What was changed.
SELECT * FROM audit_diff(1);
SELECT * FROM audit_diff(2);
SELECT * FROM audit_diff(3);
SELECT * FROM audit_diff(4);
SELECT audit_record('x', 'a', 't', '1',
    '{"same": {"a": [1, {"b": 2}]}, "gone": {"x": 1, "y": {}}, "deep": {"er": {"a": 1, "b": 2}}, "kind": {"a": 1}, "list": [1, 2], "n": 1, "empty": {}}',
    '{"same": {"a": [1, {"b": 2}]}, "new": null, "deep": {"er": {"a": 1, "b": 3, "c": []}}, "kind": "text", "list": [2, 1], "n": 1.0, "empty": {"a": {}}, "a/b.c": 1}') AS id \gset
SELECT * FROM audit_diff(:id);
SELECT audit_record('x', 'a', 't', '1', '{}', '{}') AS id \gset
SELECT * FROM audit_diff(:id);
SELECT audit_record('x', 'a', 't', '1', NULL, '{}') AS id \gset
SELECT * FROM audit_diff(:id);
SELECT audit_record('x', 'a', 't', '1', (repeat('{"a":', 1000) || '1' || repeat('}', 1000))::jsonb,
                    (repeat('{"a":', 1000) || '2' || repeat('}', 1000))::jsonb) AS id \gset
SELECT cardinality(path), before, after FROM audit_diff(:id);

-- Append-only, for the owner and superusers too, and on partitions.
SELECT partition AS current FROM _outbox.partitions('audit_log') WHERE lower_bound <= now() AND upper_bound > now() \gset
SELECT partition AS spare FROM _outbox.partitions('audit_log') WHERE is_default \gset
\set VERBOSITY terse
UPDATE audit_log SET actor = 'mallory' WHERE id = 1;
DELETE FROM audit_log WHERE id = 1;
TRUNCATE audit_log;
SET session_replication_role = replica;
DELETE FROM audit_log WHERE id = 1;
TRUNCATE audit_log;
RESET session_replication_role;
\set VERBOSITY sqlstate
UPDATE :current SET actor = 'mallory' WHERE id = 1;
DELETE FROM :current WHERE id = 1;
TRUNCATE :current;
TRUNCATE :spare;
\set VERBOSITY default
DELETE FROM audit_log WHERE id = 1;
\set VERBOSITY terse
SELECT count(*) FROM _outbox.run_step('audit_chain');
SELECT count(*) > 10 AS chained FROM _outbox.audit_chain;
UPDATE _outbox.audit_chain SET hash = '' WHERE id = 1;
DELETE FROM _outbox.audit_chain WHERE id = 1;
TRUNCATE _outbox.audit_chain;
-- Who could have removed cannot any more when the part of the transaction is over that could.
BEGIN;
SAVEPOINT s;
SELECT _outbox.audit_begin_removal();
ROLLBACK TO s;
DELETE FROM audit_log WHERE id = 1;
ROLLBACK;
BEGIN;
SELECT _outbox.audit_begin_removal();
UPDATE audit_log SET actor = 'mallory' WHERE id = 1;
ROLLBACK;
DELETE FROM audit_log WHERE id = 1;
SELECT _outbox.audit_forbid_change();
\set VERBOSITY default
UPDATE partman.part_config SET retention = '1 month' WHERE parent_table = 'public.audit_log';

-- All is as the chain has it, whatever the settings of the session.
SELECT ok, rows_checked = (SELECT count(*) FROM audit_log) AS all_checked, not_yet_chained, broken_id, problem, last_position = rows_checked AS at_end,
       length(last_hash) AS digits, month = to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM') AS now FROM audit_verify();
SET timezone = 'Asia/Kathmandu';
SET datestyle = 'SQL, DMY';
SET bytea_output = 'escape';
SET extra_float_digits = -15;
SET intervalstyle = 'sql_standard';
SET client_encoding = 'LATIN1';
SELECT ok, rows_checked = (SELECT count(*) FROM audit_log) AS all_checked, problem FROM audit_verify();
RESET ALL;
RESET client_encoding;

-- Somebody has changed the table: then rows go through SQL.
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.actor := upper(NEW.actor); RETURN NEW; END $$;
CREATE TRIGGER shout BEFORE INSERT ON audit_log FOR EACH ROW EXECUTE FUNCTION shout();
SELECT audit_record('quiet', 'a', 't', '1') IS NOT NULL AS ok;
CREATE OR REPLACE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
SELECT audit_record('silent', 'a', 't', '1');
DROP TRIGGER shout ON audit_log;
SELECT audit_record('quiet', 'a', 't', '2') IS NOT NULL AS ok;
SELECT actor, entity_id FROM audit_log WHERE entity_id < '3' AND actor ILIKE 'quiet' ORDER BY id;
DROP FUNCTION shout();

-- No consumer ever sees any of it, and nobody is called.
SELECT outbox_create_consumer('reads_all', start_at => 'earliest');
SELECT outbox_create_consumer('reads_audit', event_types => '{audit_log,audit_record,update,login}', start_at => 'earliest');
SELECT audit_record('alice', 'login', 'login', '1') IS NOT NULL AS ok;
SELECT count(*) FROM outbox_consume('reads_audit');
SELECT count(*) FROM outbox_consume('reads_all', 100000) m WHERE EXISTS (SELECT FROM audit_log a WHERE a.entity_type = m.aggregate_type AND a.entity_id = m.aggregate_id AND a.action = m.event_type);
SELECT outbox_drop_consumer('reads_all');
SELECT outbox_drop_consumer('reads_audit');

-- Who may do what.
\set VERBOSITY sqlstate
CREATE ROLE audit_writer;
CREATE ROLE audit_reader;
SELECT outbox_grant('audit_writer', 'audit');
SELECT outbox_grant('audit_reader', 'auditor');
SET ROLE audit_writer;
SELECT audit_record('w', 'a', 't', '1') > 0 AS ok;
INSERT INTO audit_log (actor, action, entity_type, entity_id) VALUES ('w', 'a', 't', '1');
SELECT count(*) FROM audit_log;
SELECT audit_diff(1);
SELECT audit_verify();
SELECT audit_set_retention('t', '1 day');
SELECT _outbox.audit_begin_removal();
SET ROLE audit_reader;
SELECT audit_record('r', 'a', 't', '1');
SELECT count(*) > 0 AS ok FROM audit_log;
SELECT count(*) > 0 AS ok FROM audit_diff(1);
SELECT bool_and(ok) FROM audit_verify();
DELETE FROM audit_log;
SELECT * FROM _outbox.audit_chain;
SELECT audit_set_retention('t', '1 day');
-- A tenant's auditor sees the tenant's rows, and what is about all is not for it.
RESET ROLE;
SET outbox.tenant_id = 7;
SET ROLE audit_reader;
SELECT DISTINCT tenant_id FROM audit_log;
SELECT path FROM audit_diff(3);
SELECT path FROM audit_diff(1);
SELECT count(*) FROM audit_verify();
RESET ROLE;
SELECT audit_set_retention('Order', '1 day');
RESET outbox.tenant_id;
SELECT outbox_revoke('audit_writer', 'audit');
SELECT outbox_revoke('audit_reader', 'auditor');
SET ROLE audit_reader;
SELECT count(*) FROM audit_log;
SELECT count(*) FROM audit_verify();
RESET ROLE;
\set VERBOSITY default
REVOKE ALL ON SCHEMA public FROM audit_writer, audit_reader;
DROP ROLE audit_writer, audit_reader;
SELECT audit_set_retention('Order', NULL);
