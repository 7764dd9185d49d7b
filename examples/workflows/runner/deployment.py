"""A workflow that runs: every function a process of an arm, requests sent through and their records
collected.

    with ArmSet(..) as arms, Deployment(wf, arms.arms["tube"], "host", 16) as deployment:
        deployment.start(time.monotonic() + 120)
        records = deployment.replay(wf.requests(len(times), 16), times, time.monotonic() + 60)

One thread, one select over the functions' standard output. Deadlines are values of
time.monotonic(). A function that ends raises WorkflowError with its name and the end of its stderr,
and so does a function that has worked on one request for `patience_s` (in the warm-up: until the
deadline); the deployment is of no use afterwards but for close(). Requests that are not through by
the deadline have an error in their record.

Before start() returns each copy of each function has worked on requests (warm-up, not recorded):
different variants, since their counts and so their shapes differ, and conditions must come true.
"""
import contextlib
import selectors
import time

import dispatch
import instances
from workflow import Request, WorkflowError


class Deployment:
    """`copies`: stage name -> processes (default 1). `place`: packed or spread over `devices`.
    `state`: folder of the weights. `warm_runs`: how often each copy works before it counts, if
    there are variants enough. `environment`: more of it for the functions."""

    def __init__(self, wf, arm, passing, batch=None, copies=None, devices=(0,), place="packed",
                 standin=False, state=None, patience_s=60, warm_runs=3, environment=None):
        self.wf, self.arm, self.passing, self.batch = wf, arm, passing, batch or wf.batch
        self.standin, self.patience_s, self.warm_until = standin, patience_s, 0
        self.warm_runs = warm_runs
        self.places = instances.place(wf, copies or {}, list(devices), place)
        self.environment = dict(instances.ENVIRONMENT, **(environment or {}))
        if state is not None:
            self.environment["WORKFLOW_STATE"] = str(state)
        self.instances, self.selector = [], selectors.SelectSelector()
        self.keeper = self.dispatcher = None

    def start(self, deadline):
        """Starts all processes at once, waits until each is ready, and warms them up. Returns
        seconds: of the start, of the warm-up."""
        begin = time.monotonic()
        self.keeper = instances.Keeper()
        for pid in self.arm.servers():
            self.keeper.tell("pid", pid)
        for folder in self.folders():
            self.keeper.tell("folder", folder)
        if work := getattr(getattr(self.arm, "set", None), "work", None):
            self.environment.setdefault("WORKFLOW_FILES", str(work))
        for stage, number, device in self.places:
            self.spawn(stage, number, device)
        self.wait_ready(deadline)
        ready = time.monotonic()
        self.dispatcher = dispatch.Dispatcher(self.wf, self.instances, self.passing, self.standin)
        self.warm(deadline)
        self.arm.confirm(sum(i.stage.kind == "gpu" for i in self.instances))
        return {"start": ready - begin, "warm": time.monotonic() - ready}

    def folders(self):
        """What the arm and its server write to, as far as they have folders."""
        owners = (("set", "work"), ("proxy", "dir"), ("server", "folder"))
        found = [getattr(getattr(self.arm, owner, None), name, None) for owner, name in owners]
        return [folder for folder in found if folder]

    def spawn(self, stage, number, device):
        command = instances.command(stage, device, self.standin)
        worker = self.arm.spawn(command, self.environment)
        instance = instances.Instance(stage, number, worker)
        self.instances.append(instance)
        self.keeper.tell("pid", instance.pid)
        self.selector.register(worker.process.stdout, selectors.EVENT_READ, instance)

    def wait_ready(self, deadline):
        while missing := [i for i in self.instances if i.ready is None]:
            if time.monotonic() > deadline:
                raise missing[0].trouble("was not ready in time")
            self.pump(deadline)

    def pass_by(self, passing):
        """From now on data passes in another way; nothing may be under way."""
        if self.dispatcher.flights:
            raise WorkflowError("passing changes between requests only")
        self.passing = passing
        self.dispatcher = dispatch.Dispatcher(self.wf, self.instances, passing, self.standin)

    def warm(self, deadline):
        """Variants one after the other, each through every copy, until each has worked
        `warm_runs` times."""
        self.warm_until = deadline
        most = max(number for _, number, _ in self.places) + 1
        runs = dict.fromkeys(self.wf.stages, 0)
        for variant in range(self.wf.variants):
            if min(runs.values()) >= self.warm_runs:
                break
            request = Request(-1 - variant, variant, self.wf.params(variant, self.batch))
            for copy in range(most):
                self.dispatcher.submit(request, time.monotonic_ns(), self.pins(copy))
            for record in self.through(deadline):
                if record.error:
                    raise WorkflowError(f"warm-up: {record.error}")
                for name in record.stages:
                    runs[name] += 1 / most
        self.warm_until = 0

    def pins(self, copy):
        """Which copy of each function a warm-up request takes: this one, or the last there is."""
        return {name: min(copy, len(copies) - 1)
                for name, copies in self.dispatcher.copies.items()}

    def through(self, deadline):
        """Waits until no request is under way; the records since the last time."""
        while self.dispatcher.flights:
            if time.monotonic() > deadline:
                self.dispatcher.abandon("not through by the deadline")
            self.pump(deadline)
        records, self.dispatcher.finished = self.dispatcher.finished, []
        return sorted(records, key=lambda record: record.id)

    def replay(self, requests, times, deadline):
        """Open loop: request i arrives `times[i]` seconds after now, whatever the others do. The
        arrival counts from when it was due."""
        begin, due = time.monotonic_ns(), 0
        arrivals = [begin + round(at * 1e9) for at in times]
        pairs = list(zip(requests, arrivals))
        while due < len(pairs) and time.monotonic() < deadline:
            while due < len(pairs) and pairs[due][1] <= time.monotonic_ns():
                self.dispatcher.submit(*pairs[due])
                due += 1
            if due < len(pairs):
                self.pump(min(deadline, pairs[due][1] / 1e9))
        self.unsent(pairs[due:])
        return self.through(deadline)

    def closed(self, requests, concurrency, deadline):
        """Closed loop: `concurrency` requests are under way at any time."""
        waiting = list(reversed(requests))
        while waiting and time.monotonic() < deadline:
            while waiting and len(self.dispatcher.flights) < concurrency:
                self.dispatcher.submit(waiting.pop(), time.monotonic_ns())
            self.pump(deadline)
        self.unsent((request, time.monotonic_ns()) for request in reversed(waiting))
        return self.through(deadline)

    def unsent(self, pairs):
        """Records of requests for which there was no time."""
        self.dispatcher.finished += [
            dispatch.Record(request.id, request.variant, arrived, arrived, error="never sent")
            for request, arrived in pairs
        ]

    def pump(self, until):
        """Waits for functions to say something, until then or a tenth of a second at most, and acts
        on what they say."""
        left = min(0.1, until - time.monotonic()) if until > time.monotonic() else 0.01
        for key, _ in self.selector.select(left):
            for kind, values in key.data.received():
                self.heard(key.data, kind, values)
        for instance in self.instances:
            busy = time.monotonic() - instance.since if instance.flight else 0
            if busy > self.patience_s and time.monotonic() > self.warm_until:
                raise instance.trouble(f"has said nothing for {busy:.0f} s about a request")

    def heard(self, instance, kind, values):
        if kind == "ready":
            instance.ready = values
        elif instance.flight is None or values.get("id") != instance.flight.request.id:
            raise instance.trouble(f"says @{kind} of a request that it does not have")
        elif kind == "done":
            self.dispatcher.done(instance, values)
        elif kind == "failed":
            self.dispatcher.failed(instance, values["error"])

    def pids(self, kind=None):
        """Process ids of the functions, of one kind (host, gpu) or all."""
        return [i.pid for i in self.instances if kind in (None, i.stage.kind)]

    def close(self, patience_s=instances.END_S):
        """Every process has ended when it returns; one that does not end by itself is killed."""
        for instance in self.instances:
            instance.finish()
        deadline = time.monotonic() + patience_s
        for instance in self.instances:
            instance.close(deadline)
            with contextlib.suppress(AttributeError, ValueError):
                self.arm.set.workers.remove(instance.worker)
        self.instances.clear()
        self.selector.close()
        if self.keeper is not None:
            self.keeper.close()
            self.keeper = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(instances.END_S if kind is None else 0.5)
