-- The first with a key executes.
SELECT decision, token > 0 AS has_token, status_code, response, http_hint FROM idempotency_begin('order.create', 'k-1', '{"item": 1}');
-- While it runs, others hear so. The hash of a committed attempt is known, so another request is a conflict already.
SELECT * FROM idempotency_begin('order.create', 'k-1', '{"item": 1}');
SELECT * FROM idempotency_begin('order.create', 'k-1', '{"item": 2}');
SELECT token FROM idempotency_keys WHERE key = 'k-1' \gset
SELECT idempotency_finish('order.create', 'k-1', :token, 201, '{"order": 71001}');
-- Then its answer is everybody's, whatever the order of keys in the request. Another request is a conflict.
SELECT * FROM idempotency_begin('order.create', 'k-1', '{"item": 1}');
SELECT * FROM idempotency_begin('order.create', 'k-1', '{"item": 2}');
SELECT * FROM idempotency_begin('order.create', 'k-1', '{"item": 1.0}', wait => '1 min');

-- What follows asks for short.
CREATE FUNCTION ask(key text, scope text DEFAULT 's', request text DEFAULT '{}', tenant_id bigint DEFAULT NULL,
                    ttl interval DEFAULT NULL, lease interval DEFAULT NULL, wait interval DEFAULT NULL)
RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', decision, status_code, response) FROM idempotency_begin(scope, key, request, tenant_id, ttl, lease, wait)
$$;
CREATE FUNCTION token_of(key text) RETURNS bigint LANGUAGE sql AS 'SELECT max(token) FROM idempotency_keys k WHERE k.key = $1';
CREATE VIEW known AS
    SELECT tenant_id, scope, key, status_code, response, failed, locked_until IS NOT NULL AS runs, finished_at IS NOT NULL AS finished,
           round(extract(epoch FROM expires_at - begun_at)) AS ttl, round(extract(epoch FROM locked_until - begun_at)) AS lease,
           length(request_hash) AS hash_bytes
      FROM idempotency_keys ORDER BY tenant_id, scope, key;
SELECT * FROM known;

-- Begin and finish in one transaction: one row, written once.
BEGIN;
SELECT token FROM idempotency_begin('s', 'one', '{}') \gset
SELECT count(*) FROM idempotency_keys WHERE key = 'one';
SELECT ask('one') AS again, ask('one', request => '1') AS other_request, ask('one', wait => '1 s') AS no_use_in_waiting_for_oneself;
SELECT idempotency_finish('s', 'one', :token, 200, '{"n": 1}');
SELECT ask('one') AS answered;
COMMIT;
SELECT ask('one');
SELECT begun_at = finished_at AS written_once FROM idempotency_keys WHERE key = 'one';
-- A rollback leaves no key, and the next one executes.
BEGIN;
SELECT token FROM idempotency_begin('s', 'undone', '{}') \gset
SELECT idempotency_finish('s', 'undone', :token, 200, '{}');
ROLLBACK;
BEGIN;
SELECT ask('undone');
ROLLBACK;
SELECT ask('undone');
-- The token of what was rolled back is good for nothing, before and after that.
\set VERBOSITY sqlstate
SELECT idempotency_finish('s', 'undone', :token, 200, '{}');
\set VERBOSITY default
SELECT * FROM known WHERE key IN ('one', 'undone');

-- Begin, commit, and finish in a second transaction. What was not said about time is in settings.
SET outbox.idempotency_ttl = '1 h';
SET outbox.idempotency_lease = '10 s';
SELECT ask('two', wait => '0');
SELECT ask('two-b', ttl => '366 days', lease => '1 day');
RESET outbox.idempotency_ttl;
RESET outbox.idempotency_lease;
SELECT * FROM known WHERE key LIKE 'two%';
BEGIN;
SELECT idempotency_finish('s', 'two', token_of('two'), 204, NULL::jsonb);
ROLLBACK;
SELECT ask('two') AS still_runs;
SELECT idempotency_finish('s', 'two', token_of('two'), 204, NULL::jsonb);
SELECT * FROM idempotency_begin('s', 'two', '{}');
SELECT * FROM known WHERE key = 'two';
-- Several at once, of which one is finished, one is abandoned, and one goes on.
BEGIN;
SELECT token FROM idempotency_begin('s', 'many-a', '{}') \gset a_
SELECT token FROM idempotency_begin('s', 'many-b', '{}') \gset b_
SELECT token FROM idempotency_begin('s', 'many-c', '{}') \gset c_
SELECT idempotency_finish('s', 'many-b', :b_token, 200, '{}'), idempotency_abandon('s', 'many-c', :c_token);
COMMIT;
SELECT key, runs FROM known WHERE key LIKE 'many-%';
SELECT idempotency_finish('s', 'many-a', :a_token, 200, '{}');

