CREATE OR REPLACE FUNCTION outbox_register_upcaster(event_type text, from_version integer, function regprocedure)
RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_register_upcaster';
COMMENT ON FUNCTION outbox_register_upcaster(text, integer, regprocedure)
IS 'registers a function that converts delivered payloads of an event type to the next version';

CREATE OR REPLACE FUNCTION outbox_unregister_upcaster(event_type text, from_version integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_unregister_upcaster()');
    IF event_type IS NULL OR from_version IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL',
                             CASE WHEN event_type IS NULL THEN 'event_type' ELSE 'from_version' END);
    END IF;
    DELETE FROM _outbox.upcasters u
     WHERE u.event_type = outbox_unregister_upcaster.event_type
       AND u.from_version = outbox_unregister_upcaster.from_version;
    IF NOT FOUND THEN
        RAISE undefined_object USING
            MESSAGE = format('event type "%s" has no upcaster from version %s', left(event_type, 255), from_version);
    END IF;
END $$;
COMMENT ON FUNCTION outbox_unregister_upcaster(text, integer) IS 'unregisters an upcaster; the function is not dropped';

CREATE OR REPLACE FUNCTION _outbox.check_payload_versions(versions jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
    latest integer;
BEGIN
    IF jsonb_typeof(versions) <> 'object' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'payload_versions must be a JSON object',
            HINT = 'Map event types to versions, such as {"OrderConfirmed": 2}, or to "stored" for no conversion.';
    END IF;
    FOR wanted IN SELECT * FROM jsonb_each(versions) LOOP
        IF wanted.value = '"stored"' THEN
            CONTINUE;
        ELSIF wanted.value::text !~ '^[0-9]{1,5}$' OR wanted.value::text::integer NOT BETWEEN 1 AND 32767 THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('payload_versions: "%s" must have a version from 1 to 32767, or "stored"',
                                 left(wanted.key, 255));
        END IF;
        -- The latest version of an event type without upcasters is unknown, so any version is accepted.
        SELECT max(u.from_version) + 1 INTO latest FROM _outbox.upcasters u WHERE u.event_type = wanted.key;
        IF wanted.value::text::integer > latest THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('payload_versions: upcasters convert "%s" to version %s, not to %s',
                                 left(wanted.key, 255), latest, wanted.value),
                HINT = 'Register the upcasters first.';
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION _outbox.check_payload_versions(jsonb)
IS 'internal: raises an error if payload_versions of a consumer are invalid';

