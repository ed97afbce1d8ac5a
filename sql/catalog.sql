-- Errors with their SQLSTATE.
\set SHOW_CONTEXT never
\set VERBOSITY sqlstate
SELECT outbox_register_event(NULL, 1, 'sales');
SELECT outbox_register_event('OrderConfirmed', NULL, 'sales');
SELECT outbox_register_event('OrderConfirmed', 1, NULL);
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', consumers => '{a, NULL}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', pii_fields => '{NULL}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', consumers => '{{a}, {b}}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', pii_fields => '{{/a}, {/b}}');
SELECT _outbox.event_types_changed();
SELECT outbox_register_event('', 1, 'sales');
SELECT outbox_register_event(repeat('x', 256), 1, 'sales');
SELECT outbox_register_event('OrderConfirmed', 0, 'sales');
SELECT outbox_register_event('OrderConfirmed', 32768, 'sales');
SELECT outbox_register_event('OrderConfirmed', 1, '');
SELECT outbox_unregister_event(NULL, 1);
SELECT outbox_set_event_owner('OrderConfirmed', '');
SELECT outbox_set_event_owner('OrderConfirmed', 'sales');
\set VERBOSITY default
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', pii_fields => '{customer/email}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', pii_fields => '{/a~2}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', pii_fields => ARRAY['']);

-- Schemas that are none, or that cannot be used.
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '[]');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"properties": {"a": {"type": "strng"}}}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"$ref": "http://127.0.0.1:1/schema.json"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"$ref": "#"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"$schema": "http://json-schema.org/draft-04/schema#"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"patternProperties": {"^a": {}}}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"pattern": "(a"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"pattern": "(a)\\1"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"pattern": "a{1,256}"}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"maximum": 1e400}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"$ref": "#/%ff"}');
\set VERBOSITY sqlstate
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', (repeat('{"items":', 1000) || '{}' || repeat('}', 1000))::jsonb);
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', jsonb_build_object('enum', jsonb_build_array(repeat('x', 1100000))));
\set VERBOSITY default
SELECT count(*) FROM _outbox.event_types;

-- The same again changes nothing. What is compatible is changed. What is not is refused.
SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
    '{"type": "object", "properties": {"order": {"type": "integer", "minimum": 1}, "state": {"enum": ["a", "b"]}},
      "required": ["order"], "additionalProperties": false}', 'An order is *final*.', '{billing, shipping}') AS first;
SELECT xmin AS before FROM _outbox.event_types \gset
SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
    '{"type": "object", "properties": {"order": {"type": "integer", "minimum": 1}, "state": {"enum": ["a", "b"]}},
      "required": ["order"], "additionalProperties": false}', 'An order is *final*.', '{billing, shipping}') AS again;
SELECT xmin = :'before' AS untouched FROM _outbox.event_types;
SELECT outbox_register_event('OrderConfirmed', 1, 'sales',
    '{"type": "object", "properties": {"order": {"type": "integer", "minimum": 0, "title": "number"}, "state": {"enum": ["a", "b", "c"]},
      "note": {"type": "string"}}, "required": ["order"], "additionalProperties": false}', 'An order is *final*.') AS compatible;
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"type": "object", "properties": {"order": {"type": "string"}}}');
SELECT outbox_register_event('OrderConfirmed', 1, 'sales');
SELECT outbox_register_event('OrderConfirmed', 2, 'sales', '{"type": "object", "properties": {"order": {"type": "string"}}}') AS version_2;
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"type": "object", "properties": {"order": {"type": "string"}}}');

-- One module emits an event.
SELECT outbox_register_event('OrderConfirmed', 3, 'billing');
SELECT outbox_set_event_owner('OrderConfirmed', 'billing');
SELECT outbox_register_event('OrderConfirmed', 3, 'billing');
SELECT event_version, owner_module FROM _outbox.event_types ORDER BY 1;
SELECT outbox_unregister_event('OrderConfirmed', 3), outbox_unregister_event('OrderConfirmed', 3);

