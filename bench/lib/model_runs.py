"""Six models, each a function with a process of its own, on the arrivals of a bursty trace in one
arm; what they hold of the GPU is sampled meanwhile.

VALUES of bench/models_memory (result_file.py) have further: held_peak_bytes and held_mean_bytes (of
Tube's arms: what lies behind all functions' allocations, and what is held ready for them, as the
proxy counts it: no code, no context), gpu_peak_bytes and gpu_mean_bytes (in use on the GPU more
than before the arm, where NVML tells), saved_of_peak and saved_of_mean (held, against the arm with
everything off), requests, lost, and of the arm that says what it can: certified (functions whose
memory is by address) and departures (of these, from what was certified).
"""
import json
import pathlib
import subprocess
import sys
import time

import arm_set
import arrivals
import faas_functions
import faas_runs
import footprint_runs
import instances
import keep_alive
import latency
import memory
import result_file
import tubetest
from figures import HOLDS, SAYS

NAMES = ("vgg11", "inception3", "resnet50", "nasnet", "speech", "bert")
# PyTorch's allocator keeps what is freed, in any arm and natively: Tube sees its segments. Without
# it each tensor is an allocation of its own, as in the papers.
ALLOCATORS = {"each tensor an allocation": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
              "PyTorch's cache": {}}
ROW = "bursty"
INTERVAL_S = 0.005  # between looks at the memory
START_S, PROFILE_S, DRAIN_S = 150, 150, 60
STANDIN = faas_functions.FOLDER.parent / "items" / "model_standin.py"


def group(allocator):
    return f"six models, {allocator}"


def inputs(standin, batch):
    """name -> the input of each model, so many at a time."""
    shapes = {name: faas_functions.INPUTS[name] for name in NAMES}
    if standin:
        return {name: faas_functions.Input(name, "float32", [256]) for name in NAMES}
    return {name: faas_functions.Input(name, dtype, [shape[0] * batch, *shape[1:]])
            for name, (dtype, shape) in shapes.items()}


def requests(seconds, rate, seed):
    """([(seconds, function)] of all functions in order, what they are in words): the same minutes
    of the trace for each, so that bursts meet, and `rate` requests a second."""
    found, words = [], ""
    for index, name in enumerate(NAMES):
        times, words = arrivals.times("bursty", seconds, rate=rate, seed=seed + index)
        found += [(at, name) for at in times]
    return sorted(found), f"each function: {words}"


def command(name, standin):
    if standin:
        return [sys.executable, str(STANDIN), name, "--device", "0"]
    return faas_runs.command(name, False)


def request(handle):
    return {"inputs": {"input": handle}, "params": {}, "outputs": {}}


def function_name(name):
    """As an arm calls it (Arm.spawn()): the functions are started in their order."""
    return f"{pathlib.Path(sys.executable).name}-{NAMES.index(name) + 1}"


def settings_of(arm):
    return dict(pair.split("=", 1) for pair in arm.split(":")[1:])


def held(mem):
    """Of what `tubectl mem --json` says: behind allocations, and idle."""
    return sum(footprint_runs.of_functions(mem).values())


