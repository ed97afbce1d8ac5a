"""The cost of upcasting: claim and ack of a hundred, with and without an upcaster."""

from contextlib import ExitStack
from typing import Callable

from consume import CLAIMS_PER_TURN, fill, with_events
from lab import ROUNDS, Run, pinned_session, sql, take_turns, timed
from queues import BATCH, Outbox
from report import Report

AT_LEAST = 0.7
NOTHING = 1.01          # 1 / 0.99
TURNS = ROUNDS * 3

FUNCTIONS = """
CREATE SCHEMA shop;
CREATE FUNCTION shop.inlined(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$ SELECT $1 || '{"currency": "EUR"}' $$;
CREATE FUNCTION shop.called(jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE SET search_path = pg_catalog
AS $$ SELECT $1 || '{"currency": "EUR"}' $$;
CREATE FUNCTION shop.plpgsql(p jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE
AS $$ BEGIN RETURN p || '{"currency": "EUR"}'; END $$;
"""

UPCASTERS = {
    "none": "",
    "none again": "",
    "of another type": "SELECT outbox_register_upcaster('OrderShipped', 1, 'shop.inlined(jsonb)')",
    "inlined": "SELECT outbox_register_upcaster('OrderConfirmed', 1, 'shop.inlined(jsonb)')",
    "called": "SELECT outbox_register_upcaster('OrderConfirmed', 1, 'shop.called(jsonb)')",
    "plpgsql": "SELECT outbox_register_upcaster('OrderConfirmed', 1, 'shop.plpgsql(jsonb)')",
}


def consumed(queue: Outbox) -> Run:
    def work() -> int:
        done = sum(queue.consume() for _ in range(CLAIMS_PER_TURN))
        if done != CLAIMS_PER_TURN * BATCH:
            raise RuntimeError(f"{done} of {CLAIMS_PER_TURN * BATCH} events were handed out")
        return done

    return timed(queue.cursor, work)


def upcasting(report: Report) -> None:
    with ExitStack() as stack:
        turns: dict[str, Callable[[], Run]] = {}
        for number, (name, upcaster) in enumerate(UPCASTERS.items()):
            database = f"bench_{number}"
            with_events(database)
            stack.callback(sql, f"DROP DATABASE {database} WITH (FORCE)", "postgres")
            sql(FUNCTIONS + upcaster, database)
            sql(Outbox.schema, database)
            fill((TURNS + 1) * CLAIMS_PER_TURN * BATCH, database)
            queue = Outbox(stack.enter_context(pinned_session(database)))
            consumed(queue)     # warms plans and caches
            turns[name] = lambda queue=queue: consumed(queue)
        runs = take_turns(turns, TURNS)
    none, control = runs["none"], runs["none again"]
    report.add("upcast_other_type", "cpu", runs["of another type"], none, "no upcaster registered", NOTHING, control)
    report.add("upcast_sql", "rate", runs["inlined"], none, "no upcaster registered", AT_LEAST, control)
    report.add("upcast_sql_cpu", "cpu", runs["inlined"], none, "no upcaster registered", None, control)
    report.add("upcast_sql_not_inlined", "rate", runs["called"], none, "no upcaster registered", None, control)
    report.add("upcast_sql_not_inlined_cpu", "cpu", runs["called"], none, "no upcaster registered", None, control)
    report.add("upcast_plpgsql", "rate", runs["plpgsql"], none, "no upcaster registered", None, control)


MEASURES = {"upcasting": upcasting}
