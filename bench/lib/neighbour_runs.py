"""A function with short kernels at every mark of a clock, beside functions that compute without
pause.

Rows have further, in each arm: p50_over_alone, p99_over_alone (of the light function in the same
arm with nobody beside it), others_per_s (kernels of all the others while it ran, the median of the
rounds), missed (marks that went by while a step ran), starved (blocks whose light function ended
only when the others were stopped).
"""
import collections
import importlib.util
import pathlib
import statistics
import sys
import time

import arm_set
import copy_runs
import latency
import result_file
from arms import WorkerError
from isolate_runs import moved
from result_file import short, us

# Kernels of a step; blocks and rounds of the mixing kernel: of a light, a short and a long one. Long
# ones have eight times the blocks that fit on a large GPU at once, so most of them wait to be dealt
# out; their rounds are set by the time that one takes.
Shape = collections.namedtuple("Shape", "step period_us light short long_blocks long_rounds")
WHOLE = Shape(150, 10_000, (64, 100), (200, 8, 20), 8448, 20_000)
TINY = Shape(10, 10_000, (2, 1), (10, 2, 1), 160, 20)
STARVED_S = 7
# Of the rows of crowd_runs.py.
EXTRA = {"spread": "spread", "neighbours_over_before": "others' p99/before", "kept": "kept",
         "share": "share"}
RESNET = pathlib.Path(__file__).resolve().parent.parent / "items" / "paced_resnet50.py"


class Shown:
    """What one arm's light function showed in all rounds of one row."""

    def __init__(self):
        self.times, self.medians, self.others = [], [], []
        self.missed, self.starved = 0, 0

    def add(self, blocks, starved):
        light, others = blocks[0], blocks[1:]
        self.times += light["latency_ns"]
        self.medians.append(statistics.median(light["latency_ns"]))
        self.missed += light["missed"]
        self.starved += starved
        begin, end = light["begin_ns"], light["end_ns"]
        if others:
            kernels = sum(moved(block, begin, end) for block in others)
            self.others.append(kernels / (end - begin) * 1e9)

    def values(self):
        out = latency.summary(self.times)
        out.update(blocks_ns=self.medians, missed=self.missed)
        if self.others:
            out["others_per_s"] = statistics.median(self.others)
        if self.starved:
            out["starved"] = self.starved
        return out


