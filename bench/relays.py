"""Relays and receivers: processes that run during a measure."""

import json
import os
import select
import socket
import subprocess
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Callable, ContextManager, Iterator

from lab import sql

CONCURRENCY = 16


def tool(name: str) -> str:
    """Path of a program that bench/run has compiled."""
    return str(Path(os.environ["OUTBOX_BENCH_TOOLS"], name))


def line_from(process: subprocess.Popen, seconds: float) -> str:
    """The next line of the process's output; raises an error after the timeout."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline().decode().strip() if ready else ""
    if not line:
        raise RuntimeError(f"{Path(process.args[0]).name} said nothing for {seconds} s, or ended")
    return line


@contextmanager
def running(*command: str, **options) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


# ----------------------------------------------------------------------------------------------------
# Receivers
# ----------------------------------------------------------------------------------------------------


def wait_for(wanted: int, count: Callable[[], int], every: float, seconds: float = 60) -> None:
    """Waits until the count is reached. Polls seldom while much is missing, because each poll costs
    the contestants time."""
    start, first = time.monotonic(), count()
    there = first
    while there < wanted:
        elapsed = time.monotonic() - start
        if elapsed > seconds:
            raise RuntimeError(f"{there} of {wanted} are there after {seconds} s")
        left = elapsed * (wanted - there) / (there - first) if there > first else 0
        time.sleep(max(every, min(left / 4, 0.25)))
        there = count()


class Receiver:
    """A process that records the arrival of each event."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.process = process
        self.url = line_from(process, 10)

    def wait_for_all(self, seconds: float) -> None:
        line_from(self.process, seconds)

    def arrivals(self) -> list[tuple[int, int]]:
        """For each event the time of its first arrival and its number of arrivals. Ends the
        receiver."""
        out, _ = self.process.communicate(timeout=30)
        lines = (line.split() for line in out.decode().splitlines())
        return [(int(first), int(times)) for _, first, times in lines]


@contextmanager
def receiver(events: int) -> Iterator[Receiver]:
    with running(tool("http_receiver"), str(events), stdin=subprocess.PIPE) as process:
        yield Receiver(process)


class Nginx:
    """Answers 204 to every request, at full speed."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.connection = HTTPConnection("127.0.0.1", port, timeout=5)
        self.asked = 0

    def requests(self) -> int:
        """Number of requests so far, without those of this function."""
        self.connection.request("GET", "/status")
        answer = self.connection.getresponse().read()
        self.asked += 1
        return int(answer.split()[9]) - self.asked

    def wait_for(self, requests: int, every: float) -> None:
        wait_for(requests, self.requests, every)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for_port(port: int, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def nginx() -> Iterator[Nginx]:
    directory, port = Path(tool("nginx")), free_port()
    directory.mkdir(exist_ok=True)
    (directory / "nginx.conf").write_text(f"""
        daemon off;
        worker_processes 1;
        pid nginx.pid;
        error_log stderr;
        events {{ worker_connections 256; }}
        http {{
            access_log off;
            keepalive_requests 1000000000;
            client_max_body_size 0;
            {" ".join(f"{kind}_temp_path {kind};" for kind in
                      ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))}
            server {{
                listen 127.0.0.1:{port};
                location / {{ return 204; }}
                location = /status {{ stub_status; }}
            }}
        }}
    """)
    with running("/usr/sbin/nginx", "-p", str(directory), "-e", "stderr", "-c", "nginx.conf"):
        wait_for_port(port)
        server = Nginx(port)
        with closing(server.connection):
            yield server


# ----------------------------------------------------------------------------------------------------
# Relays
# ----------------------------------------------------------------------------------------------------


@contextmanager
def any_sink(kind: str, config: dict, *, name: str = "bench", database: str = "bench",
             start_at: str = "latest", event_types: str = "NULL") -> Iterator[str]:
    """A sink of the relay, which is dropped at the end."""
    sql(f"""SELECT outbox_create_sink('{name}', '{kind}', '{json.dumps(config)}'::jsonb,
                                      event_types => {event_types}, start_at => '{start_at}')""", database)
    try:
        yield name
    finally:
        sql(f"SELECT outbox_drop_sink('{name}')", database)
        sql("VACUUM _outbox.batches, _outbox.leases, outbox_retries", database)


def sink(url: str, *, config: dict | None = None, **options) -> ContextManager:
    return any_sink("http", {"url": url, "concurrency": CONCURRENCY, **(config or {})}, **options)


def wait_until_settled(cursor, seconds: float = 60) -> None:
    """Waits until the only consumer of a database has read the whole log, and every batch is
    settled."""
    deadline = time.monotonic() + seconds
    while True:
        cursor.execute("""SELECT lag = 0 AND NOT EXISTS (SELECT FROM _outbox.leases WHERE acked_at IS NULL)
                            FROM consumer_offsets""")
        if cursor.fetchone() == ("t",):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"there are events that are not settled after {seconds} s")
        time.sleep(0.01)


# The table of the original design, with its partial index on pending rows, which is by the column
# that the relay sorts by.
TABLE = """
CREATE SCHEMA events;
CREATE TABLE events.outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tracking_id     uuid NOT NULL DEFAULT gen_random_uuid(),
    aggregate_type  text NOT NULL,
    aggregate_id    bigint NOT NULL,
    event_type      text NOT NULL,
    event_version   smallint NOT NULL DEFAULT 1,
    payload         jsonb NOT NULL,
    occurred_at     timestamptz NOT NULL DEFAULT now(),
    available_at    timestamptz NOT NULL DEFAULT now(),
    processed_at    timestamptz,
    attempts        smallint NOT NULL DEFAULT 0,
    last_error      text,
    trace_id        text
);
CREATE INDEX ON events.outbox (id) WHERE processed_at IS NULL;
"""


@contextmanager
def table_relay(url: str, wait: str, workers: int = 1, options: str = "") -> Iterator[None]:
    """Runs table_relay, which waits for "notify" or polls at the given interval in milliseconds."""
    with running(tool("table_relay"), url, wait, str(workers), str(CONCURRENCY),
                 env={**os.environ, "PGOPTIONS": options}) as process:
        line_from(process, 5)
        yield
