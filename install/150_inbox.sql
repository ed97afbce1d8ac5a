----------------------------------------------------------------------------------------------------
-- The inbox: a consumer's memory of what it has handled
----------------------------------------------------------------------------------------------------

CREATE TABLE _outbox.inbox (
    tracking_id uuid        NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id   bigint      NOT NULL DEFAULT 0,
    consumer    text        NOT NULL,
    PRIMARY KEY (consumer, tracking_id, tenant_id)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_truncate = off);
COMMENT ON TABLE _outbox.inbox
IS 'events that consumers have accepted, so that they handle each once';
COMMENT ON COLUMN _outbox.inbox.tracking_id IS 'of the event';
COMMENT ON COLUMN _outbox.inbox.accepted_at IS 'when';
COMMENT ON COLUMN _outbox.inbox.tenant_id IS 'of the session; inboxes of different tenants never meet';
COMMENT ON COLUMN _outbox.inbox.consumer IS 'by whom; any name, the log may be in another database';

CREATE FUNCTION inbox_accept(consumer text, tracking_id uuid) RETURNS boolean
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
IS 'true the first time that a consumer sees the event, as long as this transaction commits';

