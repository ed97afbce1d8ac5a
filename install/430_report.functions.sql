----------------------------------------------------------------------------------------------------
-- Rows that bin/outbox_report reads beside the views of statistics. The report covers all tenants:
-- each function raises an error in the session of one tenant.
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.report_samples(
    consumers text[], since timestamptz,
    OUT consumer text, OUT is_filtered boolean, OUT is_present boolean, OUT at timestamptz,
    OUT lag_seconds double precision, OUT lag_messages bigint, OUT in_flight bigint,
    OUT waiting_retries bigint, OUT dlq_depth bigint, OUT enqueued bigint, OUT delivered bigint,
    OUT dead bigint, OUT latency bigint[], OUT stats_reset timestamptz)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT _outbox.require_no_tenant('_outbox.report_samples()');
    WITH present AS MATERIALIZED (
        SELECT o.name, coalesce(o.event_types <> '{}', false) OR coalesce(o.aggregate_types <> '{}', false)
               OR o.tenant_id IS NOT NULL AS is_filtered, n.*
          FROM _outbox.stats_now() n
          LEFT JOIN _outbox.consumers o USING (consumer_id)
         WHERE n.consumer_id = 0 OR o.name = ANY (consumers)
    )
    SELECT p.name, p.is_filtered, false, h.at, h.lag_seconds, h.lag_messages, h.in_flight,
           h.waiting_retries, h.dlq_depth, h.enqueued, h.delivered, h.dead, h.latency, h.stats_reset
      FROM present p JOIN _outbox.stats_history h USING (consumer_id)
     WHERE h.at < p.at AND h.at > since
     UNION ALL
    SELECT p.name, p.is_filtered, true, p.at, p.lag_seconds, p.lag_messages, p.in_flight,
           p.waiting_retries, p.dlq_depth, p.enqueued, p.delivered, p.dead, p.latency, p.stats_reset
      FROM present p
$$;
COMMENT ON FUNCTION _outbox.report_samples(text[], timestamptz)
IS 'internal: samples of these consumers and, with consumer NULL, of the database: outbox_stats_history since then,'
   ' and now';

CREATE OR REPLACE FUNCTION _outbox.report_problems(OUT component text, OUT detail text, OUT hint text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _outbox.require_no_tenant('_outbox.report_problems()');
    SELECT s.component, s.detail, s.hint FROM _outbox.status() s WHERE NOT s.ok
$$;
COMMENT ON FUNCTION _outbox.report_problems() IS 'internal: rows of outbox_status() that are not ok';

-- The newest 10,000 dead letters of each consumer are counted, which bounds the time with millions of them.
CREATE OR REPLACE FUNCTION _outbox.report_dead_letters(
    OUT event_type text, OUT consumer text, OUT dead_letters bigint, OUT is_lower_bound boolean,
    OUT first_died_at timestamptz, OUT last_died_at timestamptz, OUT last_error text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT _outbox.require_no_tenant('_outbox.report_dead_letters()');
    SELECT d.event_type, c.name, count(*), bool_or(d.is_cut), min(d.died_at), max(d.died_at),
           (array_agg(d.error ORDER BY d.died_at DESC))[1]
      FROM _outbox.consumers c
     CROSS JOIN LATERAL (SELECT x.event_type, x.died_at, left(x.last_error, 300) AS error,
                                count(*) OVER () = 10000 AS is_cut
                           FROM (SELECT * FROM _outbox.dead_letters y
                                  WHERE y.consumer_id = c.consumer_id
                                  ORDER BY y.id DESC LIMIT 10000) x) d
     GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 20
$$;
COMMENT ON FUNCTION _outbox.report_dead_letters()
IS 'internal: the 20 pairs of event type and consumer with most dead letters, with the last error of each';

CREATE OR REPLACE FUNCTION _outbox.report_partitions(
    OUT place text, OUT partition text, OUT is_default boolean, OUT lower_bound timestamptz,
    OUT upper_bound timestamptz, OUT events bigint, OUT bytes bigint, OUT is_stored boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _outbox.require_no_tenant('_outbox.report_partitions()');
    SELECT 'log', c.relname::text, p.is_default, p.lower_bound, p.upper_bound,
           nullif(c.reltuples, -1)::bigint, pg_total_relation_size(c.oid), NULL::boolean
      FROM _outbox.partitions() p JOIN pg_class c ON c.oid = p.partition
     UNION ALL
    SELECT 'archive', a.partition::text, false, a.lower_bound, a.upper_bound,
           nullif(c.reltuples, -1)::bigint, pg_total_relation_size(c.oid), NULL
      FROM _outbox.archived_partitions a
      LEFT JOIN pg_class c ON c.relname = a.partition AND c.relnamespace =
                (SELECT relnamespace FROM pg_class WHERE oid = '@extschema@.outbox_messages'::regclass)
     UNION ALL
    SELECT 'cold storage', f.partition::text, false, f.lower_bound, f.upper_bound,
           f.events, f.bytes, f.stored_at IS NOT NULL
      FROM _outbox.cold_files f
$$;
COMMENT ON FUNCTION _outbox.report_partitions()
IS 'internal: partitions of the log and the archive, with estimated numbers of events, and files in cold storage';

CREATE OR REPLACE FUNCTION _outbox.report_held(
    OUT partition text, OUT consumer text, OUT reason text, OUT since timestamptz, OUT bytes bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _outbox.require_no_tenant('_outbox.report_held()');
    SELECT c.relname::text, h.consumer, h.reason, h.since, h.bytes
      FROM _outbox.held_partitions() h JOIN pg_class c ON c.oid = h.partition
$$;
COMMENT ON FUNCTION _outbox.report_held()
IS 'internal: rows of outbox_held_partitions(), with the name of the partition';

