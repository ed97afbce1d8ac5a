"""Detects calls that leak memory in their session."""

import time
from contextlib import contextmanager

import psycopg2
import psycopg2.errors

from session import Session

# Memory used in the server's contexts, and malloc() memory outside of them. Cached plans vary; a
# leaked statement shows by its source. The type cache never shrinks, not even after a rollback.
BYTES = """SELECT sum(used_bytes) FILTER (WHERE name NOT IN ('CachedPlan', 'Type information cache'))::bigint, memory_given_out() - sum(total_bytes)::bigint
             FROM pg_backend_memory_contexts"""


# Calls that can be committed repeatedly, because the next call repeats or undoes their effect.
ROUNDS = [
    "SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}'); SELECT outbox_ack(lock_token) FROM outbox_claim('plain') LIMIT 1",
    "SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}'); SELECT outbox_ack(lock_token, ARRAY[id]) FROM outbox_claim('ordered')",
    "SELECT outbox_fail(lock_token, id, 'x', '0') FROM outbox_claim('parted', 1)",
    "SELECT outbox_heartbeat(lock_token), outbox_release(lock_token) FROM outbox_claim('fair') LIMIT 1",
    "SELECT inbox_accept('plain', gen_random_uuid())",
    "SELECT outbox_cancel(outbox_enqueue('Order', '1', 'OrderConfirmed', '{}', available_at => now() + '1 hour'))",
    "SELECT outbox_create_consumer('round'); SELECT outbox_drop_consumer('round')",
    "SELECT outbox_pause('plain'); SELECT outbox_resume('plain')",
    "SELECT idempotency_finish('payments', key, (idempotency_begin('payments', key, '{}'::jsonb)).token, 200, '{}'::jsonb) FROM CAST(gen_random_uuid() AS text) key",
    "SELECT idempotency_abandon('payments', 'round', (idempotency_begin('payments', 'round', '{}'::jsonb)).token)",
    "SELECT _outbox.audit_begin_removal(), _outbox.audit_end_removal()",
]


class Corpus:
    """One call of each kind: per function and outcome."""

    def __init__(self):
        self.statements = {}

    def add(self, call, outcome, seconds):
        # The server leaks the compiled form of a PL/pgSQL trigger function that is called directly.
        if call.role == "postgres" and seconds < 0.05 and not call.routine.is_trigger:
            ending = outcome.errors[0].pgcode if outcome.errors else "accepted"
            self.statements.setdefault((call.routine.signature, ending), call.statement)

    def accepted(self):
        return {kind: statement for kind, statement in self.statements.items() if kind[1] == "accepted"}


class Repeats:
    """Repeats calls in one session, each in a transaction that ends the same way."""

    WARM_UP = 4
    LOOKS = 4
    AT_LEAST = 50  # calls, from the second measurement on; a single allocation weighs less then
    LIMIT = 64  # bytes per call; calls without a leak sometimes have about 24

    def __init__(self, session, ending, times, contexts_only):
        self.session = session
        self.ending = ending
        self.times = times
        self.kinds = 1 if contexts_only else 2
        self.error = None  # of the latest call
        session.rows("SET plan_cache_mode = force_generic_plan")  # otherwise plans are made at different times
        session.rows("SET jit = off")  # LLVM keeps memory for itself

    def leak(self, statement):
        """Returns the bytes that each call leaks, or 0."""
        self.play(statement, self.WARM_UP)
        # A cache that fills once is not a leak, and one that shrinks may hide a leak.
        looks = [self.growth(statement)]
        while abs(looks[-1]) > self.LIMIT and len(looks) < self.LOOKS:
            looks.append(self.growth(statement, is_thorough=True))
        return looks[-1] if looks[-1] > self.LIMIT else 0

    def growth(self, statement, is_thorough=False):
        before = self.bytes(is_thorough)
        played = self.play(statement, self.times, self.AT_LEAST if is_thorough else 1)
        after = self.bytes(is_thorough)
        return max((now - then for now, then in zip(after, before)), key=abs) / played

    def bytes(self, is_thorough):
        """Returns the memory of the session; if thorough, without catalog caches and pending
        statistics."""
        if is_thorough:
            self.ask("SELECT memory_forget(), pg_stat_force_next_flush()")
            self.ask(BYTES)  # includes the memory of the query itself from now on
        return self.ask(BYTES)[0][:self.kinds]

    def ask(self, query):
        """Retries: on a busy machine the query may exceed statement_timeout."""
        for _ in range(100):
            try:
                return self.session.rows(query)
            except psycopg2.errors.QueryCanceled:
                continue
        raise RuntimeError(f"canceled again and again: {query}")

    def play(self, statement, times, at_least=1):
        """Repeats the statement `times` times, or for as many milliseconds, with one round trip
        each. A failed transaction is rolled back by the next round."""
        end = time.monotonic() + times / 1000
        played = 0
        while played < at_least or (played < times and time.monotonic() < end):
            try:
                self.session.cursor.execute(f"ROLLBACK; BEGIN; {statement}; {self.ending}")
                self.error = None
            except psycopg2.Error as error:
                self.error = str(error).strip()
            played += 1
        self.session.cursor.execute("ROLLBACK; RESET search_path")
        return played


@contextmanager
def copied(database):
    """Copies the database, for calls that would disturb later ones. Requires that it has no
    connections."""
    name = f"copy of {database}"
    boss = Session("copies", user="postgres", dbname="template1")
    boss.rows(f'CREATE DATABASE "{name}" TEMPLATE "{database}"')
    yield name
    boss.rows(f'DROP DATABASE "{name}" WITH (FORCE)')
