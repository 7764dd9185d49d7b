"""Functions that come and go with their requests: a process is started when a request finds none
free, kept for a while after its last one, then ended.

That is how a serverless platform of today runs functions of one process each (EDAS's FixedGSL). A
request takes the free process that was used last, so that surplus ones become idle; without a free
one another is started, as long as no more than `most` of the function run, and the request is
served by the first that is free. One thread, one select. What a request found is in its record.
"""
import collections
import dataclasses
import selectors
import time
import types

import instances

FOREVER = float("inf")


@dataclasses.dataclass
class Record:
    """A request; times of the machine's monotonic clock. `cold`: no process was free, and it waited
    for the start of the one that served it."""
    function: str
    arrived_ns: int
    cold: bool = False
    stamps: dict = dataclasses.field(default_factory=dict)
    ended_ns: int = 0
    result: str = None
    error: str = None


class Copy(instances.Instance):
    """A process of a function."""

    def __init__(self, name, number, worker):
        super().__init__(types.SimpleNamespace(name=name), number, worker)
        self.begin_ns, self.ready_ns, self.used = time.monotonic_ns(), None, None

    def free(self):
        return self.ready_ns is not None and self.flight is None


@dataclasses.dataclass
class Function:
    """A function: how it is started, what it is asked, its processes and its queue."""
    name: str
    command: list
    request: dict  # inputs, params, outputs of every request
    copies: list = dataclasses.field(default_factory=list)
    queue: collections.deque = dataclasses.field(default_factory=collections.deque)
    starts: list = dataclasses.field(default_factory=list)  # (start to ready, load) in ns

    def idle(self):
        """The free process that was used last."""
        return max((copy for copy in self.copies if copy.free()), key=lambda c: c.used,
                   default=None)

    def starting(self):
        return sum(copy.ready_ns is None for copy in self.copies)


class Platform:
    """`spawn(command, env)` starts a process (arm_set.py); `keep_s`: how long one stays idle."""

    def __init__(self, functions, spawn, keep_s, most, environment=None):
        self.functions = {function.name: function for function in functions}
        self.spawn, self.keep_s, self.most = spawn, keep_s, most
        self.environment = dict(instances.ENVIRONMENT, **(environment or {}))
        self.selector, self.records, self.ending, self.busy = selectors.SelectSelector(), [], [], 0
        self.request_id = 0

    def start(self, function):
        worker = self.spawn(function.command, self.environment)
        copy = Copy(function.name, len(function.starts) + function.starting(), worker)
        function.copies.append(copy)
        self.selector.register(copy.fd, selectors.EVENT_READ, copy)

    def warm(self, copies, deadline):
        """So many processes of each function, all started at once; each has answered once."""
        for function in self.functions.values():
            for _ in range(copies - len(function.copies)):
                self.start(function)
        self.until(lambda: all(not f.starting() for f in self.functions.values()), deadline)
        for function in self.functions.values():
            for copy in list(function.copies):
                self.hand(function, copy, Record(function.name, time.monotonic_ns()))
        self.until(lambda: self.busy == 0, deadline)
        failed = [record for record in self.take() if record.error]
        if failed:
            raise RuntimeError(f"{failed[0].function}: warm-up: {failed[0].error}")

    def until(self, done, deadline):
        while not done():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not done in time: {self.words()}")
            self.pump(deadline)

    def words(self):
        return ", ".join(f"{f.name}: {len(f.copies)} processes, {f.starting()} of them starting, "
                         f"{len(f.queue)} waiting" for f in self.functions.values())

    def take(self):
        """The records since the last time."""
        taken, self.records = self.records, []
        return taken

    def submit(self, name, arrived_ns):
        function = self.functions[name]
        record = Record(name, arrived_ns, cold=function.idle() is None)
        function.queue.append(record)
        self.serve(function)
        missing = len(function.queue) - function.starting()
        if missing > 0 and len(function.copies) < self.most:
            self.start(function)

    def serve(self, function):
        while function.queue and (copy := function.idle()) is not None:
            self.hand(function, copy, function.queue.popleft())

    def hand(self, function, copy, record):
        record.cold = record.cold and copy.ready_ns >= record.arrived_ns
        copy.flight, copy.since = record, time.monotonic()
        self.busy += 1
        self.request_id += 1
        copy.send(dict(function.request, id=self.request_id))

    def pump(self, until):
        """Waits for processes to say something, a tenth of a second at most."""
        left = min(0.1, max(0.0, until - time.monotonic()))
        for key, _ in self.selector.select(left):
            copy = key.data
            for kind, said in copy.received():
                self.heard(self.functions[copy.stage.name], copy, kind, said)
        self.reap()

    def heard(self, function, copy, kind, said):
        if kind == "ready":
            copy.ready_ns = time.monotonic_ns()
            function.starts.append((copy.ready_ns - copy.begin_ns, int(said["seconds"] * 1e9)))
        else:
            record, copy.flight = copy.flight, None
            self.busy -= 1
            record.stamps, record.result = said.get("stamps", {}), said.get("result")
            record.error, record.ended_ns = said.get("error"), time.monotonic_ns()
            if not record.error:
                record.ended_ns = record.stamps["outputs"]
            self.records.append(record)
        copy.used = time.monotonic()
        self.serve(function)

    def reap(self):
        """Ends who has been idle for too long; those that have ended are put away."""
        now = time.monotonic()
        for function in self.functions.values():
            for copy in [c for c in function.copies if c.free() and now - c.used > self.keep_s]:
                self.end(function, copy)
        for copy in [copy for copy in self.ending if copy.worker.process.poll() is not None]:
            self.ending.remove(copy)
            copy.worker.close()

    def end(self, function, copy):
        function.copies.remove(copy)
        self.selector.unregister(copy.fd)
        copy.finish()
        self.ending.append(copy)

    def replay(self, arrivals, deadline):
        """Open loop over [(seconds from now, function)]; the records when all have ended."""
        begin, due = time.monotonic_ns(), 0
        while due < len(arrivals) and time.monotonic() < deadline:
            at = begin + round(arrivals[due][0] * 1e9)
            if at <= time.monotonic_ns():
                self.submit(arrivals[due][1], at)
                due += 1
            else:
                self.pump(min(deadline, at / 1e9))
        self.records += [Record(name, begin + round(at * 1e9), error="never sent")
                         for at, name in arrivals[due:]]
        return self.drained(deadline)

    def drained(self, deadline):
        """Waits for what is under way; what does not end in time has an error."""
        while self.waiting() and time.monotonic() < deadline:
            self.pump(deadline)
        for function in self.functions.values():
            late = [*function.queue, *(c.flight for c in function.copies if c.flight)]
            self.records += [dataclasses.replace(record, error="not through by the deadline")
                             for record in late]
            function.queue.clear()
        return self.take()

    def waiting(self):
        return self.busy + sum(len(function.queue) for function in self.functions.values())

    def closed(self, names, seconds):
        """One process of each of these functions asked without pause, all at the same time."""
        end = time.monotonic() + seconds
        chosen = [(self.functions[name], self.functions[name].copies[0]) for name in names]
        while time.monotonic() < end:
            for function, copy in chosen:
                if copy.free():
                    self.hand(function, copy, Record(function.name, time.monotonic_ns()))
            self.pump(end)
        return self.drained(time.monotonic() + 30)

    def close(self, patience_s=10):
        for function in self.functions.values():
            for copy in list(function.copies):
                self.end(function, copy)
        deadline = time.monotonic() + patience_s
        for copy in self.ending:
            copy.close(deadline)
        self.ending.clear()
        self.selector.close()
