----------------------------------------------------------------------------------------------------
-- Managing consumers
----------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION _outbox.partition_of(aggregate_type text, aggregate_id text, partitions integer)
RETURNS integer LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_partition_of';
COMMENT ON FUNCTION _outbox.partition_of(text, text, integer)
IS 'internal: returns the consumer partition of an aggregate';

CREATE OR REPLACE FUNCTION _outbox.place_cursor(consumer_id integer, to_time timestamptz) RETURNS void
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_place_cursor';
COMMENT ON FUNCTION _outbox.place_cursor(integer, timestamptz) IS 'internal: writes the first cursor of a new consumer';

CREATE OR REPLACE FUNCTION _outbox.wake_relay() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_wake_relay';
COMMENT ON FUNCTION _outbox.wake_relay()
IS 'internal: wakes the relay and waiting sessions when the transaction commits';

CREATE OR REPLACE FUNCTION _outbox.lock_consumer(name text) RETURNS boolean
LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'outbox_lock_consumer';
COMMENT ON FUNCTION _outbox.lock_consumer(text)
IS 'internal: locks a consumer against claims; returns true if batches are open or messages wait for a retry';

CREATE OR REPLACE FUNCTION _outbox.parse_time(target text, argument text) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    result timestamptz;
BEGIN
    IF target IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = format('%s must not be NULL', argument);
    END IF;
    BEGIN
        result := CASE target WHEN 'earliest' THEN '-infinity' WHEN 'latest' THEN 'infinity' ELSE target END;
    EXCEPTION WHEN data_exception THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('invalid value for %s: %L', argument, left(target, 63)),
            HINT = 'Use earliest, latest, or a time such as 2026-01-31 12:00+00.';
    END;
    RETURN result;
END $$;
COMMENT ON FUNCTION _outbox.parse_time(text, text)
IS 'internal: converts earliest, latest or a time to timestamptz; earliest is -infinity, latest is infinity';

CREATE OR REPLACE FUNCTION _outbox.find_consumer(name text) RETURNS _outbox.consumers
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer _outbox.consumers;
BEGIN
    IF name IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'consumer must not be NULL';
    END IF;
    SELECT * INTO consumer FROM _outbox.consumers c
     WHERE c.name = find_consumer.name AND _outbox.shows_tenant(c.tenant_id);
    IF NOT FOUND THEN
        RAISE undefined_object USING
            MESSAGE = format('consumer "%s" does not exist', left(name, 63)),
            HINT = 'Create it with outbox_create_consumer().';
    END IF;
    RETURN consumer;
END $$;
COMMENT ON FUNCTION _outbox.find_consumer(text) IS 'internal: returns the consumer with this name, or raises an error';

CREATE OR REPLACE FUNCTION _outbox.check_consumer(consumer _outbox.consumers) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := CASE
        WHEN consumer.name IS NULL THEN 'name must not be NULL'
        WHEN consumer.name = '' THEN 'name must not be empty'
        WHEN octet_length(consumer.name) > 63 THEN 'name must not be longer than 63 bytes'
        WHEN consumer.name ~ '[[:cntrl:]]' THEN 'name must not contain control characters'
        WHEN consumer.partitions NOT BETWEEN 1 AND 1024 THEN 'partitions must be between 1 and 1024'
        WHEN consumer.max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts must be between 1 and 1000'
        WHEN consumer.immediate_retries NOT BETWEEN 0 AND 1000
            THEN 'immediate_retries must be between 0 and 1000'
        WHEN consumer.backoff_base NOT BETWEEN '0' AND '1 day' THEN 'backoff_base must be between 0 and 1 day'
        WHEN consumer.backoff_max NOT BETWEEN '0' AND '1 day' THEN 'backoff_max must be between 0 and 1 day'
        WHEN consumer.backoff_jitter NOT BETWEEN 0 AND 1 THEN 'backoff_jitter must be between 0 and 1'
        WHEN consumer.fair AND (consumer.ordered OR consumer.partitions <> 1)
            THEN 'fair cannot be combined with ordered or with several partitions'
        WHEN array_ndims(consumer.event_types) > 1 THEN 'event_types must have one dimension'
        WHEN array_ndims(consumer.aggregate_types) > 1 THEN 'aggregate_types must have one dimension'
        WHEN array_position(consumer.event_types, NULL) > 0 THEN 'event_types must not contain NULLs'
        WHEN array_position(consumer.aggregate_types, NULL) > 0 THEN 'aggregate_types must not contain NULLs'
        END;
