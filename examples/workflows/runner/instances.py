"""The processes of functions: one Instance is one of them, spoken to in lines of JSON.

Each is started by an arm of bench/lib/arm_set.py (or anything that has `spawn(command, env)` and
returns a process with its pipes). A function that ends, or says nothing, raises an error that names
it with the end of its stderr; nothing here waits without a deadline.

A keeper (keeper.py) is told every process and folder: it holds the reading end of a pipe of ours,
and when we are gone, however we went, it ends and removes what it was told.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

from workflow import WorkflowError

HERE = pathlib.Path(__file__).resolve().parent
END_S = 10  # for a function to end after it was asked to
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTHONUNBUFFERED": "1"
}


class Instance:
    """One process of a function. `flight` is what it works on, None when it waits for work."""

    def __init__(self, stage, number, worker):
        self.stage, self.number, self.worker = stage, number, worker
        self.fd, self.pid = worker.process.stdout.fileno(), worker.process.pid
        self.rest, self.flight, self.since, self.releases, self.ready = b"", None, 0, [], None

    def __str__(self):
        return f"{self.stage.name}[{self.number}] (pid {self.pid})"

    def trouble(self, what):
        """The error that names this function, with what it said on stderr."""
        tail = self.worker.stderr_tail().strip() or "(nothing on stderr)"
        return WorkflowError(f"{self} {what}; its stderr ends:\n{tail}")

    def send(self, message):
        """Says one line; what may be released goes along."""
        if self.releases:
            message = dict(message, release=self.releases)
            self.releases = []
        try:
            self.worker.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.worker.process.stdin.flush()
        except BrokenPipeError:
            raise self.ended() from None

    def ended(self):
        try:
            code = self.worker.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return self.trouble("closed its standard output and goes on")
        return self.trouble(f"ended with {code}" if code >= 0 else f"was killed by signal {-code}")

    def received(self):
        """[(kind, values)] of the lines that are there, after select said so; lines that do not
        begin with @ are the program's own and are dropped."""
        block = os.read(self.fd, 1 << 16)
        if not block:
            raise self.ended()
        *lines, self.rest = (self.rest + block).split(b"\n")
        return [self.parsed(line) for line in lines if line.startswith(b"@")]

    def parsed(self, line):
        kind, _, values = line[1:].partition(b" ")
        try:
            return kind.decode(), json.loads(values)
        except ValueError:
            raise self.trouble(f"says what is no answer: {line[:200]}") from None

    def release(self, key):
        """A key is no longer needed: said at once to a function that waits, to others when they
        have answered, so that a pipe never holds more than a line or two."""
        self.releases.append(key)
        if self.flight is None:
            self.idle()

    def idle(self):
        """There is no work for it now: says what it may release."""
        if self.releases:
            self.send({})

    def finish(self):
        """Asks it to end; does not wait."""
        try:
            self.send({"end": True})
            self.worker.process.stdin.close()
        except (WorkflowError, OSError):
            pass  # Gone already.

    def close(self, deadline):
        """It has ended, by itself until the deadline, afterwards killed."""
        try:
            self.worker.process.wait(max(0.01, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        self.worker.close()


def program(stage, standin):
    """The file of a function, or of what stands in for it."""
    return HERE.parent / "standin" / f"{stage.kind}.py" if standin else stage.program


def command(stage, device, standin):
    """What starts a function: the Python that we run under, its program, and where it runs."""
    where = ["--host"] if stage.kind == "host" else ["--device", str(device)]
    return [sys.executable, str(program(stage, standin)), *where]


def place(wf, copies, devices, how):
    """[(stage, copy, device)]: packed keeps a request on one device, copy k of every function on
    device k; spread puts functions that follow each other on different ones."""
    found, turn = [], 0
    for stage in wf.stages.values():
        for copy in range(copies.get(stage.name, 1)):
            at = copy + (turn if how == "spread" else 0)
            found.append((stage, copy, devices[at % len(devices)]))
        turn += stage.kind == "gpu"
    return found


class Keeper:
    """Ends what we leave behind when we are killed."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, str(HERE / "keeper.py")],
                                        stdin=subprocess.PIPE, start_new_session=True)

    def tell(self, kind, value):
        self.process.stdin.write(f"{kind} {value}\n".encode())
        self.process.stdin.flush()

    def close(self):
        """Everything was ended in order: there is nothing left for it to do."""
        self.tell("calm", "")
        self.process.stdin.close()
        self.process.wait()
