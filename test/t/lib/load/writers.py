"""Workers that write: every course that a transaction with events can take."""

import time

from session import Worker

AGGREGATES = [f"order-{i:02}" for i in range(12)]
SLOW_AGGREGATES = [f"slow-{i}" for i in range(6)]


class Writer(Worker):
    """Changes aggregates and enqueues in one transaction, which commits, rolls back or fails."""

    role = "writer"
    aggregates = AGGREGATES

    def set_up(self):
        # Every second writer commits asynchronously; consumers must never have seen a lost commit.
        self.session.rows(f"SET synchronous_commit = {'on' if self.number % 2 else 'off'}")

    def turn(self):
        self.pause(self.load.rest)
        if self.happens(0.25):
            self.enqueue_alone()
            return
        with self.session.transaction():
            # Locked in one order, which avoids deadlocks.
            for aggregate in sorted(self.chance.sample(self.aggregates, self.chance.choice([1, 1, 2]))):
                self.change(aggregate)
                if self.happens(0.3):
                    self.change_in_savepoint(aggregate)
                if self.happens(0.3):
                    self.pause(0.01)
            self.end()

    def change(self, aggregate):
        if self.happens(0.5):
            self.session.rows("SELECT FROM aggregates WHERE id = %s FOR UPDATE", aggregate)
        version = self.session.value("UPDATE aggregates SET version = version + 1 WHERE id = %s RETURNING version", aggregate)
        self.session.rows("INSERT INTO written SELECT outbox_enqueue('Order', %s, 'Changed', to_jsonb(%s), tenant_id => abs(hashtext(%s) %% 5)), %s, %s",
                          aggregate, version, aggregate, aggregate, version)
        self.load.tally.count("enqueued")

    def change_in_savepoint(self, aggregate):
        self.session.rows("SAVEPOINT s")
        self.change(aggregate)
        self.session.rows("ROLLBACK TO s" if self.happens(0.5) else "RELEASE s")
        if self.happens(0.3):
            self.change(aggregate)

    def enqueue_alone(self):
        """An enqueue is the first statement with an xid, and is not ordered by an aggregate's
        row lock."""
        name = f"alone-{self.number}"
        kind = self.chance.choice(["one", "one", "one", "many", "insert"])
        if kind == "one":
            self.session.rows("INSERT INTO written SELECT outbox_enqueue('Alone', %s, 'Happened', '1'), %s", name, name)
        elif kind == "many":
            self.session.rows(
                "INSERT INTO written SELECT unnest(outbox_enqueue_many((SELECT jsonb_agg(jsonb_build_object('aggregate_type', 'Alone',"
                " 'aggregate_id', %s, 'event_type', 'Happened', 'payload', i)) FROM generate_series(1, 5) i))), %s", name, name)
        else:
            self.session.rows(
                "WITH event AS (INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)"
                " VALUES ('Alone', %s, 'Happened', '1') RETURNING tracking_id) INSERT INTO written SELECT tracking_id, %s FROM event", name, name)
        self.load.tally.count("enqueued alone")

    def end(self):
        if self.happens(0.15):
            self.session.rows("ROLLBACK")
            self.load.tally.count("rolled back")


class SlowWriter(Writer):
    """Keeps transactions open for about half a second, with events at their beginning and end."""

    aggregates = SLOW_AGGREGATES

    def turn(self):
        with self.session.transaction():
            self.enqueue_alone()
            aggregate = self.chance.choice(self.aggregates)
            self.change(aggregate)
            time.sleep(0.3 + self.chance.random() * 0.4)
            self.change(aggregate)
            self.end()


class PreparingWriter(Writer):
    """Prepares transactions and ends them later, from any session."""

    aggregates = SLOW_AGGREGATES
    may_have_prepared = True

    def over(self):
        # Other writers wait for the aggregate's row lock.
        return super().over() and not self.may_have_prepared

    def turn(self):
        self.end_prepared()
        if super().over():
            return
        self.may_have_prepared = True
        with self.session.transaction():
            self.change(self.chance.choice(self.aggregates))
            self.session.rows(f"PREPARE TRANSACTION '{self.number}-{time.monotonic_ns()}'")
        self.pause(0.2)
        self.end_prepared()

    def end_prepared(self):
        for (name,) in self.session.rows("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", f"{self.number}-%"):
            way = "COMMIT" if self.happens(0.7) else "ROLLBACK"
            self.session.rows(f"{way} PREPARED '{name}'")
            self.load.tally.count(f"{way.lower()} prepared")
        self.may_have_prepared = False


class XidHolder(Worker):
    """Holds back the xmin horizon with a transaction that has no events."""

    role = "holder"

    def set_up(self):
        self.session.rows("BEGIN")
        self.session.rows("SELECT pg_current_xact_id()")

    def turn(self):
        time.sleep(0.1)
        self.session.rows("SELECT 1")