class Neighbours:
    def __init__(self, runner, shape, run_ms, lead_ms):
        self.runner, self.shape = runner, shape
        self.run_ms, self.lead_ms = run_ms, lead_ms
        self.long_rounds = shape.long_rounds
        self.alone = {}
        self.models = {}  # arm -> its ResNet-50

    def has_models(self):
        return importlib.util.find_spec("torchvision") is not None

    def start_models(self, others):
        """A ResNet-50 in each arm, beside `others` programs; says when there can be none."""
        if not self.has_models():
            return self.runner.note("no ResNet-50: there is no torchvision")
        for name in list(self.runner.clients):
            arm = self.runner.arms.arms[name]
            try:
                worker = arm.spawn([sys.executable, str(RESNET)], arm.first_settings())
                worker.ready(time.monotonic() + copy_runs.START_LIMIT_S)
                arm.confirm(others + 1)
                self.models[name] = worker
            except (WorkerError, arm_set.mps.MpsError) as error:
                self.runner.lost(arm, str(error))

    def end_lights(self):
        """What the light functions were given, a slice say, is given once: they end before another
        program asks for it."""
        for workers in self.runner.clients.values():
            workers[0].end()

    def set_long(self, wanted_ms):
        """How many rounds take so long, measured once: every arm does the same work. On the
        simulated GPU as few as there are."""
        if self.runner.options.backend == "sim":
            return
        for workers in self.runner.clients.values():
            command = f"steps 1 {self.shape.long_blocks} {self.long_rounds} 0 200 0"
            blocks, *_ = copy_runs.measure([(workers[0], command)], [])
            took_ms = statistics.median(blocks[0]["latency_ns"]) / 1e6
            self.long_rounds = max(1, round(self.long_rounds * wanted_ms / took_ms))
            print(f"bench/neighbours: a long kernel of {self.long_rounds} rounds", flush=True)
            return

    def command(self, kind):
        if kind == "long":
            return f"busy 1 {self.shape.long_blocks} {self.long_rounds}"
        return "busy " + " ".join(map(str, self.shape.short))

    def block(self, number, arm, kind, count, model):
        light, *others = self.runner.clients[arm.name][:1 + count]
        shape = self.shape
        times = f"{shape.period_us} {self.run_ms} {self.lead_ms}"
        command = f"steps {shape.step} {shape.light[0]} {shape.light[1]} {times}"
        if model:
            light, command = self.models[arm.name], f"steps {times}"
        self.runner.place(number, [light, *others])
        jobs = [(light, command), *((worker, self.command(kind)) for worker in others)]
        limit = (self.run_ms + self.lead_ms) / 1e3 + STARVED_S
        blocks, _, wrong, starved = copy_runs.measure(jobs, arm.servers(), limit,
                                                      self.models.values())
        return blocks, wrong, starved

    def row(self, group, name, kind, count, model=False):
        """`model`: the light function is ResNet-50."""
        shown = {}

        def once(number, arm):
            blocks, wrong, starved = self.block(number, arm, kind, count, model)
            shown.setdefault(arm.name, Shown()).add(blocks, starved)
            if any(not block["ended_ns"] for block in blocks[1:]):
                wrong.append("a neighbour computed nothing")
            return wrong

        wrong = self.runner.in_turns(once)
        values = {arm: shown[arm].values() for arm in self.runner.arms.arms if arm in shown}
        self.against_alone(values, count)
        self.runner.add_row(group, name, values, wrong)

    def against_alone(self, values, count):
        if count == 0:
            self.alone = values
        for arm, mine in values.items():
            alone = self.alone.get(arm)
            if alone and count:
                for part in ("p50", "p99"):
                    mine[f"{part}_over_alone"] = mine[f"{part}_ns"] / alone[f"{part}_ns"]


def extra_table(result):
    """What the rows of crowds have besides: a line for each of these and arm."""
    table = [["", *result["arms"]]]
    for row in result["rows"]:
        for key, words in EXTRA.items():
            if any(key in values for values in row["arms"].values()):
                shown = [short((row["arms"].get(arm) or {}).get(key)) for arm in result["arms"]]
                table.append([f"{row['group']}, {row['name']}: {words}", *shown])
    return ["", *result_file.layout_table(table)] if len(table) > 1 else []


def text(result):
    arms = list(result["arms"])
    table = [["", *[f"{a} {what}" for what in ("p50 us", "p99 us", "p99/alone", "others/s",
                                               "starved") for a in arms]]]
    group = None
    for row in result["rows"]:
        if row["group"] != group:
            group = row["group"]
            table.append([f"== {group}", *[""] * (len(table[0]) - 1)])
        values = [row["arms"].get(a) or {} for a in arms]
        table.append([row["name"], *[us(v, "p50_ns") for v in values],
                      *[us(v, "p99_ns") for v in values],
                      *[short(v.get("p99_over_alone")) for v in values],
                      *[short(v.get("others_per_s")) for v in values],
                      *[str(v.get("starved", "-")) for v in values]])
    lines = [
        *result_file.head(result),
        "Arms in turns. p50 and p99 of the light function's steps in microseconds, the p99 in times of",
        "that alone in the same arm; others/s: kernels of all the others in a second meanwhile;",
        "starved: rounds whose step ended only when the others were stopped. spread: of what functions got",
        "in a second, the largest over the smallest; kept: steps within their deadline; share: of the",
        "workflow of one function.", "",
        *result_file.layout_table(table), *extra_table(result), ""
    ]
    return "\n".join(lines + result_file.tail(result)) + "\n"
