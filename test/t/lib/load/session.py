"""Sessions, and workers that use a session in turns."""

import random
import threading
import time
from collections import Counter
from contextlib import contextmanager

import psycopg2

# terminated, crashed, starting up; a connection that is cut has no code
DISCONNECTED = {None, "57P01", "57P02", "57P03"}


class Tally:
    """Counts of events, and reports of unexpected ones."""

    def __init__(self):
        self.counts = Counter()
        self.unexpected = []
        self.lock = threading.Lock()

    def count(self, what, times=1):
        with self.lock:
            self.counts[what] += times

    def report(self, who, what):
        with self.lock:
            self.unexpected.append(f"{who}: {what}")


class Session:
    """A connection in autocommit mode, with explicit transactions."""

    def __init__(self, name, **options):
        self.connection = psycopg2.connect(application_name=name, **options)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()

    def rows(self, sql, *values):
        self.cursor.execute(sql, values or None)
        return self.cursor.fetchall() if self.cursor.description else []

    def value(self, sql, *values):
        return self.rows(sql, *values)[0][0]

    def in_transaction(self):
        return self.connection.info.transaction_status != psycopg2.extensions.TRANSACTION_STATUS_IDLE

    @contextmanager
    def transaction(self, mode=""):
        """Commits at the end of the block, unless the block has ended the transaction."""
        self.rows(f"BEGIN {mode}")
        try:
            yield
        except psycopg2.Error:
            if not self.connection.closed:
                self.rows("ROLLBACK")
            raise
        if self.in_transaction():
            self.rows("COMMIT")


class Worker(threading.Thread):
    """Repeats its turn until the load is over, and reconnects when its session is lost."""

    role = "worker"

    def __init__(self, load, number):
        super().__init__(daemon=True)
        self.load = load
        self.number = number
        self.chance = random.Random()
        self.session = None

    def over(self):
        return self.load.writing_is_over.is_set()

    def happens(self, probability):
        return self.chance.random() < probability

    def pause(self, longest):
        time.sleep(self.chance.random() * longest)

    def run(self):
        while not self.over():
            try:
                if self.session is None:
                    self.session = Session(self.role)
                    self.set_up()
                self.turn()
            except psycopg2.Error as error:
                self.handle(error)
            except Exception as error:  # an error in this test
                self.load.tally.report(self.role, repr(error))
        self.hang_up()

    def handle(self, error):
        if error.pgcode in DISCONNECTED and self.load.disturbed:
            self.load.tally.count("lost connections")
            time.sleep(0.02)
        else:
            self.load.tally.report(self.role, f"{error.pgcode} {str(error).strip()}")
        self.hang_up()

    def hang_up(self):
        if self.session is not None:
            self.session.connection.close()
        self.session = None

    def set_up(self):
        pass
