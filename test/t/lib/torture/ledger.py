"""The ledger: what the clients know, line by line, in the order in which they came to know it.

    try    attempt, durable, events, ...   a commit is about to be sent; these are its consequences
    done   attempt                         the server said that it is committed
    undone attempt                         the server refused it
    lost   attempt                         the connection is gone, and with it the answer
    never  events                          rolled back, or the connection was gone before a commit was sent
    claim  consumer, token, rows, ...      a batch was handed out, and its claim committed
    beat   consumer, token, until          its lease lasts longer
    told   key, event                      the answer that an idempotency key replayed
"""

import json
import os
import threading


class Ledger:
    """Appends lines; each is in the kernel's hands before its writer continues."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.lock = threading.Lock()
        self.position = 0

    def write(self, kind, **what):
        with self.lock:
            self.position += 1
            line = json.dumps({"kind": kind, "position": self.position, **what}, separators=(",", ":"))
            os.write(self.file, line.encode() + b"\n")


class Tail:
    """Reads on in a file that other processes append to, up to the last complete line."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.rest = b""

    def lines(self):
        while chunk := self.file.read(1 << 20):
            *whole, self.rest = (self.rest + chunk).split(b"\n")
            yield from whole
