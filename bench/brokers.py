"""Kafka and Debezium: services of test/services, with settings for throughput."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from lab import sql
from relays import Receiver, running, tool, wait_for

SERVICES = Path(__file__).parent.parent / "test" / "services"
sys.dont_write_bytecode = True
sys.path.append(str(SERVICES))
from kafka_cluster import Cluster, protocol     # noqa: E402

PARTITIONS = 4

# JVM options of Kafka's own scripts for brokers and Connect workers; those of the tests are for a
# quick start.
JAVA = ["-server", "-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent"]
BROKER_JAVA = [*JAVA, "-Xms1g", "-Xmx1g"]
CONNECT_JAVA = [*JAVA, "-Xms256m", "-Xmx2g"]

# Old records are deleted during the run, so that a long run does not fill the disk.
PROPERTIES = {"log.retention.check.interval.ms": 5000, "log.segment.delete.delay.ms": 1000}
SEGMENT_BYTES = 64 << 20


def service(name: str, call: str, *arguments: str, java: list[str] | None = None,
            settings: dict | None = None) -> str:
    """Calls the script of a service with its folder of the benchmark."""
    return subprocess.run(
        [SERVICES / name, call, tool(name), *arguments, *(f"--java={option}" for option in java or []),
         *(f"{key}={value}" for key, value in (settings or {}).items())],
        stdout=subprocess.PIPE, text=True, check=True).stdout


def end(name: str) -> None:
    """Stops a service and deletes its data, so that the next measure starts afresh."""
    service(name, "stop")
    shutil.rmtree(tool(name))


# ----------------------------------------------------------------------------------------------------
# Kafka
# ----------------------------------------------------------------------------------------------------


class Topic:
    def __init__(self, broker: "Broker", name: str, partitions: int) -> None:
        self.broker, self.name, self.partitions = broker, name, partitions
        self.url = f"kafka://{broker.address}/{name}"
        self.sink_config = {"bootstrap.servers": broker.address, "topic": name}

    def records(self) -> int:
        """Number of records so far."""
        return sum(protocol.end_offset(self.broker.port, self.name, number)
                   for number in range(self.partitions))

    def wait_for(self, records: int, every: float = 0.02, seconds: float = 600) -> None:
        wait_for(records, self.records, every, seconds)

    @contextmanager
    def receiver(self, events: int) -> Iterator[Receiver]:
        """A receiver of records that are written from now on."""
        with running(tool("kafka_receiver"), self.url, str(events), stdin=subprocess.PIPE) as process:
            yield Receiver(process)


class Broker:
    def __init__(self) -> None:
        self.cluster = Cluster(tool("kafka"))
        self.address = self.cluster.addresses()["bootstrap"]
        self.port = self.cluster.nodes[0].ports["bootstrap"]
        self.pid = self.cluster.nodes[0].pid()
        self.topics = 0

    def new_topic(self, name: str, partitions: int = PARTITIONS, retention: int = 1 << 30) -> Topic:
        """Creates a topic with a unique name that starts with `name`."""
        self.topics += 1
        name = f"{name}.{self.topics}"
        self.cluster.create_topic(name, partitions, {
            "retention.bytes": str(retention // partitions), "segment.bytes": str(SEGMENT_BYTES)})
        return Topic(self, name, partitions)


@contextmanager
def kafka() -> Iterator[Broker]:
    service("kafka", "start", java=BROKER_JAVA, settings=PROPERTIES)
    try:
        yield Broker()
    finally:
        end("kafka")


# ----------------------------------------------------------------------------------------------------
# Debezium
# ----------------------------------------------------------------------------------------------------

# Settings of the server that Debezium requires.
LOGICAL = {"wal_level": "logical", "listen_addresses": "127.0.0.1"}


class Debezium:
    """Debezium's connector for PostgreSQL with the outbox router, in a worker of Kafka Connect. The
    topic of an event is its aggregate_type."""

    def __init__(self, broker: Broker, database: str) -> None:
        self.database = database
        self.marks = broker.new_topic("mark", partitions=1)
        self.pid = int(Path(tool("debezium"), "pid").read_text())
        self.url = f"http://127.0.0.1:{Path(tool('debezium'), 'port').read_text().strip()}/connectors/outbox"

    def call(self, method: str, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(self.url + path, method=method,
                                         headers={"Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def walsenders(self) -> int:
        return int(sql("SELECT count(*) FROM pg_replication_slots WHERE active", self.database))

    def stop(self) -> None:
        """Stops the connector; its process keeps running. Events written meanwhile are its
        backlog."""
        self.call("PUT", "/stop")
        wait_for(0, lambda: -self.walsenders(), every=0.02)

    def resume(self, settings: dict | None = None) -> None:
        if settings:
            self.call("PUT", "/config", {**self.call("GET", "/config"), **settings})
        self.call("PUT", "/resume")
        wait_for(1, self.walsenders, every=0.02)

    def catch_up(self) -> None:
        """Returns when the connector has delivered all earlier events."""
        before = self.marks.records()
        sql(f"SELECT outbox_enqueue('{self.marks.name}', 1, 'Mark', '{{}}'::jsonb)", self.database)
        self.marks.wait_for(before + 1, every=0.02, seconds=60)

    @contextmanager
    def relay(self, settings: dict | None = None) -> Iterator[None]:
        """Runs the connector only within this block."""
        self.resume(settings)
        try:
            self.catch_up()
            yield
        finally:
            self.stop()


@contextmanager
def debezium(broker: Broker, database: str = "bench") -> Iterator[Debezium]:
    """The connector, stopped. The server must have been started with the settings in LOGICAL."""
    sql("CREATE PUBLICATION outbox FOR TABLE outbox_messages WITH (publish_via_partition_root)", database)
    service("debezium", "start", "--kafka", broker.address, "--pg-port", os.environ["PGPORT"],
            "--dbname", database, java=CONNECT_JAVA,
            settings={"router.route.topic.replacement": "${routedByValue}"})
    try:
        connector = Debezium(broker, database)
        connector.stop()
        yield connector
    finally:
        end("debezium")
        sql("SELECT pg_drop_replication_slot('outbox')", database)
