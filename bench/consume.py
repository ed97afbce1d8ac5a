"""The cost of an event from enqueue to ack, and the influence of depth, old snapshots and
claimers."""

import os
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing import Barrier, Process, Value
from typing import ContextManager, Iterator

from lab import (ROUNDS, SECONDS, Run, fresh_database, pinned_session, server_cpu_seconds, session, sql,
                 take_turns, timed)
from queues import BATCH, EVENTS, Outbox, Pgq, Queue, Seed
from report import Report

DEPTH = int(os.environ.get("BENCH_DEPTH", "5000000"))
EVENTS_PER_LIFE = 5_000
CLAIMS_PER_TURN = 100


def with_events(database: str = "bench") -> None:
    fresh_database(database)
    sql(EVENTS, database)


def fill(events: int, database: str = "bench") -> None:
    """Adds events of as many aggregates, and vacuums the log."""
    sql(f"""INSERT INTO outbox_messages (aggregate_type, aggregate_id, event_type, payload)
            SELECT 'Order', hashint8(i)::text, 'OrderConfirmed', payload
              FROM generate_series(1, {events}) AS i, (SELECT payload FROM event LIMIT 1) AS e""", database)
    sql("VACUUM ANALYZE outbox_messages", database)


def live(queue: Queue) -> int:
    """Enqueues, claims and acks one batch."""
    queue.enqueue()
    done = queue.consume()
    if done != BATCH:
        raise RuntimeError(f"{type(queue).__name__} handed out {done} of {BATCH} events")
    return done


@contextmanager
def queues(kinds: dict[str, type[Queue]]) -> Iterator[dict[str, Queue]]:
    """Opens each queue in a database and a session of its own, so that none is affected by rows of
    another one. They stay open, because many short turns average out other load of the machine."""
    with ExitStack() as stack:
        opened = {}
        for number, (name, kind) in enumerate(kinds.items()):
            database = f"bench_{number}"
            with_events(database)
            sql(kind.schema, database)
            stack.callback(sql, f"DROP DATABASE {database} WITH (FORCE)", "postgres")
            opened[name] = kind(stack.enter_context(pinned_session(database)))
        for queue in opened.values():
            live(queue)         # warms plans and caches
        yield opened


# ----------------------------------------------------------------------------------------------------
# The whole life of an event
# ----------------------------------------------------------------------------------------------------


