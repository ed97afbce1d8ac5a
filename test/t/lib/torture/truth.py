"""Queries of the database."""

import io
import json

# Violations, each with the promise that it breaks. First those that a crash hides: it resets
# statistics and does not extend leases.
FLEETING = [
    # In one pass: a fair consumer may have thousands of unassigned batches.
    ("shared", """
        SELECT format('consumer %s: token %s has %s, and so has another', consumer_id, token, run)
          FROM (SELECT consumer_id, token, run,
                       max(upper(run)) OVER (PARTITION BY consumer_id ORDER BY run ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                  FROM _outbox.leases l JOIN _outbox.batches b USING (consumer_id, token), unnest(coalesce(l.remaining, b.ids)) run
                 WHERE l.acked_at IS NULL AND l.superseded_by IS NULL) runs
         WHERE lower(run) < before"""),
    # Since the last reset of statistics. Rows that leave the default partition are deleted there.
    ("changed", """
        SELECT format('%s: %s updates and %s deletes', relid::regclass, n_tup_upd, n_tup_del)
          FROM pg_stat_all_tables JOIN pg_partition_tree('outbox_messages') USING (relid)
         WHERE n_tup_upd + n_tup_del > 0 AND pg_get_expr((SELECT relpartbound FROM pg_class WHERE oid = relid), relid) <> 'DEFAULT'"""),
]
LASTING = [
    # No consumer here has a filter. A late event with an old time soon leaves the log, so its id
    # alone proves nothing.
    ("archived", """
        WITH reading AS (
             SELECT c.consumer_id, c.name, n.newest, _outbox.known_upto(n.newest) AS known
               FROM outbox_consumers c
              CROSS JOIN LATERAL (SELECT o FROM _outbox.batches o WHERE o.consumer_id = c.consumer_id ORDER BY o.token DESC LIMIT 1) n (newest)),
         open AS (
             SELECT l.consumer_id, coalesce(l.remaining, b.ids) AS ids FROM _outbox.leases l JOIN _outbox.batches b USING (consumer_id, token)
              WHERE l.acked_at IS NULL AND l.superseded_by IS NULL AND NOT b.from_retries),
         late AS (
             SELECT id FROM outbox_messages_archive WHERE id >= (SELECT min(lower(ids)) FROM open))
        SELECT format('%s has not read %s', r.name, m.id)
          FROM reading r JOIN outbox_messages_archive m ON m.id > r.known AND NOT _outbox.has_passed(r.newest, m.xid, m.id)
         UNION ALL
        SELECT format('somebody has %s of %s in hand', m.id, r.name) FROM open o JOIN reading r USING (consumer_id) JOIN late m ON o.ids @> m.id"""),
    ("torn", """
        SELECT format('%s has version %s and %s events', a.id, a.version, count(m))
          FROM aggregates a LEFT JOIN outbox_messages m ON m.aggregate_type = 'Order' AND m.aggregate_id = a.id
         GROUP BY a.id HAVING a.version <> count(m)"""),
    ("twice", "SELECT format('consumed %s', event) FROM consumed GROUP BY event HAVING count(*) > 1"),
    ("twice", "SELECT format('handled %s', event) FROM handled GROUP BY event HAVING count(*) > 1"),
    ("key", "SELECT format('executed %s', key) FROM effects GROUP BY key HAVING count(*) > 1"),
    ("key", """SELECT format('enqueued %s', aggregate_id) FROM outbox_messages WHERE aggregate_type = 'Keyed'
                GROUP BY aggregate_id HAVING count(*) > 1"""),
]

EVENTS = "SELECT id, tracking_id, payload->>'event' FROM {}"


class Truth:
    def __init__(self, session):
        self.session = session

    def close(self):
        self.session.connection.close()

    def copy(self, query):
        """Runs a query whose texts have no tabs and newlines."""
        out = io.StringIO()
        self.session.cursor.copy_expert(f"COPY ({query}) TO STDOUT", out)
        return [line.split("\t") for line in out.getvalue().splitlines()]

    def column(self, query, *values):
        return [row[0] for row in self.session.rows(query, *values)]

    def last_id(self):
        return self.session.value("SELECT _outbox.last_id()")

    def events_above(self, id):
        log = EVENTS.format("outbox_messages") + f" WHERE id > {id}"
        return {event for _, _, event in self.copy(f"{log} UNION ALL SELECT 0, tracking_id, payload->>'event' FROM outbox_scheduled")}

    def find(self, events):
        return set(self.column(
            "SELECT payload->>'event' FROM (SELECT payload FROM outbox_messages UNION ALL SELECT payload FROM outbox_scheduled) m"
            " WHERE payload->>'event' = ANY (%s)", list(events)))

    def violations(self, of=FLEETING + LASTING):
        return [(promise, what) for promise, query in of for what in self.column(query)]

    def verify_audit(self, known):
        """Returns the hashes of all months, and violations of the known ones."""
        months = self.session.rows("SELECT month, ok, last_hash, problem FROM audit_verify(known => %s::jsonb)", json.dumps(known))
        return ({month: hash for month, _, hash, _ in months if hash},
                [f"{month}: {problem}" for month, ok, _, problem in months if not ok])

    def dead_letters(self):
        dead = {}
        for consumer, event in self.session.rows("SELECT c.name, d.payload->>'event' FROM outbox_messages_dlq d JOIN outbox_consumers c USING (consumer_id)"):
            dead.setdefault(consumer, set()).add(event)
        return dead

    def log_and_archive(self):
        return self.copy(f"{EVENTS.format('outbox_messages')} UNION ALL {EVENTS.format('outbox_messages_archive')}")

    def cold_storage(self):
        return self.copy("SELECT j->>'id', j->>'tracking_id', j->'payload'->>'event'"
                         " FROM outbox_cold_files f, _outbox.read_cold_file(f.file) line, CAST(line AS jsonb) j")
