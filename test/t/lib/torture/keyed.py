"""Clients that repeat a request with a key until it is answered; it must be executed once."""

import json
import time

import psycopg2
from clients import Attempt, Client

LEASE_LOST = "OB001"


class Deduper(Client):
    """Several clients use one key at about the same time."""

    role = "deduper"

    def __init__(self, load, number):
        super().__init__(load, number)
        self.durable = number % 2 == 0

    def act(self):
        self.pause(0.05)
        key = f"key-{int(time.monotonic() * 5)}"
        if self.happens(0.5):
            attempt = Attempt(self.name(), self.durable)
            attempt.note("alone", True)
            self.send(attempt, "SELECT outbox_enqueue('Keyed', %s, 'Happened', %s::jsonb, dedup_key => %s)",
                      key, self.payload(attempt, key=key), key)
            return
        with self.attempt() as attempt:
            self.session.rows("SELECT outbox_enqueue('Keyed', %s, 'Happened', %s::jsonb, dedup_key => %s)",
                              key, self.payload(attempt, key=key), key)
            attempt.rolls_back = self.happens(0.2)


class Requester(Client):
    """Uses idempotency keys, in one transaction or in two, and repeats a key until it has the
    answer."""

    role = "requester"

    def __init__(self, load, number):
        super().__init__(load, number)
        self.key = None

    def act(self):
        self.pause(0.05)
        if self.key is None:
            # Shared with clients that choose it at the same time.
            self.key = f"request-{int(time.monotonic() * 4)}"
            self.in_one = hash(self.key) % 2 == 0
        if self.in_one:
            self.ask_in_one()
        else:
            self.ask_in_two()

    def begin(self):
        return self.session.rows("SELECT decision, token, response->>'event' FROM idempotency_begin('torture', %s, %s::jsonb, lease => '1 s')",
                                 self.key, json.dumps({"key": self.key}))[0]

    def answer(self, attempt, token):
        self.enqueue(attempt, "Request", self.key)
        event = attempt.events()[-1]
        self.session.rows("INSERT INTO effects VALUES (%s, %s)", self.key, event)
        self.session.rows("SELECT idempotency_finish('torture', %s, %s, 201, %s::jsonb)", self.key, token, json.dumps({"event": event}))
        attempt.note("answers", [self.key, event])

    def hear(self, decision, event):
        self.load.tally.count(f"requests {decision}")
        if decision == "replay":
            self.ledger.write("told", key=self.key, event=event)
            self.key = None

    def ask_in_one(self):
        with self.attempt() as attempt:
            decision, token, event = self.begin()
            if decision == "execute":
                self.answer(attempt, token)
                attempt.rolls_back = self.happens(0.2)
        self.hear(decision, event)

    def ask_in_two(self):
        decision, token, event = self.begin()
        self.hear(decision, event)
        if decision != "execute":
            return
        self.pause(0.05 if self.happens(0.8) else 1.5)
        try:
            with self.attempt() as attempt:
                self.answer(attempt, token)
        except psycopg2.Error as error:
            if error.pgcode != LEASE_LOST:
                raise
            self.load.tally.count("requests too late")
