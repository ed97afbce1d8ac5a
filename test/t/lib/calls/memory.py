"""Does a session grow with its calls?"""

import time

import psycopg2

# What the contexts of the server have given out, and what malloc() has besides them. Plans come and go: a statement that is not given back shows by
# its source. And the server never forgets a type, not even that of a table that was rolled back.
BYTES = """SELECT sum(used_bytes) FILTER (WHERE name NOT IN ('CachedPlan', 'Type information cache'))::bigint, memory_given_out() - sum(total_bytes)::bigint
             FROM pg_backend_memory_contexts"""


class Meter:
    """How much memory a session has. If asked, without what the server keeps for a while: caches of its catalogs, and statistics that wait to be told."""

    def __init__(self, session, contexts_only):
        self.session = session
        self.kinds = 1 if contexts_only else 2

    def read(self, is_thorough):
        if is_thorough:
            self.session.rows("SELECT memory_forget(), pg_stat_force_next_flush()")
            self.session.rows(BYTES)  # what it takes to ask is there from now on
        return self.session.rows(BYTES)[0][:self.kinds]


class Corpus:
    """One call of each kind: of a function that ended in some way."""

    WARM_UP = 4
    LOOKS = 4
    AT_LEAST = 10  # calls, from the second look on: what comes once is much for one that is slow
    LIMIT = 64  # bytes per call: those that lose nothing have some 24 more once in a while

    def __init__(self):
        self.statements = {}

    def add(self, call, outcome, seconds):
        # The server itself forgets to free what it has compiled of a trigger function in PL/pgSQL that is called otherwise.
        if call.role == "postgres" and seconds < 0.05 and not call.routine.is_trigger:
            ending = outcome.errors[0].pgcode if outcome.errors else "accepted"
            self.statements.setdefault((call.routine.signature, ending), call.statement)

    def leaks(self, session, planted, times, contexts_only):
        """Those of which each call takes memory and does not give it back, and how many bytes that is."""
        statements = self.statements | {(statement, "planted"): statement for statement in planted}
        session.rows("SET plan_cache_mode = force_generic_plan")  # otherwise some are made later than others
        session.rows("SET jit = off")  # the compiler keeps memory as it likes
        meter = Meter(session, contexts_only)
        found = {}
        for kind, statement in sorted(statements.items()):
            play(session, statement, self.WARM_UP)
            # What fills once is no leak, and what has shrunk may hide one.
            looks = [self.growth(meter, statement, times)]
            while abs(looks[-1]) > self.LIMIT and len(looks) < self.LOOKS:
                looks.append(self.growth(meter, statement, times, is_thorough=True))
            if looks[-1] > self.LIMIT:
                found[kind] = looks[-1]
        return found

    def growth(self, meter, statement, times, is_thorough=False):
        before = meter.read(is_thorough)
        played = play(meter.session, statement, times, self.AT_LEAST if is_thorough else 1)
        after = meter.read(is_thorough)
        return max((now - then for now, then in zip(after, before)), key=abs) / played


def play(session, statement, times, at_least=1):
    """So many times, or for as many milliseconds. In one round trip each: what it has left is rolled back by the next."""
    end = time.monotonic() + times / 1000
    played = 0
    while played < at_least or (played < times and time.monotonic() < end):
        try:
            session.cursor.execute("ROLLBACK; BEGIN; " + statement)
        except psycopg2.Error:
            pass
        played += 1
    session.cursor.execute("ROLLBACK; RESET search_path")
    return played
