"""Sessions that enqueue continuously, beside others that claim.

Prints the longest duration of a call in milliseconds: of enqueues, of claims, and of inserts into
an unrelated table, which the same sessions make between their enqueues. The inserts show how long
the machine alone can delay a session."""

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))
from session import Session  # noqa: E402

PRODUCERS = 3


class Caller(threading.Thread):
    def __init__(self, over, statements, rest):
        super().__init__(daemon=True)
        self.over = over
        self.session = Session("caller")
        # The disk is not measured.
        self.session.rows("SET synchronous_commit = off")
        self.statements = statements
        self.longest = {name: 0.0 for name in statements}
        self.count = 0
        self.rest = rest
        self.error = None

    def run(self):
        try:
            while not self.over.is_set():
                for name, statement in self.statements.items():
                    start = time.monotonic()
                    self.session.rows(statement)
                    self.longest[name] = max(self.longest[name], time.monotonic() - start)
                self.count += 1
                time.sleep(self.rest)
        except Exception as error:
            self.error = error
        self.session.connection.close()


def main():
    over = threading.Event()
    producers = [Caller(over, {
        "insert": f"INSERT INTO unrelated{number} VALUES (1)",
        "enqueue": "SELECT outbox_enqueue('Order', '1', 'OrderConfirmed', '{}')",
    }, 0.001) for number in range(PRODUCERS)]
    claimers = [
        Caller(over, {"claim": "SELECT count(*) FROM outbox_consume('reads', 1000)"}, 0.005),
        Caller(over, {"claim": "SELECT outbox_ack(token) FROM (SELECT max(lock_token) AS token FROM outbox_claim('works', 1000)) c WHERE token IS NOT NULL"}, 0.005),
    ]
    callers = producers + claimers
    for caller in callers:
        caller.start()
    # The test closes the pipe to end this process.
    sys.stdin.read()
    over.set()
    for caller in callers:
        caller.join()
        if caller.error:
            sys.exit(f"{caller.error}")
    for name in ("enqueue", "insert", "claim"):
        print(name, round(1000 * max(caller.longest.get(name, 0) for caller in callers)))
    print("count", sum(caller.count for caller in producers))


main()