-- Any name is taken, unless there is a pattern that it does not match.
SELECT outbox_register_event('ConfirmOrder', 1, 'sales');
SELECT outbox_register_event('order.paid', 1, 'sales');
SET outbox.event_name_pattern = '^[A-Z][A-Za-z]+ed$';
SELECT outbox_register_event('InvoicePaid', 1, 'sales');
SELECT outbox_register_event('CustomerUpdated', 1, 'sales');
SET outbox.event_name_pattern = '(';
SELECT outbox_register_event('InvoiceCreated', 1, 'sales');
RESET outbox.event_name_pattern;

-- Off: nothing is asked. Warn: there is a warning. Enforce: there is an error.
SELECT outbox_enqueue('Catalog', 1, 'OrderConfirmed', '{"order": "x"}') IS NOT NULL AS taken;
SET outbox.catalog_mode = warn;
SELECT outbox_enqueue('Catalog', 2, 'OrderConfirmed', '{"order": "x"}') IS NOT NULL AS taken;
SELECT outbox_enqueue('Catalog', 3, 'OrderConfirmed', '{"order": "x"}', event_version => 9) IS NOT NULL AS taken;
SET outbox.catalog_mode = enforce;
SELECT outbox_enqueue('Catalog', 4, 'OrderConfirmed', '{"order": 1, "state": "c"}') IS NOT NULL AS taken;
SELECT outbox_enqueue('Catalog', 5, 'OrderConfirmed', '{"order": "x"}', event_version => 2) IS NOT NULL AS taken;
SELECT outbox_enqueue('Catalog', 6, 'OrderConfirmed', '{"order": "secret"}');
SELECT outbox_enqueue('Catalog', 6, 'OrderConfirmed', '{"order": 1.0, "state": "secret"}');
SELECT outbox_enqueue('Catalog', 6, 'OrderConfirmed', '{"order": 1, "other": "secret"}');
SELECT outbox_enqueue('Catalog', 6, 'OrderConfirmed', '7');
SELECT outbox_enqueue('Catalog', 6, 'OrderConfirmed', '{"order": "x"}', available_at => now() + interval '1 day');
SELECT outbox_enqueue('Catalog', 6, 'OrderLost', '{}');
SELECT outbox_enqueue_many('[{"aggregate_type": "Catalog", "aggregate_id": 6, "event_type": "OrderConfirmed", "payload": {"order": 1}},
                             {"aggregate_type": "Catalog", "aggregate_id": 6, "event_type": "OrderConfirmed", "payload": {}}]');
SELECT outbox_enqueue_many('[{"aggregate_type": "Catalog", "aggregate_id": 6, "event_type": "OrderLost", "payload": {}}]');
SELECT aggregate_id, payload FROM outbox_messages WHERE aggregate_type = 'Catalog' ORDER BY id;
\set VERBOSITY sqlstate
SELECT outbox_enqueue('Catalog', 6, 'OrderConfirmed', '7');
SELECT outbox_enqueue('Catalog', 6, 'OrderLost', '{}');
\set VERBOSITY default

-- What this session registers counts at once, and not any more when it is rolled back.
BEGIN;
SELECT outbox_register_event('OrderLost', 1, 'sales', '{"required": ["why"]}');
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{"why": 1}') IS NOT NULL AS taken;
SAVEPOINT s;
SELECT outbox_unregister_event('OrderLost', 1), outbox_register_event('OrderLost', 1, 'sales');
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{}') IS NOT NULL AS taken;
ROLLBACK TO s;
SAVEPOINT s;
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{}') IS NOT NULL AS taken;
ROLLBACK TO s;
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{"why": 2}') IS NOT NULL AS taken;
ROLLBACK;
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{"why": 1}');
-- Also by hand.
INSERT INTO _outbox.event_types VALUES ('OrderLost', 1, 'sales', NULL, NULL, '{}', true, '{}');
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{}') IS NOT NULL AS taken;
DELETE FROM _outbox.event_types WHERE event_type = 'OrderLost';
SELECT outbox_enqueue('Catalog', 7, 'OrderLost', '{}');

-- Personal data goes nowhere, and is in no message.
SELECT outbox_register_event('CustomerMoved', 1, 'crm',
    '{"properties": {"name": {"type": "string"}, "customer": {"maxProperties": 1}}, "additionalProperties": {"type": "array"}}',
    pii_fields => '{/customer/email, /travellers/*/passport, /list/1, /a~1b}');
