"""What every measure needs: a database, pgbench, the server's CPU time, and fair turns."""

import os
import re
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

TICKS = os.sysconf("SC_CLK_TCK")
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))


def sql(statement: str, database: str = "bench") -> str:
    """Runs SQL in psql and returns what it prints, unaligned."""
    return subprocess.run(
        ["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", "-"],
        input=statement, capture_output=True, text=True, check=True).stdout.strip()


def fresh_database() -> None:
    sql("DROP DATABASE IF EXISTS bench", "postgres")
    sql("CREATE DATABASE bench", "postgres")
    sql("SET client_min_messages = warning; CREATE EXTENSION outbox CASCADE; SELECT outbox_setup()")


def server_cpu_seconds() -> float:
    """CPU time of the server so far: the postmaster, its children, and those that have ended."""
    postmaster = Path(os.environ["OUTBOX_BENCH_DATA"], "postmaster.pid").read_text().split()[0]
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user, system, waited_user, waited_system = map(int, fields[11:15])
        if stat.parent.name == postmaster:
            ticks += user + system + waited_user + waited_system
        elif fields[1] == postmaster:
            ticks += user + system
    return ticks / TICKS


@dataclass
class Run:
    """One turn of one contestant."""
    rate: float         # operations per second
    cpu: float          # microseconds of server CPU time per operation
    wal: float          # bytes of WAL per operation


def wal_position() -> int:
    return int(sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


def pgbench(script: str, *, clients: int = 8, operations: int = 1, options: str = "",
            seconds: float = SECONDS) -> Run:
    """Runs a script for a while; `operations` is how many one transaction stands for."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        cpu, wal = server_cpu_seconds(), wal_position()
        out = subprocess.run(
            ["pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", "2",
             "-T", str(int(seconds)), "-f", file.name, "bench"],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PGOPTIONS": options}).stdout
        wal, cpu = wal_position() - wal, server_cpu_seconds() - cpu
    done = int(re.search(r"actually processed: (\d+)", out)[1]) * operations
    rate = float(re.search(r"^tps = ([\d.]+)", out, re.M)[1]) * operations
    return Run(rate, cpu / done * 1e6, wal / done)


def take_turns(contestants: dict[str, Callable[[], Run]], rounds: int = ROUNDS) -> dict[str, list[Run]]:
    """Every contestant once per round, in an order that turns round."""
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        for name in names[number % len(names):] + names[:number % len(names)]:
            runs[name].append(contestants[name]())
    return runs


def median(runs: list[Run], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs)


def spread(runs: list[Run], what: str) -> float:
    """Highest less lowest, as a part of the median."""
    values = [getattr(run, what) for run in runs]
    return (max(values) - min(values)) / statistics.median(values)
