----------------------------------------------------------------------------------------------------
-- What pg_dump takes along besides the partitions, which are ordinary tables to it
----------------------------------------------------------------------------------------------------

SELECT pg_catalog.pg_extension_config_dump('outbox_messages_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_archived_partitions', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_cold_files', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_dedup_keys', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_scheduled', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_consumers_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_consumers', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_upcasters', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_sinks', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_token_seq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_batches', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_leases', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_retries', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_messages_dlq', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_inbox', '');
SELECT pg_catalog.pg_extension_config_dump('idempotency_keys', '');
SELECT pg_catalog.pg_extension_config_dump('idempotency_scopes', '');
SELECT pg_catalog.pg_extension_config_dump('audit_log_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('audit_chain', '');
SELECT pg_catalog.pg_extension_config_dump('audit_progress', '');
SELECT pg_catalog.pg_extension_config_dump('audit_retention', '');
SELECT pg_catalog.pg_extension_config_dump('outbox_event_types', '');
