----------------------------------------------------------------------------------------------------
-- Views and functions that locate events
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.has_passed(batch _outbox.batches, xid xid8, id bigint) RETURNS boolean
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_has_passed';
COMMENT ON FUNCTION _outbox.has_passed(_outbox.batches, xid8, bigint)
IS 'internal: returns true if the cursor of a batch has passed a message';

CREATE OR REPLACE FUNCTION _outbox.known_upto(batch _outbox.batches) RETURNS bigint
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_known_upto';
COMMENT ON FUNCTION _outbox.known_upto(_outbox.batches)
IS 'internal: highest id up to which the cursor of a batch has passed every message, late commits included';

CREATE OR REPLACE FUNCTION _outbox.last_id() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pg_sequence_last_value('_outbox.messages_id_seq'), 0)
$$;
COMMENT ON FUNCTION _outbox.last_id() IS 'internal: last id drawn for a message';

-- Operators in a view are resolved with the search_path of CREATE VIEW. It must not include the extension's
-- schema, in which other roles may have created operators.
--
-- security_barrier: without it, the planner could push a leaky function of the user's WHERE clause below the
-- tenant filter.
DO $do$
DECLARE
    path CONSTANT text := pg_catalog.current_setting('search_path');
BEGIN
PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

CREATE OR REPLACE VIEW @extschema@.consumer_offsets WITH (security_barrier) AS
SELECT c.name AS consumer_name,
       CASE WHEN c.partitions = 1 THEN '' ELSE p::text END AS partition_key,
       least(_outbox.known_upto(b.newest), waiting.first_id - 1, open.first_id - 1) AS last_processed_id,
       settled.at AS last_processed_at,
       greatest(_outbox.last_id() - coalesce(b.target_seq, b.passed_seq), 0)
       + CASE WHEN b.target_seq IS NULL THEN 0
              ELSE greatest(b.target_seq - greatest(b.last_id, b.passed_seq), 0) END
       + open.waiting AS lag
  FROM _outbox.consumers c
 CROSS JOIN LATERAL generate_series(0, c.partitions - 1) p
 CROSS JOIN LATERAL (SELECT o.*, o AS newest FROM _outbox.batches o WHERE o.consumer_id = c.consumer_id
                      ORDER BY o.token DESC LIMIT 1) b
 CROSS JOIN LATERAL (SELECT min(r.id) AS first_id FROM _outbox.retries r
                      WHERE r.consumer_id = c.consumer_id AND r.partition = p) waiting
 CROSS JOIN LATERAL (SELECT min(lower(coalesce(l.remaining, o.ids))) AS first_id,
                            coalesce(sum(e.count) FILTER (WHERE (l.locked_until >= clock_timestamp()) IS NOT TRUE),
                                     0)::bigint AS waiting
                       FROM _outbox.leases l
                       JOIN _outbox.batches o USING (consumer_id, token)
                      CROSS JOIN LATERAL (SELECT coalesce(sum(upper(run) - lower(run)), l.size) AS count
                                            FROM unnest(l.remaining) run) e
                      WHERE l.token = ANY (b.open_tokens) AND l.acked_at IS NULL
                        AND l.superseded_by IS NULL AND l.partition = p) open
 CROSS JOIN LATERAL (SELECT max(l.acked_at) AS at FROM _outbox.leases l
                      WHERE l.consumer_id = c.consumer_id AND l.partition = p) settled
 WHERE _outbox.shows_tenant(c.tenant_id);

