"""Violations that no call may cause."""

from collections import Counter
from pathlib import Path

CANCELED = "57014"
INTERNAL_ERROR = "XX000"
# A public function must check its arguments and not leave an error to the parser, a constraint or a
# bare RAISE.
SPEAKS_OF_ITSELF = {"42601", "42702", "42703", "23502", "23503", "23505", "P0001", "P0003", "P0004", "0A000"}
# Messages about arguments that did not reach the function.
OTHERS = ("conversion between UTF8", "cannot use subquery in CALL")

# Every row by its place and its writing transaction, so that inserts, updates and deletes show.
TABLES = """
SELECT string_agg(format('SELECT %L, count(*), sum(hashtextextended(format(''%%s %%s %%s'', tableoid, ctid, xmin), 0)::numeric) FROM %s',
                         c.oid::regclass, c.oid::regclass), ' UNION ALL ')
  FROM pg_class c LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
 WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND (d.objid IS NOT NULL OR c.oid = ANY ('{pg_class,pg_proc,pg_trigger,pg_constraint,pg_namespace}'::regclass[]))
"""


class Digest:
    """A digest of all tables of the extension and pg_partman, some catalogs, and unfinished
    files in cold storage."""

    def __init__(self, session, files):
        self.session = session
        self.files = Path(files)
        self.query = session.value(TABLES)

    def take(self):
        tables = {name: (rows, versions) for name, rows, versions in self.session.rows(self.query)}
        return tables | {"files": sorted(path.name for path in self.files.glob("*.tmp"))}


def difference(before, after):
    return ", ".join(f"{name}: {before.get(name)} became {after.get(name)}" for name in sorted(before | after) if before.get(name) != after.get(name))


class Judge:
    PATIENCE = 10  # seconds; calls are quick or soon canceled

    def __init__(self, has_odd_rows):
        self.has_odd_rows = has_odd_rows  # names may have bytes that are not valid text
        self.codes = Counter()
        self.canceled = Counter()
        self.wrong = Counter()
        self.reports = []
        self.examples = {}

    def accuse(self, kind, what, call):
        self.wrong[kind] += 1
        self.reports.append(f"{kind}: {what}\n    {call}")

    def errors(self, call, outcome):
        for error in outcome.errors:
            code, message = error.pgcode, str(error).strip()
            self.codes[code] += 1
            self.examples.setdefault((code or "none", call.routine.signature), f"{message[:300]}\n    {call}")
            if code == CANCELED:
                self.canceled[call.routine.name] += 1
            elif code in (None, INTERNAL_ERROR):
                self.accuse("internal errors", f"{code} {message}", call)
            elif code in SPEAKS_OF_ITSELF and not call.routine.is_internal and not any(text in message for text in OTHERS):
                self.accuse("unclear errors", f"{code} {message}", call)
            if "\ufffd" in message and not call.has_odd_bytes and not self.has_odd_rows:
                self.accuse("errors that are no text", message, call)

    def time(self, call, seconds):
        if seconds > self.PATIENCE:
            self.accuse("calls that took too long", f"{seconds:.1f} s", call)

    def changes(self, call, before, after):
        if before != after:
            self.accuse("changes by calls that failed or were rolled back", difference(before, after), call)

    def session(self, call, session):
        """A call must leave the session unchanged, unless the function is internal."""
        now = session.rows("SELECT current_user::text, current_setting('search_path'), current_setting('lock_timeout')")[0]
        before = getattr(session, "settings", now)
        session.settings = before
        if now != before:
            session.rows("RESET search_path; RESET lock_timeout")
            if not call.routine.is_internal:
                self.accuse("sessions that are not as they were", f"{before} became {now}", call)
