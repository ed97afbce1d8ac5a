"""Compares the ledger with the database, the receiver and Kafka."""

import json

from accounts import PROMISES, Accounts
from ledger import Tail
from sentence import Sentence
from session import Session
from truth import FLEETING, Truth

EXAMPLES = 5


class Judge:
    def __init__(self, ledger, record, session=None):
        self.session = session  # reads in this session's transaction, if given
        self.accounts = Accounts(ledger)
        self.record = Tail(record)
        self.accepted = set()
        self.accepted_again = 0
        self.horizons = [0, 0]
        self.chain = {}

    def read_on(self):
        # The receiver's record first: its events were in the ledger before they were sent.
        record = list(self.record.lines())
        self.accounts.read_on()
        for line in record:
            self.take_request(json.loads(line))

    def take_request(self, request):
        event = json.loads(request["body"])
        self.accounts.see("hook", event["event"], request["id"])
        if event.get("after") and event["after"] not in self.accepted:
            self.accounts.suspects.append(("hook", event["event"], event["after"]))
        if request["answer"].startswith("2"):
            self.accepted_again += event["event"] in self.accepted
            self.accepted.add(event["event"])

    def truth(self):
        return Truth(self.session or Session("judge"))

    def before(self):
        """Before a crash: checks the state that a crash hides, and nothing else, as the crash
        must come at any moment."""
        truth = self.truth()
        for promise, what in truth.violations(FLEETING):
            self.accounts.blame(promise, what)
        truth.close()
        return self.verdict()

    def recovered(self):
        """While clients run: everything in the ledger must be in the database, which may be
        ahead."""
        self.read_on()
        truth = self.truth()
        self.check_fresh(truth)
        self.check_database(truth)
        truth.close()
        return self.verdict()

    def check_fresh(self, truth):
        accounts = self.accounts
        fresh, accounts.fresh = accounts.fresh, []
        # A transaction may be older than the last check. If it is older than the last two, look it
        # up.
        low, self.horizons = self.horizons[0], [self.horizons[1], truth.last_id()]
        present = truth.events_above(low)
        for event in present:
            if event in accounts.never:
                accounts.blame("phantom", f"{event} is in the log")
        wanted = {}
        for what in fresh:
            if isinstance(what, str):
                wanted[what] = ("taken back", f"{accounts.seen[what]} got {what}")
            else:
                for event in what.events:
                    if "key" not in event:
                        wanted[event["event"]] = ("lost", f"{event['event']} of {what.name}")
        missing = {event for event in wanted if event not in present and not self.is_old(event)}
        if missing:
            missing -= truth.find(missing)
            self.read_on()
        for event in missing - self.cancelled():
            accounts.blame(*wanted[event])

    def is_old(self, event):
        account = self.accounts.attempt_of.get(event)
        return account and any(e["event"] == event and "old" in e for e in account.events)

    def cancelled(self):
        return {event for account in self.accounts.attempts.values() if account.state != "undone"
                for event in account.more.get("cancels", ())}

    def check_database(self, truth):
        for promise, what in truth.violations():
            self.accounts.blame(promise, what)
        self.chain, broken = truth.verify_audit(self.chain)
        for what in broken:
            self.accounts.blame("audit", what)
        if self.accounts.suspects:
            dead = truth.dead_letters()
            for consumer, event, after in self.accounts.suspects:
                if after not in dead.get(consumer, ()):
                    self.accounts.blame("disorder", f"{consumer}: {event} before {after}")
            self.accounts.suspects = []

    def verdict(self):
        return {"wrong": {sentence: [len(self.accounts.wrong[promise]), *self.accounts.wrong[promise][:EXAMPLES]]
                          for promise, sentence in PROMISES.items()}}

    def over(self, kafka_file):
        """Checks everything, after all clients have stopped."""
        self.read_on()
        truth = self.truth()
        self.check_database(truth)
        counts = Sentence(self, truth, kafka_file).pass_all()
        self.check_database(truth)
        truth.close()
        return {**self.verdict(), "counts": counts}
