"""The cost of archiving a day, and the rows that remain after many events."""

import os
import time

from lab import Run, dead_tuples, fresh_database, pinned_session, server_with, session, sql, take_turns, timed
from queues import BATCH, EVENTS, Outbox
from report import Report

DAY = int(os.environ.get("BENCH_DAY", "5000000"))
LIVES = int(os.environ.get("BENCH_LIVES", "10000000"))
ARCHIVE_ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))

# Tables and job of the original design (document 000).
SEED_SCHEMA = """
CREATE TABLE seed_messages (
    id              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       BIGINT NOT NULL,
    aggregate_type  TEXT NOT NULL,
    aggregate_id    BIGINT NOT NULL,
    event_type      TEXT NOT NULL,
    event_version   SMALLINT NOT NULL DEFAULT 1,
    payload         JSONB NOT NULL,
    occurred_at     TIMESTAMPTZ NOT NULL DEFAULT now(),
    available_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    processed_at    TIMESTAMPTZ,
    attempts        SMALLINT NOT NULL DEFAULT 0,
    last_error      TEXT,
    trace_id        TEXT
);
CREATE INDEX ON seed_messages (available_at) WHERE processed_at IS NULL;
CREATE TABLE seed_messages_archive (LIKE seed_messages INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
    PARTITION BY RANGE (occurred_at);
CREATE TABLE seed_messages_archive_all PARTITION OF seed_messages_archive DEFAULT;
"""
SEED_ARCHIVE = """
WITH moved AS (
    DELETE FROM seed_messages
     WHERE processed_at IS NOT NULL AND processed_at < now() - INTERVAL '7 days'
    RETURNING *
)
INSERT INTO seed_messages_archive SELECT * FROM moved
"""


def fill_seed() -> None:
    sql(f"""TRUNCATE seed_messages, seed_messages_archive;
            INSERT INTO seed_messages (tenant_id, aggregate_type, aggregate_id, event_type, payload, occurred_at,
                                       available_at, processed_at)
            SELECT 0, 'Order', hashint8(i), 'OrderConfirmed', payload, past, past, past
              FROM generate_series(1, {DAY}) AS i, (SELECT payload FROM event LIMIT 1) AS e,
                   (SELECT now() - INTERVAL '10 days' AS past) AS p""")
    sql("VACUUM ANALYZE seed_messages")
    sql("CHECKPOINT")


def fill_day(days_ago: int) -> None:
    """A day of the log, all of which the consumer has read."""
    sql(f"""SET client_min_messages = warning;
            SELECT format('SELECT %I.create_partition_time(%L, ARRAY[date_trunc(''day'', now() - INTERVAL ''{days_ago} days'')])',
                          _outbox.schema_of('pg_partman'), 'public.outbox_messages') \\gexec
            SELECT _outbox.configure_partitions();
            SELECT outbox_drop_consumer('reader') FROM outbox_consumers WHERE name = 'reader';
            INSERT INTO outbox_messages (occurred_at, aggregate_type, aggregate_id, event_type, payload)
            SELECT date_trunc('day', now() - INTERVAL '{days_ago} days'), 'Order', hashint8(i)::text, 'OrderConfirmed', payload
              FROM generate_series(1, {DAY}) AS i, (SELECT payload FROM event LIMIT 1) AS e""")
    sql("SELECT outbox_create_consumer('reader'); VACUUM ANALYZE outbox_messages")
    sql("CHECKPOINT")


def archive(report: Report) -> None:
    with server_with(**{"outbox.relay": "off"}):
        fresh_database()
        sql(EVENTS + SEED_SCHEMA)
        days = iter(range(20, 60))

        def ours() -> Run:
            fill_day(next(days))
            with session() as cursor:
                def work() -> int:
                    cursor.execute("SELECT count(*) FROM _outbox.run_step('archive') WHERE detail = 'archived'")
                    [(done,)] = cursor.fetchall()
                    return int(done)
                run = timed(cursor, work)
            [archived] = sql("SELECT count(*) FROM outbox_messages_archive GROUP BY tableoid ORDER BY tableoid DESC LIMIT 1").split()
            if int(archived) != DAY:
                raise RuntimeError(f"{archived} of {DAY} events were archived")
            sql("DO $$ DECLARE p name; BEGIN FOR p IN SELECT partition FROM _outbox.archived_partitions LOOP"
                " PERFORM _outbox.drop_partition(p::text::regclass); END LOOP; END $$")
            return run

        def seed() -> Run:
            fill_seed()
            with session() as cursor:
                return timed(cursor, lambda: cursor.execute(SEED_ARCHIVE) or 1)

        runs = take_turns({"ours": ours, "seed": seed}, ARCHIVE_ROUNDS)
    against = (runs["ours"], runs["seed"], f"the seed's DELETE and INSERT of {DAY:,} messages")
    report.add("archive_day", "time", *against, 1_000_000, absolute=True, unit="us")
    report.add("archive_day_cpu", "cpu", *against, None, unit="us CPU")
    report.add("archive_day_wal", "wal", *against, 1_000_000, absolute=True, unit="bytes WAL")