-- Failures are answers too.
SELECT ask('failed');
SELECT idempotency_finish('s', 'failed', token_of('failed'), 402, '{"error": "card declined"}', failed => true);
SELECT ask('failed'), ask('failed', request => '1');
SELECT * FROM known WHERE key = 'failed';

-- Savepoints. Begun in one that is rolled back: never begun.
BEGIN;
SAVEPOINT a;
SELECT ask('sp-1');
SELECT token FROM idempotency_begin('s', 'sp-2', '{}') \gset
SELECT idempotency_finish('s', 'sp-2', :token, 200, '{}');
ROLLBACK TO a;
SELECT ask('sp-2');
ROLLBACK TO a;
COMMIT;
SELECT count(*) FROM known WHERE key LIKE 'sp-%';
-- Finished in one that is rolled back: it still runs, and can be finished.
BEGIN;
SELECT token FROM idempotency_begin('s', 'sp-3', '{}') \gset three_
SELECT token FROM idempotency_begin('s', 'sp-4', '{}') \gset four_
SAVEPOINT a;
SELECT idempotency_finish('s', 'sp-3', :three_token, 500, '{}');
SELECT idempotency_finish('s', 'sp-4', :four_token, 500, '{}');
SELECT ask('sp-3');
ROLLBACK TO a;
SELECT ask('sp-3');
SELECT idempotency_finish('s', 'sp-4', :four_token, 200, '{}');
COMMIT;
SELECT key, status_code, runs FROM known WHERE key LIKE 'sp-%';
-- Abandoned in one that is rolled back: the same, and what was begun anew there is forgotten.
BEGIN;
SELECT token FROM idempotency_begin('s', 'sp-5', '{}') \gset
SAVEPOINT a;
SELECT idempotency_abandon('s', 'sp-5', :token);
SAVEPOINT b;
SELECT token > :token AS another FROM idempotency_begin('s', 'sp-5', '{}');
RELEASE b;
ROLLBACK TO a;
SELECT ask('sp-5');
SELECT idempotency_finish('s', 'sp-5', :token, 200, '{}');
COMMIT;
-- Released savepoints are part of what is around them, at any depth.
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT token FROM idempotency_begin('s', 'sp-6', '{}') \gset six_
SELECT token FROM idempotency_begin('s', 'sp-7', '{}') \gset seven_
RELEASE b;
SAVEPOINT c;
SELECT idempotency_finish('s', 'sp-7', :seven_token, 200, '{}');
RELEASE a;
COMMIT;
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT ask('sp-8');
RELEASE b;
ROLLBACK TO a;
COMMIT;
SELECT key, status_code, runs FROM known WHERE key LIKE 'sp-%';
-- A block that catches an error is a savepoint.
DO $$
BEGIN
    PERFORM ask('sp-9');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    RAISE NOTICE '%', ask('sp-9');
END $$;

-- Abandoned, in the same transaction and in another: the key is free for any request.
BEGIN;
SELECT token FROM idempotency_begin('s', 'left-1', '{}') \gset
SELECT idempotency_abandon('s', 'left-1', :token);
SELECT ask('left-1', request => '1');
ROLLBACK;
SELECT ask('left-2');
SELECT token_of('left-2') AS token \gset
BEGIN;
SAVEPOINT a;
SELECT idempotency_abandon('s', 'left-2', :token);
ROLLBACK TO a;
COMMIT;
SELECT ask('left-2');
SELECT idempotency_abandon('s', 'left-2', :token);
SELECT ask('left-2', request => '1');

-- Tenants and scopes never meet.
SELECT ask('met', request => '0'), ask('met', 's2', '1'), ask('met', request => '2', tenant_id => 1), ask('met', 's2', '3', 1),
       ask('met', request => '4', tenant_id => -9223372036854775808);
SELECT ask('2met', 's'), ask('met', 's2') AS conflict, ask('t', 'me') AS a, ask('et', 'm') AS b;
SELECT tenant_id, scope, key FROM known WHERE key ~ 'met|^t$|^et$';
SELECT idempotency_finish('s2', 'met', token, 200, '{}') FROM idempotency_keys WHERE key = 'met' AND scope = 's2' AND tenant_id = 0;
SELECT idempotency_finish('s2', 'met', token, 201, '{}', tenant_id => 1) FROM idempotency_keys
 WHERE key = 'met' AND scope = 's2' AND tenant_id = 1;
