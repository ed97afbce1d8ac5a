----------------------------------------------------------------------------------------------------
-- Tables and sequences that pg_dump includes with their data; it includes the partitions as ordinary tables
----------------------------------------------------------------------------------------------------

SELECT pg_catalog.pg_extension_config_dump('_outbox.messages_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.archived_partitions', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.cold_files', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.dedup_keys', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.scheduled', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.consumers_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.consumers', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.upcasters', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.sinks', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.token_seq', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.batches', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.leases', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.retries', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.dead_letters', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.inbox', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.idempotency_keys', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.idempotency_scopes', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.audit_log_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.audit_chain', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.audit_progress', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.audit_retention', '');
SELECT pg_catalog.pg_extension_config_dump('_outbox.event_types', '');

