-- One call, one order.
SELECT outbox_enqueue_many((
    SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'Batch', 'aggregate_id', i,
                                        'event_type', 'Batched', 'payload', jsonb_build_object('n', i))
                     ORDER BY i)
      FROM generate_series(1, 1000) i)) AS tracking_ids \gset
SELECT count(*), count(DISTINCT id), count(DISTINCT tracking_id), count(DISTINCT xid) AS transactions
  FROM outbox_messages WHERE aggregate_type = 'Batch';
SELECT count(*) AS misplaced
  FROM unnest(:'tracking_ids'::uuid[]) WITH ORDINALITY AS r(tracking_id, place)
  LEFT JOIN (SELECT tracking_id, payload, row_number() OVER (ORDER BY id) AS place
               FROM outbox_messages WHERE aggregate_type = 'Batch') m USING (tracking_id)
 WHERE m.place IS DISTINCT FROM r.place OR m.payload <> jsonb_build_object('n', r.place);

SELECT outbox_enqueue_many('[]');

-- Every key, and what null means in each.
SELECT outbox_enqueue_many(jsonb_build_array(
    '{"aggregate_type": "Full", "aggregate_id": 12345678901234567890, "event_type": "E",
      "payload": [1, "two"], "event_version": 2, "tenant_id": 5, "metadata": {"k": "v"},
      "trace_id": "t"}'::jsonb,
    '{"aggregate_type": "Full", "aggregate_id": "b", "event_type": "E", "payload": null,
      "event_version": null, "tenant_id": null, "metadata": null, "trace_id": null,
      "available_at": null, "dedup_key": null}'::jsonb)) IS NOT NULL AS ok;
SELECT aggregate_id, payload, event_version, tenant_id, metadata, trace_id
  FROM outbox_messages WHERE aggregate_type = 'Full' ORDER BY id;

-- Scheduled, past, repeated: each element goes its own way, and the answer keeps the order.
WITH r AS (SELECT outbox_enqueue_many(jsonb_build_array(
    '{"aggregate_type": "Mixed", "aggregate_id": 1, "event_type": "E", "payload": 1, "dedup_key": "mixed-1"}'::jsonb,
    jsonb_build_object('aggregate_type', 'Mixed', 'aggregate_id', 2, 'event_type', 'E', 'payload', 2,
                       'available_at', now() + interval '1 hour'),
    '{"aggregate_type": "Mixed", "aggregate_id": 3, "event_type": "E", "payload": 3, "dedup_key": "mixed-1"}'::jsonb,
    jsonb_build_object('aggregate_type', 'Mixed', 'aggregate_id', 4, 'event_type', 'E', 'payload', 4,
                       'available_at', now() - interval '1 hour'))) AS ids)
SELECT cardinality(ids) AS answers, ids[1] = ids[3] AS repeated, ids[1] < ids[2] AS ordered FROM r;
SELECT aggregate_id FROM outbox_messages WHERE aggregate_type = 'Mixed' ORDER BY id;
SELECT aggregate_id FROM outbox_scheduled WHERE aggregate_type = 'Mixed';
DELETE FROM _outbox.scheduled;

-- All or nothing.
SELECT outbox_enqueue_many(jsonb_build_array(
    '{"aggregate_type": "Half", "aggregate_id": 1, "event_type": "E", "payload": 1}'::jsonb, '7'::jsonb));
SELECT count(*) FROM outbox_messages WHERE aggregate_type = 'Half';