SELECT idempotency_abandon('s', 'met', token, tenant_id => 1) FROM idempotency_keys WHERE key = 'met' AND scope = 's' AND tenant_id = 1;
SELECT ask('met', 's2', '1'), ask('met', 's2', '3', 1), ask('met', request => '2'), ask('met', request => '2', tenant_id => 1);
-- Two of them in one transaction.
BEGIN;
SELECT token FROM idempotency_begin('s', 'twin', '{}', 1) \gset one_
SELECT token FROM idempotency_begin('s', 'twin', '{}', 2) \gset two_
SELECT idempotency_finish('s', 'twin', :one_token, 201, '{}', tenant_id => 1);
SELECT ask('twin', tenant_id => 1), ask('twin', tenant_id => 2), ask('twin', tenant_id => 3);
ROLLBACK;
-- A session that acts for one tenant acts for no other.
SET outbox.tenant_id = 1;
SELECT ask('met', 's2', '3'), ask('met', 's2', '3', 1);
\set VERBOSITY sqlstate
SELECT ask('met', 's2', '3', 2);
SELECT idempotency_finish('s2', 'met', 1, 200, '{}', tenant_id => 2);
SELECT idempotency_abandon('s2', 'met', 1, tenant_id => 2);
\set VERBOSITY default
RESET outbox.tenant_id;

