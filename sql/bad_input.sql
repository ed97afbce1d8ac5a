-- Each bad argument: the right SQLSTATE, a message that names it, and nothing written.
CREATE FUNCTION attempt(statement text, OUT code text, OUT message text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    code := 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            hint = PG_EXCEPTION_HINT;
END $$;
SELECT count(*) AS messages_before, (SELECT count(*) FROM outbox_scheduled) AS scheduled_before,
       (SELECT count(*) FROM _outbox.dedup_keys) AS keys_before FROM outbox_messages \gset
\pset format unaligned
\pset tuples_only on

SELECT * FROM attempt($$SELECT outbox_enqueue(NULL, '1', 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', NULL::text, 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', NULL::bigint, 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', NULL, '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', NULL::jsonb)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', NULL::text)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('', '1', 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '', 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', '', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue(repeat('x', 256), '1', 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', repeat('x', 256), 'E', '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', repeat('€', 86), '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', repeat('x', 10000000), '{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', event_version => 0)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', event_version => -1)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', event_version => 32768)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', to_jsonb(repeat('x', 1100000)))$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', metadata => '[]')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', metadata => '"x"')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', metadata => 'null')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', metadata => jsonb_build_object('x', repeat('x', 1100000)))$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', available_at => 'infinity')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', available_at => '-infinity')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', dedup_key => '')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', '{}', dedup_key => repeat('k', 256))$$);

-- In an array the message says which element.
SELECT * FROM attempt($$SELECT outbox_enqueue_many(NULL::jsonb)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue_many('{}')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue_many('"x"')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue_many('[1]')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue_many('[[]]')$$);
SELECT * FROM attempt($$SELECT outbox_enqueue_many('[{}]')$$);
CREATE FUNCTION attempt_second(change jsonb, OUT code text, OUT message text, OUT hint text)
LANGUAGE sql AS $$
    SELECT * FROM attempt(format('SELECT outbox_enqueue_many(%L::jsonb)', jsonb_build_array(
        '{"aggregate_type": "T", "aggregate_id": "1", "event_type": "E", "payload": {}}'::jsonb,
        '{"aggregate_type": "T", "aggregate_id": "1", "event_type": "E", "payload": {}}'::jsonb
            || change)))
$$;
SELECT * FROM attempt_second('{"evnet_type": "E"}');
SELECT * FROM attempt_second('{"evnet_type": null}');
SELECT code, length(message) FROM attempt_second(jsonb_build_object(repeat('€', 200), 1));
SELECT * FROM attempt_second('{"aggregate_type": 1}');
SELECT * FROM attempt_second('{"aggregate_type": null}');
SELECT * FROM attempt_second('{"aggregate_type": ""}');
SELECT * FROM attempt_second('{"aggregate_id": 1.5}');
SELECT * FROM attempt_second('{"aggregate_id": true}');
SELECT * FROM attempt_second('{"aggregate_id": {}}');
SELECT * FROM attempt_second('{"event_type": ["E"]}');
SELECT * FROM attempt_second('{"event_version": "1"}');
SELECT * FROM attempt_second('{"event_version": 0}');
SELECT * FROM attempt_second('{"event_version": 1e30}');
SELECT * FROM attempt_second('{"tenant_id": 1.5}');
SELECT * FROM attempt_second('{"tenant_id": 99999999999999999999}');
SELECT * FROM attempt_second('{"metadata": []}');
SELECT * FROM attempt_second('{"trace_id": 1}');
SELECT * FROM attempt_second('{"available_at": 1}');
SELECT * FROM attempt_second('{"available_at": "soon"}');
SELECT * FROM attempt_second('{"available_at": "infinity"}');
SELECT * FROM attempt_second('{"dedup_key": 1}');
SELECT * FROM attempt_second('{"dedup_key": ""}');
SELECT * FROM attempt($$SELECT outbox_enqueue_many('[{"aggregate_type": "T", "aggregate_id": "1", "event_type": "E"}]')$$);

SELECT * FROM attempt($$SELECT outbox_cancel(NULL)$$);
SELECT * FROM attempt($$SELECT outbox_release_due(0)$$);
SELECT * FROM attempt($$SELECT outbox_release_due(1000000)$$);
SELECT code FROM attempt($$SET outbox.tenant_id = '1x'$$);
SELECT code FROM attempt($$SET outbox.dedup_window = 0$$);
SELECT code FROM attempt($$SET outbox.max_payload_size = -1$$);
SELECT code FROM attempt($$SET outbox.partition_interval = 'daily'$$);
SELECT code FROM attempt($$SET outbox.no_such_setting = 1$$);

-- The extremes that are allowed.
SELECT * FROM attempt($$SELECT outbox_enqueue(repeat('x', 255), repeat('y', 255), repeat('€', 85), '{}', 32767, 9223372036854775807, dedup_key => repeat('k', 255))$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', (-9223372036854775808)::bigint, 'E', '{}', tenant_id => -9223372036854775808)$$);
SELECT * FROM attempt($$SELECT outbox_enqueue('T', '1', 'E', to_jsonb(repeat('x', 1000000)))$$);

\pset tuples_only off
\pset format aligned
SELECT count(*) - :messages_before AS messages, (SELECT count(*) FROM outbox_scheduled) - :scheduled_before AS scheduled,
       (SELECT count(*) FROM _outbox.dedup_keys) - :keys_before AS keys FROM outbox_messages;
DROP FUNCTION attempt_second, attempt;
