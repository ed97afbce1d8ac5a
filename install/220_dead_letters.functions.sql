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
IS 'internal: raises an error if the array cannot be a list of ids';

-- What a transaction saw at its beginning is no cursor: with the lock comes a look of its own.
CREATE OR REPLACE FUNCTION _outbox.newest_batch(consumer_id integer) RETURNS _outbox.batches
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_newest_batch';
COMMENT ON FUNCTION _outbox.newest_batch(integer)
IS 'internal: the newest batch of a consumer whose lock is held, which says where it is';

CREATE OR REPLACE FUNCTION outbox_redrive(consumer text, event_type text DEFAULT NULL, ids bigint[] DEFAULT NULL,
                               since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL)
RETURNS integer LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    reader   _outbox.consumers := _outbox.find_consumer(consumer);
    redriven integer;
    newest   _outbox.batches;
BEGIN
    PERFORM _outbox.check_ids(ids);
    -- Its partitions must not change under the messages that are about to be dealt to them.
    PERFORM _outbox.lock_consumer(consumer);
    SELECT * INTO STRICT reader FROM _outbox.consumers c WHERE c.name = consumer FOR SHARE;
    newest := _outbox.newest_batch(reader.consumer_id);
    WITH chosen AS (
        DELETE FROM _outbox.dead_letters d
         WHERE d.consumer_id = reader.consumer_id
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
               _outbox.partition_of(aggregate_type, aggregate_id, reader.partitions), 0, true,
               clock_timestamp(), last_error
          FROM chosen d
         -- Since a seek it may be still to come out of the log: once is enough, and two could have it at a time.
         WHERE _outbox.has_passed(newest, d.xid, d.id)
            OR (d.event_type = ANY (reader.event_types)) IS FALSE OR (d.aggregate_type = ANY (reader.aggregate_types)) IS FALSE
            OR NOT EXISTS (SELECT FROM @extschema@.outbox_messages m WHERE m.id = d.id AND m.occurred_at = d.occurred_at
                           UNION ALL SELECT FROM @extschema@.outbox_messages_archive m WHERE m.id = d.id AND m.occurred_at = d.occurred_at)
        ON CONFLICT DO NOTHING)
    SELECT count(*) INTO redriven FROM chosen;
    PERFORM _outbox.wake_relay();
    RETURN redriven;
END $$;
COMMENT ON FUNCTION outbox_redrive(text, text, bigint[], timestamptz, timestamptz)
IS 'gives dead letters of a consumer another life; since and until are about the time of death';

CREATE OR REPLACE FUNCTION outbox_discard(consumer text, ids bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    reader    _outbox.consumers := _outbox.find_consumer(consumer);
    discarded integer;
BEGIN
    IF ids IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'ids must not be NULL';
    END IF;
    PERFORM _outbox.check_ids(ids);
    DELETE FROM _outbox.dead_letters d
     WHERE d.consumer_id = reader.consumer_id AND d.id = ANY (ids);
    GET DIAGNOSTICS discarded = ROW_COUNT;
    RETURN discarded;
END $$;
COMMENT ON FUNCTION outbox_discard(text, bigint[])
IS 'removes dead letters for good; returns how many';

