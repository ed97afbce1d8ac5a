-- Fixtures of the calls. prepare_for_calls() restores what calls have removed.

-- Reinterprets bytes as text without a check.
CREATE CAST (bytea AS text) WITHOUT FUNCTION;

CREATE TABLE odd (a integer);
CREATE FUNCTION upcast(payload jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT jsonb_build_object('was', payload) $$;
CREATE FUNCTION failing_upcast(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'it happens'; END $$;

-- A day that was exported and dropped, and one that is archived.
SELECT outbox_setup();
INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
SELECT now() - make_interval(days => days), 'Order', days, 'OrderConfirmed', '{}' FROM unnest('{20,20,5}'::integer[]) days;
SELECT count(*) FROM outbox_maintain();
SELECT count(*) FROM outbox_maintain();

CREATE FUNCTION prepare_for_calls() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    standing CONSTANT jsonb := '{"plain": "", "ordered": ", ordered => true, partitions => 2", "fair": ", fair => true", "parted": ", partitions => 4",
                                 "of a tenant": ", tenant_id => 1", "picky": ", event_types => ''{Paid}''"}';
    consumer record;
BEGIN
    PERFORM outbox_grant(r, p) FROM unnest('{admin,tenant}'::name[]) r, unnest('{admin,monitor,auditor,reader}'::text[]) p;
    PERFORM outbox_grant(r, p) FROM unnest('{worker,tenant}'::name[]) r, unnest('{producer,consumer,idempotency,audit}'::text[]) p;
    PERFORM outbox_revoke('nobody', p) FROM unnest('{producer,consumer,idempotency,audit,admin,monitor,auditor,reader}'::text[]) p;
    -- Each consumer makes every call slower.
    FOR consumer IN SELECT c.name FROM outbox_consumers c WHERE NOT standing ? c.name AND c.name <> 'sink' ORDER BY c.consumer_id DESC OFFSET 10 LOOP
        PERFORM outbox_drop_consumer(consumer.name, true);
    END LOOP;
    FOR consumer IN SELECT * FROM jsonb_each_text(standing) s (name, rest) WHERE NOT EXISTS (SELECT FROM outbox_consumers c WHERE c.name = s.name) LOOP
        EXECUTE format('SELECT outbox_create_consumer(%L%s)', consumer.name, consumer.rest);
    END LOOP;
    IF NOT EXISTS (SELECT FROM outbox_consumers c WHERE c.name = 'sink') THEN
        PERFORM outbox_create_sink('sink', 'http', '{"url": "http://127.0.0.1:9/"}');
    END IF;
    PERFORM outbox_resume(c.name) FROM outbox_consumers c WHERE c.paused;
    PERFORM outbox_enqueue('Order', i, 'OrderConfirmed', '{"n": 1}', tenant_id => i % 2) FROM generate_series(1, 20) i;
END $$;
