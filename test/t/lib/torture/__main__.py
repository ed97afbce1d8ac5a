"""Torture for a server that somebody else kills, and a judge over it.

    load DIR --consumers NAME,...    clients that survive; says how many there are, and is then told what to do:
        asynchronous | mixed         only those who commit asynchronously, or all
        finish                       no more writes; reports when everything is settled
    judge DIR --record FILE          reads the ledger beside them; each order is answered with one line of JSON
        before                       what a crash would hide
        recovered                    what can be said while they go on
        over FILE                    everything; the file has what came to Kafka
    trial DIR --record FILE --kafka FILE
                                     when everything is over: whether the judge would have found anything

The server is the one of libpq's environment. The ledger is DIR/ledger."""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
# Sessions and workers are those of lib/load.
sys.path.append(str(Path(__file__).parent.parent / "load"))
from consumers import Bookkeeper, Claimer
from judge import Judge
from keyed import Deduper, Requester
from ledger import Ledger
from producers import Historian, Planner, Preparer, Writer
from session import Tally
from trial import Trial


class Finisher(Writer):
    """Writes the last event, behind rolled-back ids, and checks whether everything is settled."""

    role = "finisher"

    def over(self):
        return self.load.claiming_is_over.is_set()

    def act(self):
        time.sleep(0.1)
        if not self.load.writing_is_over.is_set() or any(writer.is_alive() for writer in self.load.writers):
            return
        self.enqueue_alone()
        for _ in range(20):
            time.sleep(0.1)
            if self.session.value(
                    "SELECT NOT EXISTS (SELECT FROM outbox_scheduled) AND NOT EXISTS (SELECT FROM outbox_retries)"
                    " AND NOT EXISTS (SELECT FROM consumer_offsets WHERE lag > 0)"
                    " AND NOT EXISTS (SELECT FROM _outbox.leases WHERE acked_at IS NULL AND superseded_by IS NULL)"
                    " AND NOT EXISTS (SELECT FROM audit_verify() WHERE not_yet_chained > 0)"):
                self.load.claiming_is_over.set()
                return


class Load:
    disturbed = True

    def __init__(self, options):
        self.tally = Tally()
        self.ledger = Ledger(options.directory / "ledger")
        self.rest = options.rest
        self.patience = options.patience
        self.inbox = "plain"
        self.only_asynchronous = False
        self.writing_is_over = threading.Event()
        self.claiming_is_over = threading.Event()
        self.writers = [Writer(self, number) for number in range(6)]
        self.writers += [role(self, number) for role in (Deduper, Requester) for number in range(2)]
        self.writers += [Preparer(self, 0), Planner(self, 0), Historian(self, 0)]
        self.others = [Bookkeeper(self, 0, "books"), Finisher(self, 0)]
        self.others += [Claimer(self, number, consumer) for number, consumer in enumerate(options.consumers * 2)]

    def obey(self, order):
        if order == "finish":
            self.only_asynchronous = False
            self.writing_is_over.set()
        else:
            self.only_asynchronous = {"asynchronous": True, "mixed": False}[order]

    def run(self):
        for worker in self.writers + self.others:
            worker.start()
        print(json.dumps({"clients": len(self.writers + self.others)}), flush=True)
        for line in sys.stdin:
            self.obey(line.strip())
            if self.writing_is_over.is_set():
                break
        else:
            sys.exit("told to end before it was over")
        if not self.claiming_is_over.wait(self.patience):
            self.tally.report("load", f"not everything is settled after {self.patience} s")
            self.claiming_is_over.set()
        for worker in self.writers + self.others:
            worker.join(30)
            if worker.is_alive():
                self.tally.report(worker.role, "does not come back")
        print(json.dumps({"counts": self.tally.counts, "unexpected": Counter(self.tally.unexpected).most_common(20)}))


def judge(options):
    judge = Judge(options.directory / "ledger", options.record)
    for line in sys.stdin:
        order, *arguments = line.split()
        print(json.dumps(getattr(judge, order)(*arguments)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("role", choices=["load", "judge", "trial"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--consumers", type=lambda names: names.split(","), default=[])
    parser.add_argument("--rest", type=float, default=0.06, help="longest pause of a writer between transactions")
    parser.add_argument("--patience", type=float, default=60, help="seconds until everything must be settled")
    parser.add_argument("--record", help="what came to the receiver")
    parser.add_argument("--kafka", help="and to Kafka")
    options = parser.parse_args()
    if options.role == "load":
        Load(options).run()
    elif options.role == "trial":
        print(json.dumps(Trial(options.directory / "ledger", options.record, options.kafka).try_all()))
    else:
        judge(options)


main()
