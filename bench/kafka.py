"""Kafka: time to drain a backlog, latency of an event, and events per second for a minute."""

import os
import resource
import statistics
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Callable, Iterator

from brokers import LOGICAL, Broker, Debezium, Topic, debezium, kafka
from lab import (ROUNDS, Run, fresh_database, machine_cpu_seconds, pgbench, process_cpu_seconds,
                 server_cpu_seconds, server_with, session, sql, take_turns, thread_cpu_seconds)
from relay import (BUSINESS, CALL, CHANGE, CHANGE_AND_EVENT, LIMIT, TO_START, Contestant, Latencies,
                   latencies, our_relay, report_each)
from relays import TABLE, any_sink, line_from, running, tool, wait_until_settled
from report import Report

BACKLOG = int(os.environ.get("BENCH_BACKLOG", "1000000"))
# Debezium is slower, so its backlog is smaller; 0: no measure of Debezium.
DEBEZIUM_BACKLOG = int(os.environ.get("BENCH_DEBEZIUM", str(BACKLOG // 5)))
SUSTAINED_SECONDS = float(os.environ.get("BENCH_SECONDS", "60"))
AGGREGATES = 10_000

# About 250 bytes as text, a good part of which is random and compresses badly.
PAYLOAD = """
CREATE FUNCTION made_up_order(number bigint) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
SELECT jsonb_build_object(
    'number', number, 'customer', gen_random_uuid(),
    'status', (ARRAY['placed', 'confirmed', 'paid', 'shipped'])[1 + (random() * 3)::int],
    'total', round((random() * 1000)::numeric, 2),
    'currency', (ARRAY['EUR', 'USD', 'CHF'])[1 + (random() * 2)::int],
    'lines', jsonb_build_array(
        jsonb_build_object('sku', left(md5(random()::text), 10), 'quantity', 1 + (random() * 9)::int),
        jsonb_build_object('sku', left(md5(random()::text), 10), 'quantity', 1 + (random() * 9)::int)),
    'reference', left(md5(random()::text), 22)) $$;
"""


def new_database(name: str = "bench") -> None:
    fresh_database(name)
    sql(PAYLOAD, name)


def add_backlog(events: int, database: str = "bench", aggregate_type: str = "Order") -> None:
    """Adds events, a hundred per transaction."""
    sql(f"""SET synchronous_commit = off;
        DO $$ BEGIN
            FOR start IN 1 .. {events} BY 100 LOOP
                INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
                SELECT '{aggregate_type}', i::bigint * 7919 % {AGGREGATES}, 'OrderPlaced', made_up_order(i)
                  FROM generate_series(start, least(start + 99, {events})) i;
                COMMIT;
            END LOOP;
        END $$;
        VACUUM ANALYZE outbox_messages; CHECKPOINT""", database)


# ----------------------------------------------------------------------------------------------------
# CPU time, by process
# ----------------------------------------------------------------------------------------------------

Clocks = dict[str, Callable[[], float]]


def spent(clocks: Clocks, work: Callable[[], None]) -> tuple[float, dict[str, float]]:
    """The seconds that `work` takes, and the CPU seconds of each clock, of all other processes, and
    the idle and stolen ones."""
    def read() -> dict[str, float]:
        return {**{name: clock() for name, clock in clocks.items()}, **machine_cpu_seconds()}
    before, start = read(), time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    seconds_of = {name: value - before[name] for name, value in read().items()}
    seconds_of["others"] = seconds_of.pop("busy") - sum(seconds_of[name] for name in clocks)
    return seconds, seconds_of


def relay_clocks() -> Clocks:
    """The threads of librdkafka in the relay are counted separately."""
    pid = int(sql("""SELECT pid FROM pg_stat_activity
                      WHERE backend_type = 'outbox relay' AND datname = 'bench'"""))
    return {"relay": lambda: thread_cpu_seconds(pid),
            "librdkafka in it": lambda: process_cpu_seconds(pid) - thread_cpu_seconds(pid),
            "rest of the server": lambda: server_cpu_seconds() - process_cpu_seconds(pid)}


def clock_of(pid: int) -> Callable[[], float]:
    return partial(process_cpu_seconds, pid)


@dataclass
class Split(Run):
    """A turn with the CPU time per event of each process, in microseconds."""
    by: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, events: int, seconds: float, seconds_of: dict[str, float]) -> "Split":
        by = {name: value / events * 1e6 for name, value in seconds_of.items()}
        return cls(events / seconds, cpu=sum(by.values()) - by["idle"] - by["stolen"], wal=0, by=by)


def split(runs: list[Split]) -> dict:
    return {"events/s": round(statistics.median(run.rate for run in runs), 1),
            **{f"us CPU/event of {name}": round(statistics.median(run.by[name] for run in runs), 2)
               for name in runs[0].by}}


# ----------------------------------------------------------------------------------------------------
# A backlog
# ----------------------------------------------------------------------------------------------------

# Settings of librdkafka that may perform better than those of the sink.
ITS_OWN_SETTINGS = "linger.ms=5 queue.buffering.max.messages=100000"


def drained(broker: Broker, topic: Topic) -> Split:
    """Drains the whole log, from outbox_resume until the last event is settled."""
    sql("SELECT outbox_pause('bench'); SELECT outbox_seek('bench', 'earliest'); CHECKPOINT")
    before = topic.records()
    with session() as cursor:
        def work() -> None:
            cursor.execute("SELECT outbox_resume('bench')")
            topic.wait_for(before + BACKLOG)
            wait_until_settled(cursor)
        run = Split.of(BACKLOG, *spent({**relay_clocks(), "broker": clock_of(broker.pid)}, work))
    if topic.records() != before + BACKLOG:
        raise RuntimeError(f"{topic.records() - before} records for {BACKLOG} events")
    return run


def bare(broker: Broker, process: subprocess.Popen, settings: str = "") -> Split:
    """Sends all records with bare_kafka, which measures its own time."""
    took = []

    def work() -> None:
        process.stdin.write(settings.encode() + b"\n")
        process.stdin.flush()
        took.append(float(line_from(process, 600)))

    _, seconds_of = spent({"producer": clock_of(process.pid), "broker": clock_of(broker.pid)}, work)
    return Split.of(BACKLOG, took[0], seconds_of)


def debezium_drained(connector: Debezium, broker: Broker, topic: Topic) -> Split:
    """Drains the events that were written while the connector was stopped. The time starts with the
    first records, which do not count."""
    sql("TRUNCATE outbox_messages", connector.database)
    add_backlog(DEBEZIUM_BACKLOG, connector.database, topic.name)
    before = topic.records()
    connector.resume()
    topic.wait_for(before + 1, every=0.005)
    already = topic.records() - before
    clocks = {"Kafka Connect": clock_of(connector.pid), "server": server_cpu_seconds,
              "broker": clock_of(broker.pid)}
    run = Split.of(DEBEZIUM_BACKLOG - already,
                   *spent(clocks, lambda: topic.wait_for(before + DEBEZIUM_BACKLOG)))
    connector.stop()
    return run


def kafka_drain(report: Report) -> None:
    with ExitStack() as stack:
        stack.enter_context(server_with(**LOGICAL))
        broker = stack.enter_context(kafka())
        new_database()
        add_backlog(BACKLOG)
        # Large enough to retain the whole log for the bare producer.
        retention = max(1 << 30, BACKLOG * 1000)
        topic, bare_topic = (broker.new_topic(name, retention=retention) for name in ("ours", "bare"))
        stack.enter_context(any_sink("kafka", topic.sink_config, start_at="earliest"))
        topic.wait_for(BACKLOG)
        with session() as cursor:
            wait_until_settled(cursor)
        process = stack.enter_context(running(
            tool("bare_kafka"), topic.url, bare_topic.url, str(BACKLOG), stdin=subprocess.PIPE))
        line_from(process, 120)
        contestants = {
            "ours": lambda: drained(broker, topic),
            "bare": lambda: bare(broker, process),
            "bare again": lambda: bare(broker, process),
            "bare, its own settings": lambda: bare(broker, process, ITS_OWN_SETTINGS),
        }
        if DEBEZIUM_BACKLOG:
            new_database("bench_debezium")
            connector = stack.enter_context(debezium(broker, "bench_debezium"))
            debezium_topic = broker.new_topic("debezium")
            contestants["Debezium"] = lambda: debezium_drained(connector, broker, debezium_topic)
        for name in contestants.keys() & {"bare", "Debezium"}:      # the relay is warm already
            contestants[name]()
        runs = take_turns(contestants)
    report.add("kafka_drain", "rate", runs["ours"], runs["bare"], "librdkafka's producer alone", 0.6,
               runs["bare again"])
    report.add("kafka_drain_its_own_settings", "rate", runs["ours"], runs["bare, its own settings"],
               f"the same with {ITS_OWN_SETTINGS}")
    if DEBEZIUM_BACKLOG:
        report.add("kafka_drain_debezium", "rate", runs["ours"], runs["Debezium"],
                   f"Debezium, streaming {DEBEZIUM_BACKLOG} events from its slot", 1)
    for name, turns in runs.items():
        report.note(f"kafka_drain_of_{name.replace(',', '').replace(' ', '_')}", split(turns))


# ----------------------------------------------------------------------------------------------------
# Latency: from the moment that COMMIT is sent until a consumer has the record
# ----------------------------------------------------------------------------------------------------

# Debezium polls for changes every 500 ms by default.
PROMPT = {"poll.interval.ms": "1"}
PATIENT = {"poll.interval.ms": "500"}


def ours_into(topic: Topic) -> Contestant:
    return Contestant(CHANGE + CALL, CHANGE_AND_EVENT,
                      lambda url: our_relay(any_sink("kafka", topic.sink_config)))


def debezium_into(topic: Topic, connector: Debezium, settings: dict) -> Contestant:
    return Contestant(CHANGE + CALL.replace("Order'", f"{topic.name}'", 1), CHANGE_AND_EVENT,
                      lambda url: connector.relay(settings))


def kafka_latency(report: Report) -> None:
    with ExitStack() as stack:
        stack.enter_context(server_with(**LOGICAL))
        broker = stack.enter_context(kafka())
        new_database()
        sql(BUSINESS + TABLE)
        makers: dict[str, Callable[[Topic], Contestant]] = {
            "ours": ours_into, "limit": lambda topic: LIMIT, "limit_again": lambda topic: LIMIT}
        if DEBEZIUM_BACKLOG:
            connector = stack.enter_context(debezium(broker))
            makers |= {"debezium": partial(debezium_into, connector=connector, settings=PROMPT),
                       "debezium_default": partial(debezium_into, connector=connector, settings=PATIENT)}

        def turn(name: str) -> Latencies:
            topic = broker.new_topic(name)
            return latencies(makers[name](topic), topic.receiver)

        for name in makers:     # warms the contestants
            turn(name)
        runs = take_turns({name: partial(turn, name) for name in makers}, ROUNDS * 2)
    for what, target in (("p50", 2.5), ("p99", None)):
        report.add(f"kafka_latency_{what}", what, runs["ours"], runs["limit"],
                   "the limit: the client produces after its commit", target, runs["limit_again"])
        if DEBEZIUM_BACKLOG:
            report.add(f"kafka_latency_{what}_debezium", what, runs["ours"], runs["debezium"],
                       f"Debezium with poll.interval.ms = {PROMPT['poll.interval.ms']}", 1)
            report.add(f"kafka_latency_{what}_debezium_default", what, runs["ours"],
                       runs["debezium_default"], "Debezium as it comes", 1)
    report_each(report, "kafka_latency", "record read", runs)


# ----------------------------------------------------------------------------------------------------
# Enqueue and relay at once
# ----------------------------------------------------------------------------------------------------

BATCH = 100
BATCHES = 500
CLIENTS = 4
TRIAL_SECONDS = 6
TRIALS = 6
STEP_DOWN, STEPS_DOWN = 0.95, 5
ENQUEUE = f"""\\set n random(1, {BATCHES})
SELECT cardinality(outbox_enqueue_many(events)) FROM batch WHERE n = :n;
"""
# Flat: during the last two thirds of the time the lag grows by less than the events of FLAT
# seconds.
FLAT = 0.05


@dataclass
class Trial(Split):
    offered: float = 0
    lags: list[int] = field(default_factory=list)

    def lag(self, third: int) -> float:
        """Mean lag during a third of the time, in events."""
        size = len(self.lags) // 3
        return statistics.mean(self.lags[third * size:(third + 1) * size])

    @property
    def holds(self) -> bool:
        return self.rate > 0.98 * self.offered and self.lag(2) - self.lag(1) < FLAT * self.rate


def sample_lag(topic: Topic, lags: list[int], is_over: threading.Event) -> None:
    """Samples the number of events that have an id but are not in the topic yet."""
    with session() as cursor:
        def last_id() -> int:
            cursor.execute("SELECT _outbox.last_id()")
            return int(cursor.fetchone()[0])

        records, first_id = topic.records(), last_id()
        while not is_over.wait(0.1):
            there = topic.records() - records
            lags.append(last_id() - first_id - there)


def producer_clocks() -> Clocks:
    helpers = [int(pid) for pid in sql("""SELECT pid FROM pg_stat_activity WHERE backend_type <> ALL
        (ARRAY['client backend', 'outbox relay'])""").split()]
    relay = relay_clocks()
    rest = relay.pop("rest of the server")

    def helping() -> float:
        return sum(map(process_cpu_seconds, helpers))

    def pgbench_so_far() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    return {**relay, "pgbench": pgbench_so_far, "its backends": lambda: rest() - helping(),
            "the server's own processes": helping}


@contextmanager
def sampled(topic: Topic, lags: list[int]) -> Iterator[None]:
    is_over = threading.Event()
    sampler = threading.Thread(target=sample_lag, args=(topic, lags, is_over))
    sampler.start()
    try:
        yield
    finally:
        is_over.set()
        sampler.join()


def enqueued(seconds: float, offered: float | None = None) -> Run:
    return pgbench(ENQUEUE, clients=CLIENTS, operations=BATCH, seconds=seconds, offered=offered)


def trial(broker: Broker, topic: Topic, seconds: float, offered: float | None = None) -> Trial:
    """Without `offered`, producers enqueue at full speed."""
    sql("TRUNCATE outbox_messages; VACUUM; CHECKPOINT")
    lags: list[int] = []
    runs: list[Run] = []
    with any_sink("kafka", topic.sink_config):
        time.sleep(TO_START)
        with sampled(topic, lags):
            took, seconds_of = spent({**producer_clocks(), "broker": clock_of(broker.pid)},
                                     lambda: runs.append(enqueued(seconds, offered)))
    one = Split.of(int(runs[0].rate * took), took, seconds_of)
    return Trial(runs[0].rate, one.cpu, runs[0].wal, by=one.by, offered=offered or runs[0].rate, lags=lags)


def highest_that_holds(broker: Broker, topic: Topic) -> Trial:
    """Finds the rate by bisection in short trials, then tries it for the whole time, in lower steps
    until it holds. The last trial may not hold."""
    most = trial(broker, topic, TRIAL_SECONDS)
    if most.holds:
        low = most.rate
    else:
        low, high = most.rate / 5, most.rate
        for _ in range(TRIALS):
            middle = (low + high) / 2
            if trial(broker, topic, TRIAL_SECONDS, middle).holds:
                low = middle
            else:
                high = middle
    for step in range(STEPS_DOWN):
        whole = trial(broker, topic, SUSTAINED_SECONDS, low * STEP_DOWN ** step)
        if whole.holds:
            break
    return whole


def kafka_sustained(report: Report) -> None:
    with kafka() as broker:
        new_database()
        sql(f"""CREATE TABLE batch AS
            SELECT n, jsonb_agg(jsonb_build_object(
                   'aggregate_type', 'Order', 'aggregate_id', ((random() * {AGGREGATES})::int)::text,
                   'event_type', 'OrderPlaced', 'payload', made_up_order(n * {BATCH} + i))) AS events
              FROM generate_series(1, {BATCHES}) n, generate_series(1, {BATCH}) i GROUP BY n;
            CREATE UNIQUE INDEX ON batch (n); VACUUM ANALYZE batch""")
        topic = broker.new_topic("ours")
        trial(broker, topic, TRIAL_SECONDS)
        whole = highest_that_holds(broker, topic)
        sql("TRUNCATE outbox_messages; CHECKPOINT")
        alone = enqueued(TRIAL_SECONDS)
    report.add("kafka_sustained", "rate", [whole], [alone], "the same producers alone, at full speed")
    milliseconds = 1000 / whole.rate
    report.note("kafka_sustained_meanwhile", {
        "seconds": SUSTAINED_SECONDS, "offered/s": round(whole.offered, 1),
        **{f"lag in the {name} third": f"{whole.lag(number):.0f} ({whole.lag(number) * milliseconds:.0f} ms)"
           for number, name in enumerate(("first", "second", "last"))},
        "highest lag": max(whole.lags), "flat": whole.holds, **split([whole])})


MEASURES = {
    "kafka_drain": kafka_drain,
    "kafka_latency": kafka_latency,
    "kafka_sustained": kafka_sustained,
}
