"""The relay: latency, throughput, and cost for producers."""

import math
import statistics
import subprocess
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Callable, ContextManager, Iterator

from enqueue import ENQUEUE
from lab import (ROUNDS, SECONDS, Run, fresh_database, median, pgbench, server_cpu_seconds, session, sql,
                 take_turns, timed)
from relays import (CONCURRENCY, TABLE, Nginx, Receiver, nginx, receiver, sink, table_relay, tool,
                    wait_until_settled)
from report import UNITS, Report

TO_START = 0.5      # seconds for the start of a sink, which is not measured

# ----------------------------------------------------------------------------------------------------
# Latency: from the moment that COMMIT is sent until the receiver has the request
# ----------------------------------------------------------------------------------------------------

RATE = 1_000
CONNECTIONS = 16
WARM_UP = RATE // 2
EVENTS = WARM_UP + int(RATE * SECONDS)
UNITS.update(p50="ms", p95="ms", p99="ms")      # used by the report

BUSINESS = """
CREATE TABLE orders (id bigint PRIMARY KEY, version bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO orders SELECT generate_series(1, 10000);
"""
CHANGE = """PREPARE change(bigint) AS UPDATE orders SET version = version + 1 WHERE id = $1;"""
CALL = """PREPARE event(bigint, jsonb) AS SELECT outbox_enqueue('Order', $1, 'OrderConfirmed', $2);"""
INSERT = """PREPARE event(bigint, jsonb) AS
INSERT INTO events.outbox (aggregate_type, aggregate_id, event_type, payload)
VALUES ('Order', $1, 'OrderConfirmed', $2);"""


@dataclass
class Latencies(Run):
    """Latencies of one turn, in milliseconds."""
    values: list[float] = field(default_factory=list)       # sorted
    commit: float = 0       # median duration of COMMIT
    late: float = 0         # 99th percentile of the delay between the schedule and the COMMIT
    repeated: int = 0       # events that arrived more than once

    def quantile(self, part: float) -> float:
        return self.values[int(part * len(self.values))]

    p50 = property(lambda self: self.quantile(0.5))
    p95 = property(lambda self: self.quantile(0.95))
    p99 = property(lambda self: self.quantile(0.99))


@dataclass
class Contestant:
    """Statements of the producers, and the relay that delivers their events."""
    setup: str
    transaction: str
    relay: Callable[[str], ContextManager]
    posts: bool = False     # the client sends the event itself, right after its commit


@contextmanager
def our_relay(into: ContextManager) -> Iterator[None]:
    with into, session() as cursor:
        time.sleep(TO_START)
        yield
        wait_until_settled(cursor)


CHANGE_AND_EVENT = "EXECUTE change(:key); EXECUTE event(:key, :payload)"
# No row records the event, which is lost if the client dies after the commit.
LIMIT = Contestant(CHANGE, "EXECUTE change(:key)", nullcontext, posts=True)
CONTESTANTS = {
    "ours": Contestant(CHANGE + CALL, CHANGE_AND_EVENT, lambda url: our_relay(sink(url))),
    "notify": Contestant(CHANGE + INSERT, CHANGE_AND_EVENT + "; NOTIFY outbox",
                         lambda url: table_relay(url, "notify")),
    # Marking a row can be repeated after a crash, so it need not wait for the disk.
    "notify_async": Contestant(
        CHANGE + INSERT, CHANGE_AND_EVENT + "; NOTIFY outbox",
        lambda url: table_relay(url, "notify", options="-c synchronous_commit=off")),
    "polling": Contestant(CHANGE + INSERT, CHANGE_AND_EVENT, lambda url: table_relay(url, "500")),
    "limit": LIMIT,
    "limit_again": LIMIT,
}