CREATE OR REPLACE VIEW @extschema@.outbox_deliveries WITH (security_barrier) AS
SELECT c.name AS consumer_name, m.id, m.tracking_id, m.tenant_id, m.aggregate_type, m.aggregate_id,
       m.event_type, m.occurred_at,
       CASE WHEN d.id IS NOT NULL THEN 'DEAD_LETTER'
            WHEN s.is_leased THEN 'PROCESSING'
            WHEN r.id IS NOT NULL THEN 'RETRY'
            WHEN s.open OR NOT _outbox.has_passed(n.newest, m.xid, m.id) THEN 'PENDING'
            ELSE 'COMPLETED' END AS status,
       CASE WHEN d.id IS NOT NULL THEN d.attempts
            WHEN s.is_leased THEN coalesce(r.attempts, 0) + s.attempts
            WHEN r.id IS NOT NULL THEN r.attempts
            WHEN s.open THEN s.attempts - 1
            ELSE coalesce(s.deliveries, 0) END AS attempts,
       CASE WHEN d.id IS NULL AND r.id IS NULL AND NOT s.open THEN s.acked_at END AS processed_at,
       CASE WHEN s.is_leased THEN s.locked_until END AS locked_until,
       CASE WHEN s.is_leased AND c.is_shown THEN s.token END AS lock_token,
       CASE WHEN s.is_leased AND c.is_shown THEN s.worker END AS worker,
       coalesce(d.died_at, CASE WHEN s.is_leased THEN s.claimed_at END, r.failed_at, s.acked_at,
                m.occurred_at) AS since,
       CASE WHEN d.id IS NULL THEN r.available_at END AS available_at,
       coalesce(d.last_error, r.last_error,
                CASE WHEN c.is_shown AND (s.open OR NOT _outbox.has_passed(n.newest, m.xid, m.id))
                     THEN coalesce(t.last_error, c.pause_reason) END)
       AS last_error
       -- is_shown: a tenant sees the state of its events for a consumer of all tenants, but no data of that consumer.
  FROM (SELECT *, _outbox.shows_tenant(tenant_id) AS is_shown FROM _outbox.consumers) c
  LEFT JOIN _outbox.sink_states() t ON t.consumer_id = c.consumer_id AND t.troubles > 0
 CROSS JOIN @extschema@.outbox_messages m
 CROSS JOIN LATERAL (SELECT o FROM _outbox.batches o WHERE o.consumer_id = c.consumer_id
                      ORDER BY o.token DESC LIMIT 1) n (newest)
  LEFT JOIN _outbox.dead_letters d ON d.consumer_id = c.consumer_id AND d.id = m.id
  LEFT JOIN _outbox.retries r ON r.consumer_id = c.consumer_id AND r.id = m.id
  LEFT JOIN LATERAL (
      SELECT b.token, b.attempts,
             (count(*) FILTER (WHERE l.token IS NULL OR l.claimed_at IS NOT NULL) OVER ())::integer AS deliveries,
             l.locked_until, l.worker, l.claimed_at, l.acked_at,
             o.open, o.open AND l.locked_until IS NOT NULL AND l.locked_until <> '-infinity' AS is_leased
        FROM _outbox.batches b LEFT JOIN _outbox.leases l USING (consumer_id, token),
             LATERAL (SELECT l.token IS NOT NULL AND l.acked_at IS NULL AND l.superseded_by IS NULL
                             AND coalesce(l.remaining @> m.id, true)) o (open)
       WHERE b.consumer_id = c.consumer_id AND b.ids @> m.id
       ORDER BY b.token DESC LIMIT 1) s ON true
 WHERE _outbox.shows_tenant(m.tenant_id)
   AND (c.tenant_id IS NULL OR m.tenant_id = c.tenant_id)
   AND (c.event_types IS NULL OR m.event_type = ANY (c.event_types))
   AND (c.aggregate_types IS NULL OR m.aggregate_type = ANY (c.aggregate_types));

PERFORM set_config('search_path', path, true);
END $do$;

COMMENT ON VIEW consumer_offsets IS 'progress of each consumer';
COMMENT ON COLUMN consumer_offsets.consumer_name IS 'name of the consumer';
COMMENT ON COLUMN consumer_offsets.partition_key IS 'consumer partition; empty if the consumer has only one';
COMMENT ON COLUMN consumer_offsets.last_processed_id IS 'highest id up to which all messages are settled';
COMMENT ON COLUMN consumer_offsets.last_processed_at IS 'time when the last batch was settled';
COMMENT ON COLUMN consumer_offsets.lag
IS 'ids drawn but not yet read, gaps included, plus messages read but not under a lease';

COMMENT ON VIEW outbox_deliveries IS 'state of each message in the log, for each consumer that wants it';
COMMENT ON COLUMN outbox_deliveries.consumer_name IS 'name of the consumer';
COMMENT ON COLUMN outbox_deliveries.id IS 'position in the log';
COMMENT ON COLUMN outbox_deliveries.tracking_id IS 'identity of the event';
COMMENT ON COLUMN outbox_deliveries.tenant_id IS 'tenant of the event';
COMMENT ON COLUMN outbox_deliveries.aggregate_type IS 'type of the aggregate';
COMMENT ON COLUMN outbox_deliveries.aggregate_id IS 'id of the aggregate';
COMMENT ON COLUMN outbox_deliveries.event_type IS 'type of the event';
COMMENT ON COLUMN outbox_deliveries.occurred_at IS 'time when the event entered the log';
COMMENT ON COLUMN outbox_deliveries.status IS 'PENDING, PROCESSING, COMPLETED, RETRY or DEAD_LETTER';
COMMENT ON COLUMN outbox_deliveries.attempts IS 'number of attempts, including the current one';
COMMENT ON COLUMN outbox_deliveries.processed_at IS 'time when the batch was settled';
COMMENT ON COLUMN outbox_deliveries.locked_until IS 'end of the lease';
COMMENT ON COLUMN outbox_deliveries.lock_token
IS 'fencing token of the batch; hidden from tenants if the consumer is for all tenants';
COMMENT ON COLUMN outbox_deliveries.worker
IS 'worker that has the lease; hidden from tenants if the consumer is for all tenants';
COMMENT ON COLUMN outbox_deliveries.since IS 'time since when the message has this status, as far as known';
COMMENT ON COLUMN outbox_deliveries.available_at
IS 'time of the next attempt; infinity if the message is blocked by an earlier one';
COMMENT ON COLUMN outbox_deliveries.last_error IS 'last error reported by the worker, or the problem of the sink';

