-- What a consumer does not want is among the messages that it has yet to read.
CREATE FUNCTION _outbox.waiting(lag_seconds double precision, lag_messages bigint, in_flight bigint, waiting_retries bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN lag_seconds = 0 THEN 0 ELSE lag_messages + in_flight + waiting_retries END
$$;
COMMENT ON FUNCTION _outbox.waiting(double precision, bigint, bigint, bigint)
IS 'internal: how many events a consumer has yet to settle, at most';

-- Counters become what was added to them: all of it, if they began anew meanwhile.
CREATE FUNCTION _outbox.report_series(
    present _outbox.stats_history[], since timestamptz, width interval,
    OUT consumer_id integer, OUT samples bigint, OUT at timestamptz[], OUT lag double precision[], OUT waiting double precision[],
    OUT enqueued bigint, OUT enqueued_rate double precision[], OUT delivered bigint, OUT delivered_rate double precision[],
    OUT dead bigint, OUT dead_letters double precision[], OUT latency double precision[])
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH samples AS (
        SELECT h.*, false AS is_now FROM unnest(present) p JOIN _outbox.stats_history h USING (consumer_id)
         WHERE h.at < p.at AND h.at > since - _outbox.setting('outbox.maintenance_interval')
         UNION ALL
        SELECT p.*, true FROM unnest(present) p
    ), followed AS (
        SELECT s.*, date_bin(width, s.at, since) AS bin,
               lag(s.at) OVER w AS earlier,
               -- NULL: nobody knows how much of it is from before.
               CASE WHEN s.stats_reset = lag(s.stats_reset) OVER w THEN false
                    WHEN lag(s.at) OVER w IS NOT NULL OR coalesce(s.stats_reset, since) >= since THEN true END AS anew,
               lag(s.enqueued) OVER w AS enqueued_before, lag(s.delivered) OVER w AS delivered_before,
               lag(s.dead) OVER w AS dead_before
          FROM samples s WINDOW w AS (PARTITION BY s.consumer_id ORDER BY s.at)
    ), added AS (
        SELECT f.*, _outbox.waiting(f.lag_seconds, f.lag_messages, f.in_flight, f.waiting_retries) AS waiting,
               extract(epoch FROM f.at - coalesce(f.earlier, CASE WHEN f.anew THEN f.stats_reset END)) AS seconds,
               f.enqueued - CASE WHEN f.anew OR f.enqueued < f.enqueued_before THEN 0 ELSE f.enqueued_before END AS new_enqueued,
               f.delivered - CASE WHEN f.anew OR f.delivered < f.delivered_before THEN 0 ELSE f.delivered_before END AS new_delivered,
               f.dead - CASE WHEN f.anew OR f.dead < f.dead_before THEN 0 ELSE f.dead_before END AS new_dead
          FROM followed f
    ), bins AS (
        SELECT a.consumer_id, a.bin, count(*) FILTER (WHERE NOT a.is_now) AS samples, max(a.at) AS at,
               -- The last point is the present.
               coalesce(max(a.lag_seconds) FILTER (WHERE a.is_now), max(a.lag_seconds)) AS lag,
               coalesce(max(a.waiting) FILTER (WHERE a.is_now), max(a.waiting)) AS waiting,
               coalesce(max(a.dlq_depth) FILTER (WHERE a.is_now), max(a.dlq_depth)) AS dlq_depth,
               sum(a.new_enqueued) AS enqueued, sum(a.new_delivered) AS delivered, sum(a.new_dead) AS dead,
               nullif(sum(a.seconds), 0) AS seconds
          FROM added a WHERE a.at >= since GROUP BY 1, 2
    ), percentiles AS (
        SELECT l.consumer_id, l.bin, _outbox.percentiles(l.latency, l.before, '{0.5,0.95,0.99}') AS latency
          FROM (SELECT f.consumer_id, f.bin, f.at, f.latency,
                       CASE WHEN f.stats_reset = lag(f.stats_reset) OVER w THEN lag(f.latency) OVER w END AS before,
                       f.stats_reset >= since OR lag(f.at) OVER w IS NOT NULL AS is_known
                  FROM (SELECT DISTINCT ON (x.consumer_id, x.bin) x.* FROM followed x WHERE x.latency IS NOT NULL
                         ORDER BY x.consumer_id, x.bin, x.at DESC) f
                WINDOW w AS (PARTITION BY f.consumer_id ORDER BY f.at)) l
         WHERE l.at >= since AND l.is_known
    )
    SELECT b.consumer_id, sum(b.samples)::bigint, array_agg(b.at ORDER BY b.bin),
           array_agg(ARRAY[b.lag] ORDER BY b.bin), array_agg(ARRAY[b.waiting::double precision] ORDER BY b.bin),
           sum(b.enqueued)::bigint, array_agg(ARRAY[(b.enqueued / b.seconds)::double precision] ORDER BY b.bin),
           sum(b.delivered)::bigint, array_agg(ARRAY[(b.delivered / b.seconds)::double precision] ORDER BY b.bin),
           sum(b.dead)::bigint, array_agg(ARRAY[b.dlq_depth::double precision] ORDER BY b.bin),
           array_agg(coalesce(p.latency, '{NULL,NULL,NULL}') ORDER BY b.bin)
      FROM bins b LEFT JOIN percentiles p USING (consumer_id, bin) GROUP BY 1
$$;
COMMENT ON FUNCTION _outbox.report_series(_outbox.stats_history[], timestamptz, interval)
IS 'internal: the last hours of each consumer, as charts want them';

-- The worst come first, and so many are shown.
CREATE FUNCTION _outbox.report_consumers(hours integer, max_shown integer, OUT flow text, OUT charts text)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    is_counted CONSTANT boolean := _outbox.is_preloaded();
    present    CONSTANT _outbox.stats_history[] := ARRAY(SELECT n FROM _outbox.stats_now() n);
    until      CONSTANT timestamptz := clock_timestamp();
    since      CONSTANT timestamptz := until - make_interval(hours => hours);
    width      CONSTANT interval := make_interval(secs => hours * 50); -- 72 points to a line
    gap        CONSTANT interval := 3 * greatest(width, _outbox.setting('outbox.maintenance_interval'));
    produced   record;
    c          record;
    others     bigint;
BEGIN
    SELECT * INTO produced
      FROM _outbox.report_series(ARRAY(SELECT p FROM unnest(present) p WHERE p.consumer_id = 0), since, width);
    IF NOT FOUND AND is_counted THEN
        produced.enqueued := 0;
    END IF;
    flow := format(E'<p>From %s to %s UTC.%s</p>\n', _outbox.html_time(since), _outbox.html_time(until),
                   CASE WHEN NOT is_counted
                        THEN ' The library is not in shared_preload_libraries: there are no statistics, and only what can be'
                             ' looked up is shown.' END);
    charts := CASE WHEN produced.samples > 0
                   THEN format(E'<figure><figcaption>Produced, events per second</figcaption>\n%s</figure>\n'
                               '<figure><figcaption>Delivered to all, events per second</figcaption>\n%s</figure>\n',
                               _outbox.svg_line('events produced per second', 'number', since, until, gap,
                                                           produced.at, produced.enqueued_rate),
                               _outbox.svg_line('events delivered per second', 'number', since, until, gap,
                                                           produced.at, produced.delivered_rate))
                   ELSE '' END;
    FOR c IN
        WITH worst AS MATERIALIZED (
            SELECT s.*, o.consumer_id,
                   _outbox.waiting(s.lag_seconds, s.lag_messages, s.in_flight, s.waiting_retries) AS waiting_now,
                   coalesce(o.event_types <> '{}', false) OR coalesce(o.aggregate_types <> '{}', false)
                       OR o.tenant_id IS NOT NULL AS is_picky,
                   row_number() OVER (ORDER BY (s.lag_seconds > 60 AND s.lag_is_exact) DESC, s.backoff_until IS NOT NULL DESC,
                                               s.dlq_depth > 0 DESC, s.waiting_retries > 0 DESC, s.lag_seconds DESC,
                                               s.dlq_depth DESC, s.consumer) AS place,
                   count(*) OVER () - max_shown AS others
              FROM _outbox.collect_stats() s JOIN _outbox.consumers o ON o.name = s.consumer
             ORDER BY place LIMIT max_shown)
        SELECT w.consumer, w.kind, w.paused, w.is_picky, w.place, w.others, w.lag_seconds, w.lag_is_exact, w.backoff_until,
               w.waiting_now, w.dlq_depth, w.last_error, w.last_error_at, coalesce(v.samples, 0) > 0 AS has_past,
               v.at, v.lag, v.waiting, v.delivered, v.delivered_rate, v.dead, v.dead_letters, v.latency,
               EXISTS (SELECT FROM unnest(v.latency) l WHERE l IS NOT NULL) AS has_latency
          FROM worst w
          LEFT JOIN _outbox.report_series(
                        ARRAY(SELECT p FROM unnest(present) p WHERE p.consumer_id IN (SELECT x.consumer_id FROM worst x)), since, width) v
                 USING (consumer_id)
         ORDER BY w.place
    LOOP
        others := c.others;
        flow := flow || format(E'<article><h3>%s <small>%s</small></h3>\n%s</article>\n', _outbox.html(c.consumer),
            concat_ws(', ', c.kind, CASE WHEN c.paused THEN 'paused' END, CASE WHEN c.backoff_until IS NOT NULL THEN 'in trouble' END,
                      'lag ' || CASE WHEN c.lag_is_exact OR c.lag_seconds = 0 THEN '' ELSE 'at most ' END
                             || _outbox.html_seconds(c.lag_seconds)),
            (SELECT string_agg(format(E'<div><b>%s</b> <span>%s</span>%s</div>\n', f.figure, f.label,
                                      CASE WHEN c.has_past AND f.line IS NOT NULL
                                           THEN _outbox.svg_line(f.label, 'spark', since, until, gap, f.at, f.line) END),
                               '' ORDER BY f.n)
               FROM (VALUES (1, 'produced', CASE WHEN c.is_picky AND produced.enqueued > 0 THEN '&le; ' ELSE '' END
                                            || _outbox.html_number(produced.enqueued), produced.at, produced.enqueued_rate),
                            (2, 'delivered', _outbox.html_number(CASE WHEN is_counted THEN c.delivered END), c.at, c.delivered_rate),
                            (3, 'waiting', CASE WHEN c.is_picky AND c.waiting_now > 0 THEN '&le; ' ELSE '' END
                                           || _outbox.html_number(c.waiting_now), c.at, c.waiting),
                            (4, 'dead' || CASE WHEN is_counted AND c.dead > 0 THEN format(' (%s came)', c.dead) ELSE '' END,
                             _outbox.html_number(c.dlq_depth), c.at, c.dead_letters)) f (n, label, figure, at, line))
            || CASE WHEN c.last_error IS NOT NULL
                    THEN format('<p>%s <small>%s UTC</small></p>', _outbox.html(left(c.last_error, 300)),
                                _outbox.html_time(c.last_error_at)) ELSE '' END);
        IF c.has_past THEN
            charts := charts || format(E'<figure><figcaption>%s: lag</figcaption>\n%s</figure>\n'
                                       '<figure><figcaption>%s: latency%s</figcaption>\n%s</figure>\n',
                _outbox.html(c.consumer),
                _outbox.svg_line('lag of ' || c.consumer, 'seconds', since, until, gap, c.at, c.lag),
                _outbox.html(c.consumer),
                CASE WHEN c.has_latency THEN ' <i class="s1">p50</i> <i class="s2">p95</i> <i class="s3">p99</i>' END,
                CASE WHEN c.has_latency
                     THEN _outbox.svg_line('latency of ' || c.consumer, 'latency', since, until, gap, c.at, c.latency)
                     ELSE '<p>Nothing was delivered.</p>' END);
        END IF;
    END LOOP;
    IF NOT FOUND THEN
        flow := flow || '<p>There are no consumers.</p>';
    ELSIF others > 0 THEN
        flow := flow || format('<p>%s more consumers are left out, which are doing better: see outbox_stats.</p>', others);
    END IF;
    charts := coalesce('<div class="charts">' || nullif(charts, '') || '</div>',
                       '<p>No history yet: maintenance adds to it every outbox.maintenance_interval.</p>');
END $$;
COMMENT ON FUNCTION _outbox.report_consumers(integer, integer)
IS 'internal: the parts of the report about consumers';

CREATE FUNCTION _outbox.report_types() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT _outbox.html_table('{Event type,#Enqueued,#Delivered,#Failed attempts,#Share,#Dead}',
               string_agg(format('<tr><td>%s</td><td class="n">%s</td><td class="n">%s</td><td class="n">%s</td>'
                                 '<td class="n">%s %%</td><td class="n">%s</td></tr>',
                                 _outbox.html(t.event_type), _outbox.html_number(t.enqueued),
                                 _outbox.html_number(t.delivered), _outbox.html_number(t.failed),
                                 _outbox.html_number(100.0 * t.failed / (t.delivered + t.failed)),
                                 _outbox.html_number(t.dead)), E'\n' ORDER BY t.failed DESC, t.event_type),
               'No attempt has failed.')
           || CASE WHEN count(*) > 0 THEN format('<p>Counted since %s UTC.</p>', _outbox.html_time(min(t.stats_reset))) ELSE '' END
      FROM (SELECT * FROM _outbox.collect_event_stats() WHERE failed > 0 ORDER BY failed DESC, event_type LIMIT 20) t
$$;
COMMENT ON FUNCTION _outbox.report_types()
IS 'internal: the part of the report about event types';

-- No more than the newest of each consumer are looked at, so that it is quick with millions, too.
CREATE FUNCTION _outbox.report_dead_letters() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT _outbox.html_table('{Event type,Consumer,#Dead,First,Last,Last error}',
               string_agg(format('<tr><td>%s</td><td>%s</td><td class="n">%s%s</td><td class="t">%s</td><td class="t">%s</td><td>%s</td></tr>',
                                 _outbox.html(t.event_type), _outbox.html(t.name),
                                 CASE WHEN t.is_part THEN '&ge; ' END, _outbox.html_number(t.count),
                                 _outbox.html_time(t.first), _outbox.html_time(t.last),
                                 _outbox.html(t.error)), E'\n' ORDER BY t.count DESC, t.event_type, t.name),
               'There are none.')
      FROM (SELECT d.event_type, c.name, count(*) AS count, min(d.died_at) AS first, max(d.died_at) AS last,
                   (array_agg(d.error ORDER BY d.died_at DESC))[1] AS error, bool_or(d.is_part) AS is_part
              FROM _outbox.consumers c
             CROSS JOIN LATERAL (SELECT x.event_type, x.died_at, left(x.last_error, 300) AS error,
                                        count(*) OVER () = 10000 AS is_part
                                   FROM (SELECT * FROM _outbox.dead_letters y WHERE y.consumer_id = c.consumer_id
                                          ORDER BY y.id DESC LIMIT 10000) x) d
             GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 20) t
$$;
COMMENT ON FUNCTION _outbox.report_dead_letters()
IS 'internal: the part of the report about dead letters';

CREATE FUNCTION _outbox.report_partitions() RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT concat_ws(E'\n',
        (SELECT format('<p>The log: %s, %s partitions, %s of them for times to come. The archive: %s, %s partitions%s.'
                       ' Cold storage: %s files, %s, with %s events%s.</p>',
                       l.size, l.count, l.ahead, a.size, a.count,
                       CASE WHEN a.count > 0
                            THEN format(' from %s to %s UTC', _outbox.html_time(a.first), _outbox.html_time(a.last)) END,
                       f.count, f.size, _outbox.html_number(f.events),
                       CASE WHEN f.unstored > 0 THEN format('; %s of the files wait for outbox.archive_command', f.unstored) END)
           FROM (SELECT count(*), count(*) FILTER (WHERE lower_bound > clock_timestamp()) AS ahead,
                        pg_size_pretty(coalesce(sum(pg_total_relation_size(partition)), 0)) AS size FROM _outbox.partitions()) l,
                (SELECT count(*), min(p.lower_bound) AS first, max(p.upper_bound) AS last,
                        pg_size_pretty(coalesce(sum(pg_total_relation_size(c.oid)), 0)) AS size
                   FROM _outbox.archived_partitions p
                   LEFT JOIN pg_class c ON c.relname = p.partition AND c.relnamespace =
                             (SELECT relnamespace FROM pg_class WHERE oid = '@extschema@.outbox_messages'::regclass)) a,
                (SELECT count(*), pg_size_pretty(coalesce(sum(bytes), 0)) AS size, coalesce(sum(events), 0) AS events,
                        count(*) FILTER (WHERE stored_at IS NULL) AS unstored FROM _outbox.cold_files) f),
        (SELECT _outbox.html_table('{Partition,From (UTC),To (UTC),#Events&#44; about,#Size}',
                    string_agg(format('<tr><td>%s</td><td class="t">%s</td><td class="t">%s</td><td class="n">%s</td><td class="n">%s</td></tr>',
                                      _outbox.html(c.relname), _outbox.html_time(p.lower_bound),
                                      _outbox.html_time(p.upper_bound),
                                      _outbox.html_number(nullif(c.reltuples, -1)::numeric),
                                      pg_size_pretty(pg_total_relation_size(p.partition))), E'\n' ORDER BY p.lower_bound DESC NULLS FIRST),
                    'The log has no partitions yet.')
           FROM (SELECT * FROM _outbox.partitions() WHERE lower_bound <= clock_timestamp() OR is_default
                  ORDER BY lower_bound DESC NULLS FIRST LIMIT 20) p
           JOIN pg_class c ON c.oid = p.partition),
        (SELECT '<h3>Held back</h3>' || _outbox.html_table('{Partition,By,Why,Since (UTC),#Size}',
                    string_agg(format('<tr><td>%s</td><td>%s</td><td>%s</td><td class="t">%s</td><td class="n">%s</td></tr>',
                                      _outbox.html(c.relname), _outbox.html(h.consumer),
                                      _outbox.html(h.reason), _outbox.html_time(h.since), pg_size_pretty(h.bytes)),
                               E'\n' ORDER BY h.since, h.consumer), 'Nothing.')
           FROM (SELECT * FROM @extschema@.outbox_held_partitions() ORDER BY since, consumer LIMIT 20) h
           JOIN pg_class c ON c.oid = h.partition))
$$;
COMMENT ON FUNCTION _outbox.report_partitions()
IS 'internal: the part of the report about partitions';

CREATE FUNCTION _outbox.report_advice(OUT urgency integer, OUT subject text, OUT reason text, OUT call text)
RETURNS SETOF record
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    WITH consumers AS MATERIALIZED (SELECT * FROM _outbox.collect_stats())
    SELECT CASE WHEN s.component IN ('preload', 'relay', 'partitions') THEN 1 ELSE 2 END, s.component, concat_ws('. ', s.detail, s.hint),
           CASE WHEN c.paused THEN format('SELECT outbox_resume(%L);', c.consumer)
                WHEN c.consumer IS NOT NULL THEN format('CALL outbox_test_sink(%L);', c.consumer)
                WHEN s.component = 'preload' THEN 'SHOW shared_preload_libraries;'
                WHEN s.component = 'relay' THEN 'SELECT name, setting FROM pg_settings'
                                                ' WHERE name IN (''outbox.relay'', ''outbox.databases'', ''max_worker_processes'');'
                WHEN s.component = 'partitions' THEN 'SELECT outbox_setup();'
                WHEN s.component = 'archive' THEN 'SELECT * FROM outbox_held_partitions();'
                WHEN s.component = 'scheduled' THEN 'SELECT outbox_release_due();'
                WHEN s.component = 'statistics' THEN 'SELECT * FROM outbox_stats_events ORDER BY enqueued;'
                ELSE 'SELECT * FROM outbox_maintain();' END
      FROM @extschema@.outbox_status() s LEFT JOIN consumers c ON c.kind <> 'worker' AND s.component = 'sink ' || c.consumer
     WHERE NOT s.ok
    UNION ALL
    SELECT 3, 'consumer ' || c.consumer,
           format('%s behind. ', _outbox.html_seconds(c.lag_seconds)) ||
           CASE WHEN c.stale_leases > 0 THEN 'Leases of its workers have run out: they died, or need longer ones.'
                WHEN c.lag_messages = 0 AND c.waiting_retries > 0 THEN 'What it has yet to settle waits for another attempt.'
                WHEN c.kind <> 'worker' THEN 'Its receiver takes events more slowly than they come.'
                WHEN c.open_leases = 0 THEN 'Nobody claims its events. This is what waits.'
                ELSE 'More workers side by side, or larger batches, let it catch up.' END,
           CASE WHEN c.stale_leases > 0 THEN format('SELECT * FROM outbox_claim(%L, lease => ''5 min'');', c.consumer)
                WHEN c.lag_messages = 0 AND c.waiting_retries > 0
                     THEN format('SELECT waiting_retries, oldest_retry_at, last_error FROM outbox_stats WHERE consumer = %L;', c.consumer)
                WHEN c.kind <> 'worker' THEN format('CALL outbox_test_sink(%L);', c.consumer)
                WHEN c.open_leases = 0 THEN format('SELECT * FROM outbox_peek(%L);', c.consumer)
                ELSE format('SELECT * FROM outbox_claim(%L, 1000);', c.consumer) END
      FROM consumers c WHERE c.lag_seconds > 60 AND c.lag_is_exact AND NOT c.paused AND c.backoff_until IS NULL
    UNION ALL
    SELECT 4, 'consumer ' || c.consumer, 'Paused, and what it has yet to read is kept.', format('SELECT outbox_resume(%L);', c.consumer)
      FROM consumers c WHERE c.paused AND c.kind = 'worker'
    UNION ALL
    SELECT 5, 'consumer ' || c.consumer,
           format('%s dead letters. Once their cause is mended, give them another life.', c.dlq_depth),
           format('SELECT outbox_redrive(%L);', c.consumer)
      FROM consumers c WHERE c.dlq_depth > 0
    UNION ALL
    SELECT 6, 'event type ' || t.event_type, format('%s of %s attempts failed.', t.failed, t.delivered + t.failed),
           'SELECT consumer, last_error, last_error_at FROM outbox_stats WHERE failed > 0;'
      FROM _outbox.collect_event_stats() t WHERE t.failed >= 10 AND t.failed > 0.05 * (t.delivered + t.failed)
$$;
COMMENT ON FUNCTION _outbox.report_advice()
IS 'internal: what is to be done, why, and what to call; the most urgent has the least number';

CREATE FUNCTION _outbox.report_style() RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT '
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #5d6570; --line: #d9dde2; --page: #fff; --box: #f5f6f8;
        --s1: #2563ab; --s2: #b4690e; --s3: #b3261e; --ok: #1f7a3d; --degraded: #b4690e; --failing: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --soft: #9aa3af; --line: #3a4048; --page: #16181c; --box: #1f2329;
          --s1: #6cabf0; --s2: #e0a24a; --s3: #f28b82; --ok: #5fc183; --degraded: #e0a24a; --failing: #f28b82; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page); }
h1 { margin: 0; font-size: 1.5rem; } h2 { margin: 2rem 0 .6rem; font-size: 1.15rem; border-bottom: 1px solid var(--line); }
h3 { margin: .8rem 0 .3rem; font-size: 1rem; } p { margin: .4rem 0; } small { font-size: .85em; color: var(--soft); font-weight: normal; }
h1, h3, li, td, figcaption, article p { overflow-wrap: anywhere; unicode-bidi: isolate; } td { overflow-wrap: break-word; }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; margin: .4rem 0; } dt { color: var(--soft); font-size: .85em; } dd { margin: 0; }
.ok { color: var(--ok); } .degraded { color: var(--degraded); } .failing { color: var(--failing); }
ul { margin: .3rem 0; padding-left: 1.2rem; }
article { display: grid; grid-template-columns: minmax(10rem, 1.4fr) repeat(4, minmax(0, 1fr)); gap: .2rem 1rem; align-items: start;
          padding: .5rem .7rem; margin: .4rem 0; background: var(--box); border-radius: 6px; }
