"""The cost of a row of the audit log for its writer."""

from lab import Run, fresh_database, pgbench, sql, take_turns
from report import Report

STATES = """'{"state": "open", "total": 99.5, "lines": [1, 2, 3]}'::jsonb, '{"state": "paid", "total": 99.5, "lines": [1, 2, 3]}'::jsonb"""

RECORD = f"""\\set id random(1, 1000000)
SELECT audit_record('alice', 'update', 'Order', :id::text, {STATES}, '{{"ip": "192.0.2.1"}}'::jsonb);
"""
INSERT = f"""\\set id random(1, 1000000)
INSERT INTO audit_by_hand (actor, action, entity_type, entity_id, before, after, context)
VALUES ('alice', 'update', 'Order', :id::text, {STATES}, '{{"ip": "192.0.2.1"}}'::jsonb) RETURNING id;
"""

# The same columns, partitions and indexes, and the values that SQL defaults can compute.
BY_HAND = """
CREATE SEQUENCE audit_by_hand_id_seq;
CREATE TABLE audit_by_hand (LIKE audit_log INCLUDING DEFAULTS) PARTITION BY RANGE (occurred_at);
ALTER TABLE audit_by_hand ALTER id SET DEFAULT nextval('audit_by_hand_id_seq');
DO $$
DECLARE p record;
BEGIN
    FOR p IN SELECT row_number() OVER () AS number, pg_get_expr(c.relpartbound, c.oid) AS bound
               FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'audit_log'::regclass LOOP
        EXECUTE format('CREATE TABLE audit_by_hand_%s PARTITION OF audit_by_hand %s', p.number, p.bound);
        EXECUTE format('CREATE UNIQUE INDEX ON audit_by_hand_%s (id)', p.number);
        EXECUTE format('CREATE UNIQUE INDEX ON audit_by_hand_%s (entity_type, entity_id, id)', p.number);
    END LOOP;
END $$;
"""


def turn(script: str, mode: str) -> Run:
    """Empties the tables, so that no contestant pays for rows of another one."""
    sql("""DO $$
           DECLARE p regclass;
           BEGIN
               FOR p IN SELECT partition FROM _outbox.partitions('audit_log') UNION ALL SELECT 'audit_log' LOOP
                   EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', p);
               END LOOP;
               TRUNCATE audit_log, audit_by_hand;
               FOR p IN SELECT partition FROM _outbox.partitions('audit_log') UNION ALL SELECT 'audit_log' LOOP
                   EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER audit_forbid_change, ENABLE ALWAYS TRIGGER audit_refuse_truncate', p);
               END LOOP;
           END $$""")
    sql("CHECKPOINT")
    return pgbench(script, options=f"-c synchronous_commit={mode}")


def record(report: Report) -> None:
    fresh_database()
    sql("SELECT audit_record('setup', 'a', 't', '1')")
    sql(BY_HAND)
    for mode, suffix in (("on", "sync"), ("off", "async")):
        runs = take_turns({
            "ours": lambda: turn(RECORD, mode),
            "insert": lambda: turn(INSERT, mode),
            "insert again": lambda: turn(INSERT, mode),
        })
        against = (runs["ours"], runs["insert"], "plain prepared INSERT, same columns, indexes and partitions")
        report.add(f"audit_record_{suffix}", "rate", *against, 0.85, runs["insert again"])
        report.add(f"audit_record_{suffix}_cpu", "cpu", *against, None, runs["insert again"])
    report.add("audit_record_wal", "wal", *against, 1.05, runs["insert again"])


MEASURES = {"audit_record": record}
