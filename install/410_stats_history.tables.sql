----------------------------------------------------------------------------------------------------
-- History of the statistics, for bin/outbox_report
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
IS 'samples of outbox_stats, taken by maintenance and kept for outbox.stats_retention';
COMMENT ON COLUMN _outbox.stats_history.at IS 'time of the sample';
COMMENT ON COLUMN _outbox.stats_history.consumer_id IS 'id of the consumer; 0 for the whole database';
COMMENT ON COLUMN _outbox.stats_history.lag_seconds IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.lag_messages IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.delivered IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.failed IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.dead IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.bytes IS 'as in outbox_stats, since stats_reset';
COMMENT ON COLUMN _outbox.stats_history.waiting_retries IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.dlq_depth IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.in_flight IS 'as in outbox_stats';
COMMENT ON COLUMN _outbox.stats_history.enqueued
IS 'events that entered the log since stats_reset; only for the whole database';
COMMENT ON COLUMN _outbox.stats_history.latency
IS 'histogram since stats_reset: [i] counts events that took 2^(i+4) up to 2^(i+5) microseconds';
COMMENT ON COLUMN _outbox.stats_history.stats_reset IS 'time since when events are counted';

