----------------------------------------------------------------------------------------------------
-- Statistics. Counters are in shared memory; all other figures are read from tables, without a scan of the log.
----------------------------------------------------------------------------------------------------

-- consumer_id 0 stands for all consumers without a slot. latency[i] counts events that took 2^(i+4) up to
-- 2^(i+5) microseconds.
CREATE OR REPLACE FUNCTION _outbox.consumer_counts(
    OUT consumer_id integer, OUT delivered bigint, OUT failed bigint, OUT dead bigint, OUT bytes bigint,
    OUT per_second double precision, OUT p50_ms double precision, OUT p95_ms double precision,
    OUT p99_ms double precision, OUT latency bigint[], OUT latency_sum double precision,
    OUT last_error text, OUT last_error_at timestamptz, OUT since timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_consumer_counts';
COMMENT ON FUNCTION _outbox.consumer_counts() IS 'internal: counters of each consumer';

CREATE OR REPLACE FUNCTION _outbox.event_counts(
    OUT event_type text, OUT enqueued bigint, OUT delivered bigint, OUT failed bigint, OUT dead bigint,
    OUT since timestamptz)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_event_counts';
COMMENT ON FUNCTION _outbox.event_counts()
IS 'internal: counters of each event type; NULL stands for all types without a slot';

CREATE OR REPLACE FUNCTION _outbox.stats_overflowed() RETURNS boolean
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_stats_overflowed';
COMMENT ON FUNCTION _outbox.stats_overflowed()
IS 'internal: returns true if a consumer or an event type has no slot for its counters';

CREATE OR REPLACE FUNCTION _outbox.release_stats_slots(consumers integer[]) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_release_stats_slots';
COMMENT ON FUNCTION _outbox.release_stats_slots(integer[])
IS 'internal: frees the slots of dropped databases, and of all other consumers of this database';

CREATE OR REPLACE FUNCTION outbox_stats_reset() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_stats_reset';
COMMENT ON FUNCTION outbox_stats_reset() IS 'resets the counters of this database';

CREATE OR REPLACE FUNCTION _outbox.oldest_unsettled(consumer text, OUT occurred_at timestamptz, OUT is_exact boolean)
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_oldest_unsettled';
COMMENT ON FUNCTION _outbox.oldest_unsettled(text)
IS 'internal: oldest event that a consumer has not settled, retries excluded';

-- Infinite times are handled apart: before PostgreSQL 17, subtracting them is an error.
CREATE OR REPLACE FUNCTION _outbox.age_of(since timestamptz) RETURNS double precision
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN isfinite(since) THEN greatest(extract(epoch FROM clock_timestamp() - since), 0)
                WHEN since < clock_timestamp() THEN 'Infinity' ELSE 0 END
$$;
COMMENT ON FUNCTION _outbox.age_of(timestamptz) IS 'internal: age in seconds; 0 for a time in the future, and for NULL';

CREATE OR REPLACE FUNCTION _outbox.collect_stats(
    OUT consumer text, OUT kind text, OUT paused boolean,
    OUT lag_seconds double precision, OUT lag_is_exact boolean, OUT lag_messages bigint,
    OUT delivered bigint, OUT failed bigint, OUT retried bigint, OUT dead bigint, OUT bytes bigint,
    OUT per_second double precision, OUT p50_ms double precision, OUT p95_ms double precision,
    OUT p99_ms double precision, OUT open_leases bigint, OUT stale_leases bigint, OUT in_flight bigint,
    OUT waiting_retries bigint, OUT oldest_retry_at timestamptz, OUT max_attempts integer, OUT dlq_depth bigint,
    OUT backoff_until timestamptz, OUT last_error text, OUT last_error_at timestamptz, OUT stats_reset timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
    SELECT c.name, c.kind, c.paused,
           _outbox.age_of(least(o.occurred_at, r.oldest)),
           o.is_exact OR coalesce(r.oldest <= o.occurred_at, false),
           greatest(_outbox.last_id() - coalesce(b.target_seq, b.passed_seq), 0)
           + CASE WHEN b.target_seq IS NULL THEN 0
                  ELSE greatest(b.target_seq - greatest(b.last_id, b.passed_seq), 0) END
           + l.waiting,
           coalesce(n.delivered, 0), coalesce(n.failed, 0), coalesce(n.failed - n.dead, 0), coalesce(n.dead, 0),
           coalesce(n.bytes, 0), coalesce(n.per_second, 0), n.p50_ms, n.p95_ms, n.p99_ms,
           l.open, l.stale, coalesce(s.claimed, l.claimed), r.count, r.next, r.attempts, d.count,
           CASE WHEN s.resume_at > clock_timestamp() THEN s.resume_at END,
           CASE WHEN s.last_error_at > n.last_error_at IS NOT FALSE AND s.last_error_at IS NOT NULL
                THEN s.last_error ELSE n.last_error END,
           greatest(s.last_error_at, n.last_error_at), n.since
      FROM _outbox.consumers c
      LEFT JOIN _outbox.consumer_counts() n USING (consumer_id)
      LEFT JOIN _outbox.sink_states() s USING (consumer_id)
     CROSS JOIN LATERAL (SELECT * FROM _outbox.batches x WHERE x.consumer_id = c.consumer_id
                          ORDER BY x.token DESC LIMIT 1) b
     CROSS JOIN LATERAL _outbox.oldest_unsettled(c.name) o
     CROSS JOIN LATERAL (SELECT count(*) AS open, count(*) FILTER (WHERE x.locked_until < clock_timestamp()
                                                                     AND x.locked_until <> '-infinity') AS stale,
                                coalesce(sum(e.count) FILTER (WHERE x.locked_until >= clock_timestamp()),
                                         0)::bigint AS claimed,
                                coalesce(sum(e.count) FILTER (WHERE (x.locked_until >= clock_timestamp()) IS NOT TRUE),
                                         0)::bigint AS waiting
                           FROM _outbox.leases x
                          CROSS JOIN LATERAL (SELECT coalesce(sum(upper(run) - lower(run)), x.size) AS count
                                                FROM unnest(x.remaining) run) e
                          WHERE x.token = ANY (b.open_tokens) AND x.acked_at IS NULL AND x.superseded_by IS NULL) l
     CROSS JOIN LATERAL (SELECT count(*) AS count, min(x.occurred_at) AS oldest,
                                min(x.available_at) FILTER (WHERE x.available_at <> 'infinity') AS next,
                                coalesce(max(x.attempts), 0) AS attempts
                           FROM _outbox.retries x WHERE x.consumer_id = c.consumer_id) r
     CROSS JOIN LATERAL (SELECT count(*) AS count FROM _outbox.dead_letters x
                          WHERE x.consumer_id = c.consumer_id) d
     WHERE _outbox.shows_tenant(c.tenant_id)
$$;
COMMENT ON FUNCTION _outbox.collect_stats() IS 'internal: rows of outbox_stats';

CREATE OR REPLACE FUNCTION _outbox.collect_event_stats(
    OUT event_type text, OUT enqueued bigint, OUT delivered bigint, OUT failed bigint, OUT dead bigint,
    OUT stats_reset timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(event_type, 'other'), enqueued, delivered, failed, dead, since FROM _outbox.event_counts()
     WHERE enqueued + delivered + failed > 0 AND _outbox.shows_tenant(NULL)
$$;
COMMENT ON FUNCTION _outbox.collect_event_stats() IS 'internal: rows of outbox_stats_events';

CREATE OR REPLACE FUNCTION _outbox.health(OUT status text, OUT reasons text[])
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH consumers AS MATERIALIZED (SELECT * FROM _outbox.collect_stats()),
         problems AS (
        -- A missing partition is no failure: the default partition takes its events.
        SELECT s.component IN ('relay', 'preload')
               OR s.component = 'partitions'
                  AND (SELECT count(*) FILTER (WHERE p.is_default) = 0
                              OR count(*) FILTER (WHERE p.upper_bound > clock_timestamp()) = 0
                         FROM _outbox.partitions() p) AS fails,
               format('%s: %s', s.component, s.detail) AS reason
          FROM _outbox.status() s WHERE NOT s.ok
         UNION ALL
        SELECT c.lag_seconds > 300, format('consumer %s is %s s behind', c.consumer, round(c.lag_seconds))
          FROM consumers c WHERE c.lag_seconds > 60 AND c.lag_is_exact AND NOT c.paused
         UNION ALL
        SELECT false, format('consumer %s has %s dead letters', c.consumer, c.dlq_depth) FROM consumers c
         WHERE c.dlq_depth > 0)
    SELECT CASE WHEN bool_or(fails) THEN 'failing' WHEN count(*) > 0 THEN 'degraded' ELSE 'ok' END,
           coalesce(array_agg(reason ORDER BY fails DESC, reason), '{}')
      FROM problems
$$;
COMMENT ON FUNCTION _outbox.health() IS 'internal: row of outbox_health()';

CREATE OR REPLACE FUNCTION outbox_health(OUT status text, OUT reasons text[])
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM _outbox.health()
$$;
COMMENT ON FUNCTION outbox_health() IS 'health of the database: ok, degraded or failing, with the reasons';

-- Buckets are cumulative, as in Prometheus; events above the last bound are only in latency_seconds_count.
CREATE OR REPLACE FUNCTION _outbox.collect_latency(
    OUT consumer text, OUT latency_seconds double precision[], OUT latency_seconds_bucket bigint[],
    OUT latency_seconds_sum double precision, OUT latency_seconds_count bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.name, h.bounds, h.counts, coalesce(n.latency_sum, 0),
           coalesce((SELECT sum(x) FROM unnest(n.latency) x), 0)::bigint
      FROM _outbox.consumers c
      LEFT JOIN _outbox.consumer_counts() n USING (consumer_id)
     CROSS JOIN LATERAL (SELECT array_agg(2 ^ (i + 5) / 1e6 ORDER BY i) AS bounds,
                                array_agg(coalesce((SELECT sum(x) FROM unnest(n.latency[:i]) x), 0)::bigint
                                          ORDER BY i) AS counts
                           FROM generate_series(1, 28) i) h
     WHERE _outbox.shows_tenant(c.tenant_id)
$$;
COMMENT ON FUNCTION _outbox.collect_latency() IS 'internal: rows of outbox_stats_latency';

CREATE OR REPLACE FUNCTION _outbox.collect_dead_letters(OUT consumer text, OUT event_type text, OUT dead_letters bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.name, d.event_type, count(*)
      FROM _outbox.dead_letters d JOIN _outbox.consumers c USING (consumer_id)
     WHERE _outbox.shows_tenant(c.tenant_id) GROUP BY 1, 2
$$;
COMMENT ON FUNCTION _outbox.collect_dead_letters() IS 'internal: rows of outbox_stats_dead_letters';

CREATE OR REPLACE FUNCTION _outbox.collect_tables(OUT "table" text, OUT dead_tuples bigint, OUT bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE t.relnamespace WHEN '_outbox'::regnamespace THEN '_outbox.' ELSE '' END || t.relname,
           sum(pg_stat_get_dead_tuples(coalesce(p.relid, t.oid)))::bigint,
           sum(pg_total_relation_size(coalesce(p.relid, t.oid)))::bigint
      FROM pg_extension e
      JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
       AND d.classid = 'pg_class'::regclass
      JOIN pg_class t ON t.oid = d.objid AND t.relkind IN ('r', 'p')
      LEFT JOIN LATERAL pg_partition_tree(t.oid) p ON p.isleaf
     WHERE e.extname = 'outbox' AND d.deptype = 'e' AND _outbox.shows_tenant(NULL)
     GROUP BY 1
$$;
COMMENT ON FUNCTION _outbox.collect_tables() IS 'internal: rows of outbox_stats_tables';

CREATE OR REPLACE FUNCTION _outbox.collect_held(
    OUT consumer text, OUT held_partition_seconds double precision, OUT held_partition_bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.consumer, max(_outbox.age_of(h.since)), sum(h.bytes)::bigint
      FROM _outbox.held_partitions() h GROUP BY 1
$$;
COMMENT ON FUNCTION _outbox.collect_held() IS 'internal: rows of outbox_stats_held';

CREATE OR REPLACE FUNCTION _outbox.collect_database(
    OUT health integer, OUT relay_up integer, OUT scheduled_overdue bigint, OUT default_partition_events integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_position('{ok,degraded,failing}', h.status) - 1, (r.worker IS NOT NULL)::integer,
           (SELECT count(*) FROM _outbox.scheduled s
             WHERE s.available_at <= clock_timestamp() - interval '1 second' AND s.try_again_at IS NULL),
           coalesce(_outbox.default_partition_has_rows(), false)::integer
      FROM _outbox.health() h, _outbox.relay_status() r
$$;
COMMENT ON FUNCTION _outbox.collect_database() IS 'internal: row of outbox_stats_database';

DO $do$
DECLARE
    path CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
CREATE OR REPLACE VIEW @extschema@.outbox_stats AS SELECT * FROM _outbox.collect_stats();
CREATE OR REPLACE VIEW @extschema@.outbox_stats_events AS SELECT * FROM _outbox.collect_event_stats();
CREATE OR REPLACE VIEW @extschema@.outbox_stats_latency AS SELECT * FROM _outbox.collect_latency();
CREATE OR REPLACE VIEW @extschema@.outbox_stats_dead_letters AS SELECT * FROM _outbox.collect_dead_letters();
CREATE OR REPLACE VIEW @extschema@.outbox_stats_tables AS SELECT * FROM _outbox.collect_tables();
CREATE OR REPLACE VIEW @extschema@.outbox_stats_held AS SELECT * FROM _outbox.collect_held();
CREATE OR REPLACE VIEW @extschema@.outbox_stats_database AS SELECT * FROM _outbox.collect_database();
PERFORM set_config('search_path', path, true);
END $do$;

COMMENT ON VIEW outbox_stats IS 'statistics of each consumer, sinks included';
COMMENT ON COLUMN outbox_stats.consumer IS 'name of the consumer';
COMMENT ON COLUMN outbox_stats.kind IS 'worker, http or kafka';
COMMENT ON COLUMN outbox_stats.paused IS 'true if the consumer is paused';
COMMENT ON COLUMN outbox_stats.lag_seconds IS 'age of the oldest event that is not settled; 0 if there is none';
COMMENT ON COLUMN outbox_stats.lag_is_exact
IS 'false if lag_seconds is an upper bound, because the next events may be unwanted';
COMMENT ON COLUMN outbox_stats.lag_messages
IS 'ids drawn but not yet read, gaps and unwanted events included, plus events read but not under a lease';
COMMENT ON COLUMN outbox_stats.delivered IS 'events that were settled successfully';
COMMENT ON COLUMN outbox_stats.failed IS 'failed attempts';
COMMENT ON COLUMN outbox_stats.retried IS 'failed attempts that were followed by a retry';
COMMENT ON COLUMN outbox_stats.dead IS 'failed attempts that led to a dead letter';
COMMENT ON COLUMN outbox_stats.bytes IS 'size of the delivered payloads, as stored';
COMMENT ON COLUMN outbox_stats.per_second IS 'deliveries per second over the last minute';
COMMENT ON COLUMN outbox_stats.p50_ms IS 'median time from enqueue to settlement, in milliseconds';
COMMENT ON COLUMN outbox_stats.p95_ms IS '95th percentile of the time from enqueue to settlement, in milliseconds';
COMMENT ON COLUMN outbox_stats.p99_ms IS '99th percentile of the time from enqueue to settlement, in milliseconds';
COMMENT ON COLUMN outbox_stats.open_leases IS 'open batches, under a lease or waiting for a worker';
COMMENT ON COLUMN outbox_stats.stale_leases IS 'open batches with an expired lease';
COMMENT ON COLUMN outbox_stats.in_flight IS 'events that are claimed by a worker or the relay';
COMMENT ON COLUMN outbox_stats.waiting_retries IS 'events that wait for a retry, or are blocked by one';
COMMENT ON COLUMN outbox_stats.oldest_retry_at IS 'time when the next retry is due';
COMMENT ON COLUMN outbox_stats.max_attempts IS 'highest number of attempts among the events that wait for a retry';
COMMENT ON COLUMN outbox_stats.dlq_depth IS 'number of dead letters';
COMMENT ON COLUMN outbox_stats.backoff_until IS 'time until which the sink backs off; NULL if it does not';
COMMENT ON COLUMN outbox_stats.last_error IS 'last error of a message or of the sink';
COMMENT ON COLUMN outbox_stats.last_error_at IS 'time of last_error';
COMMENT ON COLUMN outbox_stats.stats_reset IS 'time since when events are counted';

COMMENT ON VIEW outbox_stats_events IS 'counters of each event type, since server start or the last reset';
COMMENT ON COLUMN outbox_stats_events.event_type IS 'event type; other stands for all types without a slot';
COMMENT ON COLUMN outbox_stats_events.enqueued IS 'events that entered the log';
COMMENT ON COLUMN outbox_stats_events.delivered IS 'deliveries by all consumers';
COMMENT ON COLUMN outbox_stats_events.failed IS 'failed attempts of all consumers';
COMMENT ON COLUMN outbox_stats_events.dead IS 'dead letters of all consumers';
COMMENT ON COLUMN outbox_stats_events.stats_reset IS 'time since when events are counted';

COMMENT ON VIEW outbox_stats_latency IS 'histograms of the time from enqueue to settlement, for Prometheus';
COMMENT ON COLUMN outbox_stats_latency.consumer IS 'name of the consumer';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds IS 'upper bounds of the buckets';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds_bucket IS 'number of events settled within each bound';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds_sum IS 'sum of the times of all events';
COMMENT ON COLUMN outbox_stats_latency.latency_seconds_count IS 'number of events';

COMMENT ON VIEW outbox_stats_dead_letters IS 'number of dead letters, by consumer and event type';
COMMENT ON COLUMN outbox_stats_dead_letters.consumer IS 'name of the consumer';
COMMENT ON COLUMN outbox_stats_dead_letters.event_type IS 'type of the events';
COMMENT ON COLUMN outbox_stats_dead_letters.dead_letters IS 'number of dead letters';

COMMENT ON VIEW outbox_stats_tables
IS 'size of the tables of the extension; log and archive include all of their partitions';
COMMENT ON COLUMN outbox_stats_tables."table" IS 'name of the table';
COMMENT ON COLUMN outbox_stats_tables.dead_tuples IS 'dead rows that vacuum has not removed yet';
COMMENT ON COLUMN outbox_stats_tables.bytes IS 'size of the table, including its indexes';

COMMENT ON VIEW outbox_stats_held IS 'consumers that hold back partitions due to be archived or dropped';
COMMENT ON COLUMN outbox_stats_held.consumer IS 'name of the consumer';
COMMENT ON COLUMN outbox_stats_held.held_partition_seconds
IS 'time since the first of these partitions was due, in seconds';
COMMENT ON COLUMN outbox_stats_held.held_partition_bytes IS 'total size of these partitions';

COMMENT ON VIEW outbox_stats_database IS 'state of the database, in one row';
COMMENT ON COLUMN outbox_stats_database.health IS 'status of outbox_health(): 0 ok, 1 degraded, 2 failing';
COMMENT ON COLUMN outbox_stats_database.relay_up IS '1 if a relay serves this database';
COMMENT ON COLUMN outbox_stats_database.scheduled_overdue
IS 'overdue scheduled events, except those that the log refused';
COMMENT ON COLUMN outbox_stats_database.default_partition_events IS '1 if the default partition has events';

