-- What goes over the wire is payload::text, byte for byte, through a function of test/module.
\set ON_ERROR_STOP on
\set QUIET on
\getenv module OUTBOX_TEST_MODULE
BEGIN;
CREATE EXTENSION pgtap;
CREATE FUNCTION json_text(jsonb) RETURNS text LANGUAGE c AS :'module';

-- Some JSON of the given depth, of every kind that there is.
CREATE FUNCTION made_up(depth integer) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    kind integer := CASE WHEN depth = 0 THEN 2 + random() * 5 ELSE random() * 7 END;
BEGIN
    CASE kind
    WHEN 0 THEN
        RETURN coalesce((SELECT jsonb_agg(made_up(depth - 1)) FROM generate_series(1, (random() * 4)::int)), '[]');
    WHEN 1 THEN
        RETURN coalesce((SELECT jsonb_object_agg(made_up_text(), made_up(depth - 1))
                           FROM generate_series(1, (random() * 4)::int)), '{}');
    WHEN 2 THEN RETURN 'null';
    WHEN 3 THEN RETURN to_jsonb(random() < 0.5);
    WHEN 4 THEN RETURN to_jsonb((random() * 1000)::int);
    WHEN 5 THEN RETURN to_jsonb(((random() - 0.5) * 10 ^ (random() * 40 - 20))::numeric);
    ELSE RETURN to_jsonb(made_up_text());
    END CASE;
END $$;
CREATE FUNCTION made_up_text() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(string_agg(CASE WHEN random() < 0.7 THEN chr(32 + (random() * 94)::int)
                                    WHEN random() < 0.5 THEN chr(1 + (random() * 31)::int)
                                    ELSE chr(128 + (random() * 50000)::int) END, ''), '')
      FROM generate_series(1, (random() * 12)::int) $$;

SELECT plan(6);
SELECT is(json_text(j), j::text, j::text)
  FROM (VALUES (jsonb '{"a": [1, {"b": [[], {}, null]}, "\"\\/\b\f\n\r\t\u0001\u007fé😀"], "": -0.10, "c": {"d": true}}')) v (j);
SELECT is_empty($$SELECT j FROM unnest(ARRAY['1', '"x"', 'null', 'true', '[]', '{}', '[[]]', '[{}, []]',
                                              '{"a": {}}', '{"a": [], "b": 1e100}']::jsonb[]) AS j
                   WHERE json_text(j) <> j::text$$, 'scalars and empty containers');
SELECT is_empty($$SELECT j FROM (SELECT made_up(4) AS j FROM generate_series(1, 3000) OFFSET 0) AS generated
                   WHERE json_text(j) <> j::text$$, 'anything');
-- Of many values, only some say where they are.
SELECT is_empty($$SELECT j FROM (SELECT jsonb_object_agg(made_up_text() || i, made_up(1)) AS j FROM generate_series(1, 300) k, generate_series(1, k) i
                                  GROUP BY k UNION ALL
                                 SELECT jsonb_agg(made_up(1)) FROM generate_series(1, 300) k, generate_series(1, k) i GROUP BY k) AS wide
                   WHERE json_text(j) <> j::text$$, 'of any width');
SELECT is(json_text(j), j::text, 'and depth')
  FROM (SELECT (repeat('{"a": [1, ', 2000) || '"x"' || repeat('], "b": 2}', 2000))::jsonb AS j) AS deep;
SELECT is_empty($$SELECT left(j::text, 10) FROM unnest(ARRAY[repeat('x', 1000000), repeat('"', 1000000), repeat(E'\x01', 300000)]) t, to_jsonb(t) j
                   WHERE json_text(j) <> j::text$$, 'and length');
SELECT * FROM finish();
ROLLBACK;
