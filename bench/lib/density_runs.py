"""How many functions an arm serves within a bound of latency and of GPU memory: more and more of
them, each a process of its own with requests of its own, until a bound is broken."""
import time

import arrivals
import faas_functions
import faas_runs
import footprint_runs
import keep_alive
import latency

FIRST = (1, 4)
COUNTS = (8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96)
MIXED = ("resnet50", "vgg11", "inception3", "nasnet", "speech", "s2s")
LEAST = 30  # requests of a window, or its P99 says nothing
MARGIN = 1.5  # of the SLO over what one function alone has
START_S, DRAIN_S = 150, 20


class Density:
    """One arm. `options`: function (a name, or mixed), rate, seed, seconds, most; `handles`: name
    -> handle of its input."""

    def __init__(self, arm, options, handles, state):
        self.arm, self.options, self.handles = arm, options, handles
        self.standin = options.backend == "sim"
        self.platform = keep_alive.Platform([], arm.spawn, keep_alive.FOREVER, 1,
                                            {"WORKFLOW_STATE": state})
        self.number = 0

    def grow(self, count):
        """Starts what is missing to `count` functions, all at once; all have answered then."""
        while self.number < count:
            names = MIXED if self.options.function == "mixed" else (self.options.function,)
            name = names[self.number % len(names)]
            own = f"{name}-{self.number}"
            self.platform.functions[own] = keep_alive.Function(
                own, faas_runs.command(name, self.standin),
                faas_runs.request(self.handles[name], self.standin))
            self.number += 1
        self.platform.warm(1, time.monotonic() + START_S)
        self.arm.confirm(count)

    def shrink(self, count):
        """Ends the last ones, down to `count`."""
        for name in list(self.platform.functions)[count:]:
            function = self.platform.functions[name]
            for copy in list(function.copies):
                self.platform.end(function, copy)
            del self.platform.functions[name]
        self.number = min(self.number, count)
        self.platform.until(lambda: not self.platform.ending, time.monotonic() + START_S)

    def window(self):
        """Records of one window in which every function has Poisson arrivals of its own."""
        seconds = max(self.options.seconds, LEAST / (self.options.rate * self.number))
        found = []
        for index, name in enumerate(self.platform.functions):
            times, _ = arrivals.times("poisson", seconds, rate=self.options.rate,
                                      seed=self.options.seed + index)
            found += [(at, name) for at in times]
        return self.platform.replay(sorted(found) or [(0.0, name)],
                                    time.monotonic() + seconds + DRAIN_S)

    def close(self):
        self.platform.close()


def slo_words(bound_ns):
    return f"P99 within {bound_ns / 1e6:.1f} ms"


def fitting(steps, cap_bytes):
    """How many functions fit within the bound of memory, if each further one takes what those of
    `steps` did; None when they do not say."""
    first, last = (steps[at]["gpu_bytes"] if len(steps) > 1 else None for at in (0, -1))
    if first is None or last is None:
        return None
    each = (last - first) / (steps[-1]["functions"] - steps[0]["functions"])
    return steps[-1]["functions"] + int((cap_bytes - last) / each) if each > 0 else None


class Search:
    """The largest number of functions that breaks no bound: goes from FIRST to what the memory of
    these says would fit, or through COUNTS where it says nothing, until a bound is broken, then
    halves the step that was too large. `bound_ns` None: MARGIN times the P99 of the
    first function alone, at the same rate."""

    def __init__(self, density, base, read, bound_ns, cap_bytes, end):
        self.density, self.base, self.read = density, base, read
        self.bound_ns, self.cap_bytes, self.end = bound_ns, cap_bytes, end
        self.steps, self.records = [], []

    def broken(self, count):
        """What breaks with so many functions: memory, latency or None."""
        self.density.shrink(count)
        self.density.grow(count)
        mine = self.density.window()
        self.records += mine
        good = [r.ended_ns - r.arrived_ns for r in mine if not r.error]
        used = footprint_runs.settled(self.read) - self.base if self.read else None
        p99 = latency.percentile(good, 0.99)
        if p99 is None:
            raise RuntimeError(f"no request of {count} functions ended well: {mine[0].error}")
        self.bound_ns = self.bound_ns or MARGIN * p99
        self.steps.append({"functions": count, "gpu_bytes": used, "samples": len(good),
                           "p50_ns": latency.percentile(good, 0.5), "p99_ns": p99,
                           "lost": len(mine) - len(good)})
        if used is not None and used > self.cap_bytes:
            return "memory"
        return "latency" if len(good) < len(mine) or p99 > self.bound_ns else None

    def counts(self):
        """Numbers of functions to try, growing."""
        most = self.density.options.most
        yield from (count for count in FIRST if count < most)
        fits = fitting(self.steps, self.cap_bytes)
        likely = [fits] if fits else []
        yield from sorted(count for count in {*COUNTS, *likely}
                          if FIRST[-1] < count < most and count >= (fits or 0))
        yield most

    def run(self):
        """VALUES of the arm."""
        best, high, stopped = 0, None, "count"
        for count in self.counts():
            if time.monotonic() > self.end:
                stopped = "time"
                break
            if what := self.broken(count):
                high, stopped = count, what
                break
            best = count
        while high and high - best > 1 and time.monotonic() < self.end:
            middle = (best + high) // 2
            if what := self.broken(middle):
                high, stopped = middle, what
            else:
                best = middle
        return {"functions": best, "stopped_by": stopped, "steps": self.steps}


def inputs(options):
    """name -> the input of each function that is started."""
    names = MIXED if options.function == "mixed" else (options.function,)
    return {name: faas_functions.Input(name, *faas_functions.INPUTS[name]) for name in names}
