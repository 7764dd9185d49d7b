"""Runs cases, many at once: natively, and through Tube with one proxy for the ordinary ones and one
each for those that end theirs.

A proxy that dies under an ordinary case is started again for the cases after it, and the cases that
ran while it died run once more, so that one bad case shows as one bad case.
"""
import collections
import concurrent.futures
import subprocess
import sys
import threading
import time

import tubetest


class Case(
        collections.namedtuple("Case", "chapter kind name program holds_streams",
                               defaults=(False,))):
    """holds_streams: its chapter says CASES_HOLD_STREAMS (case.h)."""

    @property
    def label(self):
        return f"{self.chapter}.{self.name}"


# Cases at once under one proxy on a driver, where they let streams wait: a context has 32 hardware
# queues.
HOLDING_JOBS = 4


def count_devices(driver):
    """How many GPUs the driver has, asked in a process of its own."""
    code = (
        "import ctypes, sys\nlib = ctypes.CDLL(sys.argv[1])\nn = ctypes.c_int(0)\n"
        "print(n.value if lib.cuInit(0) == 0 and lib.cuDeviceGetCount(ctypes.byref(n)) == 0 else 0)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(driver)], capture_output=True,
                         text=True).stdout.strip()
    return int(out) if out.isdigit() else 0


def wanted(kind):
    return 2 if kind == "two_devices" else 1


class Arms:
    """The two ways to run a list of cases. Both return {case: tubetest.Outcome}."""

    def __init__(self, layout, backend, driver, mode, jobs, timeout, devices=2, extra_env=None):
        self.layout, self.backend, self.driver, self.mode = layout, backend, driver, mode
        self.jobs, self.timeout, self.devices = jobs, timeout, devices
        self.extra_env = extra_env or (lambda case: {})
        self.deadline = None  # of time.monotonic(): no case begins behind it or lasts beyond it

    def native(self, cases):
        def one(case):
            env = dict(
                tubetest.environment(self.layout, "native", self.backend, driver=self.driver),
                **self.only_devices(case))
            return self._run(case, env)
        return self._all(one, cases)

    def _run(self, case, env):
        left = self.timeout if self.deadline is None else min(self.timeout, self.deadline -
                                                              time.monotonic())
        if left <= 0:
            return tubetest.Outcome(None, "", "not begun: the time of its chapter is over", 0)
        return tubetest.run_program([str(case.program), case.name], env, left)[0]

    def only_devices(self, case):
        """The native run sees as many devices as the proxy of its kind serves."""
        count = wanted(case.kind)
        if self.backend == "sim":
            return {"TUBE_SIM_COUNT": str(count)}
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))
        } if self.devices > count else {}

    def tube(self, cases):
        """({case: outcome}, [trouble with the proxies in words])."""
        outcomes, trouble = {}, []
        for kind in ("ordinary", "two_devices"):
            chosen = [c for c in cases if c.kind == kind]
            for group, jobs in self._by_jobs(chosen):
                outcomes.update(self._shared(group, kind, jobs, trouble))
        faulting = [c for c in cases if c.kind == "faulting"]
        outcomes.update(self._all(lambda case: self._alone(case), faulting, min(self.jobs, 6)))
        return outcomes, trouble

    def _by_jobs(self, cases):
        """[(cases, how many at once)]: on a driver those that hold streams by themselves."""
        few = HOLDING_JOBS if self.backend == "driver" and self.jobs > HOLDING_JOBS else None
        holding = [c for c in cases if few and c.holds_streams]
        others = [c for c in cases if not (few and c.holds_streams)]
        return [(group, jobs) for group, jobs in ((others, self.jobs), (holding, few)) if group]

    def proxy(self, kind):
        count = wanted(kind)
        extra = {"TUBE_SIM_COUNT": str(count)} if self.backend == "sim" else {}
        return tubetest.Proxy(self.layout, self.backend, driver=self.driver, extra_env=extra,
                              gpus=",".join(map(str, range(count))))

    def through(self, case, proxy):
        env = tubetest.environment(self.layout, self.mode, self.backend, proxy, case.name,
                                   self.driver)
        env.update(self.extra_env(case))
        return self._run(case, env)

    def _all(self, function, cases, jobs=None):
        with concurrent.futures.ThreadPoolExecutor(jobs or self.jobs) as pool:
            return dict(zip(cases, pool.map(function, cases)))

    def _alone(self, case):
        with self.proxy(case.kind) as proxy:
            return self.through(case, proxy)

    def _shared(self, cases, kind, most, trouble):
        """One proxy under all; a new one when it dies or its context faulted."""
        outcomes = {}
        left = list(cases)
        for attempt in range(4):
            jobs = most if attempt < 3 else 1  # At last one by one: the culprit then stands alone.
            again = self._round(left, kind, jobs, outcomes, trouble)
            if not again:
                return outcomes
            trouble.append(
                f"a proxy of the {kind} cases died or its context faulted; among the cases running then: "
                + ", ".join(c.label for c in again[:jobs]))
            left = again
        for case in left:
            outcomes[case] = self._alone(case)
        return outcomes

    def _round(self, cases, kind, jobs, outcomes, trouble):
        """Runs the cases under one proxy until it is unwell; returns the cases that must run
        again."""
        unwell, again, lock = threading.Event(), [], threading.Lock()

        def one(case):
            if not unwell.is_set():
                outcome = self.through(case, proxy)
                if healthy(proxy):
                    with lock:
                        outcomes[case] = outcome
                    return
                unwell.set()
            with lock:
                again.append(case)

        with self.proxy(kind) as proxy:
            start = proxy.counts()
            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                list(pool.map(one, cases))
            if not unwell.is_set():
                trouble += leftovers(proxy, start, kind)
        return again


def healthy(proxy):
    """Alive, and its context takes work: a sticky error shows in the status of its GPUs."""
    if not proxy.alive():
        return False
    try:
        status = proxy.status()
    except (OSError, ValueError):
        return False
    return not any("error" in gpu for gpu in status.get("gpus", []))


def leftovers(proxy, start, kind):
    """What the cases left in the proxy, in words; the first client may leave files of the backend
    open for good."""
    try:
        now = proxy.counts_back_to(start, 5)
    except (OSError, RuntimeError, ValueError) as error:
        return [f"the proxy of the {kind} cases does not answer well afterwards: {error}"]
    return [f"the {kind} cases left behind in the proxy: {key} is {now[key]}, was {start[key]}"
            for key in start if key != "fds" and now.get(key) != start[key]]
