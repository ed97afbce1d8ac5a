"""The state according to the ledger, and violations visible in the ledger alone."""

import json

from ledger import Tail

PROMISES = {
    "phantom": "no event of a transaction without a commit is in the log or was delivered",
    "lost": "every synchronous commit is in the database",
    "torn": "a transaction has all its events and changes, or none",
    "taken back": "every delivered event is in the database after each crash",
    "identity": "ids, tracking ids and tokens are unique",
    "undelivered": "every event is acked or a dead letter for every consumer and sink",
    "archived": "no event in the archive is unread or in a live lease",
    "again": "no acked message was delivered again",
    "shared": "no message was in two live leases of a consumer",
    "fenced": "a token settled no message that another token had taken over",
    "changed": "no row of the log was updated or deleted",
    "disorder": "ordered consumers and sinks got each aggregate in the order of its commits",
    "twice": "work in the consumer's transaction, or behind the inbox, was done once",
    "key": "a dedup key was enqueued once, and an idempotency key executed once",
    "audit": "the audit log has every committed row, and its chain is intact",
    "cancelled": "no cancelled event is in the log or was delivered",
}


class Account:
    """An attempt of a transaction, as far as its client knows."""

    __slots__ = ("name", "durable", "alone", "events", "more", "late", "state", "ended_at")

    def __init__(self, line):
        self.name = line["attempt"]
        self.durable = line["durable"]
        self.alone = "alone" in line
        self.events = line["events"]
        self.more = {what: line[what] for what in ("audit", "cancels", "answers", "settles") if what in line}
        self.late = []  # messages that another token had at that time: a commit would be a violation
        self.state = "tried"
        self.ended_at = None

    def must_be(self):
        return self.durable and self.state == "done"


class Handling:
    """The latest delivery of a message to a consumer."""

    __slots__ = ("token", "since", "returns", "acks", "deaths")

    def __init__(self, token, since, before):
        self.token = token
        self.since = since
        self.returns = []  # attempts by this token
        self.acks = before.acks if before else []  # attempts of this delivery and earlier ones
        self.deaths = before.deaths if before else []


class Accounts:
    def __init__(self, path):
        self.tail = Tail(path)
        self.wrong = {promise: [] for promise in PROMISES}
        self.counts = {"attempts": 0, "claimed": 0, "claimed again": 0}
        self.attempts = {}
        self.attempt_of = {}   # event -> account
        self.never = set()
        self.identity = {}     # event -> id (None: not known), tracking id
        self.seen = {}         # event -> first consumer
        self.handled = {}      # consumer -> event -> Handling
        self.until = {}        # token -> end of its lease
        self.told = {}         # idempotency key -> event
        self.suspects = []     # consumer, event, the event before it: right if that is a dead letter
        self.unproven = []     # promise, violation unless one of these attempts happened
        self.fresh = []        # accounts and sightings since the last query

    def blame(self, promise, what):
        self.wrong[promise].append(what)

    def read_on(self):
        for text in self.tail.lines():
            line = json.loads(text)
            getattr(self, f"take_{line['kind']}")(line)

    def take_try(self, line):
        account = self.attempts[line["attempt"]] = Account(line)
        self.counts["attempts"] += 1
        for event in account.events:
            self.attempt_of[event["event"]] = account
        for consumer, token, how, events in account.more.get("settles", ()):
            for event in events:
                handling = self.handled[consumer][event]
                if handling.token != token:
                    account.late.append(f"{consumer}: {event} by token {token} in {account.name}, though token {handling.token} had it")
                self.settle(handling, account, token, how)

    def settle(self, handling, account, token, how):
        if how == "ack":
            handling.acks = [*handling.acks, account]
        elif how == "dead":
            handling.deaths = [*handling.deaths, account]
        if handling.token == token:
            handling.returns.append(account)

    def take_done(self, line):
        self.end(line, "done")

    def take_undone(self, line):
        self.end(line, "undone")

    def take_lost(self, line):
        self.end(line, "lost")

    def end(self, line, state):
        account = self.attempts[line["attempt"]]
        account.state = state
        account.ended_at = line["position"]
        for what in account.late if state == "done" else ():
            self.blame("fenced", what)
        if account.must_be():
            self.fresh.append(account)

    def take_never(self, line):
        self.never.update(line["events"])

    def take_told(self, line):
        before = self.told.setdefault(line["key"], line["event"])
        if before != line["event"]:
            self.blame("key", f"{line['key']} answered {before}, then {line['event']}")

    def take_beat(self, line):
        self.until[line["token"]] = line["until"]

    def take_claim(self, line):
        consumer, token = line["consumer"], line["token"]
        if token in self.until:
            self.blame("identity", f"token {token} was given out twice")
        self.until[token] = line["until"]
        handled = self.handled.setdefault(consumer, {})
        self.counts["claimed"] += len(line["rows"])
        in_hand = set()
        for id, tracking_id, event, after in line["rows"]:
            self.see(consumer, event, tracking_id, id)
            before = handled.get(event)
            if before:
                self.counts["claimed again"] += 1
                self.check_again(consumer, event, before, line)
            if line["ordered"] and after and after not in in_hand:
                self.check_order(consumer, event, after, handled.get(after))
            in_hand.add(event)
            handled[event] = Handling(token, line["since"], before)

    def check_again(self, consumer, event, before, line):
        acked = next((ack for ack in before.acks if ack.must_be() and ack.ended_at <= line["since"]), None)
        if acked:
            self.blame("again", f"{consumer}: {event} by token {line['token']}, after {acked.name} had acked it")
        left = self.until[before.token] - line["at"]
        what = f"{consumer}: {event} by token {line['token']}, {left:.3f} s before token {before.token} expired"
        if left > 0 and not self.may_have_happened(before.returns, "shared", what):
            self.blame("shared", what)

    def check_order(self, consumer, event, after, handling):
        settled = [*handling.acks, *handling.deaths] if handling else []
        if not self.may_have_happened(settled, "disorder", f"{consumer}: {event} before {after}"):
            self.suspects.append((consumer, event, after))

    def may_have_happened(self, attempts, promise, what):
        """Returns whether one of the attempts may have happened; by the end one must have. A
        claim is durable, and so is everything that it saw: a crash cannot have undone that."""
        possible = [attempt for attempt in attempts if attempt.state != "undone"]
        if possible and not any(attempt.must_be() for attempt in possible):
            self.unproven.append((promise, what, possible))
        return bool(possible)

    def see(self, by, event, tracking_id, id=None):
        """A consumer or sink has received an event."""
        if event in self.never or event not in self.attempt_of or self.attempt_of[event].state == "undone":
            self.blame("phantom", f"{by} got {event}")
        known_id, known_tracking_id = self.identity.setdefault(event, (id, tracking_id))
        if known_tracking_id != tracking_id or (None not in (id, known_id) and known_id != id):
            self.blame("identity", f"{by} got {event} as {id} {tracking_id}, it was {known_id} {known_tracking_id}")
        elif known_id is None and id is not None:
            self.identity[event] = (id, tracking_id)
        if event not in self.seen:
            self.seen[event] = by
            self.fresh.append(event)
