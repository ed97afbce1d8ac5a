"""States of a session at a call, and the end of its transaction."""

from dataclasses import dataclass

import psycopg2

COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"


@dataclass
class State:
    name: str
    begin: str = None  # None: autocommit
    savepoint: bool = False
    prepares: bool = False
    changes_nothing: bool = False
    superuser_only: bool = False


STATES = [
    State("autocommit"),
    State("in a transaction", "BEGIN"),
    State("READ ONLY", "BEGIN READ ONLY", changes_nothing=True),
    State("REPEATABLE READ", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1"),
    State("SERIALIZABLE", "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT FROM pg_class LIMIT 1"),
    State("after a savepoint", "BEGIN; SAVEPOINT outer_one; SAVEPOINT s", savepoint=True),
    State("to be prepared", "BEGIN", prepares=True),
    # The other roles may not set it; theirs comes from ALTER ROLE.
    State("for a tenant", "BEGIN; SET LOCAL outbox.tenant_id = '1'", superuser_only=True),
    State("with the catalog enforced", "BEGIN; SET LOCAL outbox.catalog_mode = 'enforce'; SET LOCAL outbox.pii_mode = 'refuse'", superuser_only=True),
]


class Outcome:
    """The result of a call: errors of the call and of its transaction's end, and whether it
    committed."""

    def __init__(self):
        self.errors = []
        self.lasts = False

    @property
    def changes_nothing(self):
        return bool(self.errors) or not self.lasts


def perform(session, state, statement, ending):
    """Runs the statement and always leaves the session outside of a transaction."""
    outcome = Outcome()

    def attempt(sql):
        try:
            session.cursor.execute(sql)
            return True
        except psycopg2.Error as error:
            outcome.errors.append(error)
            return False

    if state.begin is None:
        outcome.lasts = True
        attempt(statement)
        return outcome
    session.cursor.execute(state.begin)
    if not attempt(statement):
        if session.connection.closed:
            return outcome
        if not state.savepoint:
            session.cursor.execute(ROLLBACK)
            return outcome
        session.cursor.execute("ROLLBACK TO s")
    elif state.savepoint:
        session.cursor.execute("RELEASE s")
    outcome.lasts = ending == COMMIT and not state.changes_nothing
    if not state.prepares:
        attempt(ending)
    elif attempt("PREPARE TRANSACTION 'a call'"):
        attempt(f"{ending} PREPARED 'a call'")
    # COMMIT may have been canceled before it began.
    if not session.connection.closed and session.in_transaction():
        session.cursor.execute(ROLLBACK)
    return outcome