BEGIN
    IF problem LIKE '%NULL%' THEN
        RAISE null_value_not_allowed USING MESSAGE = problem;
    ELSIF problem IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = problem;
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_consumer(_outbox.consumers)
IS 'internal: raises an error if the settings of a consumer are invalid';

CREATE OR REPLACE FUNCTION _outbox.add_consumer(consumer _outbox.consumers, start_at text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start CONSTANT timestamptz := _outbox.parse_time(start_at, 'start_at');
BEGIN
    -- Consumer names are unique across tenants, so "already exists" would reveal the name of another tenant's consumer.
    PERFORM _outbox.require_no_tenant('to create a consumer');
    consumer.event_types := nullif(consumer.event_types, '{}');
    consumer.aggregate_types := nullif(consumer.aggregate_types, '{}');
    consumer.payload_versions := nullif(consumer.payload_versions, '{}');
    PERFORM _outbox.check_consumer(consumer);
    PERFORM _outbox.check_payload_versions(consumer.payload_versions);
    consumer.consumer_id := nextval('_outbox.consumers_id_seq');
    consumer.paused := false;
    consumer.fair := coalesce(consumer.fair, false);
    consumer.created_at := clock_timestamp();
    INSERT INTO _outbox.consumers SELECT consumer.*;
    PERFORM _outbox.place_cursor(consumer.consumer_id, start);
    RETURN consumer.consumer_id;
EXCEPTION WHEN unique_violation THEN
    RAISE duplicate_object USING
        MESSAGE = format('consumer "%s" already exists', consumer.name),
        HINT = 'Use outbox_alter_consumer() or outbox_alter_sink() to change it, or outbox_seek() to move its cursor.';
END $$;
COMMENT ON FUNCTION _outbox.add_consumer(_outbox.consumers, text)
IS 'internal: adds a consumer, or the consumer of a sink';

CREATE OR REPLACE FUNCTION outbox_create_consumer(
    name text, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    tenant_id bigint DEFAULT NULL, ordered boolean DEFAULT false, partitions integer DEFAULT 1,
    max_attempts integer DEFAULT NULL, start_at text DEFAULT 'latest', fair boolean DEFAULT false,
    payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer _outbox.consumers;
BEGIN
    consumer.name := name;
    consumer.kind := 'worker';
    consumer.ordered := coalesce(ordered, false);
    consumer.partitions := coalesce(partitions, 1);
    consumer.tenant_id := tenant_id;
    consumer.event_types := event_types;
    consumer.aggregate_types := aggregate_types;
    consumer.max_attempts := max_attempts;
    consumer.fair := fair;
    consumer.payload_versions := payload_versions;
    PERFORM _outbox.add_consumer(consumer, start_at);
END $$;
COMMENT ON FUNCTION outbox_create_consumer(text, text[], text[], bigint, boolean, integer, integer, text, boolean,
                                           jsonb)
IS 'creates a consumer of all events that commit from now on, or from start_at';

CREATE OR REPLACE FUNCTION _outbox.alter_consumer(
    name text, event_types text[], aggregate_types text[], ordered boolean, partitions integer, max_attempts integer,
    immediate_retries integer, backoff_base interval, backoff_max interval, backoff_jitter double precision,
    fair boolean, payload_versions jsonb)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before _outbox.consumers := _outbox.find_consumer(name);
    busy   CONSTANT boolean := _outbox.lock_consumer(name);
    after  _outbox.consumers;
BEGIN
    before := _outbox.find_consumer(name); -- read again under the lock
    after := before;
    after.event_types := nullif(coalesce(event_types, before.event_types), '{}');
    after.aggregate_types := nullif(coalesce(aggregate_types, before.aggregate_types), '{}');
    after.ordered := coalesce(ordered, before.ordered);
    after.partitions := coalesce(partitions, before.partitions);
    after.fair := coalesce(fair, before.fair);
    after.max_attempts := coalesce(max_attempts, before.max_attempts);
    after.immediate_retries := coalesce(immediate_retries, before.immediate_retries);
    after.backoff_base := coalesce(backoff_base, before.backoff_base);
    after.backoff_max := coalesce(backoff_max, before.backoff_max);
    after.backoff_jitter := coalesce(backoff_jitter, before.backoff_jitter);
    after.payload_versions := nullif(coalesce(payload_versions, before.payload_versions), '{}');
    PERFORM _outbox.check_consumer(after);
    PERFORM _outbox.check_payload_versions(payload_versions);
    IF after.kind <> 'worker' AND after.partitions <> 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'a sink cannot have several partitions';
    ELSIF after.kind <> 'worker' AND after.fair THEN
        RAISE invalid_parameter_value USING MESSAGE = 'a sink cannot be fair';
    END IF;
    -- An aggregate may move: an open batch or a retry in its old consumer partition would break its order.
    IF busy AND (after.ordered, after.partitions) IS DISTINCT FROM (before.ordered, before.partitions) THEN
        RAISE object_in_use USING
            MESSAGE = 'ordered and partitions cannot change while batches are open or messages wait for a retry',
            HINT = 'Pause the consumer, let its workers finish, and try again.';
    END IF;
    UPDATE _outbox.consumers c
       SET event_types = after.event_types, aggregate_types = after.aggregate_types,
           ordered = after.ordered, partitions = after.partitions, max_attempts = after.max_attempts,
           immediate_retries = after.immediate_retries, backoff_base = after.backoff_base,
           backoff_max = after.backoff_max, backoff_jitter = after.backoff_jitter, fair = after.fair,
           payload_versions = after.payload_versions
     WHERE c.consumer_id = before.consumer_id;
    PERFORM _outbox.wake_relay();
END $$;
COMMENT ON FUNCTION _outbox.alter_consumer(text, text[], text[], boolean, integer, integer, integer, interval,
                                           interval, double precision, boolean, jsonb)
IS 'internal: changes a consumer or a sink';

CREATE OR REPLACE FUNCTION outbox_alter_consumer(
    name text, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    ordered boolean DEFAULT NULL, partitions integer DEFAULT NULL, max_attempts integer DEFAULT NULL,
    immediate_retries integer DEFAULT NULL, backoff_base interval DEFAULT NULL,
    backoff_max interval DEFAULT NULL, backoff_jitter double precision DEFAULT NULL,
    fair boolean DEFAULT NULL, payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT _outbox.alter_consumer(name, event_types, aggregate_types, ordered, partitions, max_attempts,
                                  immediate_retries, backoff_base, backoff_max, backoff_jitter, fair, payload_versions)
$$;
COMMENT ON FUNCTION outbox_alter_consumer(text, text[], text[], boolean, integer, integer, integer, interval, interval,
                                          double precision, boolean, jsonb)
IS 'changes a consumer; NULL keeps a setting, an empty array of types means all types';

CREATE OR REPLACE FUNCTION _outbox.drop_consumer(name text, discard_dead_letters boolean) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_drop_consumer';
COMMENT ON FUNCTION _outbox.drop_consumer(text, boolean) IS 'internal: implements outbox_drop_consumer()';

CREATE OR REPLACE FUNCTION outbox_drop_consumer(name text, discard_dead_letters boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_drop_consumer';
COMMENT ON FUNCTION outbox_drop_consumer(text, boolean)
IS 'drops a consumer with its cursor and leases; its dead letters only if discard_dead_letters is true';

CREATE OR REPLACE FUNCTION _outbox.set_paused(name text, paused boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer _outbox.consumers := _outbox.find_consumer(name);
BEGIN
    UPDATE _outbox.consumers c SET paused = set_paused.paused, pause_reason = NULL
     WHERE c.consumer_id = consumer.consumer_id;
    -- Resuming a sink in a copy of its database makes the copy its home: the relay there delivers from now on.
    IF NOT paused THEN
        UPDATE _outbox.sinks s SET home = _outbox.database_identity()
         WHERE s.consumer_id = consumer.consumer_id;
    END IF;
    PERFORM _outbox.wake_relay();
END $$;
COMMENT ON FUNCTION _outbox.set_paused(text, boolean) IS 'internal: pauses or resumes a consumer';

CREATE OR REPLACE FUNCTION outbox_pause(name text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT _outbox.set_paused(name, true) $$;
COMMENT ON FUNCTION outbox_pause(text) IS 'stops claims of a consumer; claimed batches can still be settled';

CREATE OR REPLACE FUNCTION outbox_resume(name text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT _outbox.set_paused(name, false) $$;
COMMENT ON FUNCTION outbox_resume(text) IS 'resumes a paused consumer';

CREATE OR REPLACE FUNCTION _outbox.seek(consumer text, to_time timestamptz) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_seek';
COMMENT ON FUNCTION _outbox.seek(text, timestamptz) IS 'internal: implements outbox_seek()';

CREATE OR REPLACE FUNCTION outbox_seek(consumer text, to_time timestamptz) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_seek';
COMMENT ON FUNCTION outbox_seek(text, timestamptz)
IS 'moves the cursor of a consumer to the first event that entered the log at this time or later';

CREATE OR REPLACE FUNCTION outbox_seek(consumer text, target text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.seek(consumer, _outbox.parse_time(target, 'target'));
END $$;
COMMENT ON FUNCTION outbox_seek(text, text) IS 'moves the cursor of a consumer to earliest, latest, or a time';

