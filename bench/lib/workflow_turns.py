"""One workflow in all arms: started at once, then in turns, ended one after the other.

  solo     one request at a time: what the SLO and the rate come from
  closed   a few requests at a time, without pause: what an arm sustains
  open     the arrivals of a trace at one rate for all arms, in rounds; or, to find the highest rate
           of each arm, windows at rates of its own (rate_search.py)

The second half of the rounds replays the arrivals of the first half, so that two halves differ by
the machine alone. An arm that fails is named with its reason and the others go on.
"""
import concurrent.futures
import dataclasses
import statistics
import sys
import time

import arm_set
import arrivals
import latency
import rate_search
import reference
from workflow_arms import WorkflowArm

START_S = 150  # for all processes of a workflow
SOLO_SHARE, CLOSED_SHARE = 0.16, 0.16  # of the time behind the start
END_S = 1.2  # to end an arm and see the memory come back
LOAD = 0.6  # of what the slowest arm sustains
LEAST, MOST = 3, 200  # requests of a solo or closed turn
DRAIN_S = 20  # for the last requests of a turn
TURN_S = 4.0  # shorter ones are not worth two more rounds
ROUNDS = 6  # at most


@dataclasses.dataclass
class Plan:
    """What is asked for: see the options of bench/workflows."""
    shape: str
    seed: int
    window: tuple
    speedup: float
    rate: float
    in_flight: int
    rounds: int
    measure: str
    bar: str


def latencies(records):
    """(nanoseconds of the requests that ended well, how many did not)."""
    good = [record.ended_ns - record.arrived_ns for record in records
            if record.error is None and record.ended_ns]
    return good, len(records) - len(good)


