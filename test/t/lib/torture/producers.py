"""Clients that write: every course that a transaction with events can take."""

import json
import time

from clients import Attempt, Client
from session import DISCONNECTED
import psycopg2

AGGREGATES = [f"order-{i}" for i in range(1, 17)]
DAYS_KEPT = range(8, 95)         # old enough for the archive
DAYS_DROPPED = range(110, 170)   # and for cold storage


class Writer(Client):
    """Changes aggregates and enqueues in one transaction, which commits, rolls back or fails."""

    role = "writer"

    def __init__(self, load, number):
        super().__init__(load, number)
        # Every second writer commits asynchronously; a lost commit must never have been visible to
        # consumers.
        self.durable = number % 2 == 0

    def act(self):
        self.pause(self.load.rest)
        if self.happens(0.3):
            self.enqueue_alone()
            return
        with self.attempt() as attempt:
            # Locked in one order, which avoids deadlocks.
            for aggregate in sorted(self.chance.sample(AGGREGATES, self.chance.choice([1, 1, 2]))):
                self.change(attempt, aggregate)
                if self.happens(0.2):
                    self.change_in_savepoint(attempt, aggregate)
            if self.happens(0.1):
                self.session.rows("SELECT audit_record(%s, 'change', 'Order', %s)", self.role, attempt.name)
                attempt.note("audit", attempt.name)
            self.pause(0.004)
            attempt.rolls_back = self.happens(0.12)

    def change(self, attempt, aggregate):
        last = self.session.value("SELECT last FROM aggregates WHERE id = %s FOR UPDATE", aggregate)
        self.enqueue(attempt, "Order", aggregate, **({"after": last} if last else {}))
        self.session.rows("UPDATE aggregates SET version = version + 1, last = %s WHERE id = %s",
                          attempt.events()[-1], aggregate)

    def change_in_savepoint(self, attempt, aggregate):
        before = len(attempt.events())
        self.session.rows("SAVEPOINT s")
        self.change(attempt, aggregate)
        if self.happens(0.5):
            self.session.rows("ROLLBACK TO s")
            self.disown(attempt.events()[before:])
            del attempt.consequences["events"][before:]
            self.load.tally.count("savepoints rolled back")
        if self.happens(0.3):
            self.change(attempt, aggregate)

    def enqueue_alone(self):
        """Runs a single statement that commits by itself: only its event shows whether it did."""
        attempt = Attempt(self.name(), self.durable)
        attempt.note("alone", True)
        aggregate = f"alone-{self.number}"
        if self.happens(0.5):
            self.send(attempt, "SELECT outbox_enqueue('Alone', %s, 'Happened', %s::jsonb)", aggregate, self.payload(attempt))
            return
        for _ in range(self.chance.randint(2, 12)):
            self.payload(attempt)
        many = [{"aggregate_type": "Alone", "aggregate_id": aggregate, "event_type": "Happened", "payload": event}
                for event in attempt.consequences["events"]]
        self.send(attempt, "SELECT outbox_enqueue_many(%s::jsonb)", json.dumps(many))


class Preparer(Writer):
    """Prepares transactions and ends them later, from any session."""

    role = "preparer"

    def __init__(self, load, number):
        super().__init__(load, number)
        self.durable = True
        self.attempted = None  # the attempt that is prepared, or may be

    def over(self):
        # Other writers wait for the aggregate's row lock.
        return super().over() and self.attempted is None

    def act(self):
        if self.attempted is not None:
            self.end_prepared()
        elif not super().over():
            self.prepare()

    def prepare(self):
        attempt = Attempt(self.name(), True)
        self.session.rows("BEGIN")
        try:
            self.change(attempt, self.chance.choice(AGGREGATES))
            self.session.rows("INSERT INTO happened VALUES (%s)", attempt.name)
        except psycopg2.Error:
            self.disown(attempt.events())
            raise
        self.attempted = attempt
        self.committing = False
        self.session.rows(f"PREPARE TRANSACTION '{attempt.name}'")
        self.pause(0.1)

    def end_prepared(self):
        """Also after a crash: the prepared transactions show the result of the last command."""
        attempt = self.attempted
        if not self.session.rows("SELECT gid FROM pg_prepared_xacts WHERE gid = %s", attempt.name):
            if self.committing:
                self.ledger.write("done", attempt=attempt.name)
            else:
                self.disown(attempt.events())
        elif self.committing or self.happens(0.7):
            if not self.committing:
                self.ledger.write("try", attempt=attempt.name, durable=True, **attempt.consequences)
                self.committing = True
            self.session.rows(f"COMMIT PREPARED '{attempt.name}'")
            self.ledger.write("done", attempt=attempt.name)
            self.load.tally.count("commits of prepared transactions")
        else:
            self.session.rows(f"ROLLBACK PREPARED '{attempt.name}'")
            self.disown(attempt.events())
            self.load.tally.count("rollbacks of prepared transactions")
        self.attempted = None


class Planner(Client):
    """Schedules events, and sometimes cancels them."""

    role = "planner"

    def act(self):
        self.pause(0.1)
        delay = self.chance.choice([0.05, 0.5, 2])
        with self.attempt() as attempt:
            tracking_id = self.session.value(
                "SELECT outbox_enqueue('Plan', %s, 'Happened', %s::jsonb, available_at => now() + make_interval(secs => %s))",
                self.name(), self.payload(attempt), delay)
            attempt.rolls_back = self.happens(0.1)
        if not attempt.rolls_back and self.happens(0.3):
            self.pause(delay)
            self.cancel(attempt.events()[0], tracking_id)

    def cancel(self, event, tracking_id):
        with self.attempt() as attempt:
            if self.session.value("SELECT outbox_cancel(%s)", tracking_id):
                attempt.note("cancels", event)
                self.load.tally.count("cancelled")


class Historian(Client):
    """Writes events of past days, each day's within a short time, so that maintenance makes,
    archives, exports and drops partitions."""

    role = "historian"

    def __init__(self, load, number):
        super().__init__(load, number)
        self.kept = iter(DAYS_KEPT)
        self.written = 0

    def act(self):
        self.pause(0.8)
        self.written += 1
        day = next(self.kept, None) if self.written % 5 == 0 else None
        if day is None:
            day = DAYS_DROPPED[self.written % len(DAYS_DROPPED)]
        with self.attempt() as attempt:
            for _ in range(self.chance.randint(1, 5)):
                self.session.rows(
                    "INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)"
                    " VALUES (date_trunc('day', now()) - make_interval(days => %s) + interval '12 hours', 'Past', %s, 'Happened', %s::jsonb)",
                    day, self.name(), self.payload(attempt, old=True))
            attempt.rolls_back = self.happens(0.1)
