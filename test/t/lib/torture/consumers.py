"""Clients that claim and settle, and make every mistake that a worker can make."""

import time

import psycopg2
from claimers import LEASE, LEASE_LOST, Batch
from clients import Client

TOKEN_UNKNOWN = "OB002"  # also if the batch was settled and its record pruned
NOT_IN_BATCH = "OB003"


class Consumer(Client):
    """Continues after the last write, and makes no mistakes once there are no writers."""

    def __init__(self, load, number, consumer):
        super().__init__(load, number)
        self.consumer = consumer

    def over(self):
        return self.load.claiming_is_over.is_set()

    def goes_wrong(self, probability):
        return not self.load.writing_is_over.is_set() and self.happens(probability)

    def wait(self):
        self.session.rows("CALL outbox_wait(%s, '100 ms', NULL)", self.consumer)


class Claimer(Consumer):
    role = "claimer"

    def __init__(self, load, number, consumer):
        super().__init__(load, number, consumer)
        # Claims are always durable; the acks of every second client are asynchronous.
        self.durable = number % 2 == 0
        self.unsettled = None  # a batch and ids that may have been acked

    def turn(self):
        if self.load.only_asynchronous:
            time.sleep(0.02)
        else:
            self.act()

    def set_up(self):
        super().set_up()
        self.ordered = self.session.value("SELECT ordered FROM outbox_consumers WHERE name = %s", self.consumer)

    def act(self):
        batch, ids = self.unsettled or (self.claim(), None)
        again, self.unsettled = self.unsettled is not None, None
        if batch is None:
            self.wait()
            return
        try:
            if again:
                self.load.tally.count("acks sent again")
                self.ack(batch, ids, again)
            else:
                self.work(batch)
        except psycopg2.Error as error:
            late = error.pgcode in (LEASE_LOST, TOKEN_UNKNOWN) and (again or batch.has_expired())
            if not late and not (again and error.pgcode == NOT_IN_BATCH):
                raise
            self.unsettled = None
            self.load.tally.count("leases lost")

    def claim(self):
        since = self.ledger.position
        self.session.rows("BEGIN")
        rows = self.session.rows(
            "SELECT lock_token, id, aggregate_id, locked_until, tracking_id, payload->>'event', payload->>'after',"
            " extract(epoch FROM locked_until)::float FROM outbox_claim(%s, %s, make_interval(secs => %s))",
            self.consumer, self.chance.choice([1, 20, 100, 300]), LEASE)
        if rows and self.goes_wrong(0.03):
            self.session.rows("ROLLBACK")
            self.load.tally.count("claims rolled back")
            return None
        self.session.rows("COMMIT")
        if not rows:
            return None
        until = rows[0][7]
        self.ledger.write("claim", consumer=self.consumer, token=rows[0][0], since=since, at=until - LEASE, until=until,
                          ordered=self.ordered, rows=[[row[1], row[4], row[5], row[6]] for row in rows])
        self.load.tally.count("batches")
        batch = Batch(rows)
        batch.events = {row[1]: row[5] for row in rows}
        batch.tracking_ids = {row[1]: row[4] for row in rows}
        return batch

    def work(self, batch):
        if self.goes_wrong(0.03):
            self.die()
            return
        if self.goes_wrong(0.01):
            time.sleep(LEASE + self.chance.random() * 0.3)
            self.load.tally.count("overslept")
        if self.goes_wrong(0.05):
            self.heartbeat(batch)
        if self.goes_wrong(0.04):
            self.settle(batch, batch.ids(), "release", "SELECT outbox_release(%s)", batch.token)
            return
        self.fail_some(batch)
        while batch.messages:
            ids = batch.ids() if self.happens(0.6) else batch.ids()[:self.chance.randint(1, len(batch.messages))]
            self.ack(batch, ids)
            if batch.messages and self.goes_wrong(0.03):
                self.die()
                return

    def die(self):
        self.load.tally.count("deaths")
        self.hang_up()

    def heartbeat(self, batch):
        # If the heartbeat is lost, the lease is only longer than the ledger says.
        batch.locked_until = self.session.value("SELECT outbox_heartbeat(%s, make_interval(secs => %s))", batch.token, LEASE)
        self.ledger.write("beat", consumer=self.consumer, token=batch.token, until=batch.locked_until.timestamp())
        self.load.tally.count("heartbeats")

    def ack(self, batch, ids, again=False):
        self.unsettled = (batch, ids)
        self.settle(batch, ids, "ack", "SELECT outbox_ack(%s, %s::bigint[])", batch.token, ids, again=again)
        self.unsettled = None

    def fail_some(self, batch):
        failing = [id for id in batch.ids() if self.goes_wrong(0.03)][:3]
        if not failing:
            return
        dead = self.happens(0.05)
        parked = batch.behind(failing) if self.ordered and not dead else []
        self.settle(batch, failing, "dead" if dead else "fail", "SELECT outbox_fail(%s, %s::bigint[], 'it happens', %s, %s)",
                    batch.token, failing, self.chance.choice([None, "0", "100 ms"]), dead, parked=parked)

    def settle(self, batch, ids, how, statement, *values, parked=(), again=False):
        """Enqueues an event in the transaction that settles."""
        with self.attempt() as attempt:
            count = self.session.value(statement, *values)
            if count != len(ids) and not again:
                self.load.tally.report(self.role, f"{self.consumer}: {count} instead of {len(ids)} for {how}")
            attempt.note("settles", [self.consumer, batch.token, how, [batch.events[id] for id in ids]])
            if parked:
                attempt.note("settles", [self.consumer, batch.token, "park", [batch.events[id] for id in parked]])
            if how == "ack" and self.load.inbox == self.consumer:
                self.handle_once(batch, ids)
            if self.goes_wrong(0.05):
                self.enqueue(attempt, "FollowUp", self.consumer)
            attempt.rolls_back = how == "ack" and self.goes_wrong(0.03)
        if attempt.rolls_back:
            return
        batch.drop([*ids, *parked])
        self.load.tally.count(how, len(ids))

    def handle_once(self, batch, ids):
        self.session.rows("INSERT INTO handled SELECT event FROM unnest(%s::text[], %s::uuid[]) m(event, tracking_id)"
                          " WHERE inbox_accept(%s, tracking_id)", [batch.events[id] for id in ids],
                          [batch.tracking_ids[id] for id in ids], self.consumer)


class Bookkeeper(Consumer):
    """Reads and settles in one asynchronous transaction, which a crash undoes completely or not
    at all."""

    role = "bookkeeper"
    durable = False

    def act(self):
        self.session.rows("BEGIN")
        self.session.rows("INSERT INTO consumed SELECT payload->>'event' FROM outbox_consume(%s, %s)",
                          self.consumer, self.chance.choice([10, 100, 1000]))
        if self.goes_wrong(0.05):
            self.session.rows("ROLLBACK")
            return
        self.session.rows("COMMIT")
        self.wait()
