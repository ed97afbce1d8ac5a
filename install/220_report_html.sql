----------------------------------------------------------------------------------------------------
-- The report: one page of HTML with nothing from elsewhere in it, and no script. What others have written gets
-- into it through html() alone.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION _outbox.html(value text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT replace(replace(replace(replace(replace(value, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#39;')
$$;
COMMENT ON FUNCTION _outbox.html(text)
IS 'internal: text for a page, between tags or in quotes';

CREATE FUNCTION _outbox.html_number(value numeric) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN '&ndash;'
                WHEN abs(value) < 1 AND value <> 0 THEN trim_scale(round(value, 1 - floor(log(abs(value)))::integer))::text
                WHEN abs(value) < 10 THEN trim_scale(round(value, 1))::text
                ELSE to_char(value, 'FM999,999,999,999,999,999,990') END
$$;
COMMENT ON FUNCTION _outbox.html_number(numeric)
IS 'internal: a number for people';

CREATE FUNCTION _outbox.html_seconds(value double precision) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN value IS NULL THEN '&ndash;' WHEN value <= 0 THEN '0 s'
                ELSE (SELECT _outbox.html_number((value / u.seconds)::numeric) || ' ' || u.name
                        FROM (VALUES (86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's'), (0.001, 'ms'), (0.000001, '&micro;s'))
                             u (seconds, name)
                       WHERE value >= u.seconds * 0.9999 OR u.seconds = 0.000001 ORDER BY u.seconds DESC LIMIT 1) END
$$;
COMMENT ON FUNCTION _outbox.html_seconds(double precision)
IS 'internal: how long something takes, for people';

CREATE FUNCTION _outbox.html_time(value timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(to_char(value AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), '&ndash;')
$$;
COMMENT ON FUNCTION _outbox.html_time(timestamptz)
IS 'internal: a moment for people, in UTC';

CREATE FUNCTION _outbox.html_table(headings text[], rows text, otherwise text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN rows IS NULL THEN format('<p>%s</p>', otherwise)
                ELSE format(E'<div class="wide"><table>\n<thead><tr>%s</tr></thead>\n<tbody>%s</tbody>\n</table></div>',
                            (SELECT string_agg(CASE WHEN h LIKE '#%' THEN format('<th class="n">%s</th>', substr(h, 2))
                                                    ELSE format('<th>%s</th>', h) END, '' ORDER BY n)
                               FROM unnest(headings) WITH ORDINALITY AS x (h, n)), rows) END
$$;
COMMENT ON FUNCTION _outbox.html_table(text[], text, text)
IS 'internal: a table, or what is said if it has no rows; a heading with # in front is that of numbers';

-- Lines over time. `value` has a row for each moment and a column for each line; where it is NULL, and where moments
-- are further apart than `gap`, a line is interrupted. Scales: spark (a small chart without axes), number, seconds, and
-- latency, which is seconds on a logarithmic scale.
CREATE FUNCTION _outbox.svg_line(label text, scale text, since timestamptz, until timestamptz, gap interval,
                                at timestamptz[], value double precision[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_small  CONSTANT boolean := scale = 'spark';
    width     CONSTANT integer := CASE WHEN is_small THEN 120 ELSE 480 END;
    height    CONSTANT integer := CASE WHEN is_small THEN 28 ELSE 164 END;
    x_first   CONSTANT integer := CASE WHEN is_small THEN 3 ELSE 68 END;
    x_last    CONSTANT integer := CASE WHEN is_small THEN 117 ELSE 454 END;
    y_least   CONSTANT integer := CASE WHEN is_small THEN 25 ELSE 132 END;
    y_most    CONSTANT integer := CASE WHEN is_small THEN 3 ELSE 10 END;
    durations CONSTANT double precision[] := '{0.0001,0.001,0.002,0.005,0.01,0.02,0.05,0.1,0.2,0.5,1,2,5,10,20,30,60,120,300,600,1200,
                                               1800,3600,7200,14400,21600,43200,86400,172800,345600,604800,1209600,2592000,31536000}';
    decades   CONSTANT double precision[] := '{0.00001,0.0001,0.001,0.01,0.1,1,10,60,600,3600,21600,86400,604800,6048000}';
    span      CONSTANT double precision := extract(epoch FROM until - since);
    step      interval;
    ticks     double precision[];
    least     double precision;
    most      double precision;
    bottom    double precision := 0;
    top       double precision;
    parts     text := '';
    path      text;
    dots      text;
BEGIN
    SELECT min(v) FILTER (WHERE v > 0), max(v) INTO least, most FROM unnest(value) AS v;
    IF scale = 'latency' THEN
        least := coalesce(least, 0.001);
        SELECT max(d) INTO bottom FROM unnest(decades) AS d WHERE d <= least;
        SELECT min(d) INTO top FROM unnest(decades) AS d WHERE d >= greatest(most, least * 1.01);
        SELECT array_agg(d) INTO ticks FROM unnest(decades) AS d WHERE d BETWEEN bottom AND top;
    ELSIF scale = 'seconds' THEN
        SELECT min(d) INTO top FROM unnest(durations) AS d WHERE d >= greatest(most, 1);
    ELSIF most > 0 THEN
        top := power(10, floor(log(most)));
        top := top * CASE WHEN most <= top THEN 1 WHEN most <= 2 * top THEN 2 WHEN most <= 5 * top THEN 5 ELSE 10 END;
    END IF;
    top := coalesce(top, nullif(most, 0), 1);
    ticks := coalesce(ticks, ARRAY[0, top / 2, top]);

    IF NOT is_small THEN
        SELECT parts || string_agg(format('<path class="grid" d="M%s,%sH%s"/><text class="y" x="%s" y="%s">%s</text>',
                                          x_first, t.y, x_last, x_first - 7, t.y + 4,
                                          CASE WHEN scale = 'number' THEN _outbox.html_number(t.tick::numeric)
                                               ELSE _outbox.html_seconds(t.tick) END), '' ORDER BY t.tick)
          INTO parts
          FROM (SELECT tick, round((y_least - (y_least - y_most) *
                                    CASE WHEN scale = 'latency' THEN ln(tick / bottom) / ln(top / bottom) ELSE tick / top END)::numeric, 1) AS y
                  FROM unnest(ticks) AS tick) t;
        SELECT s INTO step FROM unnest('{10 min,20 min,30 min,1 h,2 h,4 h,12 h,24 h}'::interval[]) AS s
         WHERE extract(epoch FROM s) * 7 >= span ORDER BY s LIMIT 1;
        SELECT parts || string_agg(format('<path class="grid" d="M%s,%sv4"/><text class="x" x="%s" y="%s">%s</text>',
                                          t.x, y_least, t.x, y_least + 23,
                                          to_char(t.tick AT TIME ZONE 'UTC',
                                                  CASE WHEN t.tick AT TIME ZONE 'UTC' = date_trunc('day', t.tick AT TIME ZONE 'UTC')
                                                       THEN 'DD Mon' ELSE 'HH24:MI' END)), '' ORDER BY t.tick)
          INTO parts
          FROM (SELECT tick, round((x_first + (x_last - x_first) * extract(epoch FROM tick - since) / span)::numeric, 1) AS x
                  FROM generate_series(date_bin(step, since, '2000-01-01 00:00+00') + step, until, step) AS tick) t;
    END IF;

    -- A dot for the last point of each line, and for points that no line leads to or from.
    FOR line IN 1 .. array_length(value, 2) LOOP
        SELECT string_agg(CASE WHEN l.follows THEN 'L' ELSE 'M' END || l.place, '' ORDER BY l.at) FILTER (WHERE l.follows OR l.leads),
               string_agg(format('M%sh.1', l.place), '' ORDER BY l.at) FILTER (WHERE l.is_last OR NOT (l.follows OR l.leads))
          INTO path, dots
          FROM (SELECT p.at, coalesce(p.at - lag(p.at) OVER later <= gap AND lag(p.v) OVER later IS NOT NULL, false) AS follows,
                       coalesce(lead(p.at) OVER later - p.at <= gap AND lead(p.v) OVER later IS NOT NULL, false) AS leads,
                       p.at = max(p.at) FILTER (WHERE p.v IS NOT NULL) OVER () AS is_last, p.v IS NOT NULL AS is_known,
                       format('%s,%s', round((x_first + (x_last - x_first) * extract(epoch FROM p.at - since) / span)::numeric, 1),
                              round((y_least - (y_least - y_most) *
                                     CASE WHEN scale = 'latency' THEN ln(greatest(p.v, bottom) / bottom) / ln(top / bottom)
                                          ELSE p.v / top END)::numeric, 1)) AS place
                  FROM (SELECT at[i] AS at, value[i][line] AS v FROM generate_subscripts(at, 1) AS i) p
                WINDOW later AS (ORDER BY p.at)) l
         WHERE l.is_known;
        parts := parts || CASE WHEN path IS NULL THEN '' ELSE format('<path class="line s%s" d="%s"/>', line, path) END
                       || CASE WHEN dots IS NULL THEN '' ELSE format('<path class="dot s%s" d="%s"/>', line, dots) END;
    END LOOP;
    RETURN format(E'<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>\n',
                  CASE WHEN is_small THEN 'spark' ELSE 'chart' END, width, height, _outbox.html(label), parts);
END $$;
COMMENT ON FUNCTION _outbox.svg_line(text, text, timestamptz, timestamptz, interval, timestamptz[], double precision[])
IS 'internal: a chart of lines over time';

-- Within a bucket, times are taken to be spread evenly.
CREATE FUNCTION _outbox.percentiles(counts bigint[], before bigint[], parts double precision[]) RETURNS double precision[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added  bigint[] := '{}';
    total  bigint := 0;
    seen   bigint := 0;
    wanted double precision;
    found  double precision[] := array_fill(NULL::double precision, ARRAY[cardinality(parts)]);
    p      integer := 1;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(counts), 0) LOOP
        added[i] := counts[i] - coalesce(before[i], 0);
        IF added[i] < 0 THEN
            RETURN _outbox.percentiles(counts, NULL, parts);
        END IF;
        total := total + added[i];
    END LOOP;
    IF total > 0 THEN
        FOR i IN 1 .. cardinality(counts) LOOP
            WHILE p <= cardinality(parts) AND seen + added[i] >= total * parts[p] AND added[i] > 0 LOOP
                wanted := (total * parts[p] - seen) / added[i];
                found[p] := power(2.0, i + 4) * (CASE WHEN i = 1 THEN 2 * wanted ELSE 1 + wanted END) / 1000000;
                p := p + 1;
            END LOOP;
            seen := seen + added[i];
        END LOOP;
    END IF;
    RETURN found;
END $$;
COMMENT ON FUNCTION _outbox.percentiles(bigint[], bigint[], double precision[])
IS 'internal: percentiles, in seconds and in rising order, of what was counted in powers of two since it was counted before';