def lived(queue: Queue) -> Run:
    """The cost of vacuum afterwards is not counted, because it runs in the background elsewhere."""
    def work() -> int:
        done = sum(live(queue) for _ in range(EVENTS_PER_LIFE // BATCH))
        queue.archive()
        return done

    run = timed(queue.cursor, work)
    queue.cursor.execute("VACUUM")
    return run


def life(report: Report) -> None:
    with queues({"ours": Outbox, "seed": Seed, "pgq": Pgq, "seed again": Seed}) as opened:
        runs = take_turns({name: lambda queue=queue: lived(queue) for name, queue in opened.items()},
                          ROUNDS * 3)
    seed = (runs["ours"], runs["seed"], "the seed: lease, mark, archive")
    report.add("life_wal", "wal", *seed, 0.25, runs["seed again"])
    report.add("life_time", "time", *seed, 0.3, runs["seed again"])
    report.add("life_cpu", "cpu", *seed, None, runs["seed again"])
    report.add("life_dead", "dead", *seed, 0.05, runs["seed again"], absolute=True)
    for what in ("wal", "time", "cpu", "dead"):
        report.add(f"life_{what}_pgq", what, runs["ours"], runs["pgq"], "PgQ, a tick per transaction")


# ----------------------------------------------------------------------------------------------------
# Depth of the log
# ----------------------------------------------------------------------------------------------------


def read_up_to_here(consumer: str, database: str) -> None:
    """Reads the log by claims, so that their dead rows are behind the cursor, too."""
    with session(database) as cursor:
        token = True
        while token:
            cursor.execute(f"SELECT max(lock_token) FROM outbox_claim('{consumer}', {BATCH * 10})")
            [(token,)] = cursor.fetchall()
            if token:
                cursor.execute(f"SELECT outbox_ack({token})")


def depth(report: Report) -> None:
    """A small log and a large one; the large one is read at its end and at its beginning."""
    to_read = (ROUNDS + 1) * CLAIMS_PER_TURN * BATCH
    for database, behind in (("bench", 10_000), ("bench_large", DEPTH)):
        with_events(database)
        sql("SELECT outbox_create_consumer('reader')", database)
        fill(behind, database)
        read_up_to_here("reader", database)
        fill(to_read, database)
    sql("SELECT outbox_create_consumer('beginner', start_at => 'earliest')", "bench_large")
    sql("CHECKPOINT")
    with (pinned_session() as small, pinned_session("bench_large") as behind,
          pinned_session("bench_large") as ahead):
        readers = {
            "10 thousand behind": Outbox(small, "reader"),
            "millions behind": Outbox(behind, "reader"),
            "millions ahead": Outbox(ahead, "beginner"),
        }

        def turn(reader: Outbox) -> Run:
            return timed(reader.cursor, lambda: sum(reader.consume() for _ in range(CLAIMS_PER_TURN)))

        for reader in readers.values():
            turn(reader)        # warms plans and caches
        runs = take_turns({name: lambda reader=reader: turn(reader) for name, reader in readers.items()})
    for name in ("behind", "ahead"):
        against = (runs[f"millions {name}"], runs["10 thousand behind"], "10 thousand behind the cursor")
        report.add(f"depth_{name}", "time", *against, 1.3)
        report.add(f"depth_{name}_cpu", "cpu", *against, 1.3)
    sql("DROP DATABASE bench_large WITH (FORCE)", "postgres")


# ----------------------------------------------------------------------------------------------------
# Sessions that hold vacuum back
# ----------------------------------------------------------------------------------------------------


@contextmanager
def held(statements: str, database: str) -> Iterator[None]:
    with session(database) as cursor:
        cursor.execute(statements)
        yield


def lived_beside(queue: Queue, other: ContextManager) -> Run:
    def work() -> int:
        done, end = 0, time.perf_counter() + SECONDS / 3
        while time.perf_counter() < end:
            done += live(queue)
        return done

    with other:
        return timed(queue.cursor, work)


def beside(report: Report, name: str, per_run: str | None, per_turn: str | None) -> None:
    def hold(statements: str | None) -> ContextManager:
        return held(statements, opened["held"].cursor.connection.info.dbname) if statements else nullcontext()

    with queues({"held": Outbox, "free": Outbox, "free again": Outbox}) as opened, hold(per_run):
        runs = take_turns({
            "held": lambda: lived_beside(opened["held"], hold(per_turn)),
            "free": lambda: lived_beside(opened["free"], nullcontext()),
            "free again": lambda: lived_beside(opened["free again"], nullcontext()),
        }, ROUNDS * 3)
    against = (runs["held"], runs["free"], "without the other session")
    report.add(name, "rate", *against, 0.95, runs["free again"])
    report.add(f"{name}_cpu", "cpu", *against, None, runs["free again"])


def held_snapshot(report: Report) -> None:
    """Held for the whole run: a snapshot holds vacuum back only in its own database."""
    beside(report, "held_snapshot", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", None)


def held_xid(report: Report) -> None:
    """Held only during its own turns: every snapshot contains a running transaction."""
    beside(report, "held_xid", None, "BEGIN; SELECT pg_current_xact_id()")


# ----------------------------------------------------------------------------------------------------
# Claimers and partitions, on a log that is there already
# ----------------------------------------------------------------------------------------------------


@contextmanager
def consumer_of_all(partitions: int) -> Iterator[str]:
    """A consumer of the whole log, dropped afterwards with all its rows."""
    sql(f"SELECT outbox_create_consumer('reader', partitions => {partitions}, start_at => 'earliest')")
    sql("CHECKPOINT")
    yield "reader"
    sql("SELECT outbox_drop_consumer('reader')")
    sql("VACUUM _outbox.batches, _outbox.leases, outbox_retries")


def wait_events(cursor) -> Counter:
    """Current wait events of the claimers."""
    cursor.execute("""SELECT CASE WHEN wait_event IS NULL THEN 'running or runnable'
                                  WHEN wait_event_type = 'Client' THEN 'client'
                                  ELSE wait_event_type || ' ' || wait_event END, count(*)
                        FROM pg_stat_activity WHERE application_name = 'claimer' GROUP BY 1""")
    return Counter({event: int(count) for event, count in cursor.fetchall()})


def claimer(consumer: str, start: Barrier, left: Value, empty: Value) -> None:
    with session(application_name="claimer") as cursor:
        queue = Outbox(cursor, consumer)
        start.wait()
        while left.value > 0:
            done = queue.consume()
            with left.get_lock():
                left.value -= done
                empty.value += not done
            if not done:
                time.sleep(0.001)


def drained(claimers: int, events: int, waits: Counter) -> Run:
    """Drains the log with concurrent claimers; adds their sampled wait events to `waits`."""
    start, left, empty = Barrier(claimers + 1), Value("l", events), Value("l", 0)
    with consumer_of_all(partitions=claimers) as consumer, session() as cursor:
        processes = [Process(target=claimer, args=(consumer, start, left, empty), daemon=True)
                     for _ in range(claimers)]
        for process in processes:
            process.start()
        start.wait()
        seen: Counter = Counter()

        def watch() -> int:
            deadline = time.perf_counter() + 60
            while any(process.is_alive() for process in processes):
                seen.update(wait_events(cursor))
                time.sleep(0.01)
                if time.perf_counter() > deadline:
                    raise RuntimeError(f"{left.value} of {events} events are still there after a minute")
            return events

        run = timed(cursor, watch, server_cpu_seconds)
    waits.update(seen)
    waits["empty claims"] += empty.value
    locks = sum(count for event, count in seen.items() if event.startswith("Lock "))
    run.lock = locks / seen.total()
    return run


def claimers(report: Report) -> None:
    events, many = 100_000, 16
    with_events()
    fill(events)
    waits: dict[int, Counter] = {1: Counter(), many: Counter()}
    runs = take_turns({
        "many": lambda: drained(many, events, waits[many]),
        "one": lambda: drained(1, events, waits[1]),
        "one again": lambda: drained(1, events, waits[1]),
    })
    against = (runs["many"], runs["one"], "1 claimer on partitions => 1")
    report.add(f"claimers_{many}", "rate", *against, None, runs["one again"])
    report.add(f"claimers_{many}_cpu", "cpu", *against, None, runs["one again"])
    report.add(f"claimers_{many}_lock_waits", "lock", *against)
    for count, seen in waits.items():
        turns = ROUNDS * (2 if count == 1 else 1)
        empty = seen.pop("empty claims")
        shares = {event: f"{samples / seen.total():.1%}" for event, samples in seen.most_common(8)}
        report.note(f"claimers_{count}_waits", {**shares, "empty claims per turn": round(empty / turns, 1)})


def read(queue: Outbox, events: int, batches: list[int]) -> Run:
    def work() -> int:
        done = 0
        while done < events:
            batches.append(queue.consume())
            done += batches[-1]
            if not batches[-1]:
                raise RuntimeError(f"no batch after {done} of {events} events")
        return done

    return timed(queue.cursor, work)


def partitions_cost(report: Report) -> None:
    """A turn reads several pages of the log, each of which is distributed to all consumer
    partitions."""
    per_turn, many = 40_000, 64
    contestants = {
        "many": f"partitions => {many}",
        "one": "partitions => 1",
        "one again": "partitions => 1",
        "many, ordered": f"partitions => {many}, ordered => true",
        "one, ordered": "partitions => 1, ordered => true",
    }
    with_events()
    fill((ROUNDS + 1) * per_turn)
    batches: dict[str, list[int]] = {name: [] for name in contestants}
    with ExitStack() as stack:
        turns = {}
        for name, options in contestants.items():
            sql(f"SELECT outbox_create_consumer('{name}', {options}, start_at => 'earliest')")
            queue = Outbox(stack.enter_context(pinned_session()), name)
            queue.consume()         # warms plans and caches
            turns[name] = lambda queue=queue, sizes=batches[name]: read(queue, per_turn, sizes)
        runs = take_turns(turns)
    for name, order, control in (("partitions_cost", "", runs["one again"]),
                                 ("partitions_cost_ordered", ", ordered", None)):
        against = (runs["many" + order], runs["one" + order], "partitions => 1" + order)
        report.add(name, "cpu", *against, 1.5, control)
        report.add(f"{name}_time", "time", *against, 1.5, control)
        report.add(f"{name}_wal", "wal", *against, None, control)
    report.note("partitions_cost_batches", {f"mean batch of {name!r}": round(sum(sizes) / len(sizes), 1)
                                            for name, sizes in batches.items()})


MEASURES = {
    "life": life,
    "depth": depth,
    "held_snapshot": held_snapshot,
    "held_xid": held_xid,
    "claimers": claimers,
    "partitions_cost": partitions_cost,
}