class Measured:
    """A workflow being measured; run() leaves everything in the arms' turns."""

    def __init__(self, wf, names, bench, plan, seconds):
        self.wf, self.bench, self.plan = wf, bench, plan
        self.end = time.monotonic() + seconds
        self.arms = [WorkflowArm(name, wf, bench) for name in names]
        self.done, self.missing = [], {}
        self.want, self.repeats, self.notes = {}, False, []
        self.first, self.slo_ns, self.rate, self.arrivals = None, None, plan.rate, ""
        self.found, self.rate_words = {}, ""

    def log(self, words):
        print(f"bench/workflows: {self.wf.name}: {words}", file=sys.stderr, flush=True)

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def drop(self, arm, error):
        """Goes on without an arm."""
        why = str(error) or type(error).__name__
        self.missing[arm.name] = why
        self.log(f"going on without {arm.name}: {why}")
        self.arms.remove(arm)
        self.finish(arm)

    def finish(self, arm):
        try:
            arm.close()
        except Exception as error:  # What it measured stands; its end is told.
            self.notes.append(f"{arm.name} did not end well: {error}")

    def run(self):
        try:
            self.start()
            if self.arms:
                self.measure()
        finally:
            for arm in list(self.arms):
                self.arms.remove(arm)
                self.done.append(arm)
                self.finish(arm)
        return self

    def start(self):
        """All arms and the reference at once."""
        begin = time.monotonic()
        for arm in list(self.arms):
            try:
                arm.prepare()
            except Exception as error:
                self.drop(arm, error)
        with concurrent.futures.ThreadPoolExecutor(len(self.arms) + 1) as pool:
            expected = pool.submit(self.expect)
            started = [(arm, pool.submit(arm.start, begin + START_S)) for arm in self.arms]
            for arm, future in started:
                if error := future.exception():
                    self.drop(arm, error)
            if error := expected.exception():
                self.notes.append(f"results not compared, no reference: {error}")
        self.log(f"{len(self.arms)} arms started in {time.monotonic() - begin:.0f} s")

    def expect(self):
        """The results of a native run of everything in one process."""
        bench = self.bench
        with arm_set.ArmSet(bench.layout, bench.backend, bench.driver, ["native"]) as arms:
            self.want, self.repeats = reference.results(
                self.wf, bench.batch, arm=arms.arms["native"], standin=bench.backend == "sim",
                state=bench.state, timeout_s=START_S)
        if not self.repeats:
            self.notes.append("native does not repeat itself: results not compared")

    def measure(self):
        """The turns, within the time that is left."""
        time_left = max(0.0, self.left() - END_S * len(self.arms))
        self.solo(SOLO_SHARE * time_left)
        self.closed(CLOSED_SHARE * time_left)
        if not self.arms:
            return
        self.choose()
        open_s = max(0.0, self.left() - END_S * len(self.arms))
        if self.plan.measure == "rate":
            self.search(open_s)
        else:
            self.open(open_s)

    def turn(self, arm, kind, number, drive):
        """A turn, or None for an arm that fails in it and is dropped."""
        try:
            return arm.turn(kind, number, drive)
        except Exception as error:  # Whatever goes wrong in an arm ends this arm only.
            self.drop(arm, error)
            return None

    def in_turns(self, number):
        shift = number % max(1, len(self.arms))
        return self.arms[shift:] + self.arms[:shift]

    def requests(self, count):
        return self.wf.requests(max(1, count), self.bench.batch)

    def solo(self, seconds):
        """One request at a time, in two rounds: the first says how many the second can have."""
        for number in range(2):
            for arm in self.in_turns(number):
                mean = self.mean_s(arm, "solo")
                wanted = 0.75 * seconds / len(self.arms) / mean if mean else LEAST
                if wanted >= 1:
                    self.turn(arm, "solo", number, lambda to, n=self.bounded(wanted): to.closed(
                        self.requests(n), 1, time.monotonic() + seconds + DRAIN_S))

    def closed(self, seconds):
        """As many in flight as the workflow's functions can work on at once, and more."""
        width = self.plan.in_flight
        for arm in self.in_turns(0):
            mean = self.mean_s(arm, "solo")
            if mean is None:
                self.drop(arm, RuntimeError(self.lost_words(arm)))
                continue
            count = self.bounded(seconds / len(self.arms) * 2 / mean) + width
            self.turn(arm, "closed", 0, lambda to, n=count: to.closed(
                self.requests(n), width, time.monotonic() + seconds + DRAIN_S))

    def lost_words(self, arm):
        errors = [record.error for turn in arm.turns for record in turn.records if record.error]
        return f"no request alone ended well: {errors[0] if errors else 'none was asked'}"

    def bounded(self, count):
        return int(min(MOST, max(LEAST, count)))

    def mean_s(self, arm, kind):
        good = [ns for turn in arm.of(kind) for ns in latencies(turn.records)[0]]
        return statistics.fmean(good) / 1e9 if good else None

    def choose(self):
        """The SLO from the first arm alone, the rate from the slowest."""
        self.first = self.arms[0].name
        alone = [ns for turn in self.arms[0].of("solo") for ns in latencies(turn.records)[0]]
        self.slo_ns = 1.5 * latency.percentile(alone, 0.5)
        rates = {arm.name: closed_rate(arm) for arm in self.arms}
        known = {name: rate for name, rate in rates.items() if rate}
        if not known:
            raise RuntimeError("no arm answers several requests at a time")
        slowest = min(known, key=known.get)
        self.rate_words = (f"{LOAD:.0%} of the {known[slowest]:.3g} a second that {slowest} "
                           "sustains")
        if self.plan.rate:
            self.rate_words = "as asked for"
        self.rate = self.plan.rate or LOAD * known[slowest]

    def rounds(self, seconds):
        """(rounds, seconds of a turn) that fill the time: an even number of rounds, one when two
        would have too few requests."""
        each, least = seconds / len(self.arms), LEAST / self.rate
        rounds = self.plan.rounds or min(ROUNDS, max(2, int(each / TURN_S) // 2 * 2))
        if not self.plan.rounds and each < 2 * least:
            rounds = 1
        return rounds, max(each / rounds, least)

    def open(self, seconds):
        """Rounds of all arms."""
        rounds, turn_s = self.rounds(seconds)
        half = max(1, rounds // 2)
        self.log(f"{self.rate:.3g} requests a second ({self.rate_words}), {rounds} rounds of "
                 f"{turn_s:.1f} s")
        for number in range(rounds):
            times = self.times(turn_s, self.rate, number % half)
            for arm in self.in_turns(number):
                self.turn(arm, "open", number, lambda to: self.replay(to, times, turn_s))

    def times(self, seconds, rate, part):
        """Arrivals of one turn; `part` takes another draw of the same window."""
        speedup = self.plan.speedup
        times, self.arrivals = arrivals.times(
            self.plan.shape, seconds, rate=None if speedup else rate, speedup=speedup,
            window=self.plan.window, seed=self.plan.seed + part)
        return times or [0.0]

    def replay(self, to, times, seconds):
        return to.replay(self.requests(len(times)), times, time.monotonic() + seconds + DRAIN_S)

    def search(self, seconds):
        """The highest rate within the bar, for each arm in its own windows."""
        windows = 6
        for arm in self.in_turns(0):
            own = [ns for turn in arm.of("solo") for ns in latencies(turn.records)[0]]
            bound = self.slo_ns if self.plan.bar == "first" else 1.5 * latency.percentile(own, 0.5)
            window_s = seconds / len(self.arms) / (windows + 1)
            ask = self.asker(arm, window_s)
            try:
                self.found[arm.name] = dict(
                    dataclasses.asdict(rate_search.highest(ask, closed_rate(arm) or self.rate,
                                                           bound, windows)), bound_ns=bound)
            except LookupError:
                continue  # It failed, and is dropped.

    def asker(self, arm, seconds):
        """P99 at a rate, None when requests were lost; LookupError when the arm is gone."""
        def ask(rate):
            times = self.times(max(seconds, LEAST / rate), rate, 0)
            turn = self.turn(arm, "open", 0, lambda to: self.replay(to, times, seconds))
            if turn is None:
                raise LookupError(arm.name)
            good, lost = latencies(turn.records)
            return None if lost or not good else latency.percentile(good, 0.99)

        return ask


def closed_rate(arm):
    """Requests a second of the closed turns; None without any."""
    records = [r for turn in arm.of("closed") for r in turn.records if r.error is None]
    if len(records) < 2:
        return None
    spent = max(r.ended_ns for r in records) - min(r.arrived_ns for r in records)
    return len(records) / (spent / 1e9) if spent else None
