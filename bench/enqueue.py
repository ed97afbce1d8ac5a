"""The cost of an event for its producer."""

from lab import Run, fresh_database, pgbench, sql, take_turns
from report import Report

PAYLOAD = '{"order": 4711, "total": 99.5, "currency": "EUR", "lines": [1, 2, 3], "note": "as agreed"}'

ENQUEUE = f"""\\set id random(1, 1000000)
SELECT outbox_enqueue('Order', :id, 'OrderConfirmed', '{PAYLOAD}'::jsonb);
"""
ENQUEUE_DEDUP = f"""\\set id random(1, 1000000)
\\set key random(1, 9000000000000000000)
SELECT outbox_enqueue('Order', :id, 'OrderConfirmed', '{PAYLOAD}'::jsonb, dedup_key => :key);
"""
INSERT = f"""\\set id random(1, 1000000)
INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
VALUES ('Order', :id, 'OrderConfirmed', '{PAYLOAD}'::jsonb);
"""
MANY = "SELECT cardinality(outbox_enqueue_many(events)) FROM batch;\n"
INSERT_ELEMENTS = """INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
SELECT e ->> 'aggregate_type', e ->> 'aggregate_id', e ->> 'event_type', e -> 'payload'
  FROM batch, jsonb_array_elements(events) AS e;
"""
INSERT_RECORDSET = """INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
SELECT r.* FROM batch, jsonb_to_recordset(events)
       AS r(aggregate_type text, aggregate_id text, event_type text, payload jsonb);
"""


def turn(script: str, **options) -> Run:
    """Empties the log, so that no contestant pays for rows of another one."""
    sql("TRUNCATE outbox_messages, _outbox.dedup_keys; CHECKPOINT")
    return pgbench(script, **options)


def one_by_one(report: Report, mode: str, target: float) -> None:
    fresh_database()
    options = f"-c synchronous_commit={mode}"
    runs = take_turns({
        "ours": lambda: turn(ENQUEUE, options=options),
        "insert": lambda: turn(INSERT, options=options),
        "insert again": lambda: turn(INSERT, options=options),
    })
    suffix = {"on": "sync", "off": "async"}[mode]
    against = (runs["ours"], runs["insert"], "plain prepared INSERT")
    report.add(f"enqueue_{suffix}", "rate", *against, target, runs["insert again"])
    report.add(f"enqueue_{suffix}_cpu", "cpu", *against, None, runs["insert again"])
    if mode == "off":
        report.add("enqueue_wal", "wal", *against, 1.05, runs["insert again"])


def enqueue_sync(report: Report) -> None:
    one_by_one(report, "on", 0.97)


def enqueue_async(report: Report) -> None:
    one_by_one(report, "off", 0.95)


def enqueue_many(report: Report) -> None:
    fresh_database()
    sql(f"""CREATE TABLE batch AS SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'Order',
            'aggregate_id', i::text, 'event_type', 'OrderConfirmed', 'payload', '{PAYLOAD}'::jsonb)) AS events
            FROM generate_series(1, 1000) i""")
    for clients in (1, 2):
        options = dict(clients=clients, operations=1000)
        runs = take_turns({
            "ours": lambda: turn(MANY, **options),
            "elements": lambda: turn(INSERT_ELEMENTS, **options),
            "recordset": lambda: turn(INSERT_RECORDSET, **options),
            "elements again": lambda: turn(INSERT_ELEMENTS, **options),
        })
        # Both common ways to write this in SQL; the first one is faster.
        suffix = "" if clients == 1 else "_2_clients"
        against = (runs["ours"], runs["elements"], "INSERT … SELECT jsonb_array_elements")
        report.add(f"enqueue_many{suffix}", "rate", *against, 1.5, runs["elements again"])
        report.add(f"enqueue_many{suffix}_cpu", "cpu", *against, None, runs["elements again"])
        report.add(f"enqueue_many{suffix}_recordset", "rate", runs["ours"], runs["recordset"],
                   "INSERT … SELECT jsonb_to_recordset", 1.5)
    report.add("enqueue_many_wal", "wal", *against, 1.05, runs["elements again"])


def dedup(report: Report) -> None:
    fresh_database()
    for mode, suffix in (("on", "sync"), ("off", "async")):
        options = f"-c synchronous_commit={mode}"
        runs = take_turns({
            "with": lambda: turn(ENQUEUE_DEDUP, options=options),
            "without": lambda: turn(ENQUEUE, options=options),
            "without again": lambda: turn(ENQUEUE, options=options),
        })
        report.add(f"dedup_{suffix}", "rate", runs["with"], runs["without"],
                   "outbox_enqueue without a dedup_key", 0.8, runs["without again"])


MEASURES = {
    "enqueue_sync": enqueue_sync,
    "enqueue_async": enqueue_async,
    "enqueue_many": enqueue_many,
    "dedup": dedup,
}