class Models:
    """The bench with one allocator. `bench`: options, layout, driver, read (memory in use, or
    None), handles, state (a folder for weights)."""

    def __init__(self, bench, allocator, folder):
        self.bench, self.allocator, self.folder = bench, allocator, pathlib.Path(folder)
        self.standin = bench.options.backend == "sim"
        self.environment = dict(instances.ENVIRONMENT, WORKFLOW_STATE=bench.state,
                                **ALLOCATORS[allocator])
        self.notes, self.want = [], {}

    def cache(self):
        """Where certificates are, and what pools learn: nothing of another run."""
        return str(self.folder / "cache")

    def profile(self, counts):
        """Certifies all functions at once, each for as many requests as it will have: a certificate
        names every allocation."""
        running = {}
        for name in NAMES:
            run = self.folder / f"profile-{name}"
            run.mkdir(mode=0o700)
            env = tubetest.base_environment()
            env.update(self.environment, TUBE_DIR=str(run), TUBE_CACHE=self.cache())
            asked = [dict(request(self.bench.handles[name]), id=number)
                     for number in range(counts[name])]
            (run / "requests").write_text(
                "".join(json.dumps(line) + "\n" for line in [*asked, {"end": True}]))
            with open(run / "requests") as lines, open(run / "said", "w") as said:
                running[name] = subprocess.Popen([
                    str(self.bench.layout.tubectl), "profile", "--backend",
                    self.bench.options.backend, "-f", function_name(name), "--",
                    *command(name, self.standin)
                ], env=env, stdin=lines, stdout=said, stderr=subprocess.STDOUT)
        end = time.monotonic() + PROFILE_S
        for name, process in running.items():
            try:
                code = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
                code = process.wait()
            if code == 0:
                continue
            said = (self.folder / f"profile-{name}" / "said").read_text()
            lines = [line for line in said.splitlines() if line and not line.startswith("@")]
            self.notes.append(f"{self.allocator}: {name} is not certified: "
                              f"{lines[-1] if lines else code}")

    def add(self, arms, name):
        """The arm, with a cache of our own; a Tube arm is not what arm_set.py makes of its name."""
        if name.split(":")[0] != "tube":
            return arms.add(name)
        try:
            settings = dict(settings_of(name), TUBE_CACHE=self.cache())
            arms.arms[name] = arm_set.TubeArm(name, arms, settings)
        except (RuntimeError, OSError) as error:
            arms.missing[name] = str(error)

    def platform(self, arm):
        functions = [keep_alive.Function(name, command(name, self.standin),
                                         request(self.bench.handles[name])) for name in NAMES]
        return keep_alive.Platform(functions, arm.spawn, keep_alive.FOREVER, 1, self.environment)

    def run(self, name, asked, seconds):
        """(VALUES of an arm, what was wrong); it is alone on the machine, and ended."""
        bench = self.bench
        base = footprint_runs.settled(bench.read) if bench.read else 0
        with arm_set.ArmSet(bench.layout, bench.options.backend, bench.driver, []) as arms:
            self.add(arms, name)
            if name not in arms.arms:
                raise RuntimeError(arms.missing[name])
            arm = arms.arms[name]
            proxy = getattr(arm, "proxy", None)
            platform = self.platform(arm)
            try:
                platform.warm(1, time.monotonic() + START_S)
                arm.confirm(len(NAMES))
                of_gpu = memory.Sampler(bench.read, INTERVAL_S).start() if bench.read else None
                of_proxy = memory.Sampler(lambda: held(proxy.request("mem")),
                                          INTERVAL_S).start() if proxy else None
                records = platform.replay(asked, time.monotonic() + seconds + DRAIN_S)
                seen = [sampler.stop() if sampler else None for sampler in (of_proxy, of_gpu)]
                lazy = [f["lazy"] for f in proxy.request("mem")["functions"]] if proxy else []
            finally:
                platform.close()
        values = values_of(records, *seen, base)
        if name == SAYS:
            departures = sum(each["departures"] for each in lazy)
            values.update(certified=departures + sum(each["by_address"] for each in lazy),
                          departures=departures)
        return values, self.problems(name, records)

    def problems(self, name, records):
        lost = [record for record in records if record.error]
        found = [f"{name}: {len(lost)} requests have no result, the first: {lost[0].function}: "
                 f"{lost[0].error}"] if lost else []
        if count := faas_runs.wrong(records, self.want):
            found.append(f"{name}: {count} results are not the first arm's")
        return found


def values_of(records, of_proxy, of_gpu, base):
    good = [record for record in records if not record.error]
    found = dict(latency.summary([r.ended_ns - r.arrived_ns for r in good])) if good else {}
    found.update(requests=len(records), lost=len(records) - len(good))
    if of_proxy:
        found.update(held_peak_bytes=of_proxy["peak"], held_mean_bytes=of_proxy["mean"])
    if of_gpu:
        found.update(gpu_peak_bytes=of_gpu["peak"] - base, gpu_mean_bytes=of_gpu["mean"] - base)
    return found


def compare(arms):
    """What each of Tube's arms saves of what the one with everything off holds."""
    off = arms.get(HOLDS)
    for values in arms.values():
        for what in ("peak", "mean"):
            key = f"held_{what}_bytes"
            if off and off.get(key) and key in values:
                values[f"saved_of_{what}"] = 1 - values[key] / off[key]


def gib(values, key):
    return f"{values[key] / 2**30:.3f}" if key in values else "-"


def share(values, key):
    return f"{values[key]:.1%}" if key in values else "-"


def text(result):
    lines = [
        *result_file.head(result), f"arrivals: {result['arrivals']}",
        "GiB that functions hold (allocations with memory behind them, and idle blocks; no code,",
        "no context), and GiB in use on the GPU more than before; sampled every 5 ms.", ""
    ]
    for row in result["rows"]:
        table = [["", "held peak", "held mean", "saved of peak", "saved of mean", "GPU peak",
                  "GPU mean", "p50 ms", "p99 ms", "requests", "certified", "departed"]]
        for arm, mine in row["arms"].items():
            times = [f"{mine[key] / 1e6:.1f}" if key in mine else "-"
                     for key in ("p50_ns", "p99_ns")]
            table.append([
                arm, gib(mine, "held_peak_bytes"), gib(mine, "held_mean_bytes"),
                share(mine, "saved_of_peak"), share(mine, "saved_of_mean"),
                gib(mine, "gpu_peak_bytes"), gib(mine, "gpu_mean_bytes"), *times,
                str(mine["requests"]), str(mine.get("certified", "-")),
                str(mine.get("departures", "-"))
            ])
        lines += [f"== {row['group']}: {row['name']}", *result_file.layout_table(table), ""]
    return "\n".join(lines + result_file.tail(result)) + "\n"
