"""A Kafka cluster in a folder: its settings, its processes."""

import json
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

import kafka_protocol as protocol
from jars import Jars, fail
from kafka_protocol import HOST
from process import Process, end, wait_until

JARS = Jars("kafka")

LISTENERS = {"bootstrap": "PLAINTEXT", "sasl": "SASL_PLAINTEXT", "tls": "SSL",
             "sasl_tls": "SASL_SSL"}

# A killed broker can register again when its session is over: how long that is, is how long a start
# after a kill takes.
PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map":
        "CONTROLLER:PLAINTEXT," + ",".join(f"{name}:{name}" for name in LISTENERS.values()),
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


def free_ports(count):
    held = []
    for port in random.sample(range(12000, 32000), 2000):  # below those that clients are given
        candidate = socket.socket()
        try:
            candidate.bind((HOST, port))
            held.append(candidate)
        except OSError:
            candidate.close()
        if len(held) == count:
            break
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Node(Process):
    """One process: broker and controller."""

    def __init__(self, cluster, number):
        directory = cluster.directory / str(number)
        self.properties = directory / "server.properties"
        super().__init__(directory, self.properties)
        self.cluster = cluster
        self.number = number
        self.ports = cluster.settings["ports"][number - 1]

    # What it unpacks for itself goes away with it, also when it is killed.
    def java(self, *arguments):
        unpacks = f"-Djava.io.tmpdir={self.directory}"
        return JARS.java([unpacks, *self.cluster.settings["java"]], *arguments)

    def format(self):
        if (self.directory / "data/meta.properties").exists():
            return None
        command = self.java("kafka.tools.StorageTool", "format", "-c", self.properties,
                            f"--cluster-id={self.cluster.settings['id']}")
        return subprocess.Popen(command, cwd=JARS.home, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def launch(self):
        return super().launch(self.java("kafka.Kafka", self.properties), JARS.home)

    # It has registered, knows the others, and is in sync in all that it has replicas of.
    def ready(self, others):
        if not self.pid():
            return False
        try:
            brokers, topics = protocol.metadata(self.ports["bootstrap"])
        except OSError:
            return False
        return brokers >= {self.number, *others} and not any(
            self.number in replicas and (leader < 0 or self.number not in in_sync)
            for partitions in topics.values() for leader, replicas, in_sync in partitions.values())

    def configure(self):
        settings = self.cluster.settings
        names = self.cluster.listeners()
        replicas = "3" if settings["nodes"] >= 3 else "1"
        in_sync = "2" if settings["nodes"] >= 3 else "1"
        listeners = [f"{LISTENERS[name]}://{HOST}:{self.ports[name]}" for name in names]
        voters = [f"{node.number}@{HOST}:{node.ports['controller']}" for node in self.cluster.nodes]
        lines = {
            **PROPERTIES,
            "node.id": str(self.number),
            "log.dirs": str(self.directory / "data"),
            "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{self.ports['controller']}"]),
            "controller.quorum.voters": ",".join(voters),
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.min.isr": in_sync,
            **self.sasl(), **self.tls(), **settings["properties"],
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text("".join(
            f"{key}={escaped(value)}\n" for key, value in lines.items()))

    def sasl(self):
        users = self.cluster.settings["sasl"]
        if not users:
            return {}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        pairs = (user.split(":", 1) for user in users)
        accounts = (f'user_{name}="{quoted(password)}"' for name, password in pairs)
        jaas = " ".join([module, *accounts])
        return {"sasl.enabled.mechanisms": "PLAIN",
                **{f"listener.name.{name}.plain.sasl.jaas.config": jaas + ";"
                   for name in ("sasl_plaintext", "sasl_ssl")}}

    def tls(self):
        settings = self.cluster.settings
        if not settings["cert"]:
            return {}
        lines = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.cluster.keystore())}
        if settings["client_ca"]:
            lines |= {"ssl.truststore.type": "PEM",
                      "ssl.truststore.location": settings["client_ca"],
                      "listener.name.ssl.ssl.client.auth": "required"}
        return lines


# In a file of properties.
def escaped(text):
    return text.replace("\\", "\\\\")


