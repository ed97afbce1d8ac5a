"""Generates calls and runs them."""

import itertools
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from judges import Digest, Judge
from memory import Corpus
from routines import Routine, discover
from session import Session
from states import COMMIT, ROLLBACK, STATES, State, perform
from values import Values, quoted


@dataclass
class Call:
    number: int
    routine: Routine
    role: str
    state: State
    arguments: list
    statement: str
    ending: str

    @property
    def has_odd_bytes(self):
        return "CAST(decode(" in self.statement

    def __str__(self):
        return f"call {self.number} by {self.role}, {self.state.name}, {self.ending}: {self.statement[:2000]}"


class Caller:
    # relative frequency of calls
    ROLES = {"postgres": 4, "admin": 3, "worker": 3, "tenant": 2, "nobody": 1}

    def __init__(self, options):
        self.options = options
        self.chance = random.Random(options.seed)
        self.events = [path.read_text() for path in sorted(options.events.iterdir())] if options.events else []
        self.values = Values(self.chance, {"events": self.events} if self.events else None)
        self.sessions = {role: self.connect(role) for role in self.ROLES}
        self.boss = Session("boss", user="postgres")
        self.database = self.boss.value("SELECT current_database()")
        self.routines = [routine for routine in discover(self.boss) if options.only in (None, routine.name)]
        self.digest = Digest(self.boss, options.files)
        self.judge = Judge(options.bytes)
        self.corpus = Corpus()
        self.deck = []
        self.called = Counter()
        self.happened = Counter()

    @staticmethod
    def connect(role, **options):
        return Session(f"calls {role}", user=role, options="-c statement_timeout=300ms -c client_min_messages=error -c client_encoding=UTF8", **options)

    def hang_up(self):
        for session in [*self.sessions.values(), self.boss]:
            session.connection.close()

    def numbers(self):
        end = time.monotonic() + (self.options.seconds or 0)
        return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count()) if self.options.seconds else range(self.options.calls)

    def run(self):
        self.send_whole(self.events)
        for number in self.numbers():
            if number % 200 == 0:
                self.look_around()
            self.turn(self.make_up(number))
        # The right to remove rows of the audit log is stored in the session until its transaction
        # ends.
        self.boss.rows("SELECT audit_record('x', 'x', 'x', 'x')")
        if not perform(self.sessions["postgres"], STATES[0], "DELETE FROM audit_log", COMMIT).errors:
            self.happened["audit logs that can be changed"] = 1

    def send_whole(self, documents):
        """Sends the unchanged documents of the corpus to each function that takes them, watching
        changes."""
        routines = [routine for routine in self.routines if [argument.name for argument in routine.arguments] == ["events"]]
        for document in documents:
            for routine in routines:
                argument = routine.arguments[0]
                value = f"{quoted(document)}::{argument.type.name}"
                self.turn(Call(0, routine, "postgres", STATES[0], [(argument, value)], f"SELECT {routine.name}({value})", COMMIT))
            self.happened["arrays of the corpus that were sent whole"] += len(routines) > 0

    def look_around(self):
        """Restores the fixtures, and collects existing ids, tokens and files for arguments."""
        self.boss.rows("SELECT prepare_for_calls()")
        self.values.present = {
            "bigint": [str(number) for number, in self.boss.rows(
                "(SELECT token FROM _outbox.leases ORDER BY token DESC LIMIT 10) UNION ALL (SELECT id FROM outbox_messages ORDER BY id DESC LIMIT 5)"
                " UNION ALL (SELECT token FROM idempotency_keys ORDER BY token DESC LIMIT 5) UNION ALL (SELECT id FROM audit_log ORDER BY id DESC LIMIT 3)")],
            "uuid": [f"'{id}'" for id, in self.boss.rows(
                "(SELECT tracking_id::text FROM outbox_messages ORDER BY id DESC LIMIT 5)"
                " UNION ALL (SELECT tracking_id::text FROM outbox_scheduled ORDER BY available_at DESC LIMIT 5)")],
        }
        self.values.files = [quoted(path.name) for path in sorted(Path(self.options.files).iterdir())]

    def next_routine(self):
        """Deals all functions in random order; functions with many arguments more often."""
        if not self.deck:
            self.deck = [r for r in self.routines for _ in range(1 + min(len(r.arguments), 4))]
            self.chance.shuffle(self.deck)
        return self.deck.pop()

    def make_up(self, number):
        routine = self.next_routine()
        role = self.chance.choices(list(self.ROLES), self.ROLES.values())[0]
        if routine.is_internal and self.chance.random() < 0.7:
            role = "postgres"  # other roles may not call internal functions
        states = [s for s in STATES if role == "postgres" or not s.superuser_only]
        wildness = self.chance.choice([0, 0.1, 0.3, 1])
        arguments = [(a, self.values.of(a, is_wild=self.chance.random() < wildness))
                     for a in routine.arguments if not a.is_optional or self.chance.random() < 0.5]
        call = Call(number, routine, role, self.chance.choice(states), arguments, self.statement(routine, arguments),
                    self.chance.choice([COMMIT, COMMIT, ROLLBACK]))
        # Internal functions may corrupt data if their arguments are random.
        if routine.is_internal or (call.has_odd_bytes and not self.options.bytes):
            call.ending = ROLLBACK
            call.state = call.state if call.state.begin else STATES[1]
        return call

    def statement(self, routine, arguments):
        given = ", ".join(f'"{argument.name}" => {value}' for argument, value in arguments)
        call = f"{routine.name}({given})"
        if routine.is_procedure:
            return f"CALL {call}"
        return self.chance.choice([f"SELECT {call}", f"SELECT * FROM {call}", f"SELECT * FROM {call} LIMIT 1", f"SELECT {call} FROM generate_series(1, 3)"])

    def sees(self, change):
        """Returns whether the judge sees a change by another session during a call that fails."""
        judge, self.judge = self.judge, Judge(self.options.bytes)
        self.turn(Call(0, self.routines[0], "nobody", STATES[0], [], "SELECT 1 / 0", COMMIT), meanwhile=change)
        judge, self.judge = self.judge, judge
        return judge.wrong["changes by calls that failed or were rolled back"]

    def turn(self, call, meanwhile=None):
        session = self.sessions[call.role]
        is_watched = self.options.watch and call.number % self.options.watch == 0
        before = self.digest.take() if is_watched else None
        start = time.monotonic()
        outcome = perform(session, call.state, call.statement, call.ending)
        seconds = time.monotonic() - start
        if meanwhile:
            self.boss.rows(meanwhile)
        self.called[call.routine.signature] += 1
        self.happened["calls"] += 1
        self.happened["refused" if outcome.errors else "accepted"] += 1
        self.judge.time(call, seconds)
        self.judge.errors(call, outcome)
        if session.connection.closed:
            self.judge.accuse("sessions that are gone", "", call)
            time.sleep(2)
            self.sessions[call.role] = self.connect(call.role)
            return
        self.judge.session(call, session)
        if is_watched and outcome.changes_nothing:
            self.happened["watched"] += 1
            self.judge.changes(call, before, self.digest.take())
        self.corpus.add(call, outcome, seconds)
        if not outcome.errors:
            self.values.remember(call.arguments)
