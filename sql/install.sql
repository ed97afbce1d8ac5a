-- pg_partman may live in any schema, and so may the outbox.
SET client_min_messages = warning;
CREATE SCHEMA partman;
CREATE EXTENSION pg_partman SCHEMA partman;
CREATE EXTENSION outbox;
RESET client_min_messages;

-- The install script makes no partition; setup does, and is idempotent.
SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass;
-- pg_partman rounds the time of day: there are seven or eight ahead.
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
SELECT count(*) FILTER (WHERE pg_get_expr(relpartbound, oid) = 'DEFAULT') AS defaults,
       count(*) FILTER (WHERE pg_get_expr(relpartbound, oid) <> 'DEFAULT') BETWEEN 8 AND 9 AS ranges
  FROM pg_class JOIN pg_inherits ON inhrelid = oid
 WHERE inhparent = 'outbox_messages'::regclass;

-- Every partition has the indexes of the template.
SELECT count(*) BETWEEN 9 AND 10 AS partitions, min(indexes) AS fewest, max(indexes) AS most
  FROM (SELECT inhrelid, (SELECT count(*) FROM pg_index
                           WHERE indrelid = inhrelid AND indisunique) AS indexes
          FROM pg_inherits WHERE inhparent = 'outbox_messages'::regclass) AS p;

-- pg_partman's own maintenance keeps its hands off.
SELECT automatic_maintenance, infinite_time_partitions, ignore_default_data, retention
  FROM partman.part_config WHERE parent_table = 'public.outbox_messages';

-- The bounds are in UTC, also for a session that lives elsewhere; its settings stay its own.
SET TimeZone = 'America/St_Johns';
SET search_path = public, pg_temp;
SELECT outbox_setup() BETWEEN 9 AND 10 AS enough;
SHOW TimeZone;
SHOW search_path;
RESET TimeZone;
RESET DateStyle;
RESET search_path;

-- A schema whose name needs quotes; the first enqueue makes the partitions. The extension goes and
-- takes everything along, pg_partman's configuration included.
DROP EXTENSION outbox;
SELECT count(*) FROM partman.part_config;
CREATE SCHEMA "Event 100% Log";
CREATE EXTENSION outbox SCHEMA "Event 100% Log";
SET TimeZone = 'America/St_Johns';
SELECT "Event 100% Log".outbox_enqueue('Order', 1, 'OrderConfirmed', '{}') IS NOT NULL AS enqueued;
SELECT count(*) FROM "Event 100% Log".outbox_messages;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO';
SELECT count(*) FILTER (WHERE bound ~ $$TO \('\d{4}-\d\d-\d\d 00:00:00\+00'\)$$) AS at_midnight_utc, count(*) AS partitions
  FROM pg_class c JOIN pg_inherits ON inhrelid = c.oid, replace(pg_get_expr(relpartbound, c.oid), 'DEFAULT', '') AS bound
 WHERE inhparent = '"Event 100% Log".outbox_messages'::regclass;
RESET TimeZone;
RESET DateStyle;
SELECT component, ok FROM "Event 100% Log".outbox_status() WHERE component = 'partitions';

-- Dropped with its schema, a row stays behind in pg_partman. It does not keep a new log from its
-- partitions.
SET client_min_messages = warning;
DROP SCHEMA "Event 100% Log" CASCADE;
SELECT count(*) FROM pg_class WHERE relname LIKE 'outbox%';
SELECT parent_table, automatic_maintenance FROM partman.part_config;
CREATE SCHEMA "Event 100% Log";
CREATE EXTENSION outbox SCHEMA "Event 100% Log";
SELECT "Event 100% Log".outbox_enqueue('Order', 1, 'OrderConfirmed', '{}') IS NOT NULL AS enqueued;
SELECT component, ok FROM "Event 100% Log".outbox_status() WHERE component = 'partitions';
SELECT "Event 100% Log".outbox_grant('pg_monitor', 'producer');
SELECT "Event 100% Log".outbox_revoke('pg_monitor', 'producer');
REVOKE USAGE ON SCHEMA "Event 100% Log" FROM pg_monitor;
DROP EXTENSION outbox;
RESET client_min_messages;
SELECT count(*) FROM partman.part_config;

-- Renaming the schema is refused. If somebody does it by force, enqueue goes on, and nothing keeps the
-- extension from being dropped.
CREATE EXTENSION outbox SCHEMA "Event 100% Log";
SELECT "Event 100% Log".outbox_enqueue('Order', 1, 'OrderConfirmed', '{}', available_at => now() + interval '1 day') IS NOT NULL AS ok;
ALTER SCHEMA "Event 100% Log" RENAME TO events;
SET session_replication_role = replica;
ALTER SCHEMA "Event 100% Log" RENAME TO events;
RESET session_replication_role;
SELECT events.outbox_enqueue('Order', 1, 'OrderConfirmed', '{}', available_at => now() + interval '1 day') IS NOT NULL AS ok;
BEGIN;
DROP EXTENSION outbox;
ROLLBACK;
ALTER TABLE _outbox.dedup_keys RENAME TO moved;
SELECT events.outbox_enqueue('Order', 1, 'OrderConfirmed', '{}');
DROP EXTENSION outbox;
DROP SCHEMA events;
DELETE FROM partman.part_config;

CREATE EXTENSION outbox;
SELECT outbox_setup();
