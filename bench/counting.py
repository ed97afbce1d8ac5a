"""The cost of the statistics: counting, on against off, and reading the views."""

import time
from contextlib import ExitStack
from typing import Callable

from consume import CLAIMS_PER_TURN, DEPTH, fill, live, with_events
from enqueue import PAYLOAD
from lab import ROUNDS, Run, fresh_database, pinned_session, sql, take_turns, timed
from queues import Outbox
from relay import add_backlog, drained
from relays import nginx
from report import Report

AT_MOST = 1.02
ENQUEUES_PER_TURN = 5_000
BACKLOG = 50_000
SWITCHES = ("on", "off", "off again")

ENQUEUE = f"""PREPARE enqueue(int) AS
SELECT outbox_enqueue('Order', $1, 'OrderConfirmed', '{PAYLOAD}'::jsonb)"""


def switch(name: str) -> str:
    return name.split()[0]


def compare(report: Report, name: str, turns: dict[str, Callable[[], Run]], rounds: int) -> None:
    runs = take_turns(turns, rounds)
    report.add(name, "cpu", runs["on"], runs["off"], "outbox.statistics = off", AT_MOST, runs["off again"])


def each_in_its_own(stack: ExitStack, prepare: Callable[[object], Callable[[], Run]]) -> dict[str, Callable[[], Run]]:
    """Opens a session for each contestant, in a database of its own, so that none is affected by
    rows of another one."""
    turns = {}
    for number, name in enumerate(SWITCHES):
        database = f"bench_{number}"
        with_events(database)
        stack.callback(sql, f"DROP DATABASE {database} WITH (FORCE)", "postgres")
        cursor = stack.enter_context(pinned_session(database))
        cursor.execute(f"SET outbox.statistics = {switch(name)}")
        cursor.execute("SET synchronous_commit = off")
        turns[name] = prepare(cursor)
        turns[name]()           # warms plans and caches
    return turns


def statistics_enqueue(report: Report) -> None:
    def prepare(cursor) -> Callable[[], Run]:
        cursor.execute(ENQUEUE)

        def work() -> int:
            for number in range(ENQUEUES_PER_TURN):
                cursor.execute(f"EXECUTE enqueue({number})")
            return ENQUEUES_PER_TURN

        return lambda: timed(cursor, work)

    with ExitStack() as stack:
        compare(report, "statistics_enqueue", each_in_its_own(stack, prepare), ROUNDS * 4)


def statistics_worker(report: Report) -> None:
    """Events with a worker in SQL: enqueue, claim and ack, a hundred at a time."""
    def prepare(cursor) -> Callable[[], Run]:
        queue = Outbox(cursor)
        cursor.execute(Outbox.schema)
        return lambda: timed(cursor, lambda: sum(live(queue) for _ in range(CLAIMS_PER_TURN)))

    with ExitStack() as stack:
        compare(report, "statistics_worker", each_in_its_own(stack, prepare), ROUNDS * 4)


def statistics_sink(report: Report) -> None:
    """A backlog that the relay drains into nginx; CPU time of the whole server counts."""
    fresh_database()
    add_backlog(BACKLOG, "bench")

    def turn(server, name: str) -> Run:
        sql(f"ALTER DATABASE bench SET outbox.statistics = {switch(name)}", "postgres")
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'outbox relay' AND datname = 'bench'")
        time.sleep(1.5)         # the next relay worker has started with the new setting
        return drained(server, "bench")

    with nginx() as server:
        compare(report, "statistics_sink", {name: lambda name=name: turn(server, name) for name in SWITCHES}, ROUNDS * 2)


def looked(cursor, statement: str) -> Run:
    looks = 20

    def work() -> int:
        for _ in range(looks):
            cursor.execute(statement)
            cursor.fetchall()
        return looks

    return timed(cursor, work)


def statistics_view(report: Report) -> None:
    """Views with millions of events, all of them unread by one consumer and none by another."""
    with ExitStack() as stack:
        cursors = {}
        for database, events in (("bench", 10_000), ("bench_large", DEPTH)):
            with_events(database)
            sql("SELECT outbox_create_consumer('behind')", database)
            fill(events, database)
            sql("SELECT outbox_create_consumer('ahead')", database)
            cursors[database] = stack.enter_context(pinned_session(database))
        for name, statement in (("outbox_stats", "SELECT * FROM outbox_stats"), ("outbox_metrics", "SELECT outbox_metrics()"),
                                ("outbox_health", "SELECT * FROM outbox_health()")):
            for cursor in cursors.values():
                looked(cursor, statement)
            runs = take_turns({database: lambda cursor=cursor: looked(cursor, statement) for database, cursor in cursors.items()})
            report.add(f"cost_of_{name}", "time", runs["bench_large"], runs["bench"], "10 thousand events in the log", 1.3,
                       unit="us/look")
    sql("DROP DATABASE bench_large WITH (FORCE)", "postgres")


MEASURES = {
    "statistics_enqueue": statistics_enqueue,
    "statistics_worker": statistics_worker,
    "statistics_sink": statistics_sink,
    "statistics_view": statistics_view,
}
