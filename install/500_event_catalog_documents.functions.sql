-- Special characters of Markdown become character references, which renderers do not interpret as markup.
CREATE OR REPLACE FUNCTION _outbox.markdown_text(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(string_agg(CASE
               WHEN c IN (E'\n', E'\r', E'\t') THEN ' '
               WHEN c ~ '[][\\`*_{}()#+.!|<>&~:@$^=-]' THEN '&#' || ascii(c) || ';'
               ELSE c END, '' ORDER BY n), '')
      FROM string_to_table(value, NULL) WITH ORDINALITY AS r(c, n)
$$;
COMMENT ON FUNCTION _outbox.markdown_text(text) IS 'internal: text with the special characters of Markdown escaped';

-- The fence is longer than any run of backticks in the value, so the value cannot end it.
CREATE OR REPLACE FUNCTION _outbox.markdown_code(value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT format(E'%1$sjson\n%2$s\n%1$s', repeat('`', 1 + greatest(2, max(length(r[1])))), value)
      FROM (SELECT ARRAY['``']::text[] AS r UNION ALL SELECT regexp_matches(value, '`+', 'g')) runs
$$;
COMMENT ON FUNCTION _outbox.markdown_code(text) IS 'internal: code block in Markdown';

CREATE OR REPLACE FUNCTION _outbox.catalog_markdown() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH event AS (
        SELECT t.event_type, t.event_version, t.owner_module, t.json_schema,
               _outbox.markdown_text(t.event_type) AS title,
               _outbox.markdown_text(t.owner_module) AS module,
               _outbox.markdown_text(t.description) AS description,
               (SELECT string_agg(_outbox.markdown_text(c), ', ' ORDER BY c COLLATE "C")
                  FROM unnest(t.consumers) c) AS consumers,
               (SELECT string_agg(_outbox.markdown_text(f), ', ' ORDER BY f COLLATE "C")
                  FROM unnest(t.pii_fields) f) AS pii_fields,
               CASE WHEN t.replay_safe THEN 'yes' ELSE 'no' END AS replay_safe
          FROM _outbox.event_types t
    ), line AS (
        SELECT string_agg(format('| %s | %s | %s | %s | %s |', title, event_version, module,
                                 coalesce(consumers, '-'), replay_safe), E'\n'
                          ORDER BY event_type COLLATE "C", event_version) AS lines,
               string_agg(concat_ws(E'\n\n',
                              format('## %s, version %s', title, event_version),
                              nullif(description, ''),
                              concat_ws(E'\n', '- Owner: ' || module,
                                        '- Consumers: ' || coalesce(consumers, 'none known'),
                                        '- Safe to replay: ' || replay_safe,
                                        '- Personal data, never published: ' || pii_fields),
                              CASE WHEN json_schema IS NULL THEN 'Its payload has no schema.'
                                   ELSE _outbox.markdown_code(jsonb_pretty(json_schema)) END), E'\n\n'
                          ORDER BY event_type COLLATE "C", event_version) AS sections
          FROM event
    )
    SELECT E'# Events\n\n' || coalesce(
        E'| Event | Version | Owner | Consumers | Safe to replay |\n|---|---|---|---|---|\n' || lines || E'\n\n' ||
        sections, 'No events are registered.') || E'\n'
      FROM line
$$;
COMMENT ON FUNCTION _outbox.catalog_markdown() IS 'internal: catalog of events as Markdown';

-- Each version of an event has one channel, message and operation. AsyncAPI limits their keys to
-- [A-Za-z0-9_-], so other characters are replaced by _ and the hex digits of their bytes. _ itself is
-- replaced, too, which keeps keys unique.
CREATE OR REPLACE FUNCTION _outbox.asyncapi_key(event_type text, event_version integer) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(CASE WHEN c ~ '[A-Za-z0-9-]' THEN c ELSE '_' || encode(convert_to(c, 'UTF8'), 'hex') END, ''
                      ORDER BY n) || '_v' || event_version
      FROM string_to_table(event_type, NULL) WITH ORDINALITY AS r(c, n)
$$;
COMMENT ON FUNCTION _outbox.asyncapi_key(text, integer)
IS 'internal: name of a version of an event inside an AsyncAPI document';

CREATE OR REPLACE FUNCTION _outbox.catalog_asyncapi() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH event AS (
        SELECT t.*, _outbox.asyncapi_key(t.event_type, t.event_version) AS key
          FROM _outbox.event_types t
    ), message AS (
        SELECT key, event_type, jsonb_strip_nulls(jsonb_build_object(
                   'name', event_type,
                   'title', format('%s, version %s', event_type, event_version),
                   'description', description,
                   'contentType', 'application/json',
                   'tags', jsonb_build_array(jsonb_build_object('name', owner_module)),
                   'x-event-version', event_version,
                   'x-owner-module', owner_module,
                   'x-consumers', to_jsonb(consumers),
                   'x-replay-safe', replay_safe,
                   'x-pii-fields', to_jsonb(pii_fields)))
               || jsonb_build_object('payload', CASE WHEN json_schema IS NULL THEN '{}' ELSE jsonb_build_object(
                   'schemaFormat', CASE WHEN json_schema ->> '$schema' LIKE '%draft-07%'
                                        THEN 'application/schema+json;version=draft-07'
                                        ELSE 'application/schema+json;version=draft-2020-12' END,
                   -- References point into the schema, which is now nested in the AsyncAPI document.
                   'schema', replace(json_schema::text, '"$ref": "#',
                                     format('"$ref": "#/components/messages/%s/payload/schema', key))::jsonb)
                   END) AS body
          FROM event
    )
    SELECT jsonb_pretty(jsonb_build_object(
        'asyncapi', '3.0.0',
        'info', jsonb_build_object(
            'title', 'Events of ' || current_database(),
            'version', '1.0.0',
            'description', 'Events in outbox_event_types.'),
        'defaultContentType', 'application/json',
        'channels', coalesce(jsonb_object_agg(key, jsonb_build_object(
            'address', event_type,
            'messages', jsonb_build_object(key, jsonb_build_object('$ref', '#/components/messages/' || key)))), '{}'),
        'operations', coalesce(jsonb_object_agg('send_' || key, jsonb_build_object(
            'action', 'send',
            'channel', jsonb_build_object('$ref', '#/channels/' || key),
            'messages', jsonb_build_array(jsonb_build_object(
                '$ref', format('#/channels/%s/messages/%s', key, key))))), '{}'),
        'components', jsonb_build_object('messages', coalesce(jsonb_object_agg(key, body), '{}'))))
      FROM message
$$;
COMMENT ON FUNCTION _outbox.catalog_asyncapi() IS 'internal: catalog of events as an AsyncAPI document';

CREATE OR REPLACE FUNCTION outbox_catalog(format text DEFAULT 'markdown') RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE format
    WHEN 'markdown' THEN
        RETURN _outbox.catalog_markdown();
    WHEN 'asyncapi' THEN
        RETURN _outbox.catalog_asyncapi();
    ELSE
        RAISE invalid_parameter_value USING
            MESSAGE = pg_catalog.format('unknown format %s', coalesce(quote_literal(left(format, 63)), 'NULL')),
            HINT = 'Formats are markdown and asyncapi.';
    END CASE;
END $$;
COMMENT ON FUNCTION outbox_catalog(text) IS 'catalog of events as Markdown, or as an AsyncAPI 3.0 document in JSON';

