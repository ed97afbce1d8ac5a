"""Workers that claim and settle, and make every mistake that a worker can make."""

import datetime
import time

import psycopg2

from session import Worker

LEASE = 1.0  # seconds; the shortest lease that is allowed

LEASE_LOST = "OB001"
SERIALIZATION_FAILURE = "40001"


class Batch:
    """The batch that a worker has claimed."""

    def __init__(self, rows):
        self.token = rows[0][0]
        self.locked_until = rows[0][3]
        self.messages = [(row[1], row[2]) for row in rows]  # id, aggregate

    def ids(self):
        return [message[0] for message in self.messages]

    def drop(self, ids):
        self.messages = [message for message in self.messages if message[0] not in ids]

    def behind(self, ids):
        """Returns the messages that are blocked if these fail."""
        failed = [message for message in self.messages if message[0] in ids]
        return [id for id, aggregate in self.messages
                if id not in ids and any(aggregate == a and id > i for i, a in failed)]

    def has_expired(self):
        return datetime.datetime.now(datetime.timezone.utc) >= self.locked_until


class Claimer(Worker):
    """Claims and settles, and makes every mistake that a worker can make."""

    role = "claimer"

    def __init__(self, load, number, consumer):
        super().__init__(load, number)
        self.consumer = consumer

    def over(self):
        return self.load.claiming_is_over.is_set()

    def goes_wrong(self, probability):
        return self.happens(probability * self.load.trouble)

    def set_up(self):
        self.ordered = self.session.value("SELECT ordered FROM outbox_consumers WHERE name = %s", self.consumer)

    def turn(self):
        batch = self.claim()
        if batch is None:
            self.wait()
            return
        try:
            self.work(batch)
        except psycopg2.Error as error:
            if error.pgcode != LEASE_LOST or not batch.has_expired():
                raise
            self.load.tally.count("leases lost")

    def wait(self):
        self.session.rows("CALL outbox_wait(%s, '100 ms', NULL)", self.consumer)

    def claim(self):
        mode = self.chance.choices(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"], [6, 1, 1])[0]
        try:
            with self.session.transaction(f"ISOLATION LEVEL {mode}"):
                # The snapshot of the transaction, and sometimes of the statement, is older than the
                # claim.
                if mode != "READ COMMITTED":
                    self.session.rows("SELECT FROM pg_class LIMIT 1")
                    self.pause(0.01)
                self.follow_up()
                delay = self.chance.random() * 0.02 if self.happens(0.3) else 0
                rows = self.session.rows(
                    "INSERT INTO claims SELECT %s, lock_token, id, tracking_id, aggregate_id, attempts,"
                    " locked_until - make_interval(secs => %s), locked_until"
                    " FROM (SELECT count(pg_sleep(%s))::integer AS one) delay,"
                    " LATERAL outbox_claim(%s, one * %s, make_interval(secs => %s))"
                    " RETURNING token, id, aggregate, locked_until",
                    self.consumer, LEASE, delay, self.consumer, self.chance.choice([1, 3, 10, 40]), LEASE)
                if self.happens(0.3):
                    self.pause(0.005)
                if rows and self.goes_wrong(0.03):
                    self.session.rows("ROLLBACK")
                    self.load.tally.count("claims rolled back")
                    return None
        except psycopg2.Error as error:
            if error.pgcode != SERIALIZATION_FAILURE or mode == "READ COMMITTED":
                raise
            self.load.tally.count("serialization failures")
            return None
        if not rows:
            return None
        self.load.tally.count("batches")
        return Batch(rows)

    def work(self, batch):
        if self.goes_wrong(0.03):
            self.die()
            return
        if self.goes_wrong(0.02):
            self.load.tally.count("overslept")
            time.sleep(LEASE + self.chance.random() * 0.3)
        if self.goes_wrong(0.05):
            self.heartbeat(batch)
        if self.goes_wrong(0.05):
            self.release(batch)
            return
        self.fail_some(batch)
        if self.goes_wrong(0.02):
            self.die()
            return
        while batch.messages:
            self.ack_some(batch)
            if batch.messages and self.goes_wrong(0.03):
                self.die()
                return

    def die(self):
        self.load.tally.count("deaths")
        self.hang_up()

    def follow_up(self):
        """Enqueues an event in the transaction that claims or acks."""
        if self.happens(0.1):
            self.session.rows("INSERT INTO written SELECT outbox_enqueue('FollowUp', %s, 'Followed', '1'), %s", self.consumer, self.consumer)
            self.load.tally.count("follow ups")

    def record(self, batch, ids, how):
        self.session.rows("INSERT INTO endings SELECT %s, %s, id, %s FROM unnest(%s::bigint[]) id",
                          self.consumer, batch.token, how, ids)

    def heartbeat(self, batch):
        with self.session.transaction():
            (batch.locked_until,), = self.session.rows(
                "INSERT INTO heartbeats SELECT %s, outbox_heartbeat(%s, make_interval(secs => %s)) RETURNING locked_until",
                batch.token, batch.token, LEASE)
        self.load.tally.count("heartbeats")

    def release(self, batch):
        with self.session.transaction():
            count = self.session.value("SELECT outbox_release(%s)", batch.token)
            self.expect(count, len(batch.messages), "released")
            self.record(batch, batch.ids(), "released")
        self.load.tally.count("released", count)

    def fail_some(self, batch):
        """Fails messages in random order: also one that is blocked behind unsettled messages."""
        failing = [id for id in batch.ids() if self.goes_wrong(0.04)]
        if self.goes_wrong(0.15):
            _, unlucky = self.chance.choice(batch.messages)
            failing += [id for id, aggregate in batch.messages if aggregate == unlucky and id not in failing]
        self.chance.shuffle(failing)
        while failing:
            ids = [failing.pop()] if self.happens(0.5) else [failing.pop() for _ in failing[:3]]
            ids = [id for id in ids if id in batch.ids()]
            if not ids:
                continue
            retry_in = self.chance.choice([None, "0", "100 ms", "300 ms"])
            dead = self.happens(0.05)
            with self.session.transaction():
                count = self.session.value(
                    "SELECT outbox_fail(%s, %s::bigint[], 'it happens', %s, %s)", batch.token, ids, retry_in, dead)
                self.expect(count, len(ids), "failed")
                dead_ids = [row[0] for row in self.session.rows(
                    "SELECT id FROM dead WHERE consumer = %s AND id = ANY (%s)", self.consumer, ids)]
                failed = [id for id in ids if id not in dead_ids]
                parked = [id for id in batch.behind(failed) if id not in dead_ids] if self.ordered else []
                for how, which in ("dead", dead_ids), ("failed", failed), ("parked", parked):
                    self.record(batch, which, how)
            batch.drop(ids + parked)
            self.load.tally.count("failed", len(ids))
            self.load.tally.count("parked", len(parked))

    def ack_some(self, batch):
        """Acks from the front, because the events of an aggregate are handled in order."""
        everything = self.happens(0.6)
        ids = batch.ids() if everything else batch.ids()[:self.chance.randint(1, len(batch.messages))]
        with self.session.transaction():
            if self.happens(0.2):
                self.session.rows("SAVEPOINT s")
                self.session.rows("SELECT outbox_ack(%s, %s::bigint[])", batch.token, ids)
                self.session.rows("ROLLBACK TO s")
            count = self.session.value("SELECT outbox_ack(%s, %s::bigint[])", batch.token, None if everything else ids)
            self.expect(count, len(ids), "acked")
            self.record(batch, ids, "acked")
            self.follow_up()
            if self.goes_wrong(0.05):
                self.session.rows("ROLLBACK")
                return
        batch.drop(ids)
        self.load.tally.count("acked", len(ids))

    def expect(self, count, expected, what):
        if count != expected:
            self.load.tally.report(self.role, f"{self.consumer}: {count} {what} instead of {expected}")


class Drainer(Claimer):
    """Claims until everything is settled."""

    def follow_up(self):
        pass

    def wait(self):
        super().wait()
        if self.number == 0 and not self.session.value("SELECT EXISTS (SELECT FROM unsettled)"):
            self.load.claiming_is_over.set()
