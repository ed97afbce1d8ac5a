"""Lists of values, as SQL expressions without a cast."""

# By the name of an argument: values with which a call succeeds.
CONSUMERS = ["'plain'", "'ordered'", "'fair'", "'parted'", "'of a tenant'", "'picky'"]
EVENT_TYPES = ["'OrderConfirmed'", "'OrderShipped'", "'Paid'"]
SENSIBLE = {
    "name": CONSUMERS + ["'new'", "'sink'", "'it''s \"new\"'"],
    "consumer": CONSUMERS + ["'sink'"],
    "kind": ["'http'", "'kafka'"],
    "config": [],
    "start_at": ["'latest'", "'earliest'"],
    "target": ["'latest'", "'earliest'", "'2026-01-31'"],
    "event_type": EVENT_TYPES,
    "event_types": ["'{OrderConfirmed}'", "'{}'", "NULL"],
    "aggregate_types": ["'{Order}'", "'{}'", "NULL"],
    "aggregate_type": ["'Order'", "'Cart'"],
    "aggregate_id": ["'1'", "'2'"],
    "event_version": ["1", "2"],
    "from_version": ["1", "2"],
    "tenant_id": ["0", "1", "NULL"],
    "partitions": ["1", "4"],
    "max_attempts": ["1", "10", "NULL"],
    "immediate_retries": ["0", "3", "NULL"],
    "batch_size": ["1", "10", "NULL"],
    "max_rows": ["1", "10"],
    "lease": ["'30 s'", "NULL"],
    "ttl": ["'1 hour'", "NULL"],
    "wait": ["'1 ms'", "NULL"],
    "timeout": ["'1 ms'", "'0'"],
    "retry_in": ["'0'", "'1 ms'", "NULL"],
    "scope": ["'payments'", "'orders'"],
    "key": ["'k1'", "'k2'", "'k3'"],
    "request_hash": ["repeat('0', 64)"],
    "status_code": ["200", "201"],
    "dedup_key": ["'d1'", "NULL"],
    "trace_id": ["'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'", "NULL"],
    "available_at": ["NULL", "now()", "now() + interval '1 hour'"],
    "privilege": ["'producer'", "'consumer'", "'idempotency'", "'audit'", "'auditor'", "'reader'", "'monitor'", "'admin'"],
    "role": ["'admin'", "'worker'", "'nobody'", "'tenant'"],
    "format": ["'markdown'", "'asyncapi'"],
    "owner_module": ["'shop'"],
    "consumers": ["'{plain}'", "'{}'"],
    "pii_fields": ["'{/s}'", "'{/o/*}'", "'{}'"],
    "function": ["'upcast(jsonb)'", "'failing_upcast(jsonb)'"],
    "step": ["'expire_idempotency_keys'", "'expire_dedup_keys'", "'expire_inbox'", "'partitions'", "'prune'", "'sample'", "'audit_chain'", "'drop'", "'archive'", "'export'"],
    "hours": ["1", "6"],
    "max_blocks": ["1", "10"],
    "condition": ["'false'", "'true'"],
    "own": ["'public.outbox_messages_new'"],
    "unit": ["'day'"],
    "scale": ["'spark'", "'number'", "'seconds'", "'latency'"],
    "entity_type": ["'Order'", "'Person'"],
    "entity_id": ["'1'"],
    "retention": ["'1 day'", "NULL"],
    "partition_interval": ["'daily'"],
    "parent": ["'outbox_messages'", "'audit_log'"],
    "file": ["'postgres.outbox_messages_p2020_01_01.20200101T000000Z-20200102T000000Z.1.ndjson.zst'"],
}

# By the name of an argument: the only values allowed. Rows are deleted from this table, and a
# server without some of its own rows cannot even roll back.
ONLY = {
    "swept": ["'_outbox.dedup_keys'", "'_outbox.inbox'", "'_outbox.idempotency_keys'", "'outbox_messages'", "'odd'", "'_outbox.batches_pkey'", "0::oid", "4294967295::oid", "NULL"],
}

