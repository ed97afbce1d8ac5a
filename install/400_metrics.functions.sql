-- Escaped as Prometheus wants it.
CREATE OR REPLACE FUNCTION _outbox.metric_label(label text, value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s="%s"', label, replace(replace(replace(value, '\', '\\'), '"', '\"'), E'\n', '\n'))
$$;
COMMENT ON FUNCTION _outbox.metric_label(text, text)
IS 'internal: a label of a metric';

CREATE OR REPLACE FUNCTION _outbox.metric_samples(OUT name text, OUT type text, OUT help text, OUT labels text, OUT value double precision)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH consumers AS MATERIALIZED (SELECT s.*, _outbox.metric_label('consumer', s.consumer) AS label
                                      FROM _outbox.collect_stats() s),
         types AS MATERIALIZED (SELECT t.*, _outbox.metric_label('event_type', t.event_type) AS label
                                  FROM _outbox.collect_event_stats() t)
    SELECT m.* FROM consumers c CROSS JOIN LATERAL (VALUES
        ('outbox_lag_seconds', 'gauge', 'Age of the oldest event that a consumer has yet to settle.', c.label, c.lag_seconds),
        ('outbox_lag_is_exact', 'gauge', '0: the lag is an upper bound, because the next events may not be for the consumer.', c.label, c.lag_is_exact::integer),
        ('outbox_lag_messages', 'gauge', 'Ids that were drawn and not yet read by a consumer, and events that were read and nobody has in hand.', c.label, c.lag_messages),
        ('outbox_throughput_total', 'counter', 'Events that a consumer has settled as done.', c.label, c.delivered),
        ('outbox_delivered_bytes_total', 'counter', 'Payloads of these events.', c.label, c.bytes),
        ('outbox_retries_total', 'counter', 'Attempts that failed and were to be repeated.', c.label, c.retried),
        ('outbox_given_up_total', 'counter', 'Events that a consumer has given up.', c.label, c.dead),
        ('outbox_dlq_depth', 'gauge', 'Dead letters.', c.label, c.dlq_depth),
        ('outbox_waiting_retries', 'gauge', 'Events that wait for another attempt.', c.label, c.waiting_retries),
        ('outbox_max_attempts', 'gauge', 'How often the event was tried that was tried most often, of those that wait.', c.label, c.max_attempts),
        ('outbox_in_flight', 'gauge', 'Events that a worker or the relay has in hand.', c.label, c.in_flight),
        ('outbox_open_leases', 'gauge', 'Batches that are handed out or wait for a worker.', c.label, c.open_leases),
        ('outbox_stale_leases', 'gauge', 'Batches whose lease has run out.', c.label, c.stale_leases),
        ('outbox_paused', 'gauge', 'Is the consumer paused?', c.label, c.paused::integer),
        ('outbox_backing_off', 'gauge', 'Is the sink left alone for a while, because it is in trouble?', c.label,
         (c.backoff_until IS NOT NULL)::integer)
        ) m (name, type, help, labels, value)
    UNION ALL
    SELECT m.* FROM types t CROSS JOIN LATERAL (VALUES
        ('outbox_enqueued_total', 'counter', 'Events that entered the log.', t.label, t.enqueued::double precision),
        ('outbox_delivered_total', 'counter', 'Deliveries, of all consumers.', t.label, t.delivered),
        ('outbox_failures_total', 'counter', 'Attempts that failed, of all consumers.', t.label, t.failed),
        ('outbox_dead_events_total', 'counter', 'Events that became dead letters, of all consumers.', t.label, t.dead)) m
    UNION ALL
    SELECT 'outbox_dlq_messages', 'gauge', 'Dead letters by event type.',
           concat_ws(',', _outbox.metric_label('consumer', d.consumer), _outbox.metric_label('event_type', d.event_type)), d.dead_letters
      FROM _outbox.collect_dead_letters() d
    UNION ALL
    SELECT m.* FROM _outbox.collect_held() h CROSS JOIN LATERAL (VALUES
        ('outbox_held_partition_seconds', 'gauge', 'For how long a consumer has held back a partition that is due to be archived or dropped.',
         _outbox.metric_label('consumer', h.consumer), h.held_partition_seconds),
        ('outbox_held_partition_bytes', 'gauge', 'Size of the partitions that a consumer holds back.',
         _outbox.metric_label('consumer', h.consumer), h.held_partition_bytes)) m
    UNION ALL
    SELECT m.* FROM _outbox.collect_tables() t CROSS JOIN LATERAL (VALUES
        ('outbox_dead_tuples', 'gauge', 'Dead rows that autovacuum has yet to remove.',
         _outbox.metric_label('table', t."table"), t.dead_tuples::double precision),
        ('outbox_table_bytes', 'gauge', 'Size of a table, with its indexes and partitions.',
         _outbox.metric_label('table', t."table"), t.bytes)) m
    UNION ALL
    SELECT m.* FROM _outbox.collect_database() d CROSS JOIN LATERAL (VALUES
        ('outbox_health_status', 'gauge', 'What outbox_health() says: 0 ok, 1 degraded, 2 failing.', '', d.health::double precision),
        ('outbox_relay_up', 'gauge', 'Is there a worker for this database?', '', d.relay_up),
        ('outbox_scheduled_overdue', 'gauge', 'Scheduled events that should have entered the log.', '', d.scheduled_overdue),
        ('outbox_default_partition_events', 'gauge', 'Does the default partition hold events?', '', d.default_partition_events)) m
$$;
COMMENT ON FUNCTION _outbox.metric_samples()
IS 'internal: what outbox_metrics() shows, histograms aside';

CREATE OR REPLACE FUNCTION _outbox.metric_histograms(OUT name text, OUT help text, OUT lines text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'outbox_latency_seconds', 'Time from enqueue to settlement.',
           string_agg(format(E'%4$soutbox_latency_seconds_bucket{%1$s,le="+Inf"} %2$s\noutbox_latency_seconds_sum{%1$s} %3$s\noutbox_latency_seconds_count{%1$s} %2$s',
                             l.label, l.latency_seconds_count, l.latency_seconds_sum, l.buckets), E'\n' ORDER BY l.label)
      FROM (SELECT h.*, x.label,
                   (SELECT string_agg(format(E'outbox_latency_seconds_bucket{%s,le="%s"} %s\n', x.label, b.bound, b.count), '' ORDER BY b.bound)
                      FROM unnest(h.latency_seconds, h.latency_seconds_bucket) b (bound, count)) AS buckets
              FROM _outbox.collect_latency() h
             CROSS JOIN LATERAL (SELECT _outbox.metric_label('consumer', h.consumer) AS label) x) l
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION _outbox.metric_histograms()
IS 'internal: the histograms of outbox_metrics()';

CREATE OR REPLACE FUNCTION outbox_metrics() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n%4$s\n', name, help, type, lines), '' ORDER BY name)
      FROM (SELECT name, min(help) AS help, min(type) AS type,
                   string_agg(format('%s%s %s', name, '{' || nullif(labels, '') || '}', value), E'\n' ORDER BY labels) AS lines
              FROM _outbox.metric_samples() GROUP BY name
             UNION ALL
            SELECT name, help, 'histogram', lines FROM _outbox.metric_histograms()) m
$$;
COMMENT ON FUNCTION outbox_metrics()
IS 'all figures in the text format of Prometheus';

