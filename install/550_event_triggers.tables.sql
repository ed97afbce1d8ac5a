-- DROP SCHEMA is not covered: if the library file were missing, DROP SCHEMA would fail for every schema of
-- the database. The row that DROP SCHEMA ... CASCADE leaves in part_config has no effect, and the next log
-- replaces it.
CREATE EVENT TRIGGER outbox_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION') EXECUTE FUNCTION _outbox.before_drop();
COMMENT ON EVENT TRIGGER outbox_before_drop
IS 'removes the configuration of the log from pg_partman before DROP EXTENSION outbox';

CREATE EVENT TRIGGER outbox_guard ON ddl_command_end
    WHEN TAG IN ('CREATE TRIGGER', 'ALTER SCHEMA')
    EXECUTE FUNCTION _outbox.ddl_guard();
COMMENT ON EVENT TRIGGER outbox_guard
IS 'rejects triggers of other roles on tables of the extension, and renaming of its schemas';

