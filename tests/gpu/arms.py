"""One worker process of a measured item, native or through Tube, driven line by line over its pipes
(items/worker.py)."""
import json
import os
import select
import subprocess
import time


class WorkerError(Exception):
    pass


class Worker:
    """Starts at once; everything read from it has a deadline; close() leaves no process behind."""

    def __init__(self, name, command, env, folder):
        os.makedirs(folder, exist_ok=True)
        self.name, self.folder = name, folder
        self.begin = time.monotonic()
        self.stderr_path = os.path.join(folder, "stderr.txt")
        self.buffer = b""
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(
                command, env=dict(env, ITEM_OUTPUTS=folder, PYTHONUNBUFFERED="1"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=folder)
        self.pid = self.process.pid

    def expect(self, kind, deadline):
        """The values of the next line `@kind {...}`; other lines are the program's own and are
        dropped."""
        while True:
            line, newline, rest = self.buffer.partition(b"\n")
            if newline:
                self.buffer = rest
                if line.startswith(f"@{kind} ".encode()):
                    return json.loads(line[len(kind) + 2:])
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise WorkerError(f"{self.name}: no answer '{kind}' in time")
            block = os.read(self.process.stdout.fileno(), 1 << 16)
            if not block:
                raise WorkerError(f"{self.name}: ended with {self.process.wait(30)} before "
                                  f"'{kind}': {self.stderr_tail()}")
            self.buffer += block

    def send(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(f"{self.name}: ended with {self.process.wait(30)}") from None

    def ready(self, deadline):
        """Waits for the warm-up's end; returns seconds since the start of the process."""
        self.expect("ready", deadline)
        return time.monotonic() - self.begin

    def run(self, steps, deadline):
        """One block of steps; returns the latency of each in nanoseconds."""
        self.send(f"run {steps}")
        return self.expect("block", deadline)["latency_ns"]

    def finish(self, deadline):
        """The outputs' hashes; the process has ended well afterwards."""
        self.send("finish")
        hashes = self.expect("done", deadline)["hashes"]
        self.process.stdin.close()
        try:
            code = self.process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise WorkerError(f"{self.name}: did not exit after its work") from None
        if code != 0:
            raise WorkerError(f"{self.name}: right to the end, then exit code {code}")
        return hashes

    def end(self, limit_s=30):
        """Its input ends, so it does."""
        self.process.stdin.close()
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise WorkerError(f"{self.name}: did not end with its input") from None

    def stderr_tail(self, lines=15):
        with open(self.stderr_path, errors="replace") as file:
            return "\n".join(file.read().splitlines()[-lines:])

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass


def first_difference(native, tube):
    """Where two output files differ, in words."""
    with open(native, "rb") as a, open(tube, "rb") as b:
        left, right = a.read(), b.read()
    if len(left) != len(right):
        return f"{len(left)} bytes natively, {len(right)} through Tube"
    differing = [i for i, (x, y) in enumerate(zip(left, right)) if x != y]
    return f"{len(differing)} of {len(left)} bytes differ, the first at {differing[0]}" if differing else "same bytes"
