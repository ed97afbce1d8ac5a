"""The cost of an idempotency key, compared with handwritten SQL (document 004)."""

import threading
import time
from typing import Callable, NamedTuple

from lab import ROUNDS, SECONDS, Run, fresh_database, pgbench, server_with, session, sql, take_turns, timed
from report import UNITS, Report

REQUEST = ('{"customer": 4711, "currency": "EUR", "lines": [{"sku": "A-1", "quantity": 2}, '
           '{"sku": "B-7", "quantity": 1}], "note": "as agreed"}')
RESPONSE = '{"order": 42, "status": "confirmed", "total": 99.5}'
KNOWN_KEYS = 10_000

BY_HAND_SCHEMA = """
CREATE TABLE keys_by_hand (
    tenant_id     BIGINT NOT NULL,
    scope         TEXT   NOT NULL,
    key           TEXT   NOT NULL,
    request_hash  TEXT   NOT NULL,
    response      JSONB,
    status_code   SMALLINT,
    state         TEXT   NOT NULL DEFAULT 'pending',
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    completed_at  TIMESTAMPTZ,
    expires_at    TIMESTAMPTZ NOT NULL DEFAULT now() + INTERVAL '24 hours',
    PRIMARY KEY (tenant_id, scope, key)
);
CREATE INDEX ON keys_by_hand (expires_at);
"""

# Here the client has hashed the request; with outbox the server does.
HASH = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

FRESH_KEY = "\\set key random(1, 9000000000000000000)\n"
KNOWN_KEY = f"\\set key random(1, {KNOWN_KEYS})\n"

FIRST = FRESH_KEY + f"""BEGIN;
SELECT decision, token FROM idempotency_begin('order.create', 'idem_' || :key, '{REQUEST}'::jsonb) \\gset
SELECT idempotency_finish('order.create', 'idem_' || :key, :token, 201, '{RESPONSE}'::jsonb);
COMMIT;
"""
# The same with a hash from the client, as in handwritten SQL.
FIRST_HASHED = FIRST.replace(f"idempotency_begin('order.create', 'idem_' || :key, '{REQUEST}'::jsonb)",
                             f"idempotency_begin_hashed('order.create', 'idem_' || :key, '{HASH}')")
FIRST_BY_HAND = FRESH_KEY + f"""BEGIN;
INSERT INTO keys_by_hand (tenant_id, scope, key, request_hash) VALUES (0, 'order.create', 'idem_' || :key, '{HASH}')
    ON CONFLICT DO NOTHING;
UPDATE keys_by_hand SET state = 'completed', response = '{RESPONSE}'::jsonb, status_code = 201, completed_at = now()
 WHERE tenant_id = 0 AND scope = 'order.create' AND key = 'idem_' || :key;
COMMIT;
"""
# The lower limit: one INSERT of the final row, and a query that reads no table. The table is a copy
# of outbox's own one.
LIMIT_SCHEMA = "CREATE TABLE keys_of_limit (LIKE idempotency_keys INCLUDING ALL);"
FIRST_LIMIT = FRESH_KEY + f"""BEGIN;
SELECT 'execute' AS decision, 1 AS token \\gset
INSERT INTO keys_of_limit (tenant_id, token, expires_at, begun_at, finished_at, status_code, failed, request_hash, scope, key, response)
VALUES (0, 1, now() + interval '24 hours', now(), now(), 201, false, decode('{HASH}', 'hex'), 'order.create', 'idem_' || :key,
        '{RESPONSE}'::jsonb);
COMMIT;
"""
REPLAY = KNOWN_KEY + f"""
SELECT decision, status_code, response FROM idempotency_begin('order.create', 'idem_' || :key, '{REQUEST}'::jsonb);
"""
REPLAY_BY_HAND = KNOWN_KEY + f"""
INSERT INTO keys_by_hand (tenant_id, scope, key, request_hash) VALUES (0, 'order.create', 'idem_' || :key, '{HASH}')
    ON CONFLICT DO NOTHING;
SELECT state, request_hash, status_code, response FROM keys_by_hand
 WHERE tenant_id = 0 AND scope = 'order.create' AND key = 'idem_' || :key;
"""


