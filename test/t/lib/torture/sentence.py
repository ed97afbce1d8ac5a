"""The final checks, after everything is settled."""

import json
import re


class Sentence:
    def __init__(self, judge, truth, kafka_file):
        self.accounts = judge.accounts
        self.judge = judge
        self.truth = truth
        self.kafka_file = kafka_file
        self.happened = set(truth.column("SELECT attempt FROM happened"))
        self.cancelled = judge.cancelled()
        self.dead = truth.dead_letters()
        self.there = {}  # event -> id, tracking id
        self.counts = {}

    def blame(self, promise, what):
        self.accounts.blame(promise, what)

    def pass_all(self):
        self.read_events()
        self.read_kafka()
        self.check_attempts()
        self.check_events()
        self.check_acks()
        self.check_unproven()
        self.check_keys()
        self.check_audit()
        self.check_deliveries()
        return self.counts

    def read_events(self):
        """An event is in the log or the archive, once; or in a file of cold storage after it has
        left both."""
        stored, cold = self.truth.log_and_archive(), self.truth.cold_storage()
        event_of = {}
        for id, tracking_id, event in stored:
            if event in self.there:
                self.blame("twice", f"{event} is there as {id} and {self.there[event][0]}")
            self.there[event] = (int(id), tracking_id)
        for id, tracking_id, event in cold:
            if self.there.setdefault(event, (int(id), tracking_id)) != (int(id), tracking_id):
                self.blame("identity", f"{event} is in cold storage as {id} {tracking_id}")
        for event, (id, _) in self.there.items():
            if event_of.setdefault(id, event) != event:
                self.blame("identity", f"{id} is {event} and {event_of[id]}")
        self.counts["events"] = len(self.there)
        self.counts["events in cold storage"] = len(self.there) - len(stored)
        self.counts["events in the archive"] = self.truth.session.value("SELECT count(*) FROM outbox_messages_archive")

    def read_kafka(self):
        self.published = set()
        records = 0
        with open(self.kafka_file, encoding="utf-8") as file:
            for line in file:
                key, value, headers = line.rstrip("\n").split("\t")
                event = json.loads(value)
                records += 1
                self.accounts.see("stream", event["event"], re.search(r"(?:^|,)ce_id=([^,]+)", headers)[1])
                if event.get("after") and event["after"] not in self.published:
                    self.accounts.suspects.append(("stream", event["event"], event["after"]))
                self.published.add(event["event"])
        self.counts["repeats in Kafka"] = records - len(self.published)
        self.counts["repeats by HTTP"] = self.judge.accepted_again

    # Returns whether the attempt committed. For an autocommitted statement only its events show it.
    def came_true(self, account):
        if account.alone:
            return any(event["event"] in self.there for event in account.events)
        return account.name in self.happened

    def check_attempts(self):
        unknown = unknown_but_true = taken_back = 0
        for account in self.accounts.attempts.values():
            came_true = self.came_true(account)
            if account.state == "undone" and came_true:
                self.blame("phantom", f"{account.name} was refused, and is there")
            if account.must_be() and not came_true and not self.is_duplicate(account):
                self.blame("lost", account.name)
            if account.state in ("lost", "tried"):
                unknown += 1
                unknown_but_true += came_true
                for what in account.late if came_true else ():
                    self.blame("fenced", what)
            taken_back += account.state == "done" and not account.durable and not came_true and not self.is_duplicate(account)
            self.check_whole(account, came_true)
        self.counts |= {"commits without an answer": unknown, "of which happened": unknown_but_true,
                        "asynchronous commits that crashes took back": taken_back}

    # Another client had the key.
    def is_duplicate(self, account):
        return account.alone and all("key" in event for event in account.events)

    def check_whole(self, account, came_true):
        for event in account.events:
            name = event["event"]
            if name in self.there and not came_true or name not in self.there and came_true and "key" not in event and name not in self.cancelled:
                self.blame("torn", f"{name} of {account.name}, which {'happened' if came_true else 'did not happen'}")
        for event in account.more.get("cancels", ()) if came_true else ():
            if event in self.there or event in self.accounts.seen:
                self.blame("cancelled", f"{event} by {account.name}")

    def check_events(self):
        accounts = self.accounts
        for event, identity in self.there.items():
            if event in accounts.never or event not in accounts.attempt_of:
                self.blame("phantom", f"{event} is in the log")
            known = accounts.identity.get(event)
            if known and (known[1] != identity[1] or known[0] not in (None, identity[0])):
                self.blame("identity", f"{event} is there as {identity}, and was seen as {known}")
        for event, by in accounts.seen.items():
            if event not in self.there:
                self.blame("taken back", f"{by} got {event}")

    # Commits whose answer was lost: the ledger alone cannot judge them. Their backends had ended
    # before their clients noticed.
    def check_acks(self):
        for consumer, handled in self.accounts.handled.items():
            for event, handling in handled.items():
                for ack in handling.acks:
                    if ack.state == "lost" and ack.name in self.happened and ack.ended_at <= handling.since:
                        self.blame("again", f"{consumer}: {event} by token {handling.token}, after {ack.name} had acked it")

    def check_unproven(self):
        for promise, what, attempts in self.accounts.unproven:
            if not any(attempt.name in self.happened for attempt in attempts):
                self.blame(promise, what)
        self.counts["settled asynchronously or without an answer, and relied on"] = len(self.accounts.unproven)

    def check_keys(self):
        keys = {event["key"]: event["event"] for account in self.accounts.attempts.values() if account.must_be()
                for event in account.events if "key" in event}
        enqueued = {event["key"] for name in self.there for event in self.accounts.attempt_of[name].events
                    if event["event"] == name and "key" in event} if not self.accounts.wrong["phantom"] else keys
        for key in keys.keys() - enqueued:
            self.blame("key", f"{key} was used, and nothing is there")
        effects = dict(self.truth.session.rows("SELECT key, event FROM effects"))
        for key, event in self.accounts.told.items():
            if effects.get(key) != event:
                self.blame("key", f"{key} answered {event}, but did {effects.get(key)}")
        for account in self.accounts.attempts.values():
            for key, event in account.more.get("answers", ()):
                if (effects.get(key) == event) != (account.name in self.happened):
                    self.blame("key", f"{account.name} and {key} disagree")
        self.counts |= {"dedup keys": len(keys), "idempotency keys": len(effects)}

    def check_audit(self):
        wanted = {name for account in self.accounts.attempts.values() if account.name in self.happened
                  for name in account.more.get("audit", ())}
        recorded = self.truth.column("SELECT entity_id FROM audit_log")
        chained = self.truth.column("SELECT entity_id FROM audit_log WHERE id IN (SELECT id FROM _outbox.audit_chain)")
        if len(recorded) != len(set(recorded)):
            self.blame("audit", "a row is there twice")
        for name in wanted ^ set(recorded):
            self.blame("audit", f"the row of {name} {'is missing' if name in wanted else 'should not be'}")
        for name in set(recorded) - set(chained):
            self.blame("audit", f"the row of {name} is not in the chain")
        self.counts["audit rows"] = len(recorded)

    def settled_by(self):
        """Yields for each consumer the events that it has settled."""
        for consumer, handled in self.accounts.handled.items():
            yield consumer, {event for event, handling in handled.items() if any(ack.name in self.happened for ack in handling.acks)}
        yield "books", set(self.truth.column("SELECT event FROM consumed"))
        yield "hook", self.judge.accepted
        yield "stream", self.published
        yield "the inbox", set(self.truth.column("SELECT event FROM handled")) | self.dead.get("plain", set())

    def check_deliveries(self):
        for consumer, settled in self.settled_by():
            for event in self.there.keys() - settled - self.dead.get(consumer, set()):
                self.blame("undelivered", f"{consumer}: {event}")
        self.counts["dead letters"] = sum(len(events) for events in self.dead.values())
        self.counts["deliveries to workers"] = self.accounts.counts["claimed"]
        self.counts["repeats to workers"] = self.accounts.counts["claimed again"]
