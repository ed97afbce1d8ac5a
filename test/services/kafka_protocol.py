"""Kafka's protocol, as far as test/services/kafka needs it: three calls, with plain fields."""

import socket
import struct

HOST = "127.0.0.1"


class Message:
    """A request or an answer; a connection for each."""

    METADATA, LIST_OFFSETS, CREATE_TOPICS = (3, 1), (2, 1), (19, 4)

    def __init__(self, data=b""):
        self.data = data

    def put(self, form, *values):
        self.data += struct.pack(">" + form, *values)
        return self

    def put_text(self, text):
        return self.put(f"h{len(text.encode())}s", len(text.encode()), text.encode())

    def get(self, form):
        size = struct.calcsize(">" + form)
        values, self.data = struct.unpack(">" + form, self.data[:size]), self.data[size:]
        return values if len(values) > 1 else values[0]

    def get_text(self):
        size = self.get("h")
        return None if size < 0 else self.get(f"{size}s").decode()

    def get_list(self, get):
        return [get() for _ in range(self.get("i"))]

    def send(self, port, call):
        request = struct.pack(">hhih", *call, 1, -1) + self.data
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answers:
                size = int.from_bytes(answers.read(4), "big")
                answer = answers.read(size)
        if size == 0 or len(answer) < size:
            raise OSError("no answer")
        return Message(answer[4:])


# As the node sees it: who is there, and {topic: {partition: (leader, replicas, those in sync)}}.
def metadata(port):
    answer = Message().put("i", -1).send(port, Message.METADATA)

    def broker():
        node = answer.get("i")
        answer.get_text(), answer.get("i"), answer.get_text()
        return node

    def partition():
        _, number, leader = answer.get("hii")
        replicas, in_sync = (set(answer.get_list(lambda: answer.get("i"))) for _ in range(2))
        return number, (leader, replicas, in_sync)

    def topic():
        answer.get("h")
        name = answer.get_text()
        answer.get("b")
        return name, dict(answer.get_list(partition))

    brokers = set(answer.get_list(broker))
    answer.get("i")
    return brokers, dict(answer.get_list(topic))


def end_offset(port, topic, number):
    request = Message().put("ii", -1, 1).put_text(topic).put("iiq", 1, number, -1)
    answer = request.send(port, Message.LIST_OFFSETS)
    answer.get("i"), answer.get_text(), answer.get("i")
    return answer.get("ihqq")[3]


# As many replicas as the broker's default. Returns what is wrong, or None.
def create_topic(port, name, partitions, properties):
    request = Message().put("i", 1).put_text(name).put("ih", partitions, -1)
    request.put("ii", 0, len(properties))
    for key, value in properties.items():
        request.put_text(key).put_text(value)
    answer = request.put("ib", 30000, 0).send(port, Message.CREATE_TOPICS)
    answer.get("ii"), answer.get_text()
    code = answer.get("h")
    return f"{answer.get_text()} (error {code})" if code else None
