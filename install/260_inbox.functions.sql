CREATE OR REPLACE FUNCTION inbox_accept(consumer text, tracking_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF consumer IS NULL OR tracking_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be NULL', CASE WHEN consumer IS NULL THEN 'consumer' ELSE 'tracking_id' END);
    ELSIF consumer = '' OR octet_length(consumer) > 63 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'consumer must have between 1 and 63 bytes';
    END IF;
    INSERT INTO _outbox.inbox (consumer, tracking_id, tenant_id)
    VALUES (consumer, tracking_id, coalesce(_outbox.session_tenant(), 0))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION inbox_accept(text, uuid)
IS 'returns true if the consumer accepts the event for the first time; recorded when this transaction commits';

