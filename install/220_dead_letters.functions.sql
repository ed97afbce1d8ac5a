----------------------------------------------------------------------------------------------------
-- Dead letters
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.check_ids(ids bigint[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(ids) > 100000 THEN
        RAISE program_limit_exceeded USING
            MESSAGE = format('ids has %s elements, more than 100000', cardinality(ids)),
            HINT = 'Split the call.';
    ELSIF EXISTS (SELECT FROM unnest(ids) i WHERE i IS NULL) THEN
        RAISE null_value_not_allowed USING MESSAGE = 'ids must not contain NULLs';
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_ids(bigint[])
IS 'internal: raises an error if an array of ids is too large or contains NULLs';

-- A snapshot older than the consumer lock may show an old cursor, so this function takes the latest snapshot.
CREATE OR REPLACE FUNCTION _outbox.newest_batch(consumer_id integer) RETURNS _outbox.batches
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_newest_batch';
COMMENT ON FUNCTION _outbox.newest_batch(integer)
IS 'internal: returns the newest batch of a locked consumer, which has its cursor, under the latest snapshot';

CREATE OR REPLACE FUNCTION outbox_redrive(consumer text, event_type text DEFAULT NULL, ids bigint[] DEFAULT NULL,
                               since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    target   _outbox.consumers := _outbox.find_consumer(consumer);
    redriven integer;
    newest   _outbox.batches;
BEGIN
    PERFORM _outbox.check_ids(ids);
    -- The lock keeps the number of consumer partitions stable while messages are assigned to them.
    PERFORM _outbox.lock_consumer(consumer);
    SELECT * INTO STRICT target FROM _outbox.consumers c WHERE c.name = consumer FOR SHARE;
    newest := _outbox.newest_batch(target.consumer_id);
    WITH chosen AS (
        DELETE FROM _outbox.dead_letters d
         WHERE d.consumer_id = target.consumer_id
           AND (outbox_redrive.event_type IS NULL OR d.event_type = outbox_redrive.event_type)
           AND (outbox_redrive.ids IS NULL OR d.id = ANY (outbox_redrive.ids))
           AND (since IS NULL OR d.died_at >= since) AND (until IS NULL OR d.died_at < until)
        RETURNING *),
    waiting AS (
        INSERT INTO _outbox.retries
               (xid, id, occurred_at, tenant_id, tracking_id, event_version, aggregate_type, aggregate_id,
                event_type, payload, metadata, trace_id, consumer_id, partition, attempts, redriven,
                available_at, last_error)
        SELECT xid, id, occurred_at, tenant_id, tracking_id, event_version, aggregate_type, aggregate_id,
               event_type, payload, metadata, trace_id, consumer_id,
               _outbox.partition_of(aggregate_type, aggregate_id, target.partitions), 0, true,
               clock_timestamp(), last_error
          FROM chosen d
         -- After a seek the cursor may be below the message. It is then read from the log, and a copy in
         -- outbox_retries would be a second delivery.
         WHERE _outbox.has_passed(newest, d.xid, d.id)
            OR (d.event_type = ANY (target.event_types)) IS FALSE
            OR (d.aggregate_type = ANY (target.aggregate_types)) IS FALSE
            OR NOT EXISTS (SELECT FROM @extschema@.outbox_messages m
                            WHERE m.id = d.id AND m.occurred_at = d.occurred_at
                           UNION ALL SELECT FROM @extschema@.outbox_messages_archive m
                                      WHERE m.id = d.id AND m.occurred_at = d.occurred_at)
        ON CONFLICT DO NOTHING)
    SELECT count(*) INTO redriven FROM chosen;
    PERFORM _outbox.wake_relay();
    RETURN redriven;
END $$;
COMMENT ON FUNCTION outbox_redrive(text, text, bigint[], timestamptz, timestamptz)
IS 'moves dead letters to the retries of their consumer; since and until apply to died_at; returns how many';

CREATE OR REPLACE FUNCTION outbox_discard(consumer text, ids bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    target    _outbox.consumers := _outbox.find_consumer(consumer);
    discarded integer;
BEGIN
    IF ids IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'ids must not be NULL';
    END IF;
    PERFORM _outbox.check_ids(ids);
    DELETE FROM _outbox.dead_letters d
     WHERE d.consumer_id = target.consumer_id AND d.id = ANY (ids);
    GET DIAGNOSTICS discarded = ROW_COUNT;
    RETURN discarded;
END $$;
COMMENT ON FUNCTION outbox_discard(text, bigint[]) IS 'deletes dead letters permanently; returns how many';

