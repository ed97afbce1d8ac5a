-- outbox 1.0. In the order of the flow: log, partitions, archive, dedup, schedule, enqueue, consumers,
-- batches, retries, dead letters, sinks, inbox, idempotency keys, views, maintenance, status, audit log,
-- guard, privileges.
--
-- Tables whose rows come and go are vacuumed early, and never truncated: that would lock them.
\echo Use "CREATE EXTENSION outbox CASCADE" to load this file. \quit

-- What the documents name is in the schema of the extension; everything else is here, where only its owner creates.
CREATE SCHEMA _outbox;
COMMENT ON SCHEMA _outbox
IS 'internals of extension outbox';

