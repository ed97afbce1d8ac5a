"""A load of writers and claimers on a log, recorded in the tables of record.sql.

Prints how often each thing happened, and every unexpected error. Fails if there was one."""

import argparse
import sys
import threading
import time
from collections import Counter

from claimers import Claimer, Drainer
from session import Session, Tally, Worker
from writers import AGGREGATES, SLOW_AGGREGATES, PreparingWriter, SlowWriter, Writer, XidHolder


class Killer(Worker):
    """Terminates sessions at random."""

    role = "killer"

    def turn(self):
        self.pause(0.2)
        killed = self.session.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN ('writer', 'claimer') ORDER BY random() LIMIT 1")
        self.load.tally.count("kills", len(killed))


class Oracle(Worker):
    """Runs the second reader of the log (oracle.sql) beside the consumers."""

    role = "oracle"

    def over(self):
        return self.load.claiming_is_over.is_set()

    def turn(self):
        self.pause(0.02)
        self.load.tally.count("read by the oracle", self.session.value("SELECT oracle_read()"))


class Load:
    def __init__(self, options):
        self.tally = Tally()
        self.options = options
        self.disturbed = options.kills or options.crash
        self.trouble = options.trouble
        self.rest = options.rest
        self.writing_is_over = threading.Event()
        self.claiming_is_over = threading.Event()

    def workers(self):
        o = self.options
        claimer = Drainer if o.drain else Claimer
        for i, consumer in enumerate(o.consumers * o.claimers):
            yield claimer(self, i, consumer)
        if o.oracle:
            yield Oracle(self, 0)
        if o.drain:
            return
        for i in range(o.writers):
            yield Writer(self, i)
        for i in range(3):
            yield SlowWriter(self, 100 + i)
        for i in range(2):
            yield PreparingWriter(self, 200 + i)
        yield XidHolder(self, 300)
        if o.kills:
            yield Killer(self, 400)

    def run(self):
        session = Session("load")
        session.rows("INSERT INTO aggregates SELECT unnest(%s) ON CONFLICT DO NOTHING", AGGREGATES + SLOW_AGGREGATES)
        session.connection.close()
        workers = list(self.workers())
        for worker in workers:
            worker.start()
        # Claims continue shortly after the last write, or until everything is settled when
        # draining.
        if not self.options.drain:
            time.sleep(self.options.seconds)
            self.writing_is_over.set()
            time.sleep(0.2)
        else:
            self.writing_is_over.set()
            self.claiming_is_over.wait(self.options.seconds)
        self.claiming_is_over.set()
        for worker in workers:
            worker.join(30)
            if worker.is_alive():
                self.tally.report(worker.role, "does not come back")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--consumers", type=lambda names: names.split(","), required=True)
    parser.add_argument("--claimers", type=int, default=4, help="for each consumer")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--rest", type=float, default=0.03, help="longest pause of a writer between transactions")
    parser.add_argument("--trouble", type=float, default=1, help="factor for the frequency of mistakes")
    parser.add_argument("--kills", action="store_true", help="terminate sessions")
    parser.add_argument("--crash", action="store_true", help="the server will go away and come back")
    parser.add_argument("--oracle", action="store_true", help="read the log with oracle.sql, too")
    parser.add_argument("--drain", action="store_true", help="no writers and no trouble, until everything is settled")
    options = parser.parse_args()
    if options.drain:
        options.trouble = 0
    load = Load(options)
    load.run()
    print(", ".join(f"{count} {what}" for what, count in sorted(load.tally.counts.items())))
    for text, count in Counter(load.tally.unexpected).most_common(20):
        print(f"UNEXPECTED {count}x {text}", file=sys.stderr)
    sys.exit(1 if load.tally.unexpected else 0)


main()
