CREATE OR REPLACE FUNCTION _outbox.database_identity() RETURNS text
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'outbox_database_identity';
COMMENT ON FUNCTION _outbox.database_identity()
IS 'internal: returns an identity of this database that a copy does not share';

CREATE OR REPLACE FUNCTION _outbox.check_sink(kind text, config text) RETURNS void
LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'outbox_check_sink';
COMMENT ON FUNCTION _outbox.check_sink(text, text)
IS 'internal: raises an error if the kind or config of a sink is invalid';

CREATE OR REPLACE FUNCTION _outbox.find_sink(name text) RETURNS _outbox.consumers
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer _outbox.consumers := _outbox.find_consumer(name);
BEGIN
    IF consumer.kind = 'worker' THEN
        RAISE wrong_object_type USING MESSAGE = format('consumer "%s" is not a sink', name);
    END IF;
    RETURN consumer;
END $$;
COMMENT ON FUNCTION _outbox.find_sink(text) IS 'internal: returns the sink with this name, or raises an error';

CREATE OR REPLACE FUNCTION outbox_create_sink(
    name text, kind text, config jsonb, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    tenant_id bigint DEFAULT NULL, ordered boolean DEFAULT true, max_attempts integer DEFAULT NULL,
    start_at text DEFAULT 'latest', payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    consumer _outbox.consumers;
BEGIN
    IF kind IS NULL OR config IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN kind IS NULL THEN 'kind' ELSE 'config' END);
    END IF;
    consumer.name := name;
    consumer.kind := kind;
    consumer.ordered := coalesce(ordered, true);
    consumer.partitions := 1;
    consumer.tenant_id := tenant_id;
    consumer.event_types := event_types;
    consumer.aggregate_types := aggregate_types;
    consumer.max_attempts := max_attempts;
    consumer.payload_versions := payload_versions;
    PERFORM _outbox.check_consumer(consumer);
    PERFORM _outbox.check_sink(kind, config::text);
    INSERT INTO _outbox.sinks (consumer_id, config, home)
    VALUES (_outbox.add_consumer(consumer, start_at), config, _outbox.database_identity());
    PERFORM _outbox.wake_relay();
END $$;
COMMENT ON FUNCTION outbox_create_sink(text, text, jsonb, text[], text[], bigint, boolean, integer, text, jsonb)
IS 'creates a sink: the relay delivers all events that commit from now on, or from start_at';

CREATE OR REPLACE FUNCTION outbox_alter_sink(
    name text, config jsonb DEFAULT NULL, event_types text[] DEFAULT NULL, aggregate_types text[] DEFAULT NULL,
    ordered boolean DEFAULT NULL, max_attempts integer DEFAULT NULL, immediate_retries integer DEFAULT NULL,
    backoff_base interval DEFAULT NULL, backoff_max interval DEFAULT NULL,
    backoff_jitter double precision DEFAULT NULL, payload_versions jsonb DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    sink CONSTANT _outbox.consumers := _outbox.find_sink(name);
BEGIN
    IF outbox_alter_sink.config IS NOT NULL THEN
        -- A config can refer to any secret of the secrets file, so a tenant must not set it.
        PERFORM _outbox.require_no_tenant('to change the config of a sink');
        PERFORM _outbox.check_sink(sink.kind, outbox_alter_sink.config::text);
        UPDATE _outbox.sinks s SET config = outbox_alter_sink.config
         WHERE s.consumer_id = sink.consumer_id;
    END IF;
    PERFORM _outbox.alter_consumer(
        name, event_types, aggregate_types, ordered, NULL, max_attempts, immediate_retries, backoff_base,
        backoff_max, backoff_jitter, NULL, payload_versions);
END $$;
COMMENT ON FUNCTION outbox_alter_sink(text, jsonb, text[], text[], boolean, integer, integer, interval, interval,
                                      double precision, jsonb)
IS 'changes a sink; NULL keeps a setting, config replaces the whole configuration';

CREATE OR REPLACE FUNCTION outbox_drop_sink(name text, discard_dead_letters boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.find_sink(name);
    PERFORM _outbox.drop_consumer(name, discard_dead_letters);
END $$;
COMMENT ON FUNCTION outbox_drop_sink(text, boolean)
IS 'drops a sink; its dead letters only if discard_dead_letters is true';

CREATE OR REPLACE PROCEDURE outbox_test_sink(name text, INOUT ok boolean DEFAULT NULL, INOUT detail text DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'outbox_test_sink';
COMMENT ON PROCEDURE outbox_test_sink(text, boolean, text)
IS 'has the relay send a test event to a sink at once; returns the result';

CREATE OR REPLACE FUNCTION _outbox.sink_states(
    OUT consumer_id integer, OUT claimed integer, OUT on_the_way integer, OUT troubles integer,
    OUT delivered bigint, OUT rejected bigint, OUT resume_at timestamptz, OUT last_error_at timestamptz,
    OUT last_error text)
RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_sink_states';
COMMENT ON FUNCTION _outbox.sink_states()
IS 'internal: state of each sink of this database that the session may see, from the relay''s shared memory';

