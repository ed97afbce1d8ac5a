-- outbox 1.0. The parts follow the flow of an event: log, partitions, archive, dedup, schedule, enqueue,
-- consumers, batches, retries, dead letters, sinks, inbox, idempotency keys, views, maintenance, status,
-- audit log, guard, privileges.
--
-- Tables with frequent deletes have low autovacuum thresholds, and vacuum_truncate is off: truncation
-- takes an ACCESS EXCLUSIVE lock.
\echo Use "CREATE EXTENSION outbox CASCADE" to load this file. \quit

-- Documented objects are in the schema of the extension. All others are in _outbox, in which only the owner of
-- the extension can create objects, so that no other role can shadow them.
CREATE SCHEMA _outbox;
COMMENT ON SCHEMA _outbox IS 'internals of extension outbox';

