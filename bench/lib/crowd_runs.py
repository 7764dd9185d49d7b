"""Further rows of bench/neighbours: many functions at once, functions whose streams stand, functions
that start, deadlines, two workflows.

Rows have, in each arm, what is named with them: spread (largest over smallest of what ten functions
got in a second), p99_over_alone, started_p50 as p50_ns (a function's first result),
neighbours_over_before (their p99 while it starts, in times of that before), kept (part of the steps
that ended within their deadline), share (of one function's workflow against another's ten).
"""
import copy
import math
import pathlib
import statistics
import sys
import time

import arm_set
import copy_runs
import latency
import tubetest
from arms import WorkerError
from isolate_runs import moved

ITEMS = pathlib.Path(__file__).resolve().parent.parent / "items"
MODELS = ("resnet50", "vgg11", "densenet121", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0")
LOAD = 0.8
SECOND_NS = 1_000_000_000
CROWD_STEP, CROWD_PERIOD_US = 20, 100_000


def summary(times):
    out = latency.summary(times)
    out["blocks_ns"] = [statistics.median(times)]
    return out


def spread(blocks, begin, end):
    """The median over seconds of the largest part over the smallest."""
    found = []
    while begin + SECOND_NS <= end:
        parts = [moved(block, begin, begin + SECOND_NS) for block in blocks]
        found.append(max(parts) / max(min(parts), 1e-9))
        begin += SECOND_NS
    return statistics.median(found) if found else None


def durations(block):
    """(end, duration) of what a program did: its steps, or the distance of its rounds."""
    if block["latency_ns"]:
        return list(zip(block["ended_ns"], block["latency_ns"]))
    ended = block["ended_ns"]
    return [(b, b - a) for a, b in zip(ended, ended[1:])]


class Crowd:
    def __init__(self, runner, neighbours, run_ms):
        self.runner, self.neighbours, self.run_ms = runner, neighbours, run_ms
        self.tiny = runner.options.tiny

    def shape(self, part):
        """BLOCKS ROUNDS of a kernel that takes that part of a long one."""
        rounds = max(1, round(self.neighbours.long_rounds * part))
        return f"{self.neighbours.shape.long_blocks} {rounds}"

    def measured(self, group, name, once):
        """once(number, arm) -> values of a round; a row with the median of each."""
        rounds = {}

        def turn(number, arm):
            values, problems = once(number, arm)
            if values is not None:
                rounds.setdefault(arm.name, []).append(values)
            return problems

        wrong = self.runner.in_turns(turn)
        values = {}
        for arm in self.runner.arms.arms:
            for key in {key for found in rounds.get(arm, []) for key in found}:
                all_rounds = [found[key] for found in rounds[arm] if found.get(key) is not None]
                if key == "times":
                    values.setdefault(arm, {}).update(summary(sum(all_rounds, [])))
                elif all_rounds:
                    values.setdefault(arm, {})[key] = statistics.median(all_rounds)
        return self.runner.add_row(group, name, values, wrong)

    def fairness(self, count):
        """`count` functions of equal weight, each with a kernel in flight all the time."""
        seconds = 1 if self.tiny else max(2, self.run_ms // 500)

        def once(_, arm):
            clock, *busy = self.runner.clients[arm.name][:1 + count]
            jobs = [(clock, f"steps 1 1 1 100000 {seconds * 1000} 200"),
                    *((worker, f"busy 1 {self.shape(0.25)}") for worker in busy)]
            blocks, _, wrong, _ = copy_runs.measure(jobs, arm.servers(), seconds + 10)
            begin, end = blocks[0]["begin_ns"], blocks[0]["end_ns"] + 1_000_000
            return {"spread": spread(blocks[1:], begin, end), "times": blocks[0]["latency_ns"]}, wrong

        return self.measured(f"{count} functions with long kernels", "a second", once)

    def beside_standing(self, count):
        """`count` functions with a step now and then, alone, beside one whose streams stand, and
        beside one with kernels of a second on a few multiprocessors."""
        streams = 4 if self.tiny else 20
        few = f"busy 1 8 {self.few_rounds()}"
        group = f"{count} functions with short steps"
        alone = {}
        for name, command in (("alone", None), (f"one that holds {streams} streams",
                                                f"stand {streams}"), ("one with 8 long blocks", few)):
            if self.runner.late(f"{group}: {name}"):
                return

            def once(number, arm, command=command):
                workers = self.runner.clients[arm.name]
                steps = f"steps {CROWD_STEP} {' '.join(map(str, self.neighbours.shape.light))} {CROWD_PERIOD_US}"
                first, *others = workers[:count]
                jobs = [(first, f"{steps} {self.run_ms} 200"),
                        *((worker, f"{steps} {self.run_ms * 20} 200") for worker in others)]
                if command:
                    jobs.append((workers[count], command))
                blocks, _, wrong, _ = copy_runs.measure(jobs, arm.servers(), 20)
                begin, end = blocks[0]["begin_ns"], blocks[0]["end_ns"]
                times = [took for block in blocks[:count] for ended, took in durations(block)
                         if begin <= ended <= end]
                return {"times": times}, wrong

            row = self.measured(group, name, once)
            for arm, values in row["arms"].items():
                if command is None:
                    alone[arm] = values
                elif arm in alone:
                    values["p99_over_alone"] = values["p99_ns"] / alone[arm]["p99_ns"]

    def few_rounds(self):
        """Of a kernel of eight blocks that takes a second."""
        if self.runner.options.backend == "sim":
            return self.neighbours.long_rounds
        workers = next(iter(self.runner.clients.values()))
        command = f"steps 1 8 {self.neighbours.long_rounds} 0 200 0"
        blocks, *_ = copy_runs.measure([(workers[0], command)], [])
        return round(self.neighbours.long_rounds * 1e9 / statistics.median(blocks[0]["latency_ns"]))

    def starts(self, kind, count, before_s=1.5):
        """A function starts beside others: its first result, and their p99 meanwhile."""
        model = self.runner.options.backend != "sim"
        before_s = 0.1 if self.tiny else before_s
        light = self.neighbours.shape
        command = (f"busy 1 {self.shape(1)}" if kind == "heavy" else
                   f"steps {light.step} {light.light[0]} {light.light[1]} {light.period_us} 600000 0")

        def once(_, arm):
            workers = self.runner.clients[arm.name][:count]
            deadline = time.monotonic() + copy_runs.BLOCK_LIMIT_S
            copy_runs.prepare([(worker, command) for worker in workers], deadline)
            for worker in workers:
                worker.send("go")
            time.sleep(before_s)
            begin, end = self.start_one(arm, model, deadline)
            for worker in workers:
                worker.send("stop")
            blocks = [worker.expect("block", deadline) for worker in workers]
            wrong = copy_runs.verify(workers, deadline)
            all_times = [each for block in blocks for each in durations(block)]
            before = [took for ended, took in all_times if ended < begin]
            during = [took for ended, took in all_times if begin <= ended and ended - took <= end]
            values = {"times": [end - begin]}
            if before and during:
                values["neighbours_over_before"] = (latency.percentile(sorted(during), 0.99) /
                                                    latency.percentile(sorted(before), 0.99))
            return values, wrong

        return self.measured("a function that starts", f"{count} {kind}", once)

    def start_one(self, arm, model, deadline):
        """(begin, end) of its start; without a model, of a program that launches one kernel."""
        if model:
            worker = arm.spawn([sys.executable, str(ITEMS / "starting_resnet50.py")])
            stamps = worker.expect("started", deadline)
            begin, end = stamps["begin_ns"], stamps["end_ns"]
        else:
            begin = time.monotonic_ns()
            worker = arm.spawn([str(copy_runs.client_path(arm.layout))])
            worker.ready(deadline)
            copy_runs.measure([(worker, "steps 1 1 1 0 1 0")], [])
            end = time.monotonic_ns()
        worker.close()
        return begin, end

    def deadlines(self):
        """Six models at 80% load, each with a deadline of 1.5 times its solo step."""
        solo = self.solo_ms()
        if solo is None:
            return None
        periods = {name: round(len(MODELS) * ms / LOAD * 1000) for name, ms in solo.items()}

        def once(_, arm):
            workers = [self.model(arm, name, {"TUBE_SLO_MS": str(math.ceil(1.5 * solo[name]))})
                       for name in MODELS]
            for worker, name in zip(workers, MODELS):
                worker.send(f"steps {periods[name]} {self.run_ms * 2} 500")
            deadline = time.monotonic() + copy_runs.BLOCK_LIMIT_S
            for worker in workers:
                worker.expect("prepared", deadline)
            for worker in workers:
                worker.send("go")
            kept = total = 0
            for worker, name in zip(workers, MODELS):
                block = worker.expect("block", deadline)
                bound = 1.5e6 * solo[name]
                kept += sum(took <= bound for took in block["latency_ns"])
                total += len(block["latency_ns"]) + block["missed"]
                worker.close()
            return {"kept": kept / max(1, total)}, []

        return self.measured("six models with deadlines", "80% load", once)

    def model(self, arm, name, env=None):
        worker = arm.spawn([sys.executable, str(ITEMS / "paced_resnet50.py"), name], env)
        worker.ready(time.monotonic() + copy_runs.START_LIMIT_S)
        return worker

    def solo_ms(self):
        """Of each model's step, natively and alone."""
        arm = self.runner.arms.arms.get("native")
        found = {}
        for name in MODELS if arm else ():
            try:
                worker = self.model(arm, name)
                worker.send("steps 50000 1000 0")
                worker.expect("prepared", time.monotonic() + 30)
                worker.send("go")
                times = worker.expect("block", time.monotonic() + 60)["latency_ns"]
                found[name] = statistics.median(times) / 1e6
                worker.close()
            except WorkerError as error:
                self.runner.note(f"no deadlines: {error}")
                return None
        return found or None

    def workflows(self, count):
        """One function with long kernels in a workflow of its own against `count` in another."""
        others = []

        def once(_, arm):
            one, *many = self.runner.clients[arm.name][:1 + count]
            if isinstance(arm, arm_set.TubeArm):
                other = copy.copy(arm)
                other.proxy = self.second_proxy(arm)
                others.append(other.proxy)
                one = self.runner.start(other, 1, {})[0]
            busy = f"busy 1 {self.shape(0.25)}"
            deadline = time.monotonic() + copy_runs.BLOCK_LIMIT_S
            for worker in (one, *many):
                worker.send(busy)
            for worker in (one, *many):
                worker.expect("prepared", deadline)
            for worker in (one, *many):
                worker.send("go")
            seconds = 0.2 if self.tiny else self.run_ms / 500
            time.sleep(seconds)
            for worker in (one, *many):
                worker.send("stop")
            blocks = [worker.expect("block", deadline) for worker in (one, *many)]
            begin = max(block["begin_ns"] for block in blocks)
            end = min(block["end_ns"] for block in blocks)
            wrong = copy_runs.verify((one, *many), deadline)
            parts = [moved(block, begin, end) for block in blocks]
            while others:  # the next round has one of its own
                one.close()
                others.pop().stop()
            return {"share": parts[0] / max(sum(parts), 1e-9)}, wrong

        row = self.measured("two workflows with long kernels", f"1 against {count}", once)
        for proxy in others:
            proxy.stop()
        return row

    def second_proxy(self, arm):
        """In the runtime folder of the arm's own: the two know each other."""
        proxy = tubetest.Proxy(arm.layout, self.runner.arms.backend, workflow="other",
                               driver=self.runner.arms.driver, extra_env=arm.extra,
                               gpus=self.runner.arms.gpus)
        proxy.dir.rmdir()
        proxy.dir = arm.proxy.dir
        proxy.log_path = proxy.dir / "other.log"
        proxy.start()
        return proxy