def produced(contestant: Contestant, url: str) -> list[tuple[int, ...]]:
    """For each event: when it was due, when COMMIT was sent, and when its result arrived."""
    out = subprocess.run(
        [tool("load_client"), contestant.setup, contestant.transaction, str(RATE), str(EVENTS),
         str(CONNECTIONS), *([url] if contestant.posts else [])],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    return [tuple(map(int, line.split()[1:])) for line in out.splitlines()]


def delivered(contestant: Contestant, target: Receiver, moments: list[tuple[int, ...]]) -> int:
    with contestant.relay(target.url):
        moments += produced(contestant, target.url)
        target.wait_for_all(30)
    return len(moments)


def latencies(contestant: Contestant, receiving: Callable[[int], ContextManager] = receiver) -> Latencies:
    """All events must arrive; those of the warm-up are not counted."""
    sql("TRUNCATE outbox_messages, events.outbox; VACUUM; CHECKPOINT")
    moments: list[tuple[int, ...]] = []
    with receiving(EVENTS) as target, session() as cursor:
        run = timed(cursor, lambda: delivered(contestant, target, moments), server_cpu_seconds)
        arrivals = target.arrivals()
    due, sent, committed = zip(*moments[WARM_UP:])
    first = [moment for moment, _ in arrivals[WARM_UP:]]
    return Latencies(
        rate=(len(sent) - 1) / (max(sent) - min(sent)) * 1e9, cpu=run.cpu, wal=run.wal, dead=run.dead,
        values=sorted((there - start) / 1e6 for start, there in zip(sent, first)),
        commit=statistics.median(end - start for start, end in zip(sent, committed)) / 1e6,
        late=sorted(start - plan for plan, start in zip(due, sent))[len(sent) * 99 // 100] / 1e6,
        repeated=sum(times > 1 for _, times in arrivals))


def summary(runs: list[Latencies]) -> dict:
    """Figures over all turns of a contestant."""
    everything = Latencies(0, 0, 0, values=sorted(value for run in runs for value in run.values))
    return {
        **{f"p{part * 100:g}": round(everything.quantile(part), 3) for part in (0.5, 0.95, 0.99, 0.999)},
        "max": round(everything.values[-1], 3),
        "COMMIT p50": round(statistics.median(run.commit for run in runs), 3),
        "events/s": round(statistics.median(run.rate for run in runs), 1),
        "due to COMMIT p99": round(statistics.median(run.late for run in runs), 3),
        "us server CPU/event": round(statistics.median(run.cpu for run in runs), 1),
        "repeated": sum(run.repeated for run in runs),
    }


def histogram(runs: list[Latencies]) -> list[dict]:
    """Four classes per factor of two, from the lowest value to the highest."""
    values = [value for run in runs for value in run.values]
    classes = [math.floor(math.log2(max(value, 0.001)) * 4) for value in values]
    return [{"from_ms": round(2 ** (number / 4), 4), "to_ms": round(2 ** ((number + 1) / 4), 4),
             "events": classes.count(number)} for number in range(min(classes), max(classes) + 1)]


def report_each(report: Report, name: str, to: str, runs: dict[str, list[Latencies]]) -> None:
    """Reports the latencies of each contestant by themselves."""
    summaries = {contestant: summary(turns) for contestant, turns in runs.items()}
    for contestant, figures in summaries.items():
        report.note(f"{name}_of_{contestant}", figures)
    report.save(f"{name}_histogram", {
        "unit": "ms", "offered_per_second": RATE, "from": "COMMIT sent", "to": to,
        "contestants": {contestant: {**summaries[contestant], "histogram": histogram(turns)}
                        for contestant, turns in runs.items()}})


def relay_latency(report: Report) -> None:
    fresh_database()
    sql(BUSINESS + TABLE)
    # The time of a flush to disk varies from moment to moment, and is more than half of each
    # latency. Many short turns average it out.
    runs = take_turns({name: lambda contestant=contestant: latencies(contestant)
                       for name, contestant in CONTESTANTS.items()}, ROUNDS * 3)
    ours, limit, again = runs["ours"], runs["limit"], runs["limit_again"]
    for what, target in (("p50", 2.5), ("p95", None), ("p99", 5)):
        report.add(f"relay_latency_{what}", what, ours, limit,
                   "the limit: the client posts after its commit", target, again)
    for what in ("p50", "p95", "p99"):
        below = None if what == "p95" else 1
        report.add(f"relay_latency_{what}_notify", what, ours, runs["notify"],
                   "a relay woken by LISTEN/NOTIFY", below)
        report.add(f"relay_latency_{what}_notify_async", what, ours, runs["notify_async"],
                   "the same, its marks committed asynchronously")
        report.add(f"relay_latency_{what}_polling", what, ours, runs["polling"],
                   "the seed's relay, polling every 500 ms")
    report_each(report, "relay_latency", "request received", runs)


# ----------------------------------------------------------------------------------------------------
# Throughput: a backlog, one event per request or a hundred
# ----------------------------------------------------------------------------------------------------

BATCH = 100
BATCHES = {"format": "cloudevents-batch", "batch": BATCH}
BODY = f'{{"note": "{"x" * 207}", "total": 99.5, "number": 4711}}'


def add_backlog(events: int, database: str) -> None:
    """Adds events of as many aggregates, so that order delays none."""
    sql(f"""INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
            SELECT 'Order', i::text, 'OrderConfirmed', '{BODY}'::jsonb FROM generate_series(1, {events}) i""",
        database)
    sql("VACUUM ANALYZE outbox_messages", database)


def drained(server: Nginx, database: str, config: dict | None = None) -> Run:
    """Drains the whole log. The time starts with the first requests, which do not count, and ends
    when the last event is settled."""
    events = int(sql("SELECT count(*) FROM outbox_messages", database))
    per_request = config["batch"] if config else 1
    sql("CHECKPOINT", database)
    before = server.requests()
    with (session(database) as cursor,
          sink(server.url, database=database, start_at="earliest", config=config)):
        server.wait_for(before + 1, every=0.001)

        def work() -> int:
            already = (server.requests() - before) * per_request
            server.wait_for(before + math.ceil(events / per_request), every=0.02)
            wait_until_settled(cursor)
            return events - already

        return timed(cursor, work, server_cpu_seconds)


def with_backlog(server: Nginx, database: str, at_first: int, config: dict | None = None) -> int:
    """Makes a database with a log that takes about four seconds to drain, extrapolated from a
    smaller log; returns its number of events."""
    fresh_database(database)
    add_backlog(at_first, database)
    more = max(0, int(drained(server, database, config).rate * 4) - at_first)
    add_backlog(more, database)
    return at_first + more


def bare(server: Nginx, requests: int) -> Run:
    out = subprocess.run([tool("bare_curl"), server.url, str(requests), str(CONCURRENCY), BODY],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return Run(requests / float(out), cpu=0, wal=0)


def relay_throughput(report: Report) -> None:
    with nginx() as server:
        events = with_backlog(server, "bench", 20_000)
        runs = take_turns({
            "ours": lambda: drained(server, "bench"),
            "bare": lambda: bare(server, events),
            "bare again": lambda: bare(server, events),
        })
    report.add("relay_throughput", "rate", runs["ours"], runs["bare"],
               f"libcurl's multi loop alone, {CONCURRENCY} at a time", 0.6, runs["bare again"])
    report.note("relay_throughput_cost", cost(runs["ours"], events))


def relay_batch(report: Report) -> None:
    with nginx() as server:
        with_backlog(server, "bench", 20_000)
        events = with_backlog(server, "bench_batch", 200_000, BATCHES)
        runs = take_turns({
            "batch": lambda: drained(server, "bench_batch", BATCHES),
            "single": lambda: drained(server, "bench"),
            "single again": lambda: drained(server, "bench"),
        })
    report.add("relay_batch", "rate", runs["batch"], runs["single"], "one event per request", 8,
               runs["single again"])
    report.note("relay_batch_cost", cost(runs["batch"], events))
    sql("DROP DATABASE bench_batch WITH (FORCE)", "postgres")


def cost(runs: list[Run], events: int) -> dict:
    return {"events": events, **{UNITS[what]: round(median(runs, what), 2)
                               for what in ("rate", "cpu", "wal", "dead")}}


# ----------------------------------------------------------------------------------------------------
# Cost of the relay for producers
# ----------------------------------------------------------------------------------------------------


@contextmanager
def idle_sinks() -> Iterator[None]:
    """Sinks that read every event, and deliver none."""
    with ExitStack() as stack:
        for number in range(3):
            stack.enter_context(sink("http://127.0.0.1:9/", name=f"idle_{number}",
                                     event_types="ARRAY['NothingOfTheKind']"))
        yield


def enqueued_beside(sinks: ContextManager) -> Run:
    sql("TRUNCATE outbox_messages; CHECKPOINT")
    with sinks:
        time.sleep(TO_START)
        return pgbench(ENQUEUE, options="-c synchronous_commit=on")


def relay_idle_producers(report: Report) -> None:
    fresh_database()
    runs = take_turns({
        "idle": lambda: enqueued_beside(idle_sinks()),
        "none": lambda: enqueued_beside(nullcontext()),
        "none again": lambda: enqueued_beside(nullcontext()),
    }, ROUNDS * 3)
    against = (runs["idle"], runs["none"], "outbox_enqueue without a sink")
    report.add("relay_idle_producers", "rate", *against, 0.97, runs["none again"])
    report.add("relay_idle_producers_cpu", "cpu", *against, None, runs["none again"])


def relay_busy_producers(report: Report) -> None:
    """Nginx and the relay share the cores with the producers, and take part of their CPU time."""
    fresh_database()
    delivered_per_second: list[float] = []

    def busy(server: Nginx) -> Run:
        before = server.requests()
        run = enqueued_beside(sink(server.url))
        delivered_per_second.append((server.requests() - before) / SECONDS)
        return run

    with nginx() as server:
        runs = take_turns({
            "busy": lambda: busy(server),
            "none": lambda: enqueued_beside(nullcontext()),
            "none again": lambda: enqueued_beside(nullcontext()),
        })
    against = (runs["busy"], runs["none"], "outbox_enqueue without a sink")
    report.add("relay_busy_producers", "rate", *against, None, runs["none again"])
    report.add("relay_busy_producers_cpu", "cpu", *against, None, runs["none again"])
    report.note("relay_busy_producers_meanwhile", {
        "delivered/s": round(statistics.median(delivered_per_second), 1),
        "enqueued/s": round(median(runs["busy"], "rate"), 1)})


MEASURES = {
    "relay_latency": relay_latency,
    "relay_throughput": relay_throughput,
    "relay_batch": relay_batch,
    "relay_idle_producers": relay_idle_producers,
    "relay_busy_producers": relay_busy_producers,
}