# The handwritten SQL again, as a control, in a table of its own.
AGAIN = "keys_by_hand_again"


def fresh_keys() -> None:
    fresh_database()
    sql(BY_HAND_SCHEMA + BY_HAND_SCHEMA.replace("keys_by_hand", AGAIN) + LIMIT_SCHEMA)


def first(report: Report) -> None:
    """As unprepared statements, which psycopg2 and node-postgres send, and as prepared ones."""
    for protocol, name in (("simple", "idempotency_first_text"), ("prepared", "idempotency_first")):
        for mode, suffix in (("on", "sync"), ("off", "async")):
            runs = first_with(report, name, suffix, protocol, mode)
    report.add("idempotency_wal", "wal", runs["ours"], runs["by hand"], "INSERT, then UPDATE", 0.9, runs["by hand again"])


def first_with(report: Report, name: str, suffix: str, protocol: str, mode: str) -> dict[str, list[Run]]:
    """Many short turns, because the speed of the machine varies over time. The tables grow from
    turn to turn, as with the keys of a day."""
    fresh_keys()

    def turn(script: str) -> Callable[[], Run]:
        return lambda: pgbench(script, options=f"-c synchronous_commit={mode}", seconds=max(1, SECONDS / 3), protocol=protocol)

    runs = take_turns({
        "ours": turn(FIRST),
        "ours, hashed": turn(FIRST_HASHED),
        "by hand": turn(FIRST_BY_HAND),
        "by hand again": turn(FIRST_BY_HAND.replace("keys_by_hand", AGAIN)),
        "limit": turn(FIRST_LIMIT),
    }, ROUNDS * 4)
    against = (runs["ours"], runs["by hand"], "INSERT, then UPDATE")
    control = runs["by hand again"]
    report.add(f"{name}_{suffix}", "rate", *against, 1.1, control)
    report.add(f"{name}_hashed_{suffix}", "rate", runs["ours, hashed"], *against[1:], 1.1, control)
    report.add(f"{name}_{suffix}_cpu", "cpu", *against, None, control)
    report.add(f"{name}_limit_{suffix}", "rate", runs["limit"], *against[1:], None, control)
    return runs


def replay(report: Report) -> None:
    fresh_keys()
    sql(f"""DO $$
            BEGIN
                FOR i IN 1..{KNOWN_KEYS} LOOP
                    PERFORM idempotency_finish('order.create', 'idem_' || i, b.token, 201, '{RESPONSE}'::jsonb)
                       FROM idempotency_begin('order.create', 'idem_' || i, '{REQUEST}'::jsonb) AS b;
                    COMMIT;
                END LOOP;
            END $$;
            INSERT INTO keys_by_hand (tenant_id, scope, key, request_hash, state, response, status_code, completed_at)
            SELECT 0, 'order.create', 'idem_' || i, '{HASH}', 'completed', '{RESPONSE}', 201, now()
              FROM generate_series(1, {KNOWN_KEYS}) AS i;
            VACUUM ANALYZE""")
    runs = take_turns({
        "ours": lambda: pgbench(REPLAY),
        "by hand": lambda: pgbench(REPLAY_BY_HAND),
        "by hand again": lambda: pgbench(REPLAY_BY_HAND),
    })
    against = (runs["ours"], runs["by hand"], "INSERT ON CONFLICT, then SELECT")
    report.add("idempotency_replay", "rate", *against, 1.5, runs["by hand again"])
    report.add("idempotency_replay_cpu", "cpu", *against, None, runs["by hand again"])


