"""Clients of a server that is killed repeatedly. They survive, and write down what they know."""

import json
import time
from contextlib import contextmanager

import psycopg2
from session import DISCONNECTED, Worker


class Attempt:
    """A transaction, and its consequences if it commits."""

    def __init__(self, name, durable):
        self.name = name
        self.durable = durable
        self.consequences = {"events": []}
        self.rolls_back = False

    def note(self, what, value):
        self.consequences.setdefault(what, []).append(value)

    def events(self):
        return [event["event"] for event in self.consequences["events"]]


class Client(Worker):
    """Writes each commit to the ledger before and after."""

    role = "client"
    durable = True

    def __init__(self, load, number):
        super().__init__(load, number)
        self.ledger = load.ledger
        self.names = 0

    def name(self):
        self.names += 1
        return f"{self.role}{self.number}-{self.names}"

    def set_up(self):
        self.session.rows(f"SET synchronous_commit = {'on' if self.durable else 'off'}")

    def turn(self):
        if self.durable and self.load.only_asynchronous:
            time.sleep(0.02)
        else:
            self.act()

    @contextmanager
    def attempt(self):
        """Commits at the end of the block, or rolls back if the block asks for it."""
        attempt = Attempt(self.name(), self.durable)
        try:
            self.session.rows("BEGIN")
            yield attempt
            if attempt.rolls_back:
                self.session.rows("ROLLBACK")
                self.load.tally.count("rolled back")
            else:
                self.session.rows("INSERT INTO happened VALUES (%s)", attempt.name)
        except Exception:
            # The COMMIT was not sent.
            self.disown(attempt.events())
            self.leave_transaction()
            raise
        if attempt.rolls_back:
            self.disown(attempt.events())
        else:
            self.send(attempt, "COMMIT")

    def disown(self, events):
        if events:
            self.ledger.write("never", events=events)

    def leave_transaction(self):
        if not self.session.connection.closed and self.session.in_transaction():
            self.session.rows("ROLLBACK")

    def send(self, attempt, statement, *values):
        """Runs a statement that commits by itself, and returns its rows."""
        self.ledger.write("try", attempt=attempt.name, durable=attempt.durable, **attempt.consequences)
        try:
            rows = self.session.rows(statement, *values)
        except psycopg2.Error as error:
            self.ledger.write("lost" if error.pgcode in DISCONNECTED else "undone", attempt=attempt.name)
            raise
        self.ledger.write("done", attempt=attempt.name)
        self.load.tally.count("commits" if attempt.durable else "asynchronous commits")
        return rows

    def payload(self, attempt, **more):
        """Returns the unique name of a new event."""
        event = {"event": self.name(), **more}
        attempt.note("events", event)
        return json.dumps(event)

    def enqueue(self, attempt, aggregate_type, aggregate, **more):
        return self.session.value("SELECT outbox_enqueue(%s, %s, 'Happened', %s::jsonb, tenant_id => %s)",
                                  aggregate_type, aggregate, self.payload(attempt, **more), self.number % 3)
