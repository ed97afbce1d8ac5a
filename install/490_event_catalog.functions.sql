CREATE OR REPLACE FUNCTION _outbox.check_schema(json_schema jsonb) RETURNS void
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_check_schema';
COMMENT ON FUNCTION _outbox.check_schema(jsonb)
IS 'internal: raises an error if a JSON Schema is invalid or not supported';

CREATE OR REPLACE FUNCTION _outbox.breaking_change(before jsonb, after jsonb) RETURNS text
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_breaking_change';
COMMENT ON FUNCTION _outbox.breaking_change(jsonb, jsonb)
IS 'internal: reason why a schema cannot replace another one in the same version; NULL if it can';

CREATE OR REPLACE FUNCTION _outbox.is_pointer(pointer text) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME', 'outbox_is_pointer';
COMMENT ON FUNCTION _outbox.is_pointer(text)
IS 'internal: returns true if a text is a JSON pointer to a part of a document';

-- Call it after a C function of the library: loading the library discards a value of
-- outbox.event_name_pattern that the session had no privilege to set.
CREATE OR REPLACE FUNCTION _outbox.check_event_name(event_type text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rule CONSTANT text := current_setting('outbox.event_name_pattern');
BEGIN
    IF rule <> '' AND event_type !~ rule THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('event_type "%s" does not match outbox.event_name_pattern', event_type),
            HINT = format('The pattern is %s', rule);
    END IF;
END $$;
COMMENT ON FUNCTION _outbox.check_event_name(text)
IS 'internal: raises an error if the name of an event does not match outbox.event_name_pattern';

CREATE OR REPLACE FUNCTION _outbox.check_event_type(new _outbox.event_types) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pointer text;
    wrong   text := CASE
        WHEN new.event_type IS NULL THEN 'event_type must not be NULL'
        WHEN new.event_version IS NULL THEN 'event_version must not be NULL'
        WHEN new.owner_module IS NULL THEN 'owner_module must not be NULL'
        WHEN (SELECT bool_or(e IS NULL) FROM unnest(new.consumers) e) THEN 'consumers must not contain NULLs'
        WHEN (SELECT bool_or(e IS NULL) FROM unnest(new.pii_fields) e) THEN 'pii_fields must not contain NULLs'
        END;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = wrong;
    END IF;
    wrong := CASE
        WHEN new.event_type = '' THEN 'event_type must not be empty'
        WHEN octet_length(new.event_type) > 255 THEN 'event_type must not be longer than 255 bytes'
        WHEN new.event_type ~ '[[:cntrl:]]' THEN 'event_type must not contain control characters'
        WHEN new.event_version NOT BETWEEN 1 AND 32767 THEN 'event_version must be between 1 and 32767'
        WHEN new.owner_module = '' THEN 'owner_module must not be empty'
        WHEN octet_length(new.owner_module) > 255 THEN 'owner_module must not be longer than 255 bytes'
        WHEN array_ndims(new.consumers) > 1 THEN 'consumers must have one dimension'
        WHEN array_ndims(new.pii_fields) > 1 THEN 'pii_fields must have one dimension'
        WHEN cardinality(new.pii_fields) > 100 THEN 'pii_fields must not have more than 100 elements'
        END;
    IF wrong IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = wrong;
    END IF;
    FOREACH pointer IN ARRAY new.pii_fields LOOP
        IF NOT _outbox.is_pointer(pointer) THEN
            RAISE invalid_parameter_value USING
                MESSAGE = format('pii_fields must be JSON pointers, not "%s"', left(pointer, 63)),
                HINT = 'Examples: /customer/email, /travellers/*/passport.';
        END IF;
    END LOOP;
    PERFORM _outbox.check_schema(new.json_schema);
END $$;
COMMENT ON FUNCTION _outbox.check_event_type(_outbox.event_types)
IS 'internal: raises an error if a row is not valid in the catalog of events';

CREATE OR REPLACE FUNCTION outbox_register_event(
    event_type text, event_version integer, owner_module text, json_schema jsonb DEFAULT NULL,
    description text DEFAULT NULL, consumers text[] DEFAULT '{}', replay_safe boolean DEFAULT true,
    pii_fields text[] DEFAULT '{}')
RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    before _outbox.event_types;
    after  _outbox.event_types;
    owner  text;
    breaks text;
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_register_event()');
    after.event_type := event_type;
    after.event_version := event_version;
    after.owner_module := owner_module;
    after.json_schema := json_schema;
    after.description := description;
    after.consumers := coalesce(consumers, '{}');
    after.replay_safe := coalesce(replay_safe, true);
    after.pii_fields := coalesce(pii_fields, '{}');
    PERFORM _outbox.check_event_type(after);

    -- The lock serializes registrations: the owner of an event is checked across all of its versions.
    LOCK TABLE _outbox.event_types IN SHARE ROW EXCLUSIVE MODE;
    SELECT t.owner_module INTO owner FROM _outbox.event_types t
     WHERE t.event_type = event_type LIMIT 1;
    IF owner <> owner_module THEN
        RAISE object_in_use USING
            MESSAGE = format('event_type "%s" belongs to "%s"', event_type, owner),
            HINT = 'To change the owner module of all versions, call outbox_set_event_owner().';
    END IF;

    SELECT * INTO before FROM _outbox.event_types t
     WHERE t.event_type = event_type AND t.event_version = event_version;
    IF NOT FOUND THEN
        PERFORM _outbox.check_event_name(event_type);
        INSERT INTO _outbox.event_types
        VALUES (event_type, event_version, owner_module, json_schema, description, after.consumers,
                after.replay_safe, after.pii_fields);
        RETURN 'registered';
    END IF;

    after.registered_at := before.registered_at;
    after.changed_at := before.changed_at;
    IF after IS NOT DISTINCT FROM before THEN
        RETURN 'unchanged';
    END IF;
    IF (before.json_schema IS NULL) <> (json_schema IS NULL) THEN
        breaks := CASE WHEN json_schema IS NULL THEN 'the schema is removed' ELSE 'a schema is added' END;
    ELSE
        breaks := _outbox.breaking_change(before.json_schema, json_schema);
    END IF;
    IF breaks IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('json_schema would break "%s" version %s: %s', event_type, event_version, breaks),
            HINT = format('Register it as version %s.',
                (SELECT max(t.event_version) + 1 FROM _outbox.event_types t
                  WHERE t.event_type = event_type));
    END IF;
    UPDATE _outbox.event_types t
       SET json_schema = after.json_schema, description = after.description, consumers = after.consumers,
           replay_safe = after.replay_safe, pii_fields = after.pii_fields, changed_at = clock_timestamp()
     WHERE t.event_type = event_type AND t.event_version = event_version;
    RETURN 'changed';
END $$;
COMMENT ON FUNCTION outbox_register_event(text, integer, text, jsonb, text, text[], boolean, text[])
IS 'adds a version of an event to the catalog, or changes it; rejects a breaking change';

CREATE OR REPLACE FUNCTION outbox_unregister_event(event_type text, event_version integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_unregister_event()');
    IF event_type IS NULL OR event_version IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = CASE WHEN event_type IS NULL THEN 'event_type' ELSE 'event_version' END || ' must not be NULL';
    END IF;
    DELETE FROM _outbox.event_types t
     WHERE t.event_type = outbox_unregister_event.event_type
       AND t.event_version = outbox_unregister_event.event_version;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION outbox_unregister_event(text, integer)
IS 'removes a version of an event from the catalog; returns false if it is not registered';

CREATE OR REPLACE FUNCTION outbox_set_event_owner(event_type text, owner_module text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    versions integer;
BEGIN
    PERFORM _outbox.require_no_tenant('outbox_set_event_owner()');
    IF event_type IS NULL OR owner_module IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = CASE WHEN event_type IS NULL THEN 'event_type' ELSE 'owner_module' END || ' must not be NULL';
    ELSIF owner_module = '' OR octet_length(owner_module) > 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'owner_module must have between 1 and 255 bytes';
    END IF;
    LOCK TABLE _outbox.event_types IN SHARE ROW EXCLUSIVE MODE;
    UPDATE _outbox.event_types t
       SET owner_module = outbox_set_event_owner.owner_module, changed_at = clock_timestamp()
     WHERE t.event_type = outbox_set_event_owner.event_type;
    GET DIAGNOSTICS versions = ROW_COUNT;
    IF versions = 0 THEN
        RAISE undefined_object USING
            MESSAGE = format('event_type "%s" is not registered', left(event_type, 255)),
            HINT = 'Register it with outbox_register_event().';
    END IF;
    RETURN versions;
END $$;
COMMENT ON FUNCTION outbox_set_event_owner(text, text)
IS 'changes the owner module of an event in all versions; returns their number';

