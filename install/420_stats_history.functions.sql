CREATE OR REPLACE FUNCTION _outbox.stats_now() RETURNS SETOF _outbox.stats_history
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT clock_timestamp(), c.consumer_id, s.lag_seconds, s.lag_messages, s.delivered, s.failed, s.dead, s.bytes,
           s.waiting_retries, s.dlq_depth, s.in_flight, NULL::bigint, n.latency, s.stats_reset
      FROM _outbox.collect_stats() s
      JOIN _outbox.consumers c ON c.name = s.consumer
      LEFT JOIN _outbox.consumer_counts() n USING (consumer_id)
     UNION ALL
    SELECT clock_timestamp(), 0, NULL, NULL, sum(t.delivered)::bigint, sum(t.failed)::bigint, sum(t.dead)::bigint, NULL,
           NULL, NULL, NULL, sum(t.enqueued)::bigint, NULL, min(t.stats_reset)
      FROM _outbox.collect_event_stats() t HAVING count(*) > 0
$$;
COMMENT ON FUNCTION _outbox.stats_now() IS 'internal: current sample for outbox_stats_history';

-- The relay does not wake a sink for events that it does not want, so its cursor stays before them. Advancing
-- it keeps that distance from being reported as lag.
CREATE OR REPLACE FUNCTION _outbox.step_skip_unwanted_events(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    detail := 'cursor advanced past unwanted events';
    changed := true;
    has_more := true;
    FOR object IN SELECT s.consumer FROM _outbox.collect_stats() s WHERE NOT s.lag_is_exact AND NOT s.paused LOOP
        IF _outbox.skip_unwanted_events(object) THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_skip_unwanted_events()
IS 'internal: advances cursors past events that their consumers do not want';

CREATE OR REPLACE FUNCTION _outbox.step_sample(
    OUT object text, OUT detail text, OUT changed boolean, OUT has_more boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM _outbox.stats_history h
     WHERE h.at < clock_timestamp() - _outbox.setting('outbox.stats_retention');
    IF _outbox.setting('outbox.stats_retention') > '0' THEN
        INSERT INTO _outbox.stats_history SELECT * FROM _outbox.stats_now();
    END IF;
    PERFORM _outbox.release_stats_slots(ARRAY(SELECT c.consumer_id FROM _outbox.consumers c));
END $$;
COMMENT ON FUNCTION _outbox.step_sample() IS 'internal: adds a sample of the statistics to outbox_stats_history';

