"""The place of a fault: ledger lines that only this judge reads, and a transaction that is
rolled back."""

import json
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from judge import Judge
from ledger import Tail
from session import Session


class Scene:
    """The chosen events are in the log and were received by every consumer, so that only the
    fault is wrong about them."""

    def __init__(self, files, judge, dead):
        self.originals = files
        self.judge = judge
        self.accounts = judge.accounts
        self.dead = dead
        cancelled = judge.cancelled()
        dead_anywhere = set().union(*dead.values())
        accounts = list(judge.accounts.attempts.values())
        # An autocommitted statement, and a transaction; without events that leave the log or were
        # scheduled.
        self.account = next(account for account in accounts if account.must_be() and account.alone and len(account.events) == 1
                            and "key" not in account.events[0] and account.events[0]["event"] not in dead_anywhere)
        self.event = self.account.events[0]["event"]
        self.changed = next(account for account in accounts if account.must_be() and not account.alone and account.events and not any(
            "key" in event or "old" in event or event["event"] in cancelled for event in account.events))
        self.changed_event = self.changed.events[0]["event"]
        self.asynchronous = next(event for event in judge.accounts.seen if not judge.accounts.attempt_of[event].durable and not judge.is_old(event))
        self.never = min(judge.accounts.never)
        self.key, self.answer = next(iter(judge.accounts.told.items()))

    def two_in_order(self, sink):
        """Returns an event and the one before it; neither is a dead letter of the sink."""
        dead = self.dead.get(sink, set())
        return next((event["event"], event["after"]) for account in self.accounts.attempts.values() if account.must_be()
                    for event in account.events if event.get("after") and not dead & {event["event"], event["after"]})

    @contextmanager
    def set(self):
        with TemporaryDirectory() as directory:
            self.files = {name: Path(directory) / name for name in self.originals}
            for name in ("ledger", "record"):
                self.files[name].touch()
            # The judge has read the table "happened"; positions continue from there.
            self.judge.accounts.tail, self.judge.record = Tail(self.files["ledger"]), Tail(self.files["record"])
            self.now = time.time()
            self.position = 1 << 40
            self.session = self.judge.session = Session("fault")
            # Disable constraints and triggers that refuse or count such changes.
            self.sql("SET session_replication_role = replica")
            self.sql("SET track_counts = off")
            self.sql("BEGIN")
            yield

    def ask(self, order):
        kafka_file = self.files["kafka"] if self.files["kafka"].exists() else self.originals["kafka"]
        getattr(self.judge, order)(*[kafka_file] if order == "over" else [])
        return self.judge.accounts.wrong

    # Changes of the database.

    def sql(self, statement, *values):
        return self.session.rows(statement, *values)

    def insert(self, event, **columns):
        columns = {"aggregate_type": "Fault", "aggregate_id": "fault", "event_type": "Happened", "payload": json.dumps({"event": event}), **columns}
        self.sql(f"INSERT INTO outbox_messages ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})", *columns.values())

    def archive(self, id):
        self.sql("CREATE TABLE fault PARTITION OF outbox_messages_archive DEFAULT")
        self.sql("INSERT INTO fault SELECT (jsonb_populate_record(NULL::fault, to_jsonb(m) || jsonb_build_object('id', %s))).*"
                 " FROM outbox_messages m WHERE payload->>'event' = %s", id, self.event)

    def delete(self, event):
        self.sql("DELETE FROM outbox_messages WHERE payload->>'event' = %s", event)

    def happen(self):
        self.sql("INSERT INTO happened VALUES ('fault')")

    # Changes of the files.

    def add(self, name, line):
        with open(self.files[name], "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def rewrite(self, name, change):
        with open(self.originals[name], encoding="utf-8") as original, open(self.files[name], "w", encoding="utf-8") as copy:
            copy.writelines(change(original.readlines()))
        if name == "record":
            self.judge = Judge(self.originals["ledger"], self.files["record"], self.session)

    @staticmethod
    def has(line, event):
        """Finds the event also in an escaped payload."""
        return f'"event": "{event}"' in line.replace("\\", "")

    # Lines of the ledger.

    def note(self, kind, **what):
        self.position += 1
        self.add("ledger", json.dumps({"kind": kind, "position": self.position, **what}))

    def attempt(self, end, **consequences):
        self.note("try", attempt="fault", **{"durable": True, "events": [], **consequences})
        self.note(end, attempt="fault")

    def claim(self, consumer, event, token=-1, lease=0, tracking_id=None, after=None, ordered=False):
        id, known = self.accounts.identity.get(event, (1, "fault"))
        self.note("claim", consumer=consumer, token=token, since=self.position, at=self.now, until=self.now + lease, ordered=ordered,
                  rows=[[id, tracking_id or known, event, after]])
