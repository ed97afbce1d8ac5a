"""Shared by all measures: databases, pgbench, sessions, CPU time of the server, and fair turns."""

import os
import re
import statistics
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import psycopg2
import psycopg2.extensions

TICKS = os.sysconf("SC_CLK_TCK")
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))

# Results stay text, because the conversion by the client is not measured.
psycopg2.extensions.string_types.clear()


def sql(statement: str, database: str = "bench") -> str:
    """Runs SQL in psql and returns what it prints, unaligned."""
    return subprocess.run(
        ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", "-"],
        input=statement, capture_output=True, text=True, check=True).stdout.strip()


def fresh_database(name: str = "bench") -> None:
    sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", "postgres")
    sql(f"CREATE DATABASE {name}", "postgres")
    sql("SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()", name)


@contextmanager
def session(database: str = "bench", application_name: str = "bench") -> Iterator:
    """A cursor in a session of its own, where each statement is a transaction."""
    with closing(psycopg2.connect(dbname=database, application_name=application_name)) as connection:
        connection.autocommit = True
        yield connection.cursor()


@contextmanager
def pinned_session(database: str = "bench") -> Iterator:
    """A session with client and backend on one core. They never run at the same time, and the
    wakeup of another core varies most on a virtual machine."""
    cores = os.sched_getaffinity(0)
    with session(database) as cursor:
        for process in (0, cursor.connection.info.backend_pid):
            os.sched_setaffinity(process, {max(cores)})
        yield cursor
    os.sched_setaffinity(0, cores)


@contextmanager
def server_with(**settings: str) -> Iterator[None]:
    """Restarts the server with the settings, and afterwards without them."""
    data = Path(os.environ["OUTBOX_BENCH_DATA"])

    def restart() -> None:
        subprocess.run(["pg_ctl", "-s", "-w", "-D", data, "-m", "fast", "-l", data / "log", "restart"],
                       check=True, cwd=data, user=data.stat().st_uid, group=data.stat().st_gid)

    for name, value in settings.items():
        sql(f"ALTER SYSTEM SET {name} = '{value}'", "postgres")
    restart()
    try:
        yield
    finally:
        sql("ALTER SYSTEM RESET ALL", "postgres")
        restart()


def fields_of(stat: Path) -> list[str]:
    """Fields of /proc/…/stat of a process or a thread, starting with its state."""
    return stat.read_text().rpartition(")")[2].split()


def server_cpu_seconds() -> float:
    """CPU time of the server so far: the postmaster and its children, including those that have
    ended."""
    postmaster = Path(os.environ["OUTBOX_BENCH_DATA"], "postmaster.pid").read_text().split()[0]
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = fields_of(stat)
        except OSError:
            continue
        user, system, waited_user, waited_system = map(int, fields[11:15])
        if stat.parent.name == postmaster:
            ticks += user + system + waited_user + waited_system
        elif fields[1] == postmaster:
            ticks += user + system
    return ticks / TICKS


def process_cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, including all its threads."""
    return sum(map(int, fields_of(Path(f"/proc/{pid}/stat"))[11:13])) / TICKS


def thread_cpu_seconds(pid: int) -> float:
    """CPU time of a process's first thread so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def machine_cpu_seconds() -> dict[str, float]:
    """CPU time of all cores so far, of all processes."""
    fields = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    user, nice, system, idle, waiting, irq, soft_irq, stolen = (int(field) / TICKS for field in fields)
    return {"busy": user + nice + system + irq + soft_irq, "idle": idle + waiting, "stolen": stolen}


def backend_cpu_seconds(cursor) -> float:
    """CPU time of one session so far, in nanoseconds; that of the server has the resolution of a
    tick."""
    return thread_cpu_seconds(cursor.connection.info.backend_pid)


@dataclass
class Run:
    """One turn of one contestant."""
    rate: float         # operations per second
    cpu: float          # microseconds of server CPU time per operation
    wal: float          # bytes of WAL per operation
    dead: float = 0     # dead tuples left behind per operation
    lock: float = 0     # share of the time that clients waited for locks

    @property
    def time(self) -> float:
        """Microseconds per operation, as one client sees it."""
        return 1e6 / self.rate


def wal_position() -> int:
    return int(sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint", "postgres"))


def pgbench(script: str, *, clients: int = 8, operations: int = 1, options: str = "",
            seconds: float = SECONDS, offered: float | None = None, protocol: str = "prepared") -> Run:
    """Runs a script at full speed, or with `offered` operations per second. A transaction counts as
    `operations` operations."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        cpu, wal = server_cpu_seconds(), wal_position()
        out = subprocess.run(
            ["pgbench", "-n", "-M", protocol, "-c", str(clients), "-j", "2",
             *(["-R", str(offered / operations)] if offered else []),
             "-T", str(int(seconds)), "-f", file.name, "bench"],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PGOPTIONS": options}).stdout
        wal, cpu = wal_position() - wal, server_cpu_seconds() - cpu
    done = int(re.search(r"actually processed: (\d+)", out)[1]) * operations
    rate = float(re.search(r"^tps = ([\d.]+)", out, re.M)[1]) * operations
    return Run(rate, cpu / done * 1e6, wal / done)


def dead_tuples(cursor) -> int:
    """Dead tuples in all tables of the session's database, including those of the session
    itself."""
    cursor.execute("SELECT pg_stat_force_next_flush()")
    cursor.execute("SELECT sum(n_dead_tup) FROM pg_stat_all_tables")
    return int(cursor.fetchone()[0])


def timed(cursor, work: Callable[[], int], cpu_seconds: Callable[[], float] | None = None) -> Run:
    """Measures `work`, which returns its number of operations. CPU time is that of the session, or
    `cpu_seconds` if other processes do the work."""
    cpu_seconds = cpu_seconds or (lambda: backend_cpu_seconds(cursor))
    dead, wal, cpu = dead_tuples(cursor), wal_position(), cpu_seconds()
    start = time.perf_counter()
    done = work()
    seconds = time.perf_counter() - start
    cpu, wal, dead = cpu_seconds() - cpu, wal_position() - wal, dead_tuples(cursor) - dead
    return Run(done / seconds, cpu / done * 1e6, wal / done, dead / done)


def order_of(names: list[str], number: int) -> list[str]:
    """A Williams design: over the rounds each contestant takes each place, and follows each other
    one, because a contestant after one that writes much finds a busier disk."""
    count = len(names)
    zigzag = [step // 2 + 1 if step % 2 else -(step // 2) for step in range(count)]
    order = [names[(place + number) % count] for place in zigzag]
    return order if number // count % 2 == 0 else order[::-1]


def take_turns(contestants: dict[str, Callable[[], Run]], rounds: int = ROUNDS) -> dict[str, list[Run]]:
    """Runs every contestant once per round, in a balanced order."""
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name in order_of(list(contestants), number):
            runs[name].append(contestants[name]())
    return runs


def median(runs: list[Run], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs)


def spread(runs: list[Run], what: str) -> float:
    """Highest minus lowest value, relative to the median."""
    values = [getattr(run, what) for run in runs]
    return (max(values) - min(values)) / (statistics.median(values) or 1)