-- Expired keys are new, whether or not they are still there, and so are those of attempts whose lease is over.
SELECT ask('old-1', ttl => '1 h'), ask('old-2', ttl => '1 h'), ask('old-3', lease => '1 h'), ask('brief', ttl => '1 s');
SELECT idempotency_finish('s', 'old-1', token_of('old-1'), 200, '{"old": true}');
SELECT ask('old-1'), ask('old-2'), ask('old-3');
SELECT token_of('old-2') AS token2, token_of('old-3') AS token3 \gset
UPDATE _outbox.idempotency_keys SET expires_at = now() WHERE key IN ('old-1', 'old-2');
UPDATE _outbox.idempotency_keys SET locked_until = now() WHERE key = 'old-3';
SELECT pg_sleep(1.1);
SELECT ask('brief', request => '1'), ask('old-1', request => '1');
CREATE FUNCTION attempt(statement text, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    code := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    message := regexp_replace(message, '^token [0-9]{5,}', 'token N');
END $$;
SELECT * FROM attempt(format($$SELECT idempotency_finish('s', 'old-2', %s, 200, '{}')$$, :token2));
SELECT ask('old-2', request => '1');
SELECT * FROM attempt(format($$SELECT idempotency_finish('s', 'old-2', %s, 200, '{}')$$, :token2));
SELECT ask('old-3', request => '1'), token_of('old-3') > :token3 AS newer;
SELECT * FROM attempt(format($$SELECT idempotency_finish('s', 'old-3', %s, 200, '{}')$$, :token3));
SELECT * FROM attempt(format($$SELECT idempotency_abandon('s', 'old-3', %s)$$, :token3));
SELECT idempotency_finish('s', 'old-3', token_of('old-3'), 200, '{}');
-- Whoever took a key over has abandoned it: then nothing tells of the attempt before.
SELECT ask('left', lease => '1 h');
SELECT token_of('left') AS token \gset
UPDATE _outbox.idempotency_keys SET locked_until = now() WHERE key = 'left';
SELECT ask('left');
SELECT idempotency_abandon('s', 'left', token_of('left'));
SELECT * FROM attempt(format($$SELECT idempotency_finish('s', 'left', %s, 200, '{}')$$, :token));
-- Taken over and finished in one transaction, and taken over but rolled back.
BEGIN;
UPDATE _outbox.idempotency_keys SET locked_until = now() WHERE key = 'old-2';
SELECT token FROM idempotency_begin('s', 'old-2', '2') \gset
SELECT ask('old-2', request => '2');
SELECT idempotency_finish('s', 'old-2', :token, 200, '{"n": 2}');
SELECT ask('old-2', request => '2');
ROLLBACK;
SELECT ask('old-2', request => '2') AS of_another_request, ask('old-2', request => '1');
-- To its own transaction an attempt has neither lease nor end, also one that has taken over.
SELECT ask('mine', lease => '1 h'), ask('mine-2', lease => '1 h');
UPDATE _outbox.idempotency_keys SET locked_until = now() WHERE key LIKE 'mine%';
BEGIN;
SELECT token FROM idempotency_begin('s', 'mine', '1', lease => '1 s') \gset
SELECT ask('mine-2', request => '1');
UPDATE _outbox.idempotency_keys SET locked_until = '-infinity', expires_at = '-infinity' WHERE key LIKE 'mine%';
SELECT ask('mine', request => '1'), ask('mine') AS of_another_request;
SAVEPOINT a;
SELECT idempotency_finish('s', 'mine', :token, 200, '{}');
ROLLBACK TO a;
SELECT ask('mine', request => '1');
SELECT idempotency_finish('s', 'mine', :token, 200, '{}');
SELECT idempotency_abandon('s', 'mine-2', token_of('mine-2'));
SELECT ask('mine', request => '1');
SELECT key, status_code FROM idempotency_keys WHERE key LIKE 'mine%';
ROLLBACK;
-- Begun in one transaction and finished in another, by one block.
DO $$
DECLARE
    verdict idempotency_verdict;
BEGIN
    verdict := idempotency_begin('s', 'block', '1');
    COMMIT;
    PERFORM idempotency_finish('s', 'block', verdict.token, 200, '{}');
END $$;
SELECT ask('block', request => '1');
-- Who waits can be stopped, and leaves nothing behind.
BEGIN;
SELECT ask('stopped');
PREPARE TRANSACTION 'stopped';
SET statement_timeout = '200ms';
\set VERBOSITY sqlstate
SELECT ask('stopped', wait => '1 min');
\set VERBOSITY default
RESET statement_timeout;
SET lock_timeout = '20ms';
SELECT ask('stopped', wait => '100 ms');
RESET lock_timeout;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory';
ROLLBACK PREPARED 'stopped';
SELECT ask('stopped');

-- Removed in batches of bounded size.
UPDATE _outbox.idempotency_keys SET expires_at = now() - interval '1 h' WHERE key LIKE 'sp-%' OR key LIKE 'many-%';
SELECT count(*) FROM idempotency_keys WHERE expires_at <= now();
SELECT count(*) AS others FROM idempotency_keys WHERE expires_at > now() \gset
SELECT idempotency_expire(3), idempotency_expire(3);
SELECT idempotency_expire();
SELECT idempotency_expire();
SELECT count(*) = :others AS others_stay FROM idempotency_keys;

-- A run looks through a 12th of the table, some blocks at a time, and on where many are found; where one ends the next goes on.
-- Here a block has one row.
CREATE TABLE swept (n integer, filler text);
ALTER TABLE swept ALTER filler SET STORAGE PLAIN;
INSERT INTO swept SELECT n, repeat('.', 7000) FROM generate_series(0, 99) n;
INSERT INTO _outbox.expiry_cursors VALUES ('swept', 0);
CREATE FUNCTION look(condition text, max_rows integer, whole boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    s record;
    next record;
BEGIN
    s := _outbox.delete_expired('swept', condition, max_rows, whole, max_blocks => 5);
    SELECT * INTO next FROM _outbox.expiry_cursors WHERE swept = 'swept'::regclass;
    RETURN format('%s removed, next is %s%s', s.removed, next.block, CASE WHEN s.has_more THEN ', at once: ' || next.rest END);
END $$;
SELECT look('n % 2 = 0', 10) FROM generate_series(1, 4);
SELECT look('n % 2 = 0', 2) FROM generate_series(1, 3);
SELECT look('n % 2 = 0', 10) FROM generate_series(1, 18);
SELECT count(*), bool_and(n % 2 = 1) FROM swept;
SELECT look('n < 6 OR n > 90', 4, true), look('n < 6 OR n > 90', 100, true), look('n < 6 OR n > 90', 100, true);
SELECT count(*), min(n), max(n) FROM swept;
-- Where every block has some, it goes on, but not for ever.
TRUNCATE swept;
ALTER TABLE swept DROP filler;
INSERT INTO swept SELECT n FROM generate_series(1, 4000) n;
UPDATE _outbox.expiry_cursors SET block = 5 WHERE swept = 'swept'::regclass;
SELECT look('true', 100) FROM generate_series(1, 6);
SELECT look('true', 1000) FROM generate_series(1, 6);
SELECT count(*) FROM swept;
-- Who cannot have the hint begins anywhere, and so does who has one snapshot for the whole transaction.
INSERT INTO swept SELECT n FROM generate_series(1, 4000) n;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT look('n % 2 = 0', 10000, true) LIKE '2000 removed%' AS ok;
ROLLBACK;
DELETE FROM _outbox.expiry_cursors WHERE swept = 'swept'::regclass;
SELECT look('n > 3990', 3, true) LIKE '3 removed%' AS ok, look('true', 10000, true) LIKE '3997 removed%' AS ok;
SELECT count(*) FROM swept;
TRUNCATE swept;
SELECT (_outbox.delete_expired('swept', 'true', 100)).*, (_outbox.delete_expired('swept', 'true', 100, true)).removed;
INSERT INTO _outbox.expiry_cursors VALUES ('swept', 7);
SELECT look('true', 100), look('true', 100, true);
DELETE FROM _outbox.expiry_cursors WHERE swept = 'swept'::regclass;
DROP TABLE swept;
DROP FUNCTION look;
SELECT ask('sp-7');

-- Calls without a key: an error, unless the setting or the scope says otherwise.
\pset null -
SELECT * FROM attempt($$SELECT idempotency_begin('s', NULL, '{}')$$);
SELECT idempotency_required('optional', false), idempotency_required('payments'), idempotency_required('payments');
SELECT * FROM idempotency_begin('optional', NULL, '{}');
SELECT idempotency_finish('optional', NULL, NULL, 200, '{}'), idempotency_abandon('optional', NULL, NULL);
SELECT code FROM attempt($$SELECT idempotency_finish('optional', NULL, 1, 200, '{}')$$);
SET outbox.idempotency_required = off;
SELECT * FROM idempotency_begin('s', NULL, '{}');
SELECT code FROM attempt($$SELECT idempotency_begin('payments', NULL, '{}')$$);
SELECT code FROM attempt($$SELECT idempotency_finish('payments', NULL, NULL, 200, '{}')$$);
RESET outbox.idempotency_required;
SELECT idempotency_required('optional', NULL), idempotency_required('unheard of', NULL);
SELECT code FROM attempt($$SELECT idempotency_begin('optional', NULL, '{}')$$);
SELECT * FROM _outbox.idempotency_scopes;
SELECT count(*) AS without_a_key FROM idempotency_keys WHERE scope IN ('optional', 'payments');
\pset null ''

-- json, jsonb and text are the same request, and so is its hash from the caller, in any case.
SELECT idempotency_hash('{"b": [1, 2.50, true, null], "a": "x"}'::jsonb) AS hash \gset
SELECT idempotency_hash('{"a":"x","b":[1,2.5,true,null]}'::json) = :'hash' AS json,
       idempotency_hash('{"a": "x", "b": [1, 25e-1, true, null]}'::text) = :'hash' AS text,
       encode(sha256('{"a":"x","b":[1,2.5,true,null]}'), 'hex') = :'hash' AS by_hand;
SELECT decision FROM idempotency_begin('s', 'types', '{"b": [1, 2.50, true, null], "a": "x"}'::jsonb);
SELECT decision FROM idempotency_begin('s', 'types', '{"a":"x","b":[1,2.5,true,null]}'::json);
SELECT decision FROM idempotency_begin('s', 'types', '{"a":"x","b":[1,2.5,true,null]}'::text);
SELECT decision FROM idempotency_begin('s', 'types', '{"a":"x","b":[1,2.5,true,null]}');
SELECT decision FROM idempotency_begin_hashed('s', 'types', :'hash');
SELECT decision FROM idempotency_begin_hashed('s', 'types', upper(:'hash'));
SELECT decision FROM idempotency_begin_hashed('s', 'types', encode(sha256('x'), 'hex'));
SELECT decision, token > 0 AS has_token FROM idempotency_begin_hashed('s', 'hashed', :'hash');
SELECT idempotency_finish('s', 'hashed', token_of('hashed'), 200, '{"z": 1, "a": 2}'::json);
SELECT response FROM idempotency_begin_hashed('s', 'hashed', :'hash');
SELECT idempotency_finish('s', 'types', token_of('types'), 200, '{"z": 1}'::text);
SELECT response FROM idempotency_begin_hashed('s', 'types', :'hash');

-- Canonical JSON, RFC 8785: the vectors of its text.
SELECT idempotency_hash('[333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001, -0]') =
       encode(sha256('[333333333.3333333,1e+30,4.5,0.002,1e-27,0]'), 'hex') AS numbers;
SELECT idempotency_hash($${"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
    "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}$$) =
       encode(sha256(convert_to('{"\r":"Carriage Return","1":"One","' || U&'\0080' || '":"Control","ö":"Latin Small Letter O With Diaeresis",'
           '"€":"Euro Sign","😀":"Emoji: Grinning Face","' || U&'\FB33' || '":"Hebrew Letter Dalet With Dagesh"}', 'UTF8')), 'hex') AS keys;
SELECT idempotency_hash($$"\u20ac$\u000f\nA'\u0042\"\\\/\u001f\u007f\t\b\f\r<>&\u2028"$$) =
       encode(sha256(convert_to($$"€$\u000f\nA'B\"\\/\u001f$$ || U&'\007F' || $$\t\b\f\r<>&$$ || U&'\2028' || '"', 'UTF8')), 'hex') AS strings;
SELECT body, idempotency_hash(body) = encode(sha256(convert_to(canonical, 'UTF8')), 'hex') AS same FROM (VALUES
    ('null', 'null'), ('true', 'true'), ('""', '""'), ('[]', '[]'), ('{}', '{}'), ('[[], {}]', '[[],{}]'), ('0', '0'), ('-0.0', '0'),
    ('1.0', '1'), ('-1', '-1'), ('1e2', '100'), ('100.00', '100'), ('123456789012345', '123456789012345'),
    ('9007199254740991', '9007199254740991'), ('-9007199254740991', '-9007199254740991'), ('9007199254740992', '9007199254740992'), ('9007199254740992.0', '9007199254740992'), ('0e-20', '0'),
    ('1e21', '1e+21'), ('1e20', '100000000000000000000'), ('123e-20', '1.23e-18'), ('0.000001', '0.000001'), ('0.0000001', '1e-7'),
    ('5e-324', '5e-324'), ('1.7976931348623157e308', '1.7976931348623157e+308'), ('0.1', '0.1'), ('0.30000000000000004', '0.30000000000000004'),
    ('0.1000000000000000055511151231257827', '0.1'), ('[1, [2, [3]], {"a": {"b": []}}]', '[1,[2,[3]],{"a":{"b":[]}}]'),
    ('{"bb": 1, "a": 2, "": 3, "B": 4}', '{"":3,"B":4,"a":2,"bb":1}'), ('{"a": 1, "a": 2}', '{"a":2}')) v (body, canonical);
-- Numbers that a double cannot hold.
\pset format unaligned
\pset tuples_only on
SELECT * FROM attempt($$SELECT idempotency_hash('9007199254740993')$$);
SELECT code FROM attempt($$SELECT idempotency_hash('[-9007199254740993]')$$);
SELECT code FROM attempt($$SELECT idempotency_hash('9007199254740993.00')$$);
SELECT code FROM attempt($$SELECT idempotency_hash('1152921504606846976')$$);
SELECT * FROM attempt($$SELECT idempotency_hash('{"a": [1e400]}')$$);
SELECT code FROM attempt($$SELECT idempotency_hash('-1e309')$$);
SELECT code FROM attempt($$SELECT idempotency_hash('1e-400')$$);
SELECT code FROM attempt($$SELECT idempotency_hash(repeat('9', 1000))$$);
SELECT code FROM attempt($$SELECT idempotency_hash('1' || repeat('0', 400))$$);

-- Each bad argument: the right SQLSTATE, a message that names it, and nothing changed.
CREATE TABLE before AS SELECT * FROM idempotency_keys;
SELECT * FROM attempt($$SELECT idempotency_begin('s', '', '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', repeat('k', 256), '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', repeat('€', 86), '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', repeat('k', 10000000), '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin(NULL, 'k', '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('', 'k', '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin(repeat('s', 256), 'k', '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', NULL::jsonb)$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{"n": 1e400}')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', ttl => '0')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', ttl => '-1 s')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', ttl => '999 ms')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', ttl => '367 days')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', ttl => '178000000 years')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', lease => '0')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', lease => '-1 day')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', lease => '25 h')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', wait => '-1 ms')$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', '{}', wait => '61 min')$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', NULL)$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', '')$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', repeat('a', 63))$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', repeat('a', 65))$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', repeat('a', 63) || 'g')$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', repeat('-1', 32))$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', repeat('0x', 32))$$);
SELECT * FROM attempt($$SELECT idempotency_begin_hashed('s', 'k', repeat(' a', 32))$$);
SELECT * FROM attempt($$SELECT idempotency_hash(NULL::jsonb)$$);
SELECT * FROM attempt($$SELECT idempotency_hash('{"a":')$$);
-- The answer.
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 99, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 600, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), -200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 65736, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), NULL, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 200, '{')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 200, to_jsonb(repeat('x', 10000000)))$$);
SELECT code FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 200, '"' || repeat('x', 10000000) || '"')$$);
-- Finish without begin, twice, with the wrong token, with another's key.
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'never', 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'one', token_of('one'), 200, '{"n": 2}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b') - 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b') + 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', NULL, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('old-2'), 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', '', 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', repeat('k', 256), 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish(NULL, 'two-b', 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_finish('s', NULL, 1, 200, '{}')$$);
SELECT * FROM attempt($$SELECT idempotency_abandon('s', 'never', 1)$$);
SELECT * FROM attempt($$SELECT idempotency_abandon('s', 'one', token_of('one'))$$);
SELECT * FROM attempt($$SELECT idempotency_abandon('s', 'two-b', NULL)$$);
SELECT * FROM attempt($$SELECT idempotency_abandon('s', 'two-b', token_of('two-b') - 1)$$);
SELECT * FROM attempt($$SELECT idempotency_abandon('', 'two-b', 1)$$);
-- Within the transaction that has begun.
SELECT * FROM attempt($$DO 'DECLARE t bigint; BEGIN
    SELECT token INTO t FROM idempotency_begin(''s'', ''k'', ''{}'');
    PERFORM idempotency_finish(''s'', ''k'', t + 1, 200, ''{}''); END'$$);
SELECT * FROM attempt($$DO 'DECLARE t bigint; BEGIN
    SELECT token INTO t FROM idempotency_begin(''s'', ''k'', ''{}'');
    PERFORM idempotency_finish(''s'', ''k'', t, 200, ''{}'');
    PERFORM idempotency_finish(''s'', ''k'', t, 200, ''{}''); END'$$);
SELECT * FROM attempt($$DO 'DECLARE t bigint; BEGIN
    SELECT token INTO t FROM idempotency_begin(''s'', ''k'', ''{}'');
    PERFORM idempotency_abandon(''s'', ''k'', t);
    PERFORM idempotency_finish(''s'', ''k'', t, 200, ''{}''); END'$$);
-- The rest.
SELECT * FROM attempt($$SELECT idempotency_required(NULL)$$);
SELECT * FROM attempt($$SELECT idempotency_required('')$$);
SELECT * FROM attempt($$SELECT idempotency_required(repeat('s', 256))$$);
SELECT * FROM attempt($$SELECT idempotency_expire(0)$$);
SELECT * FROM attempt($$SELECT idempotency_expire(NULL)$$);
SELECT code FROM attempt($$SET outbox.idempotency_ttl = 0$$);
SELECT code FROM attempt($$SET outbox.idempotency_ttl = '367 d'$$);
SELECT code FROM attempt($$SET outbox.idempotency_lease = '999 ms'$$);
SELECT code FROM attempt($$SET outbox.idempotency_lease = '25 h'$$);
-- Deeply nested.
SELECT * FROM attempt($$SELECT idempotency_hash(repeat('[', 10000) || repeat(']', 10000))$$);
SELECT * FROM attempt($$SELECT idempotency_hash(repeat('{"a":', 10000) || '1' || repeat('}', 10000))$$);
SELECT * FROM attempt($$SELECT idempotency_begin('s', 'k', repeat('[', 10000) || repeat(']', 10000))$$);
SELECT code FROM attempt($$SELECT idempotency_hash(repeat('[', 1001) || repeat(']', 1001))$$);
SELECT code FROM attempt($$SELECT idempotency_hash(repeat('[', 1000000) || repeat(']', 1000000))$$);
SELECT code FROM attempt($$SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 200, repeat('[', 1000000) || repeat(']', 1000000))$$);
SELECT repeat('[{"a":', 500) || repeat('}]', 500) AS deep \gset
SELECT replace(:'deep', ':}', ':1}') AS deep \gset
SELECT idempotency_hash(:'deep') = encode(sha256(:'deep'), 'hex') AS deep_enough;
\pset tuples_only off
\pset format aligned
(TABLE before EXCEPT TABLE idempotency_keys) UNION ALL (TABLE idempotency_keys EXCEPT TABLE before);
-- The extremes that are allowed.
SELECT ask(repeat('k', 255), repeat('s', 255)), ask(repeat('€', 85)), ask('extreme', ttl => '1 s', lease => '1 s', wait => '1 h');
SELECT idempotency_finish('s', 'two-b', token_of('two-b'), 599, to_jsonb(repeat('x', 1000000)));
SELECT length(response #>> '{}') FROM idempotency_begin('s', 'two-b', '{}');
SELECT idempotency_finish('s', repeat('€', 85), token_of(repeat('€', 85)), 100, 'null');
SELECT status_code, response FROM idempotency_begin('s', repeat('€', 85), '{}');

-- Each key of a transaction holds a lock, so they are limited.
BEGIN;
SELECT count(ask('crowd-' || i)) FROM generate_series(1, 1000) i;
SELECT * FROM attempt($$SELECT ask('crowd-1001')$$);
COMMIT;
SELECT count(*), bool_and(runs) AS run FROM known WHERE key LIKE 'crowd-%';

-- A prepared transaction has not ended: its attempts stay in progress, and then go on.
BEGIN;
SELECT ask('prepared-1'), ask('prepared-2');
SELECT token FROM idempotency_begin('s', 'prepared-3', '{}') \gset
SELECT idempotency_finish('s', 'prepared-3', :token, 200, '{}');
PREPARE TRANSACTION 'attempts';
SELECT ask('prepared-1'), ask('prepared-2', request => '1'), ask('prepared-3'), ask('prepared-1', wait => '10 ms');
COMMIT PREPARED 'attempts';
SELECT ask('prepared-1'), ask('prepared-2', request => '1'), ask('prepared-3');
SELECT idempotency_finish('s', 'prepared-1', token_of('prepared-1'), 200, '{}');
BEGIN;
SELECT ask('prepared-4');
PREPARE TRANSACTION 'attempts';
ROLLBACK PREPARED 'attempts';
SELECT key, status_code, runs FROM known WHERE key LIKE 'prepared-%';

-- A transaction that writes nothing begins nothing.
BEGIN READ ONLY;
SELECT idempotency_hash('1') = encode(sha256('1'), 'hex') AS hash;
SAVEPOINT a;
SELECT ask('read only');
ROLLBACK TO a;
SELECT idempotency_finish('s', 'one', 1, 200, '{}');
ROLLBACK TO a;
SELECT idempotency_abandon('s', 'one', 1);
ROLLBACK;

-- Under any isolation.
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT ask('serializable');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT ask('serializable');
SELECT idempotency_finish('s', 'serializable', token_of('serializable'), 200, '{}');
SELECT ask('serializable');
COMMIT;

-- What may not be NULL is not, for whatever reason.
BEGIN;
DELETE FROM _outbox.idempotency_keys WHERE response IS NULL;
ALTER TABLE _outbox.idempotency_keys ALTER response SET NOT NULL;
\set VERBOSITY sqlstate
SELECT idempotency_finish('s', 'no-answer', token, 204, NULL::jsonb) FROM idempotency_begin('s', 'no-answer', '{}');
\set VERBOSITY default
ROLLBACK;

-- A table that somebody has changed still does its work, and what they added works, at the end of a transaction too.
ALTER TABLE _outbox.idempotency_keys ADD COLUMN note text DEFAULT 'none';
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% %', TG_OP, NEW.key; RETURN NEW; END $$;
CREATE TRIGGER shout AFTER INSERT OR UPDATE ON _outbox.idempotency_keys FOR EACH ROW EXECUTE FUNCTION shout();
SELECT ask('changed');
SELECT idempotency_finish('s', 'changed', token_of('changed'), 200, '{}');
BEGIN;
SELECT token FROM idempotency_begin('s', 'changed-2', '{}') \gset
SELECT idempotency_finish('s', 'changed-2', :token, 200, '{}');
COMMIT;
SELECT ask('changed'), ask('changed-2');
CREATE CONSTRAINT TRIGGER shout_late AFTER INSERT OR UPDATE ON _outbox.idempotency_keys DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION shout();
BEGIN;
SELECT ask('changed-deferred');
COMMIT;
DROP TRIGGER shout_late ON _outbox.idempotency_keys;
ALTER TABLE _outbox.idempotency_keys ADD CONSTRAINT no_bad CHECK (key <> 'bad') NOT VALID;
\set VERBOSITY sqlstate
SELECT ask('bad');
\set VERBOSITY default
SELECT note, key FROM _outbox.idempotency_keys WHERE key LIKE 'changed%' OR key = 'bad' ORDER BY key;
DROP TRIGGER shout ON _outbox.idempotency_keys;
ALTER TABLE _outbox.idempotency_keys DROP COLUMN note, DROP CONSTRAINT no_bad;
SELECT ask('changed-3');

-- PUBLIC has nothing; outbox_grant gives what an HTTP layer needs, and not the table.
CREATE ROLE outbox_web;
SET ROLE outbox_web;
SELECT count(*) AS may FROM pg_proc WHERE proname LIKE 'idempotency%' AND has_function_privilege(oid, 'EXECUTE');
SELECT decision FROM idempotency_begin('s', 'web', '{}');
RESET ROLE;
SELECT outbox_grant('outbox_web', 'idempotency');
SET ROLE outbox_web;
SELECT proname, count(*) FROM pg_proc WHERE proname LIKE 'idempotency%' AND has_function_privilege(oid, 'EXECUTE') GROUP BY 1 ORDER BY 1;
SELECT decision, token FROM idempotency_begin('s', 'web', '{}') \gset
SELECT idempotency_finish('s', 'web', :token, 200, '{}');
SELECT decision FROM idempotency_begin_hashed('s', 'web', idempotency_hash('{}'));
SELECT decision, token FROM idempotency_begin('s', 'web-2', '{}') \gset
SELECT idempotency_abandon('s', 'web-2', :token);
SELECT count(*) FROM idempotency_keys;
DELETE FROM _outbox.idempotency_keys;
SELECT count(*) FROM _outbox.idempotency_scopes;
SELECT idempotency_expire();
SELECT idempotency_required('s', false);
SET outbox.idempotency_required = off;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}');
-- What it puts in front of the search_path is not used.
SET outbox.idempotency_ttl = '1 min';
CREATE TEMP TABLE idempotency_keys (key text);
SET search_path = pg_temp, public;
SELECT decision, token FROM idempotency_begin('s', 'web-3', '{}') \gset
SELECT idempotency_finish('s', 'web-3', :token, 200, '{}');
SELECT count(*) FROM idempotency_keys;
RESET search_path;
RESET ROLE;
SELECT outbox_revoke('outbox_web', 'idempotency');
SELECT outbox_grant('outbox_web', 'admin');
SET ROLE outbox_web;
SELECT decision FROM idempotency_begin('s', 'web', '{}');
SELECT idempotency_expire(1) >= 0 AS ok, idempotency_required('s');
RESET ROLE;
RESET outbox.idempotency_ttl;
DROP TABLE pg_temp.idempotency_keys;
-- The type of what is returned is known to whoever returns it.
BEGIN;
ALTER TYPE idempotency_verdict ADD ATTRIBUTE more text;
SELECT decision FROM idempotency_begin('s', 'another shape', '{}'::jsonb);
ROLLBACK;
SELECT decision FROM idempotency_begin('s', 'another shape', '{}'::jsonb);

SELECT idempotency_required('s', NULL), idempotency_required('payments', NULL);
SET client_min_messages = warning;
DROP OWNED BY outbox_web;
DROP ROLE outbox_web;
DROP TABLE before;
DROP VIEW known;
DROP FUNCTION ask, token_of, attempt, shout;
RESET client_min_messages;
TRUNCATE _outbox.idempotency_keys;
