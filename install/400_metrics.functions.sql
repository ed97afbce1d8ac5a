-- The text format of Prometheus requires these three escapes.
CREATE OR REPLACE FUNCTION _outbox.metric_label(label text, value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s="%s"', label, replace(replace(replace(value, '\', '\\'), '"', '\"'), E'\n', '\n'))
$$;
COMMENT ON FUNCTION _outbox.metric_label(text, text) IS 'internal: label of a metric, escaped for Prometheus';

CREATE OR REPLACE FUNCTION _outbox.metric_samples(
    OUT name text, OUT type text, OUT help text, OUT labels text, OUT value double precision)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH consumers AS MATERIALIZED (SELECT s.*, _outbox.metric_label('consumer', s.consumer) AS label
                                      FROM _outbox.collect_stats() s),
         types AS MATERIALIZED (SELECT t.*, _outbox.metric_label('event_type', t.event_type) AS label
                                  FROM _outbox.collect_event_stats() t)
    SELECT m.* FROM consumers c CROSS JOIN LATERAL (VALUES
        ('outbox_lag_seconds', 'gauge', 'Age of the oldest unsettled event of a consumer.', c.label, c.lag_seconds),
        ('outbox_lag_is_exact', 'gauge',
         '1 if the lag is exact; 0 if it is an upper bound, because the consumer may not want the unread events.',
         c.label, c.lag_is_exact::integer),
        ('outbox_lag_messages', 'gauge',
         'Upper bound of the unclaimed events of a consumer: unread ids, and events that were read and not claimed.',
         c.label, c.lag_messages),
        ('outbox_throughput_total', 'counter', 'Events delivered to a consumer and acknowledged.',
         c.label, c.delivered),
        ('outbox_delivered_bytes_total', 'counter', 'Bytes of the payloads of delivered events.', c.label, c.bytes),
        ('outbox_retries_total', 'counter', 'Failed attempts that were followed by a retry.', c.label, c.retried),
        ('outbox_given_up_total', 'counter', 'Events that became dead letters of a consumer.', c.label, c.dead),
        ('outbox_dlq_depth', 'gauge', 'Dead letters of a consumer.', c.label, c.dlq_depth),
        ('outbox_waiting_retries', 'gauge', 'Events that wait for a retry.', c.label, c.waiting_retries),
        ('outbox_max_attempts', 'gauge', 'Largest number of attempts of an event that waits for a retry.',
         c.label, c.max_attempts),
        ('outbox_in_flight', 'gauge', 'Events claimed by a worker or the relay and not yet settled.',
         c.label, c.in_flight),
        ('outbox_open_leases', 'gauge', 'Batches that are claimed or wait for a worker.', c.label, c.open_leases),
        ('outbox_stale_leases', 'gauge', 'Batches whose lease has expired.', c.label, c.stale_leases),
        ('outbox_paused', 'gauge', '1 if the consumer is paused.', c.label, c.paused::integer),
        ('outbox_backing_off', 'gauge', '1 if the sink backs off.', c.label,
         (c.backoff_until IS NOT NULL)::integer)
        ) m (name, type, help, labels, value)
    UNION ALL
    SELECT m.* FROM types t CROSS JOIN LATERAL (VALUES
        ('outbox_enqueued_total', 'counter', 'Events that entered the log.', t.label, t.enqueued::double precision),
        ('outbox_delivered_total', 'counter', 'Deliveries to all consumers.', t.label, t.delivered),
        ('outbox_failures_total', 'counter', 'Failed attempts of all consumers.', t.label, t.failed),
        ('outbox_dead_events_total', 'counter', 'Events that became dead letters of any consumer.', t.label, t.dead)) m
    UNION ALL
    SELECT 'outbox_dlq_messages', 'gauge', 'Dead letters by event type.',
           concat_ws(',', _outbox.metric_label('consumer', d.consumer),
                     _outbox.metric_label('event_type', d.event_type)), d.dead_letters
      FROM _outbox.collect_dead_letters() d
    UNION ALL
    SELECT m.* FROM _outbox.collect_held() h CROSS JOIN LATERAL (VALUES
        ('outbox_held_partition_seconds', 'gauge',
         'Seconds for which a consumer has held back a partition that is due to be archived or dropped.',
         _outbox.metric_label('consumer', h.consumer), h.held_partition_seconds),
        ('outbox_held_partition_bytes', 'gauge', 'Size of the partitions that a consumer holds back.',
         _outbox.metric_label('consumer', h.consumer), h.held_partition_bytes)) m
    UNION ALL
    SELECT m.* FROM _outbox.collect_tables() t CROSS JOIN LATERAL (VALUES
        ('outbox_dead_tuples', 'gauge', 'Dead rows that autovacuum has not removed yet.',
         _outbox.metric_label('table', t."table"), t.dead_tuples::double precision),
        ('outbox_table_bytes', 'gauge', 'Size of a table with its indexes and partitions.',
         _outbox.metric_label('table', t."table"), t.bytes)) m
    UNION ALL
    SELECT m.* FROM _outbox.collect_database() d CROSS JOIN LATERAL (VALUES
        ('outbox_health_status', 'gauge', 'Status of outbox_health(): 0 ok, 1 degraded, 2 failing.',
         '', d.health::double precision),
        ('outbox_relay_up', 'gauge', '1 if a relay serves this database.', '', d.relay_up),
        ('outbox_scheduled_overdue', 'gauge', 'Scheduled events that are due and not yet in the log.',
         '', d.scheduled_overdue),
        ('outbox_default_partition_events', 'gauge', '1 if the default partition holds events.',
         '', d.default_partition_events)) m
$$;
COMMENT ON FUNCTION _outbox.metric_samples() IS 'internal: samples of outbox_metrics(), except histograms';

CREATE OR REPLACE FUNCTION _outbox.metric_histograms(OUT name text, OUT help text, OUT lines text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'outbox_latency_seconds', 'Time from enqueue to settlement.',
           string_agg(format(E'%4$soutbox_latency_seconds_bucket{%1$s,le="+Inf"} %2$s\n'
                             'outbox_latency_seconds_sum{%1$s} %3$s\noutbox_latency_seconds_count{%1$s} %2$s',
                             l.label, l.latency_seconds_count, l.latency_seconds_sum, l.buckets),
                      E'\n' ORDER BY l.label)
      FROM (SELECT h.*, x.label,
                   (SELECT string_agg(format(E'outbox_latency_seconds_bucket{%s,le="%s"} %s\n',
                                             x.label, b.bound, b.count), '' ORDER BY b.bound)
                      FROM unnest(h.latency_seconds, h.latency_seconds_bucket) b (bound, count)) AS buckets
              FROM _outbox.collect_latency() h
             CROSS JOIN LATERAL (SELECT _outbox.metric_label('consumer', h.consumer) AS label) x) l
    HAVING count(*) > 0
$$;
COMMENT ON FUNCTION _outbox.metric_histograms() IS 'internal: histograms of outbox_metrics()';

CREATE OR REPLACE FUNCTION outbox_metrics() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n%4$s\n', name, help, type, lines), '' ORDER BY name)
      FROM (SELECT name, min(help) AS help, min(type) AS type,
                   string_agg(format('%s%s %s', name, '{' || nullif(labels, '') || '}', value),
                              E'\n' ORDER BY labels) AS lines
              FROM _outbox.metric_samples() GROUP BY name
             UNION ALL
            SELECT name, help, 'histogram', lines FROM _outbox.metric_histograms()) m
$$;
COMMENT ON FUNCTION outbox_metrics() IS 'all statistics in the text format of Prometheus';

