"""The loop of a function: a request in, the model's run, an answer out.

A function is a program with one `load(device)`, which returns `run(inputs, params)`, and ends with
`serving.main(load)`. It is started as `program --host` (numpy arrays, no GPU), `--device N` (torch
tensors on GPU N) or `--device cpu` (the same without a GPU, to rehearse).

One JSON object a line, on standard input and output; what else is printed goes to standard error.

    {"id": 7, "inputs": {NAME: HANDLE or null}, "params": {..}, "outputs": {NAME: WAY},
     "release": [KEY, ..]}                    a request; {"release": [..]} and {"end": true} alone
    @ready {"pid": .., "seconds": ..}         after load(): how long the start took
    @done {"id": 7, "outputs": {NAME: HANDLE or null}, "stamps": {..}, "bytes": {..}, "result": ..}
    @failed {"id": 7, "error": ".."}          the next request is served all the same

Stamps are time.monotonic_ns(), one clock for all processes: `start` when the request was read,
`inputs` when all of them are on the device, `computed` when run() and its GPU work are done,
`outputs` when all of them are where their ways say. What run() returns as "result" is not passed on
but hashed, behind the last stamp. Inputs are dropped before the answer, so whoever reads it may
have the producer take them back.
"""
import argparse
import hashlib
import json
import os
import sys
import time
import traceback

import passing

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def digest(result):
    """The hash of an array, or of a dict of arrays: names, types, shapes and bytes."""
    named = result if isinstance(result, dict) else {"result": result}
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(named):
        array = passing.contiguous(named[name])
        total.update(f"{name} {array.dtype.name} {list(array.shape)};".encode())
        total.update(memoryview(passing.raw(array)))
    return total.hexdigest()


class Lines:
    """Standard output for answers alone: what libraries print goes to standard error."""

    def __init__(self):
        sys.stdout.flush()
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, kind, **values):
        self.out.write(f"@{kind} {json.dumps(values)}\n")
        self.out.flush()


class Function:
    """A loaded function and the way its data come and go."""

    def __init__(self, load, side):
        self.side = side
        self.carrier = passing.Passing(side)
        self.run = load(side.device)

    def answer(self, request):
        """Serves one request; returns what `@done` says of it."""
        stamps, size = {"start": time.monotonic_ns()}, {"in": {}, "out": {}}
        self.carrier.release(request.get("release", ()))
        inputs = self.taken(request["inputs"], size["in"])
        stamps["inputs"] = self.now()
        self.carrier.begin(request.get("outputs", {}))
        outputs = self.run(inputs, request.get("params", {}))
        stamps["computed"] = self.now()
        del inputs
        result = outputs.pop("result", None)
        handles = self.given(outputs, request.get("outputs", {}), size["out"])
        stamps["outputs"] = self.now()
        done = {"id": request["id"], "outputs": handles, "stamps": stamps, "bytes": size}
        return done if result is None else dict(done, result=digest(result))

    def now(self):
        self.side.synchronise()
        return time.monotonic_ns()

    def taken(self, handles, size):
        taken = {}
        for name, handle in handles.items():
            taken[name] = None if handle is None else self.carrier.take(handle)
            size[name] = 0 if handle is None else passing.size_of(handle)
        return taken

    def given(self, outputs, ways, size):
        handles = {}
        for name, way in ways.items():
            output = outputs.get(name)
            handles[name] = None if output is None else self.carrier.give(output, way)
            size[name] = 0 if output is None else passing.size_of(handles[name])
        return handles


def serve(function, lines):
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("end"):
            return
        if "id" not in request:
            function.carrier.release(request.get("release", ()))
            continue
        try:
            done = function.answer(request)
        except Exception as error:  # The runner decides what a failed request means.
            traceback.print_exc()
            lines.say("failed", id=request["id"], error=f"{type(error).__name__}: {error}")
        else:
            lines.say("done", **done)


def arguments():
    parser = argparse.ArgumentParser()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--host", action="store_true", help="a host stage: numpy, no GPU")
    where.add_argument("--device", help="a GPU stage: the number of its GPU, or cpu")
    return parser.parse_args()


def side_of(device):
    """The side of a GPU stage: torch, imported by who needs it only."""
    import device_torch
    return device_torch.Side(device)


def age():
    """Seconds since this process was started, imports included."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def main(load, side=side_of):
    """Runs the function until its input ends. `side(device)` makes what device_torch.Side is, for
    functions that compute with something else than torch."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    given = arguments()
    lines = Lines()
    function = Function(load, passing.HostSide() if given.host else side(given.device))
    lines.say("ready", pid=os.getpid(), seconds=round(age(), 3))
    try:
        serve(function, lines)
    finally:
        function.carrier.close()
