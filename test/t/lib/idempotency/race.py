"""Clients that race for one key per round, until each of them has the answer.

An attempt records its side effect in the transaction that finishes it, and fails in every possible
way. Prints how often each thing happened, and every unexpected error. Fails if there was one."""

import argparse
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psycopg2

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "load"))
from session import DISCONNECTED, Session, Tally  # noqa: E402

LEASE = 1.0  # seconds; the shortest lease that is allowed

LEASE_LOST = "OB001"
# Another attempt has the key, has finished it, or has had and abandoned it.
TOKEN_REFUSED = {LEASE_LOST, "OB002"}


class Attempt:
    """An execution that is running, as far as its client knows."""

    def __init__(self, client, token, asked_at, in_one_transaction):
        self.client = client
        self.token = token
        self.asked_at = asked_at
        self.in_one_transaction = in_one_transaction

    def must_be_alone(self, now):
        """Returns whether no other attempt can be running: the transaction is open, or the lease
        has not expired."""
        if self.in_one_transaction:
            return not self.client.is_doomed
        return now < self.asked_at + LEASE


class Client(threading.Thread):
    def __init__(self, race, number):
        super().__init__(daemon=True)
        self.race = race
        self.number = number
        self.chance = random.Random()
        self.session = None
        self.pid = None
        self.is_doomed = False

    def run(self):
        for number in range(1, self.race.rounds + 1):
            self.race.start.wait()
            try:
                self.play(f"round {number}")
            except Exception as error:
                self.race.tally.report("client", repr(error))
            self.race.end.wait()

    def play(self, key):
        """Repeats the request until there is an answer."""
        answer = None
        while answer is None and not self.race.is_late():
            try:
                answer = self.turn(key)
            except psycopg2.Error as error:
                if error.pgcode not in DISCONNECTED:
                    self.race.tally.report("client", f"{error.pgcode} {str(error).strip()}")
                    return
                self.race.tally.count("lost connections")
                self.hang_up()
        self.race.answered(key, answer)

    def turn(self, key):
        if self.session is None:
            self.connect()
        in_one = self.happens(0.8)  # in two transactions it is quicker, and would win most rounds
        if in_one:
            self.session.rows("BEGIN")
            # The key begins in a savepoint, sometimes after one that is rolled back.
            if self.happens(0.2):
                self.session.rows("SAVEPOINT s")
                if self.happens(0.3):
                    self.ask(key)
                    self.session.rows("ROLLBACK TO s")
        asked_at = time.monotonic()
        decision, token, status, response = self.ask(key)
        if decision == "execute":
            attempt = Attempt(self, token, asked_at, in_one)
            self.race.begin(key, attempt)
            try:
                (self.execute_in_one if in_one else self.execute_in_two)(key, attempt)
            finally:
                self.race.end_of(key, attempt)
            return None
        if in_one:
            self.session.rows(self.chance.choice(["COMMIT", "ROLLBACK"]))
        self.race.tally.count(decision.replace("_", " "))
        if decision == "replay":
            return response
        if decision != "in_progress":
            self.race.tally.report("client", f"{key}: {decision}")
        time.sleep(self.chance.random() * 0.02)
        return None

    def ask(self, key):
        return self.session.rows(
            "SELECT decision, token, status_code, response FROM idempotency_begin('race', %s, '{}', lease => %s, wait => %s)",
            key, f"{LEASE} s", self.chance.choice([None, None, "5 ms", "100 ms", "1 s"]))[0]

    def execute_in_one(self, key, attempt):
        self.pause(0.01)
        fate = self.chance.choices(["commit", "rollback", "hang up", "abandon", "savepoint"], [45, 25, 20, 5, 5])[0]
        self.race.tally.count(f"ended by {fate}")
        if fate == "abandon":
            self.session.rows("SELECT idempotency_abandon('race', %s, %s)", key, attempt.token)
        else:
            if fate == "savepoint":
                self.session.rows("SAVEPOINT t")
                self.finish(key, attempt, "undone")
                self.session.rows("ROLLBACK TO t")
            self.finish(key, attempt, self.number)
            self.pause(0.005)
        # From here on the server may start another attempt.
        self.race.end_of(key, attempt)
        if fate == "hang up":
            self.hang_up()
        else:
            self.session.rows("ROLLBACK" if fate == "rollback" else "COMMIT")

    def execute_in_two(self, key, attempt):
        """Begins and commits. A token outlives its session; it outlives its lease only if no
        other attempt starts."""
        try:
            self.end_in_two(key, attempt)
        except psycopg2.Error as error:
            if error.pgcode not in TOKEN_REFUSED or attempt.must_be_alone(time.monotonic()):
                raise
            self.race.tally.count("leases lost")

    def end_in_two(self, key, attempt):
        self.pause(0.02)
        fate = self.chance.choices(["finish", "finish again", "give up", "die", "oversleep"], [70, 10, 10, 6, 4])[0]
        self.race.tally.count(f"ended by {fate}")
        if fate == "give up":
            self.race.end_of(key, attempt)
            self.session.rows("SELECT idempotency_abandon('race', %s, %s)", key, attempt.token)
            return
        if fate == "die":
            self.hang_up()
            return
        if fate == "oversleep":
            time.sleep(LEASE + 0.1)
        if fate == "finish again":
            with self.session.transaction():
                self.finish(key, attempt, "undone")
                self.session.rows("ROLLBACK")
        was_disconnected = False
        while True:
            try:
                if self.session is None:
                    self.connect()
                with self.session.transaction():
                    self.finish(key, attempt, self.number)
                return
            except psycopg2.Error as error:
                if error.pgcode not in DISCONNECTED:
                    # The commit may have succeeded before the connection was lost.
                    if error.pgcode == LEASE_LOST and was_disconnected:
                        return
                    raise
                was_disconnected = True
                self.hang_up()

    def finish(self, key, attempt, by):
        self.session.rows("INSERT INTO effects VALUES (%s, %s, %s)", key, attempt.token, str(by))
        self.session.rows("SELECT idempotency_finish('race', %s, %s, 201, jsonb_build_object('token', %s, 'by', %s::text))",
                          key, attempt.token, attempt.token, str(by))

    def connect(self):
        self.session = Session("client")
        self.pid = self.session.connection.info.backend_pid
        self.is_doomed = False

    def hang_up(self):
        if self.session is not None:
            self.session.connection.close()
        self.session = None

    def happens(self, probability):
        return self.chance.random() < probability

    def pause(self, longest):
        time.sleep(self.chance.random() * longest)


