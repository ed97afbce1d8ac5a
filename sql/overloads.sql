-- No driver should have to cast: aggregate_id as text, bigint or uuid, payload as jsonb, json or
-- text, typed or not.
SELECT outbox_enqueue('T', i, 'E', p) IS NOT NULL AS ok FROM (VALUES ('1'::text)) a(i), (VALUES ('{}'::jsonb)) b(p);
SELECT outbox_enqueue('T', i, 'E', p) IS NOT NULL AS ok FROM (VALUES ('2'::text)) a(i), (VALUES ('{}'::json)) b(p);
SELECT outbox_enqueue('T', i, 'E', p) IS NOT NULL AS ok FROM (VALUES ('3'::text)) a(i), (VALUES ('{}'::text)) b(p);
SELECT outbox_enqueue('T', 4::bigint, 'E', '{}'::jsonb) IS NOT NULL AS ok;
SELECT outbox_enqueue('T', 5::bigint, 'E', '{}'::json) IS NOT NULL AS ok;
SELECT outbox_enqueue('T', 6::bigint, 'E', '{}'::text) IS NOT NULL AS ok;
SELECT outbox_enqueue('T', '00000000-0000-0000-0000-000000000007'::uuid, 'E', '{}'::jsonb) IS NOT NULL AS ok;
SELECT outbox_enqueue('T', '00000000-0000-0000-0000-000000000008'::uuid, 'E', '{}'::json) IS NOT NULL AS ok;
SELECT outbox_enqueue('T', '00000000-0000-0000-0000-000000000009'::uuid, 'E', '{}'::text) IS NOT NULL AS ok;

-- Literals and parameters without a type.
SELECT outbox_enqueue('T', '10', 'E', '{}') IS NOT NULL AS ok;
SELECT outbox_enqueue('T', 11, 'E', '{}') IS NOT NULL AS ok;
SELECT outbox_enqueue('T', 12::smallint, 'E', '{}', metadata => '{"a": 1}') IS NOT NULL AS ok;
SELECT outbox_enqueue('T', '13'::varchar, 'E', '{}'::varchar) IS NOT NULL AS ok;
PREPARE untyped AS SELECT outbox_enqueue($1, $2, $3, $4) IS NOT NULL AS ok;
EXECUTE untyped('T', '14', 'E', '{"a": 1}');
PREPARE named AS SELECT outbox_enqueue(aggregate_type => $1, aggregate_id => $2, event_type => $3,
    payload => $4, available_at => $5, dedup_key => $6) IS NOT NULL AS ok;
EXECUTE named('T', '15', 'E', '{}', NULL, NULL);

SELECT aggregate_id, payload FROM outbox_messages WHERE aggregate_type = 'T' ORDER BY id;

-- What is no JSON is refused by JSON's own error.
\set VERBOSITY sqlstate
SELECT outbox_enqueue('T', 16, 'E', '{not json}'::text);
\set VERBOSITY default

SELECT cardinality(outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": "20", "event_type": "E", "payload": 1}]'::jsonb));
SELECT cardinality(outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": "21", "event_type": "E", "payload": 1}]'::json));
SELECT cardinality(outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": "22", "event_type": "E", "payload": 1}]'::text));
SELECT cardinality(outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": "23", "event_type": "E", "payload": 1}]'));