article h3 { margin: 0; } article h3 small { display: block; } article p { grid-column: 1 / -1; margin: 0; color: var(--failing); }
article b { font-variant-numeric: tabular-nums; white-space: nowrap; } article span { color: var(--soft); font-size: .85em; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: .8rem 1.5rem; }
figure { margin: 0; min-width: 0; } figcaption { font-size: .9em; font-weight: 600; }
figcaption i { font-style: normal; font-weight: normal; margin-left: .5em; }
figcaption i::before { content: ""; display: inline-block; width: 1.2em; margin-right: .3em; vertical-align: .25em; border-top: 2px solid; }
i.s1 { color: var(--s1); } i.s2 { color: var(--s2); } i.s3 { color: var(--s3); }
i.s2::before { border-top-style: dashed; } i.s3::before { border-top-style: dotted; }
svg { display: block; width: 100%; } svg.spark { max-width: 11rem; }
svg text { font-size: 12px; fill: var(--soft); } text.y { text-anchor: end; } text.x { text-anchor: middle; }
path { fill: none; stroke-width: 1; } .grid { stroke: var(--line); }
.line, .dot { stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; } .dot { stroke-width: 5; }
path.s1 { stroke: var(--s1); } path.s2 { stroke: var(--s2); } path.s3 { stroke: var(--s3); }
.s2.line { stroke-dasharray: 6 4; } .s3.line { stroke-dasharray: 1 4; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92em; }
th, td { padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: normal; font-size: .9em; white-space: nowrap; }
td { max-width: 22rem; } .t { white-space: nowrap; } .n + td, .n + th { padding-left: .8rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { display: block; margin: .2rem 0 .5rem; padding: .3rem .5rem; overflow-wrap: anywhere; white-space: pre-wrap; background: var(--box);
       border-radius: 4px; font: .88em ui-monospace, monospace; }
@media (max-width: 40rem) {
  article { grid-template-columns: 1fr 1fr; } article h3 { grid-column: 1 / -1; } svg.chart text { font-size: 15px; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } article, figure, tr, li { break-inside: avoid; } h2 { break-after: avoid; }
  .charts { grid-template-columns: 1fr 1fr; } .wide { overflow: visible; } }
'
$$;
COMMENT ON FUNCTION _outbox.report_style()
IS 'internal: how the report looks';

CREATE FUNCTION outbox_report(hours integer DEFAULT 6) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $$
DECLARE
    health    record;
    consumers record;
    advice    text;
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_report()');
    IF hours IS NULL OR hours NOT BETWEEN 1 AND 168 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('hours must be between 1 and 168, not %s', coalesce(hours::text, 'NULL')),
            HINT = 'The report is about so many of the last hours.';
    END IF;
    SELECT * INTO health FROM @extschema@.outbox_health();
    SELECT * INTO consumers FROM _outbox.report_consumers(hours, max_shown => 20);
    SELECT '<ul>' || string_agg(format('<li><b>%s</b>: %s<code>%s</code></li>', _outbox.html(a.subject),
                                       _outbox.html(left(a.reason, 1000)), _outbox.html(a.call)),
                                E'\n' ORDER BY a.place) FILTER (WHERE a.place <= 30) || '</ul>'
           || CASE WHEN count(*) > 30 THEN format('<p>And %s more like these.</p>', count(*) - 30) ELSE '' END
      INTO advice
      FROM (SELECT x.*, row_number() OVER (ORDER BY x.urgency, x.subject) AS place FROM _outbox.report_advice() x) a;

    RETURN format($page$<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>outbox report: %1$s</title>
<style>%2$s</style>
</head>
<body>
<header>
<h1>outbox: %1$s</h1>
<dl><div><dt>Written</dt><dd>%3$s UTC</dd></div><div><dt>PostgreSQL</dt><dd>%4$s</dd></div><div><dt>outbox</dt><dd>%5$s</dd></div>
<div><dt>Health</dt><dd class="%6$s">%6$s</dd></div></dl>
%7$s
</header>
<section><h2>Flow, last %8$s</h2>
%9$s
</section>
<section><h2>Lag and latency</h2>
%10$s
</section>
<section><h2>What fails most</h2>
%11$s
</section>
<section><h2>Dead letters by type</h2>
%12$s
</section>
<section><h2>Partitions</h2>
%13$s
</section>
<section><h2>What to do next</h2>
%14$s
</section>
</body>
</html>$page$,
        _outbox.html(current_database()), _outbox.report_style(),
        _outbox.html_time(clock_timestamp()), _outbox.html(current_setting('server_version')),
        (SELECT _outbox.html(e.extversion) FROM pg_extension e WHERE e.extname = 'outbox'),
        health.status,
        (SELECT '<ul>' || string_agg(format('<li>%s</li>', _outbox.html(left(r, 500))), '' ORDER BY n) || '</ul>'
                || CASE WHEN cardinality(health.reasons) > 20 THEN format('<p>And %s more.</p>', cardinality(health.reasons) - 20) ELSE '' END
           FROM unnest(health.reasons[:20]) WITH ORDINALITY AS x (r, n)),
        CASE WHEN hours = 1 THEN 'hour' ELSE format('%s hours', hours) END,
        consumers.flow, consumers.charts, _outbox.report_types(), _outbox.report_dead_letters(),
        _outbox.report_partitions(), coalesce(advice, '<p>Nothing to do.</p>'));
END $$;
COMMENT ON FUNCTION outbox_report(integer)
IS 'the last hours as one page of HTML, with charts, and what is to be done';

