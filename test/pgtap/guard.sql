-- The boundary between C++ and the server, through the functions of test/module.
\set ON_ERROR_STOP on
\set QUIET on
\getenv module OUTBOX_TEST_MODULE
BEGIN;
CREATE EXTENSION pgtap;
CREATE FUNCTION guard_throw(text) RETURNS int LANGUAGE c AS :'module';
CREATE FUNCTION guard_run(text) RETURNS int LANGUAGE c AS :'module';
CREATE FUNCTION guard_alive() RETURNS int LANGUAGE c AS :'module';
CREATE FUNCTION guard_throw_in_call() RETURNS boolean LANGUAGE c AS :'module';
CREATE FUNCTION guard_catch(text) RETURNS text LANGUAGE c AS :'module';

CREATE FUNCTION diagnosis(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE code text; message text; detail text; hint text; "constraint" text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
        detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, "constraint" = CONSTRAINT_NAME;
    RETURN concat_ws('|', code, message, detail, hint, "constraint");
END $$;
CREATE FUNCTION raise_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'OB123', MESSAGE = 'm', DETAIL = 'd', HINT = 'h', CONSTRAINT = 'c';
END $$;

SELECT plan(14);

SELECT is(diagnosis($$SELECT guard_throw('ours')$$), 'OB999|our own error|its detail|its hint|',
          'an error of ours keeps SQLSTATE, message, detail and hint');
SELECT is(diagnosis($$SELECT guard_throw('int')$$), 'XX000|unknown C++ exception|||',
          'throw 42 becomes an ordinary error');
SELECT is(diagnosis($$SELECT guard_throw('std')$$), 'XX000|a standard exception|||',
          'a standard exception keeps its message');
SELECT is(diagnosis($$SELECT guard_throw('bad_alloc')$$), '53200|out of memory|||',
          'bad_alloc becomes out_of_memory');
SELECT matches(diagnosis($$SELECT guard_throw('long')$$), '^XX000\|x€{200}€{100}€+\|\|\|$',
          'a message that is too long is cut at a character');
SELECT is(diagnosis('SELECT guard_run(''SELECT raise_all()'')'), 'OB123|m|d|h|c',
          'an error of the server passes through C++ whole');
SELECT is(diagnosis('SELECT guard_run(''SELECT guard_run(''''SELECT raise_all()'''')'')'), 'OB123|m|d|h|c',
          'also through two layers of it');
SELECT is(diagnosis('SELECT guard_run(''SELECT guard_throw(''''ours'''')'')'),
          'OB999|our own error|its detail|its hint|', 'an error of ours passes through the server');
SELECT is(diagnosis('SELECT guard_run(''SELECT 1 / 0'')'), '22012|division by zero|||',
          'the SQLSTATE of a plain server error is kept');
SELECT is(guard_alive(), 0, 'destructors ran when the server raised inside');
SELECT is(guard_run('SELECT 1'), 0, 'and when it did not');
SELECT ok(guard_throw_in_call(), 'an exception thrown inside call leaves the error stacks as they were');
SELECT is(guard_catch('SELECT 1 / 0'), '22012', 'an error caught over a subtransaction is over');
SELECT is(guard_catch('SELECT 1'), '00000', 'the session goes on');

SELECT * FROM finish();
ROLLBACK;
