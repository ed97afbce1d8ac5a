-- What runs, what does not, and a hint for each.
SELECT component, ok FROM outbox_status() WHERE component NOT IN ('preload', 'relay', 'scheduled');
SELECT component FROM outbox_status() WHERE NOT ok AND hint IS NULL;
SELECT ok = _outbox.is_preloaded() AS told FROM outbox_status() WHERE component = 'preload';

-- Without partitions for the present time the default one takes the events, and the status says so.
DO $$
DECLARE p regclass;
BEGIN
    FOR p IN SELECT inhrelid::regclass FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
              WHERE inhparent = 'outbox_messages'::regclass
                AND pg_get_expr(relpartbound, c.oid) <> 'DEFAULT' LOOP
        EXECUTE format('DROP TABLE %s', p);
    END LOOP;
END $$;
SELECT outbox_enqueue('Order', 1, 'OrderConfirmed', '{}') IS NOT NULL AS ok;
SELECT component, ok, hint FROM outbox_status() WHERE component LIKE '%partition%';

\set SHOW_CONTEXT never
SELECT outbox_setup();

-- Nor can a partition be made for a time whose events are in the default one already.
DROP EXTENSION outbox;
CREATE EXTENSION outbox;
SELECT outbox_setup();
INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
    VALUES (date_trunc('day', now(), 'UTC') + interval '8 days 1 hour', 'Order', '1', 'OrderConfirmed', '{}');
UPDATE partman.part_config SET premake = 9;
SET client_min_messages = error;
\set VERBOSITY sqlstate
SELECT outbox_setup();
\set VERBOSITY default
RESET client_min_messages;

-- Dropped and made anew, it starts from nothing.
DROP EXTENSION outbox;
SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%';
SELECT count(*) FROM pg_proc WHERE proname LIKE 'outbox%';
SELECT count(*) FROM partman.part_config;
CREATE EXTENSION outbox;
SELECT outbox_setup();
SELECT count(*) FROM outbox_messages;
