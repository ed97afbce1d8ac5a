"""Tests the judge: each promise is broken once."""

import json
import os

from accounts import PROMISES
from faults import FAULTS
from judge import EXAMPLES, Judge
from scene import Scene
from session import Session
from truth import Truth


def apart(function, *arguments):
    """Forks a process that has a copy of this state, and returns the strings that it reports."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            strings = function(*arguments)
        except Exception as error:
            strings = [repr(error)]
        os.write(writer, json.dumps(strings).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        strings = json.load(file)
    os.waitpid(child, 0)
    return strings


class Trial:
    def __init__(self, ledger, record, kafka_file):
        # Reading takes longest, so it is done once; each question still has a judge of its own.
        judge = Judge(ledger, record)
        judge.read_on()
        truth = Truth(Session("trial"))
        self.scene = Scene({"ledger": ledger, "record": record, "kafka": kafka_file}, judge, truth.dead_letters())
        truth.close()

    def try_all(self):
        wrong = {"where nothing is wrong the judge says nothing":
                 [what for order in ("before", "recovered", "over") for what in apart(self.imagine, order)]}
        overlooked = {promise: ["no fault breaks it"] for promise in PROMISES.keys() - {fault[0] for fault in FAULTS}}
        for fault in FAULTS:
            overlooked.setdefault(fault[0], []).extend(apart(self.overlook, *fault))
        wrong |= {f"the judge reports a violation of: {PROMISES[promise]}": what for promise, what in overlooked.items()}
        return {"wrong": {sentence: [len(what), *what[:EXAMPLES]] for sentence, what in wrong.items()}, "counts": {"faults": len(FAULTS)}}

    def imagine(self, order):
        with self.scene.set():
            return [f"{order}: {what}" for blamed in self.scene.ask(order).values() for what in blamed][:EXAMPLES]

    def overlook(self, promise, order, plant):
        """Returns expected reports that the judge has not made."""
        with self.scene.set():
            expected = plant(self.scene)
            said = self.scene.ask(order)[promise]
            return [f"{plant.__name__}, {order}: {what}" for what in expected if not any(what in words for words in said)]