LIMITS = ["0", "1", "-1", "2", "7", "100", "1000", "1001", "1024", "1025", "32766", "32767", "32768", "2147483647", "-2147483648"]
TIMES = ["'infinity'", "'-infinity'", "'epoch'", "'4714-11-24 00:00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'", "now()", "clock_timestamp()",
         "now() - interval '1 day'", "now() + interval '1 ms'", "now() + interval '1 year'", "'2000-02-29'", "'0001-01-01 BC'"]
RELATIONS = ["'outbox_messages'", "'outbox_messages_archive'", "'_outbox.messages_template'", "'_outbox.batches'", "'_outbox.inbox'", "'audit_log'", "'_outbox.audit_chain'",
             "'consumer_offsets'", "'_outbox.token_seq'", "'_outbox.batches_pkey'", "'odd'", "'pg_class'", "'pg_toast.pg_toast_1255'", "0::oid", "1::oid",
             "4294967295::oid", "(SELECT p.partition FROM _outbox.partitions() p ORDER BY p.lower_bound LIMIT 1)",
             "(SELECT p.partition FROM _outbox.partitions() p WHERE p.is_default)",
             "(SELECT p.partition FROM _outbox.partitions('audit_log') p ORDER BY p.lower_bound LIMIT 1)"]

# Valid values by type.
SENSIBLE_BY_TYPE = {
    "boolean": ["true", "false"],
    "regclass": RELATIONS,
    "timestamp with time zone": ["now()", "now() - interval '1 day'", "'2026-01-01'"],
    "interval": ["'1 s'", "'1 ms'", "'1 day'"],
    "date": ["current_date", "date_trunc('month', now())"],
    "bytea": ["sha256('')"],
}