def hashes(report: Report) -> None:
    """Realistic bodies: objects of strings, numbers and lists."""
    fresh_database()
    for name, lines, bodies in (("1k", 10, 2000), ("100k", 1000, 20)):
        sql(f"""DROP TABLE IF EXISTS bodies;
                CREATE TABLE bodies (body jsonb);
                ALTER TABLE bodies ALTER body SET STORAGE EXTERNAL;
                INSERT INTO bodies SELECT jsonb_build_object('customer', i, 'lines', (
                    SELECT jsonb_agg(jsonb_build_object('sku', md5(i || ' ' || j), 'quantity', j, 'price', j + 0.99,
                                                        'gift', j % 2 = 0, 'note', 'as agreed'))
                      FROM generate_series(1, {lines}) j)) FROM generate_series(1, {bodies}) i;
                VACUUM ANALYZE bodies""")
        with session() as cursor:
            def run(expression: str) -> Run:
                def work() -> int:
                    for _ in range(10):
                        cursor.execute(f"SELECT count({expression}) FROM bodies")
                    return 10 * bodies
                return timed(cursor, work)

            runs = take_turns({
                "ours": lambda: run("idempotency_hash(body)"),
                "text": lambda: run("encode(sha256(body::text::bytea), 'hex')"),
                "text again": lambda: run("encode(sha256(body::text::bytea), 'hex')"),
            })
        report.add(f"idempotency_hash_{name}", "time", runs["ours"], runs["text"],
                   "sha256 of the text, which is not canonical", 2.5, runs["text again"])


# ----------------------------------------------------------------------------------------------------
# Growth: keys are inserted and expire at a high rate while expired ones are deleted
# ----------------------------------------------------------------------------------------------------

KEYS_PER_SECOND = 3_000
LIFETIME = 5                            # seconds
BETWEEN_REMOVALS = 5                    # seconds; the same interval as autovacuum
GROWTH_SECONDS = int(SECONDS * 20)
EAGER = {"autovacuum": "on", "autovacuum_naptime": f"{BETWEEN_REMOVALS}s",
         "outbox.maintenance_interval": f"{BETWEEN_REMOVALS}s"}
UNITS.update(size="MiB")

# As in document 004, except for its LIMIT, which DELETE does not support.
REMOVE_BY_HAND = """DELETE FROM keys_by_hand WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM keys_by_hand WHERE expires_at < now() LIMIT 100000))"""


class Size(NamedTuple):
    size: float


def sizes_of(table: str, script: str, remove: Callable[[], None]) -> list[Size]:
    """Samples the size of the table and its indexes every second."""
    load = threading.Thread(target=pgbench, args=(script,), kwargs={
        "seconds": GROWTH_SECONDS, "offered": KEYS_PER_SECOND,
        "options": f"-c synchronous_commit=off -c outbox.idempotency_ttl={LIFETIME}s"})
    load.start()
    sizes = []
    for second in range(GROWTH_SECONDS):
        time.sleep(1)
        if second % BETWEEN_REMOVALS == 0:
            remove()
        sizes.append(Size(int(sql(f"SELECT pg_total_relation_size('{table}')")) / 2 ** 20))
    load.join()
    return sizes


def growth(report: Report) -> None:
    with server_with(**EAGER):
        fresh_keys()
        sql(f"ALTER TABLE keys_by_hand ALTER expires_at SET DEFAULT now() + interval '{LIFETIME} s'")
        # Maintenance deletes the expired keys of outbox.
        ours = sizes_of("idempotency_keys", FIRST, lambda: None)
        dead = sql("SELECT n_dead_tup || ' dead of ' || n_live_tup + n_dead_tup FROM pg_stat_user_tables"
                   " WHERE relname = 'idempotency_keys'")
        by_hand = sizes_of("keys_by_hand", FIRST_BY_HAND, lambda: sql(REMOVE_BY_HAND) and None)
    third = GROWTH_SECONDS // 3
    report.add("idempotency_growth", "size", ours[-third:], ours[third:2 * third],
               f"itself {third} s earlier")
    report.add("idempotency_size", "size", ours[-third:], by_hand[-third:], "INSERT, UPDATE and DELETE by hand")
    report.note("idempotency_growth_of_ours", {
        "keys/s": KEYS_PER_SECOND, "lifetime s": LIFETIME, "seconds": GROWTH_SECONDS,
        "MiB": " ".join(f"{one.size:.1f}" for one in ours[::BETWEEN_REMOVALS]), "in the end": dead})


MEASURES = {
    "idempotency_first": first,
    "idempotency_replay": replay,
    "idempotency_hash": hashes,
    "idempotency_growth": growth,
}