class Race:
    def __init__(self, options):
        self.rounds = options.rounds
        self.tally = Tally()
        self.clients = [Client(self, i) for i in range(options.clients)]
        self.start = threading.Barrier(options.clients + 1)
        self.end = threading.Barrier(options.clients + 1)
        self.lock = threading.Lock()
        self.attempts = {}
        self.answers = {}
        self.deadline = None

    def is_late(self):
        return time.monotonic() > self.deadline

    def begin(self, key, attempt):
        now = time.monotonic()
        with self.lock:
            others = self.attempts.setdefault(key, [])
            if any(other.must_be_alone(now) for other in others):
                self.tally.report(key, "two executions at the same time")
            others.append(attempt)
        self.tally.count("executions")

    def end_of(self, key, attempt):
        with self.lock:
            if attempt in self.attempts[key]:
                self.attempts[key].remove(attempt)

    def answered(self, key, answer):
        with self.lock:
            if answer is None:
                self.tally.unexpected.append(f"{key}: no answer")
            elif self.answers.setdefault(key, answer) != answer:
                self.tally.unexpected.append(f"{key}: {answer} and {self.answers[key]}")

    def kill_client(self, session, key):
        with self.lock:
            executing = [attempt.client for attempt in self.attempts.get(key, [])]
        victim = random.choice(executing if executing and random.random() < 0.7 else self.clients)
        victim.is_doomed = True  # even if it reconnects before the kill and keeps its session
        self.tally.count("kills", session.value("SELECT pg_terminate_backend(%s)::int", victim.pid or 0))

    def run(self):
        for client in self.clients:
            client.connect()
            client.start()
        killer = Session("killer")
        for number in range(1, self.rounds + 1):
            self.deadline = time.monotonic() + 60
            self.start.wait()
            if random.random() < 0.5:
                time.sleep(random.random() * 0.05)
                self.kill_client(killer, f"round {number}")
            self.end.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, required=True)
    race = Race(parser.parse_args())
    race.run()
    print(", ".join(f"{count} {what}" for what, count in sorted(race.tally.counts.items())))
    for text, count in Counter(race.tally.unexpected).most_common(20):
        print(f"UNEXPECTED {count}x {text}", file=sys.stderr)
    sys.exit(1 if race.tally.unexpected else 0)


main()