BY_TYPE = {
    "boolean": ["true", "false"],
    "smallint": [n for n in LIMITS if abs(int(n)) < 32768],
    "integer": LIMITS,
    "bigint": LIMITS + ["9223372036854775807", "'-9223372036854775808'", "4294967296"],
    "oid": ["0", "1", "4294967295"],
    "double precision": ["0", "'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "1e308", "5e-324", "0.5", "-1", "1.0000001", "1e15"],
    "numeric": ["0", "'NaN'", "'Infinity'", "'-Infinity'", "1e1000", "1e-1000", "'1e131071'", "'1e-16383'", "-0.5", "0.000001", "99999999999999999999", "9.99"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'ffffffff-ffff-7fff-bfff-ffffffffffff'",
             "'00000000-0000-7000-8000-000000000000'", "gen_random_uuid()"],
    "timestamp with time zone": TIMES,
    "date": ["'infinity'", "'-infinity'", "'4714-11-24 BC'", "'5874897-12-31'", "'294277-01-01'", "current_date", "'2000-02-29'"],
    "interval": ["'0'", "'1 microsecond'", "'-1 microsecond'", "'1 ms'", "'1 s'", "'30 s'", "'1 day'", "'-1 day'", "'1 day 1 microsecond'", "'1 mon -30 days'",
                 "'178000000 years'", "'-178000000 years'", "'2147483647 days'", "'-2147483648 days'", "'2562047788 hours'", "'-2562047788 hours'", "'1000 years'"],
    "xid8": ["'0'", "'1'", "'3'", "'4294967295'", "'4294967296'", "'18446744073709551615'", "pg_snapshot_xmin(pg_current_snapshot())"],
    "bytea": ["''", "'\\x00'", "sha256('')", "'\\xff'"],
    "int8multirange": ["'{}'", "'{(,)}'", "'{[1,2]}'", "'{(,1), [5,5], [9223372036854775806,)}'", "'{[-9223372036854775808,9223372036854775807)}'"],
    "json": ["'null'", "'{}'", "'[]'", "'\"\\u0000\"'", "repeat('[', 4000) || repeat(']', 4000)", "repeat('[', 100000)"],
    "jsonb": ["'null'", "'{}'", "'[]'", "repeat('[', 4000) || repeat(']', 4000)"],
    "regclass": RELATIONS,
    "regprocedure": ["0::oid", "1::oid", "4294967295::oid", "'upcast(jsonb)'", "'lower(text)'", "'jsonb_array_elements(jsonb)'", "'outbox_status()'", "'count(\"any\")'",
                     "'jsonb_pretty(jsonb)'", "'jsonb_agg(anyelement)'", "'outbox_wait(text, interval, boolean)'", "'idempotency_hash(jsonb)'"],
    "name": ["''", "'public'", "'PUBLIC'", "'admin'", "'nobody'", "'nowhere'", "'pg_monitor'", "'it''s \"odd\"'", "E'two\\nlines'", "repeat('x', 63)", "repeat('é', 40)",
             "'pg_partman'", "'outbox'", "'none'", "'current_user'"],
    "record": ["ROW()", "ROW(1)"],
    "aclitem": ["'=r/postgres'", "'admin=arwdDxt*/postgres'", "makeaclitem(0, 4294967295, 'SELECT', true)"],
}

# Values that take long; used rarely.
HUGE_BY_TYPE = {
    "bytea": ["decode(repeat('00', 1000000), 'hex')"],
    "int8multirange": ["(SELECT range_agg(int8range(2 * i, 2 * i + 1)) FROM generate_series(1, 10000) i)"],
    "json": ["to_json(repeat('x', 2000000))", "to_json(repeat('\\', 100000))", "(SELECT json_agg(i) FROM generate_series(1, 100000) i)"],
    "jsonb": ["to_jsonb(repeat('x', 2000000))", "to_jsonb(repeat('\\', 100000))", "(SELECT jsonb_agg(i) FROM generate_series(1, 100000) i)",
              "(SELECT jsonb_object_agg(i, i) FROM generate_series(1, 20000) i)"],
    "text": ["repeat('x', 65536)", "repeat('x', 1000000)", "repeat('€', 1000000)", "repeat('x', 20000000)", "repeat('[', 100000)",
             "repeat('[', 2000) || repeat(']', 2000)", "repeat('{\"a\":', 100000)", "'\"' || repeat('\\n', 500000) || '\"'", "repeat(E'\\n', 100000)",
             "(SELECT string_agg(chr(1 + i % 1000), '') FROM generate_series(1, 5000) i)"],
}

TEXTS = ["''", "' '", "'x'", "'it''s \"odd\"'", "E'two\\nlines'", "E'\\t'", "E'\\x01'", "E'\\x7f'", "E'\\\\'", "'%s%n%d%'", "'$1'", "'; DROP TABLE outbox_messages; --'",
         "'x'') FROM odd; --'", "'NULL'", "'null'", "'0'", "'-1'", "'9223372036854775808'", "'NaN'", "'{}'", "'[]'", "'{'", "'[1,'", "'\"x\"'", "'[{}]'",
         "E'\\\\u0000'", "'\"\\u0000\"'", "'\"\\ud800\"'", "'infinity'", "'-infinity'", "'now'", "'allballs'", "'294277-01-01'", "'2026-01-31 12:00+00'", "'earliest'", "'latest'",
         "'other'", "'public'", "'outbox_messages'", "'pg_catalog.pg_class'", "'('", "'((((((((((a*)*)*)*)*)*)*)*)*)*b'", "'a{1,255}{1,255}'", "'../../../etc/passwd'", "'/dev/zero'",
         "'.'", "'/'", "'/a~1b/*/0'", "'~'", "'#/x'", "'<script>alert(1)</script>'", "'&amp;'", "'|a|b|'", "'`'", "E'a\\r\\nb: c'", "'\ufeff'", "'\u202e'", "'\u0301'", "'\U0010ffff'",
         "repeat('x', 63)", "repeat('x', 64)", "repeat('é', 32)", "repeat('x', 255)", "repeat('x', 256)", "repeat('é', 128)", "repeat('x', 512)", "repeat('x', 8191)",
         "md5('x') || md5('y')", "'AB' || repeat('0', 62)", "'1e400'", "'-0'", "'true'"]
