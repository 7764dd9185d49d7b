"""A victim that copies at every mark of a clock, beside programs that copy without pause.

In a block the victim and its neighbours begin together; for LEAD the victim waits, and what the
neighbours move then is what they move alone; what all move while it copies is held against that.
Rows have further, in each arm: p50_over_alone, p99_over_alone (of the same victim in the same arm
with nobody beside it), all_per_s, bulk_alone_per_s (bytes), kept (their ratio, the median of the
rounds), missed (marks that went by while a copy ran), starved (blocks whose victim was served only
when the neighbours were stopped), and what the proxy registered meanwhile (registered.py).
"""
import statistics

import arm_set
import copy_runs
import latency
import registered
from arms import WorkerError

PERIOD_US = 5000
STARVED_S = 3
RAMP = 1 / 3  # of the lead, before the neighbours count
WARM = 1 / 4  # of the run, before it: the victim's copies do not count


def moved(block, begin, end):
    """Bytes of a bulk program between two times, each round spread evenly over its time."""
    def until(time):
        before, done = block["begin_ns"], 0
        for ended in block["ended_ns"]:
            if time <= ended:
                return done + block["bytes"] * max(0, time - before) / max(1, ended - before)
            before, done = ended, done + block["bytes"]
        return done

    return until(end) - until(begin)


def rates(victim, bulks, lead_ns, warm_ns):
    """(bytes a second of the bulk alone, of all while the victim copied)."""
    begin, end = victim["begin_ns"], victim["end_ns"]
    first = begin - warm_ns
    start = first - lead_ns * (1 - RAMP)
    alone = sum(moved(b, start, first) for b in bulks) / (first - start)
    both = sum(moved(b, begin, end) for b in bulks) + victim["bytes"] * len(victim["latency_ns"])
    return alone * 1e9, both / (end - begin) * 1e9


class Shown:
    """What one arm's victim showed in all rounds of one row."""

    def __init__(self):
        self.times, self.alone, self.all, self.kept = [], [], [], []
        self.medians, self.missed, self.starved = [], 0, 0

    def add(self, blocks, lead_ns, warm_ns, starved):
        victim, bulks = blocks[0], blocks[1:]
        self.times += victim["latency_ns"]
        self.medians.append(statistics.median(victim["latency_ns"]))
        self.missed += victim["missed"]
        self.starved += starved
        alone, both = rates(victim, bulks, lead_ns, warm_ns)
        self.all.append(both)
        if alone:
            self.alone.append(alone)
            self.kept.append(both / alone)

    def values(self):
        out = latency.summary(self.times)
        out.update(blocks_ns=self.medians, all_per_s=statistics.median(self.all),
                   missed=self.missed)
        if self.alone:
            out.update(bulk_alone_per_s=statistics.median(self.alone),
                       kept=statistics.median(self.kept))
        if self.starved:
            out["starved"] = self.starved
        return out


class Isolation:
    """The rows of one victim after the other. `bulk_bytes`: of a round of a neighbour."""

    def __init__(self, runner, run_ms, lead_ms, bulk_bytes):
        self.runner, self.bulk_bytes = runner, bulk_bytes
        self.run_ms, self.lead_ms, self.warm_ms = run_ms, lead_ms, round(run_ms * WARM)
        self.others, self.other_arms, self.alone = {}, [], {}

    def start_another_proxy(self, count):
        """Neighbours of each Tube arm that are served by another proxy."""
        for arm in list(self.runner.arms.arms.values()):
            if not isinstance(arm, arm_set.TubeArm) or arm.name not in self.runner.clients:
                continue
            try:
                other = arm_set.TubeArm(f"{arm.name}-other", self.runner.arms, arm.extra)
                self.other_arms.append(other)
                meeting = self.runner.meetings[arm.name]
                self.others[arm.name] = (other, self.runner.start(other, count, meeting))
            except (WorkerError, RuntimeError, OSError) as error:
                self.runner.note(f"{arm.name}: no second proxy: {error}")

    def close(self):
        """Behind the programs' end."""
        for arm in self.other_arms:
            arm.close()

    def block(self, number, arm, victim, kind, count, elsewhere):
        """(blocks, what was wrong, whether it was starved) of one round in one arm."""
        workers, servers = self.runner.clients[arm.name], arm.servers()
        beside = workers[1:]
        if elsewhere:
            other, beside = self.others[arm.name]
            servers = servers + other.servers()
        workers = [workers[0], *beside[:count]]
        self.runner.place(number, workers)
        pieces = {"graph": 4, "load": 16}.get(kind, 1)
        times = f"{PERIOD_US} {self.run_ms} {self.lead_ms if count else 0} {self.warm_ms}"
        jobs = [(workers[0], f"{victim} {times}")]
        jobs += [(w, f"bulk {kind} {self.bulk_bytes} {pieces}") for w in workers[1:]]
        limit = (self.run_ms + self.lead_ms + self.warm_ms) / 1e3 + STARVED_S
        blocks, _, wrong, starved = copy_runs.measure(jobs, servers, limit)
        return blocks, wrong, starved

    def row(self, group, name, victim, kind="", count=0, elsewhere=False):
        shown = {}

        def once(number, arm):
            if elsewhere and arm.name not in self.others:
                return []
            blocks, wrong, starved = self.block(number, arm, victim, kind, count, elsewhere)
            shown.setdefault(arm.name, Shown()).add(blocks, self.lead_ms * 1_000_000,
                                                    self.warm_ms * 1_000_000, starved)
            if any(not block["ended_ns"] for block in blocks[1:]):
                wrong.append("a neighbour moved nothing")
            return wrong

        before = {arm.name: registered.counts(arm) for arm in self.runner.arms.arms.values()}
        wrong = self.runner.in_turns(once)
        values = {name: shown[name].values() for name in self.runner.arms.arms if name in shown}
        for arm in self.runner.arms.arms.values():
            if arm.name in values:
                values[arm.name].update(
                    registered.since(before[arm.name], registered.counts(arm)))
        self.against_alone(group, values, count)
        self.runner.add_row(group, name, values, wrong)

    def against_alone(self, group, values, count):
        if count == 0:
            self.alone[group] = values
        for arm, mine in values.items():
            alone = self.alone.get(group, {}).get(arm)
            if alone and count:
                for part in ("p50", "p99"):
                    mine[f"{part}_over_alone"] = mine[f"{part}_ns"] / alone[f"{part}_ns"]