CREATE OR REPLACE FUNCTION outbox_find(
    tracking_id uuid, OUT place text, OUT id bigint, OUT consumer_name text, OUT status text,
    OUT attempts integer, OUT since timestamptz, OUT worker text, OUT available_at timestamptz,
    OUT last_error text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted  CONSTANT uuid := outbox_find.tracking_id;
    -- A UUIDv7 starts with its creation time. Most events enter the log at that time, so its partition is
    -- searched first.
    made_at CONSTANT timestamptz := CASE WHEN substr(wanted::text, 15, 1) = '7' THEN
        to_timestamp(('x' || translate(left(wanted::text, 13), '-', ''))::bit(48)::bigint / 1000.0) END;
    entry   record;
BEGIN
    IF wanted IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'tracking_id must not be NULL';
    END IF;
    RETURN QUERY SELECT 'scheduled', NULL::bigint, NULL::text, 'SCHEDULED', s.refusals, made_at, NULL::text,
                        coalesce(s.try_again_at, s.available_at), s.last_error
                   FROM _outbox.scheduled s
                  WHERE s.tracking_id = wanted AND _outbox.shows_tenant(s.tenant_id);

    SELECT m.id, m.occurred_at INTO entry FROM @extschema@.outbox_messages m
     WHERE m.tracking_id = wanted AND _outbox.shows_tenant(m.tenant_id)
       AND m.occurred_at BETWEEN made_at - interval '1 hour' AND made_at + interval '1 hour';
    IF NOT FOUND THEN
        SELECT m.id, m.occurred_at INTO entry FROM @extschema@.outbox_messages m
         WHERE m.tracking_id = wanted AND _outbox.shows_tenant(m.tenant_id);
    END IF;
    RETURN QUERY SELECT 'log', entry.id, d.consumer_name, d.status, d.attempts, coalesce(d.since, entry.occurred_at),
                        d.worker, d.available_at, d.last_error
                   FROM (VALUES (entry.id)) found (id)
                   LEFT JOIN @extschema@.outbox_deliveries d ON d.id = found.id AND d.occurred_at = entry.occurred_at
                  WHERE found.id IS NOT NULL ORDER BY d.consumer_name;
    IF entry.id IS NOT NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 'retries', r.id, c.name, 'RETRY', r.attempts, r.failed_at, NULL::text, r.available_at,
                        r.last_error
                   FROM _outbox.retries r JOIN _outbox.consumers c USING (consumer_id)
                  WHERE r.tracking_id = wanted AND _outbox.shows_tenant(r.tenant_id);
    RETURN QUERY SELECT 'dead letters', l.id, c.name, 'DEAD_LETTER', l.attempts, l.died_at, NULL::text,
                        NULL::timestamptz, l.last_error
                   FROM _outbox.dead_letters l JOIN _outbox.consumers c USING (consumer_id)
                  WHERE l.tracking_id = wanted AND _outbox.shows_tenant(l.tenant_id);
END $$;
COMMENT ON FUNCTION outbox_find(uuid) IS 'place of an event, and its state for each consumer';

CREATE OR REPLACE FUNCTION outbox_history(
    aggregate_type text, aggregate_id text, OUT id bigint, OUT tracking_id uuid, OUT event_type text,
    OUT event_version integer, OUT occurred_at timestamptz, OUT consumer_name text, OUT status text,
    OUT attempts integer, OUT since timestamptz, OUT last_error text)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF outbox_history.aggregate_type IS NULL OR outbox_history.aggregate_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN outbox_history.aggregate_type IS NULL
                                                         THEN 'aggregate_type' ELSE 'aggregate_id' END);
    END IF;
    RETURN QUERY SELECT m.id, m.tracking_id, m.event_type, m.event_version::integer, m.occurred_at,
                        d.consumer_name, d.status, d.attempts, d.since, d.last_error
                   FROM @extschema@.outbox_messages m
                   -- OFFSET 0 is an optimization fence: the view is evaluated per message, not for the whole log.
                   LEFT JOIN LATERAL (SELECT * FROM @extschema@.outbox_deliveries x
                                       WHERE x.id = m.id AND x.occurred_at = m.occurred_at OFFSET 0) d ON true
                  WHERE m.aggregate_type = outbox_history.aggregate_type
                    AND m.aggregate_id = outbox_history.aggregate_id
                    AND _outbox.shows_tenant(m.tenant_id)
                  ORDER BY m.id, d.consumer_name;
END $$;
COMMENT ON FUNCTION outbox_history(text, text)
IS 'events of an aggregate that are in the log, and their state for each consumer';