SELECT outbox_enqueue('Pii', 1, 'CustomerMoved', '{"name": "n", "customer": {"email": "secret", "id": 1}, "travellers": [{"passport": "secret", "n": 1}, 2,
    {"passport": {"no": "secret"}}], "list": [1, "secret", [3]], "a/b": "secret"}') IS NOT NULL AS taken;
SELECT cardinality(outbox_enqueue_many('[{"aggregate_type": "Pii", "aggregate_id": 2, "event_type": "CustomerMoved",
    "payload": {"customer": {"email": "secret"}}}, {"aggregate_type": "Pii", "aggregate_id": 3, "event_type": "CustomerMoved", "payload": [1, 2]}]'));
SELECT outbox_enqueue('Pii', 4, 'CustomerMoved', '{"customer": {"email": "secret"}}', available_at => now() + interval '1 day') AS later \gset
SELECT payload FROM outbox_scheduled WHERE tracking_id = :'later';
SELECT outbox_cancel(:'later');
SELECT outbox_enqueue('Pii', 5, 'CustomerMoved', '{"name": 1, "customer": {"email": "secret"}}');
SET outbox.pii_mode = refuse;
SELECT outbox_enqueue('Pii', 6, 'CustomerMoved', '{"travellers": [{}, {"passport": "secret"}]}');
SET outbox.catalog_mode = warn;
SELECT outbox_enqueue('Pii', 6, 'CustomerMoved', '{"customer": {"email": "secret"}}');
SELECT outbox_enqueue('Pii', 7, 'CustomerMoved', ('{"travellers":' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb);
SET outbox.catalog_mode = enforce;
SET outbox.pii_mode = off;
SELECT outbox_enqueue('Pii', 8, 'CustomerMoved', '{"customer": {"email": "x"}}') IS NOT NULL AS taken;
RESET outbox.pii_mode;
SELECT aggregate_id, payload FROM outbox_messages WHERE aggregate_type = 'Pii' ORDER BY id;

-- A schema that contains itself, and payloads that try to go on for ever.
SELECT outbox_register_event('TreeGrown', 1, 'garden', '{"type": "array", "items": {"$ref": "#"}}');
SELECT outbox_enqueue('Tree', 1, 'TreeGrown', (repeat('[', 100) || repeat(']', 100))::jsonb) IS NOT NULL AS taken;
SELECT outbox_enqueue('Tree', 2, 'TreeGrown', (repeat('[', 100) || 1 || repeat(']', 100))::jsonb);
SELECT outbox_enqueue('Tree', 3, 'TreeGrown', (repeat('[', 1000) || repeat(']', 1000))::jsonb);
SET outbox.catalog_mode = warn;
SELECT outbox_enqueue('Tree', 4, 'TreeGrown', (repeat('[', 1000) || repeat(']', 1000))::jsonb) IS NOT NULL AS taken;
SET outbox.catalog_mode = enforce;
-- Twice the work with each level: it ends when it is told to.
SELECT outbox_register_event('TreeFelled', 1, 'garden', '{"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}');
SET statement_timeout = '200ms';
SELECT outbox_enqueue('Tree', 5, 'TreeFelled', (repeat('[', 100) || repeat(']', 100))::jsonb);
RESET statement_timeout;
-- Patterns that others choke on.
SELECT outbox_register_event('TextWritten', 1, 'garden', '{"pattern": "^(a+)+$", "maxLength": 2000000}');
SELECT outbox_enqueue('Text', 1, 'TextWritten', to_jsonb(repeat('a', 1000000))) IS NOT NULL AS taken;
SELECT outbox_enqueue('Text', 2, 'TextWritten', to_jsonb(repeat('a', 1000000) || '!'));
SELECT outbox_register_event('CodeWritten', 1, 'garden', '{"pattern": "^é[\\d.]{2,3}\\u0041\\b.$"}');
SELECT outbox_enqueue('Text', 3, 'CodeWritten', '"é1.A\u00e9"') IS NOT NULL AS taken;
SELECT outbox_enqueue('Text', 4, 'CodeWritten', '"é1.A\n"');

-- Numbers of any size.
SELECT outbox_register_event('SumTaken', 1, 'garden', '{"items": {"type": "number", "minimum": -1, "maximum": 1}}');
SELECT outbox_enqueue('Sum', 1, 'SumTaken', '[0, 1.0, -1, 1e-400, -1e-400, 0.1]') IS NOT NULL AS taken;
SELECT outbox_enqueue('Sum', 2, 'SumTaken', '[0, 1e400]');
SELECT outbox_enqueue('Sum', 3, 'SumTaken', '[0, 0, -1e400]');
SELECT outbox_enqueue('Sum', 4, 'SumTaken', '[9223372036854775808]');

-- Null, true and false.
SELECT outbox_register_event('BillSent', 1, 'garden', '{"properties": {"paid": {"type": "boolean"}, "note": {"type": ["string", "null"]}}}');
SELECT outbox_enqueue('Bill', 1, 'BillSent', '{"paid": true, "note": null}') IS NOT NULL AS taken;
SELECT outbox_enqueue('Bill', 2, 'BillSent', '{"paid": null}');
SELECT outbox_enqueue('Bill', 3, 'BillSent', '{"note": false}');

-- A producer cannot switch it off, and an admin is not the only one to read it.
CREATE ROLE outbox_author;
SELECT outbox_grant('outbox_author', 'producer');
SET ROLE outbox_author;
SET outbox.catalog_mode = off;
SET outbox.pii_mode = off;
SELECT outbox_enqueue('Catalog', 8, 'OrderLost', '{}');
SELECT outbox_enqueue('Catalog', 8, 'OrderConfirmed', '{"order": 8}') IS NOT NULL AS taken;
SELECT outbox_register_event('OrderLost', 1, 'sales');
SELECT outbox_catalog();
RESET ROLE;
SELECT outbox_grant('outbox_author', 'monitor'), outbox_grant('outbox_author', 'admin');
SET ROLE outbox_author;
SELECT outbox_register_event('OrderLost', 1, 'sales');
SELECT outbox_catalog() LIKE '# Events%' AS readable;
SELECT outbox_set_event_owner('OrderLost', 'billing'), outbox_unregister_event('OrderLost', 1);
RESET ROLE;
SELECT outbox_revoke('outbox_author', p) FROM unnest('{producer, monitor, admin}'::text[]) p;
REVOKE USAGE ON SCHEMA public FROM outbox_author;
DROP ROLE outbox_author;

-- The catalog, for people and for tools.
TRUNCATE _outbox.event_types;
SELECT outbox_catalog();
SELECT outbox_register_event('OrderConfirmed', 1, 'sales', '{"type": "object", "description": "```"}',
    E'A | b <script>\n\n# *no* [heading](x)', '{billing, "ship|ping"}', false, '{/customer/*/email}');
SELECT outbox_register_event('OrderConfirmed', 2, 'sales');
\pset format unaligned
SELECT outbox_catalog();
\pset format aligned
SELECT outbox_catalog('asyncapi')::jsonb -> 'channels' -> 'OrderConfirmed_v1', outbox_catalog('asyncapi')::jsonb -> 'operations' -> 'send_OrderConfirmed_v1';
SELECT jsonb_pretty(outbox_catalog('asyncapi')::jsonb -> 'components');
SELECT outbox_catalog('html');
SELECT outbox_catalog(NULL);
TRUNCATE _outbox.event_types;
RESET outbox.catalog_mode;

-- A change that comes by replication is heard of, too.
SET outbox.catalog_mode = enforce;
SELECT outbox_register_event('OrderNoticed', 1, 'sales') IS NOT NULL AS registered;
SELECT outbox_enqueue('Order', '1', 'OrderNoticed', '{}', event_version => 1) IS NOT NULL AS enqueued;
SET session_replication_role = replica;
DELETE FROM _outbox.event_types WHERE event_type = 'OrderNoticed';
RESET session_replication_role;
SELECT outbox_enqueue('Order', '1', 'OrderNoticed', '{}', event_version => 1) IS NOT NULL AS enqueued;
RESET outbox.catalog_mode;
