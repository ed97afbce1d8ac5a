"""Does a session grow with its calls?"""

import psycopg2

KILOBYTES = """SELECT (SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts)::integer,
                      substring(pg_read_file('/proc/self/status') FROM 'RssAnon:\\s+(\\d+)')::integer"""


class Corpus:
    """One call of each kind: of a function that ended in some way."""

    WARM_UP = 4  # what was freed is not used again at once, so memory grows for a while

    def __init__(self):
        self.statements = {}

    def add(self, call, outcome, seconds):
        # The server itself forgets to free what it has compiled of a trigger function in PL/pgSQL that is called otherwise.
        if call.role == "postgres" and seconds < 0.05 and not call.routine.is_trigger:
            ending = outcome.errors[0].pgcode if outcome.errors else "accepted"
            self.statements.setdefault((call.routine.signature, ending), call.statement)

    def growth(self, session, rounds, everything):
        """Kilobytes of memory contexts and of memory, after so many rounds; and how many calls that were. Of each function one, or all."""
        chosen = self.statements if everything else {signature: self.statements[signature, ending] for signature, ending in sorted(self.statements, reverse=True)}
        statements = list(chosen.values())
        session.rows("SET plan_cache_mode = force_generic_plan")  # otherwise some are made later than others
        for _ in range(self.WARM_UP):
            self.play(session, statements)
        before = session.rows(KILOBYTES)[0]
        for _ in range(rounds):
            self.play(session, statements)
        after = session.rows(KILOBYTES)[0]
        return after[0] - before[0], after[1] - before[1], rounds * len(statements)

    @staticmethod
    def play(session, statements):
        for statement in statements:
            session.cursor.execute("BEGIN")
            try:
                session.cursor.execute(statement)
            except psycopg2.Error:
                pass
            session.cursor.execute("ROLLBACK; RESET search_path")
