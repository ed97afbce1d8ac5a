"""A process that outlives the call that started it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from jars import fail


class Process:
    """Known by a file with its pid, and by a file that its command line names."""

    def __init__(self, directory, named):
        self.directory = directory
        self.named = named
        self.log = directory / "log"
        self.pid_file = directory / "pid"

    def pid(self):
        try:
            pid = int(self.pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_text()
            return pid if str(self.named) in command else None
        except (OSError, ValueError):
            return None

    def signal(self, number):
        if pid := self.pid():
            os.kill(pid, number)

    def launch(self, command, where):
        with open(self.log, "ab") as log:
            process = subprocess.Popen(command, cwd=where, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True)
        self.pid_file.write_text(f"{process.pid}\n")
        return process


# launched: those of the processes that this call has started, with what launch returned.
def wait_until(ready, processes, launched, timeout):
    deadline = time.monotonic() + timeout
    while not ready():
        dead = [process for process, child in launched.items() if child.poll() is not None]
        if dead or time.monotonic() > deadline:
            for process in launched:
                process.signal(signal.SIGKILL)
            show_logs(dead or processes)
            fail("it ended" if dead else f"not ready after {timeout:g} s")
        time.sleep(0.02)


def show_logs(processes):
    for process in processes:
        tail = process.log.read_text(errors="replace").splitlines()[-40:]
        print(f"--- {process.log}", *tail, sep="\n", file=sys.stderr)


# Returns when they are gone; who does not end in time is killed.
def end(processes, how=signal.SIGTERM, patience=20):
    for process in processes:
        process.signal(signal.SIGCONT)
        process.signal(how)
    deadline = time.monotonic() + patience
    while any(process.pid() for process in processes):
        if time.monotonic() > deadline:
            for process in processes:
                process.signal(signal.SIGKILL)
        time.sleep(0.02)