# Tables of outbox other than the log.
BESIDE = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
             WHERE c.relkind = 'r' AND c.relnamespace = '_outbox'::regnamespace"""
# All dead row versions, whether or not vacuum has removed them.
LEFT_BEHIND = "SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE relname <> 'plain'"


PLAIN = """
CREATE TABLE plain (LIKE outbox_messages INCLUDING DEFAULTS);
CREATE UNIQUE INDEX ON plain (id);
CREATE UNIQUE INDEX ON plain (xid, id) WHERE run_length IS NOT NULL;
"""


def tenths_of_life(cursor, produce, consume) -> list[tuple[float, float]]:
    """Events per second, produced and consumed, for each tenth of the run."""
    steps = LIVES // 10 // BATCH
    rates = []
    for _ in range(10):
        producing = consuming = 0.0
        for _ in range(steps):
            begun = time.perf_counter()
            produce()
            produced = time.perf_counter()
            consume()
            producing += produced - begun
            consuming += time.perf_counter() - produced
        rates.append((steps * BATCH / producing, steps * BATCH / consuming))
    return rates


def long_life(report: Report) -> None:
    """With the default settings of the server and of outbox, including background workers."""
    with server_with(autovacuum="on", max_wal_size="1GB", checkpoint_timeout="5min", shared_buffers="128MB"):
        fresh_database()
        sql(EVENTS + PLAIN + Outbox.schema)
        with pinned_session() as cursor:
            queue = Outbox(cursor)

            def consume() -> None:
                if (done := queue.consume()) != BATCH:
                    raise RuntimeError(f"{done} of {BATCH} events were handed out")

            # The same rows by plain INSERTs, before the measure: a newly started server
            # is faster until its first checkpoint.
            cursor.execute("""PREPARE plain AS INSERT INTO plain (aggregate_type, aggregate_id, event_type, payload)
                              SELECT aggregate_type, aggregate_id, event_type, payload FROM event""")
            plain = tenths_of_life(cursor, lambda: cursor.execute("EXECUTE plain"), lambda: None)
            ours = tenths_of_life(cursor, queue.enqueue, consume)
            dead_tuples(cursor)         # flushes the statistics
            events = LIVES // 10 // BATCH * BATCH * 10
            left = int(sql(LEFT_BEHIND))
            beside = int(sql(BESIDE))
            log = int(sql("SELECT sum(pg_total_relation_size(partition)) FROM _outbox.partitions()"))

        def last_of_first(rates: list[tuple[float, float]]) -> float:
            return round(rates[-1][0] / rates[0][0], 3)

        report.note("long_life", {
            "events": events,
            "beside_the_log_mb": round(beside / 1e6, 1), "beside_the_log_target_mb": 50, "beside_the_log_met": beside < 50e6,
            "log_mb": round(log / 1e6, 1),
            "dead_per_event": round(left / events, 4), "dead_target": 0.05, "dead_met": left / events < 0.05,
            "enqueue_rates": [round(rate) for rate, _ in ours],
            "consume_rates": [round(rate) for _, rate in ours],
            "plain_insert_rates": [round(rate) for rate, _ in plain],
            "last_tenth_of_first": last_of_first(ours), "last_tenth_target": 0.95,
            "last_tenth_met": last_of_first(ours) >= 0.95, "last_tenth_of_first_plain_insert": last_of_first(plain),
        })


MEASURES = {
    "archive_day": archive,
    "long_life": long_life,
}
