----------------------------------------------------------------------------------------------------
-- What the statistics were, for bin/outbox_report
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.stats_history (
    at              timestamptz      NOT NULL,
    consumer_id     integer          NOT NULL,
    lag_seconds     double precision,
    lag_messages    bigint,
    delivered       bigint,
    failed          bigint,
    dead            bigint,
    bytes           bigint,
    waiting_retries bigint,
    dlq_depth       bigint,
    in_flight       bigint,
    enqueued        bigint,
    latency         bigint[],
    stats_reset     timestamptz,
    PRIMARY KEY (consumer_id, at)
);
COMMENT ON TABLE _outbox.stats_history
IS 'outbox_stats as it was at each maintenance, for as long as outbox.stats_retention says';
COMMENT ON COLUMN _outbox.stats_history.at IS 'when that was';
COMMENT ON COLUMN _outbox.stats_history.consumer_id IS '0: all of the database';
COMMENT ON COLUMN _outbox.stats_history.lag_seconds IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.lag_messages IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.delivered IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.failed IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.dead IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.bytes IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.waiting_retries IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.dlq_depth IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.in_flight IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.enqueued IS 'events that entered the log since stats_reset; only of the whole database';
COMMENT ON COLUMN _outbox.stats_history.latency IS 'the i-th took less than 2^(i+5) microseconds, and not less than half of that; since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.stats_reset IS 'since when it was counted';

CREATE FUNCTION _outbox.stats_now() RETURNS SETOF _outbox.stats_history
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
COMMENT ON FUNCTION _outbox.stats_now()
IS 'internal: what outbox_stats_history would hold if it were written now';

-- A sink that wants few of the events is not woken for the others. Where its cursor is shall not look like a lag.
CREATE FUNCTION _outbox.step_skip_unwanted_events(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    detail := 'its cursor is past what it does not want';
    done := true;
    again := true;
    FOR object IN SELECT s.consumer FROM _outbox.collect_stats() s WHERE NOT s.lag_is_exact AND NOT s.paused LOOP
        IF _outbox.skip_unwanted_events(object) THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.step_skip_unwanted_events()
IS 'internal: moves cursors past events that nobody would claim';

CREATE FUNCTION _outbox.step_sample(OUT object text, OUT detail text, OUT done boolean, OUT again boolean)
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
COMMENT ON FUNCTION _outbox.step_sample()
IS 'internal: remembers what the statistics are';