# In a string within quotation marks.
def quoted(text):
    return escaped(text).replace('"', '\\"')


class Cluster:
    """What the nodes share: settings that outlive each process."""

    def __init__(self, directory):
        self.directory = Path(directory).absolute()
        self.file = self.directory / "cluster.json"
        if not self.file.exists():
            fail(f"nothing was ever started in {directory}")
        self.settings = json.loads(self.file.read_text())
        self.nodes = [Node(self, i + 1) for i in range(self.settings["nodes"])]

    @classmethod
    def create(cls, directory, nodes):
        names = [*LISTENERS, "controller"]
        ports = free_ports(nodes * len(names))
        if len(ports) < nodes * len(names):
            fail("no free ports")
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        settings = {"id": identity, "nodes": nodes,
                    "ports": [dict(zip(names, ports[i::nodes])) for i in range(nodes)],
                    "sasl": [], "cert": None, "key": None, "client_ca": None, "java": [],
                    "properties": {}}
        Path(directory).mkdir(parents=True, exist_ok=True)
        Path(directory, "cluster.json").write_text(json.dumps(settings, indent=4) + "\n")
        return cls(directory)

    def listeners(self):
        sasl, tls = bool(self.settings["sasl"]), bool(self.settings["cert"])
        asked = {"bootstrap": True, "sasl": sasl, "tls": tls, "sasl_tls": sasl and tls}
        return [name for name in LISTENERS if asked[name]]

    def addresses(self):
        return {name: ",".join(f"{HOST}:{node.ports[name]}" for node in self.nodes)
                for name in self.listeners()}

    def keystore(self):
        file = self.directory / "keystore.pem"
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as keystore:
            for part in ("key", "cert"):
                keystore.write(Path(self.settings[part]).read_text() + "\n")
        return file

    def chosen(self, number):
        if number is not None and not 1 <= number <= len(self.nodes):
            fail(f"there is no node {number}")
        return self.nodes if number is None else [self.nodes[number - 1]]

    def start(self, number=None, timeout=60):
        self.file.write_text(json.dumps(self.settings, indent=4) + "\n")
        nodes = [node for node in self.chosen(number) if not node.pid()]
        for node in nodes:
            node.configure()
        for process in [node.format() for node in nodes]:
            if process:
                output = process.communicate()[0].decode()
                if process.returncode:
                    fail(f"the broker's folder cannot be formatted\n{output}")
        launched = {node: node.launch() for node in nodes}
        wait_until(lambda: self.ready(number), self.chosen(number), launched, timeout)

    def stop(self, number=None, how=signal.SIGTERM):
        end(self.chosen(number), how)

    def ready(self, number=None):
        nodes = self.chosen(number)
        return all(node.ready({other.number for other in nodes}) for node in nodes)

    def any_metadata(self):
        for node in self.nodes:
            try:
                return node, *protocol.metadata(node.ports["bootstrap"])
            except OSError:
                continue
        fail("no node answers")

    # Returns when all nodes know it, with its leaders.
    def create_topic(self, name, partitions, properties):
        port = self.any_metadata()[0].ports["bootstrap"]
        if problem := protocol.create_topic(port, name, partitions, properties):
            fail(f"topic {name}: {problem}")
        running = [node for node in self.nodes if node.pid()]
        deadline = time.monotonic() + 30
        while not all(self.has_leaders(node, name, partitions) for node in running):
            if time.monotonic() > deadline:
                fail(f"topic {name} has no leaders")
            time.sleep(0.02)

    def has_leaders(self, node, topic, partitions):
        found = protocol.metadata(node.ports["bootstrap"])[1].get(topic, {})
        return len(found) == partitions and all(leader > 0 for leader, _, _ in found.values())

    def describe(self, topic):
        _, _, topics = self.any_metadata()
        if topic not in topics:
            fail(f"no topic {topic}")
        for number, (leader, _, in_sync) in sorted(topics[topic].items()):
            end = "-"
            if leader > 0:
                end = protocol.end_offset(self.nodes[leader - 1].ports["bootstrap"], topic, number)
            print(number, leader, ",".join(map(str, sorted(in_sync))), end)
