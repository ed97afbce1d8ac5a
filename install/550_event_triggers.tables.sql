-- Not for DROP SCHEMA: if the library's file were missing, nobody could drop any schema. The row that
-- a DROP SCHEMA ... CASCADE leaves behind is inert, and the next log replaces it.
CREATE EVENT TRIGGER outbox_before_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION') EXECUTE FUNCTION _outbox.before_drop();
COMMENT ON EVENT TRIGGER outbox_before_drop
IS 'DROP EXTENSION outbox leaves nothing behind in pg_partman';

CREATE EVENT TRIGGER outbox_guard ON ddl_command_end
    WHEN TAG IN ('CREATE TRIGGER', 'ALTER SCHEMA')
    EXECUTE FUNCTION _outbox.ddl_guard();
COMMENT ON EVENT TRIGGER outbox_guard
IS 'refuses triggers of other roles on tables of the extension, and new names for its schemas';

