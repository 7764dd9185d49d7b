"""A bystander beside each attack that can go on, alone and beside busy processes, in turns.

Each attack has a proxy of its own with one bystander, a small function that sends a request every
two milliseconds (`requests` of bench/copies). In each round it runs alone; beside processes that
know nothing of Tube and keep as many cores busy as the attack does itself (`busy`), and as the
attack and the proxy do together (`crowded`); and beside the attack (`tube`). The next round begins
one further. What was attacked with is gone from the proxy before the next phase.

VALUES have further wrong_results; and of the attacked bystander p50_over_alone and p99_over_alone,
the same over busy and over crowded (each the median of the rounds' ratios), attack_cores and
server_cores (what the attack and the proxy had of the cores meanwhile).
"""
import contextlib
import dataclasses
import os
import pathlib
import statistics
import sys
import time

import arm_set
import copy_runs
import latency
import turns
from arms import WorkerError
from beside import BEGIN_S, Beside, cpu_ns

GROUP = "a small function beside attacks"
WORST = "worst of all"
ALONE, BUSY, CROWDED, ATTACKED = PHASES = ("alone", "busy", "crowded", "tube")
WORDS = {
    ALONE: "through Tube, with nobody beside it",
    BUSY: "beside processes without Tube that keep as many cores busy as the attack itself",
    CROWDED: "the same, as many as the attack and the proxy together",
    ATTACKED: "beside the attack",
}
REQUEST = "requests 4096 2000"  # bytes, microseconds of pause
END_S = 60
SMALL_GROUP_BYTES = 1 << 30
SPIN = "print('begun', flush=True)\nwhile True: pass"


@dataclasses.dataclass(frozen=True)
class Attack:
    """`program`: a name of PROGRAMS with its words; {sockets}, {data}, {folder} are filled in.
    `busy`: cores that it keeps busy itself, `cores`: with what it makes the proxy do; as they were
    counted, rounded up. `processes` of it at once. `function`: a program of the proxy, with the
    hook. `stopped`: by a signal, once it has begun. `small`: the proxy lives in a control group with
    little memory."""
    name: str
    program: tuple
    busy: int = 1
    cores: int = 2
    processes: int = 1
    function: bool = True
    stopped: bool = False
    small: bool = False


PROGRAMS = {
    "hostile": "tests/e2e/hostile/hostile",
    "endless": "tests/e2e/hostile/endless",
    "mutate": "tests/stress/mutate_records",
}
ATTACKS = (
    Attack("records without end", ("hostile", "flood")),
    Attack("two with records without end", ("hostile", "flood"), busy=2, cores=4, processes=2),
    Attack("segment rewritten meanwhile", ("mutate", "{data}", "0", "7", "rewrite"),
           function=False),
    Attack("4,096 mappings registered, freed", ("endless", "registrations"), cores=1),
    Attack("pinned memory until refused", ("endless", "pinned", str(2 << 30)), small=True),
    Attack("connections that never greet", ("attacker", "silent", "{sockets}"), function=False),
    Attack("a control client that does not read", ("attacker", "control", "{sockets}"), busy=0,
           cores=0, function=False),
    Attack("idle connections of the brokers' socket", ("attacker", "broker", "{sockets}"),
           function=False),
    Attack("garbage that is logged", ("attacker", "log", "{sockets}"), cores=1, function=False),
    Attack("short clients, garbage, kill -9", ("attacker", "clients", "{sockets}", "{hostile}")),
    Attack("images that fail to load", ("endless", "broken_images"), cores=1),
    Attack("names of kernels without end", ("endless", "kernel_names"), cores=1),
    Attack("PTX compiled without end", ("endless", "compilations"), cores=1),
    Attack("sparse images of 256 MiB", ("endless", "sparse_images", "{folder}", str(256 << 20)),
           cores=1),
    Attack("streams until refused", ("endless", "streams")),
    Attack("stopped with its stream waiting", ("hostile", "wait_for_ever"), busy=0, cores=0,
           stopped=True),
)


def make_group(size):
    """The folder of a new control group with so much memory, of v1 or v2, or None."""
    for root, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                       ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(root, f"tube-bench-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / file).exists():
                (group / file).write_text(str(size))
                return group
            group.rmdir()
    return None


@contextlib.contextmanager
def memory_group(size):
    """What a child does to enter a control group with so much memory; None where there is none."""
    group = make_group(size)
    try:
        yield group and (lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    finally:
        if group:
            group.rmdir()


class Shown:
    """What one phase showed in all rounds."""

    def __init__(self):
        self.times, self.rounds, self.wrong = [], [], 0
        self.attack_cores, self.server_cores = [], []

    def add(self, block, attack_cores, server_cores):
        self.times += block["latency_ns"]
        self.rounds.append(latency.summary(block["latency_ns"]))
        self.wrong += block["wrong"]
        self.attack_cores.append(attack_cores)
        self.server_cores.append(server_cores)

    def of_rounds(self, key):
        return [one[key] for one in self.rounds]

    def values(self):
        return dict(latency.summary(self.times), blocks_ns=self.of_rounds("p50_ns"),
                    p99_rounds_ns=self.of_rounds("p99_ns"), wrong_results=self.wrong,
                    attack_cores=statistics.median(self.attack_cores),
                    server_cores=statistics.median(self.server_cores))


def compared(shown):
    """VALUES of all phases, the attacked bystander's with its ratios."""
    values = {phase: shown[phase].values() for phase in PHASES if shown[phase].times}
    if len(values) < len(PHASES):
        return values
    for key in ("p50", "p99"):
        for other in PHASES[:-1]:
            values[ATTACKED][f"{key}_over_{other}"] = turns.ratio(
                shown[other].of_rounds(f"{key}_ns"), shown[ATTACKED].of_rounds(f"{key}_ns"))
    return values


class Scene:
    """One attack's proxy with its bystander."""

    def __init__(self, runner, attack, arm, options):
        self.runner, self.attack, self.arm = runner, attack, arm
        self.seconds = options.seconds
        self.layout, self.proxy = arm.layout, arm.proxy
        self.folder = arm.set.work
        self.bystander = arm.spawn([str(copy_runs.client_path(self.layout))])
        self.bystander.ready(time.monotonic() + BEGIN_S)

    def command(self):
        data, control = (self.proxy.dir / f"{self.proxy.workflow}.{end}" for end in ("sock", "ctl"))
        words = {"{data}": [data], "{folder}": [self.folder],
                 "{hostile}": [self.layout.build / PROGRAMS["hostile"]],
                 "{sockets}": [data, control, self.proxy.broker_name()[1:]]}
        kind, *rest = self.attack.program
        script = [sys.executable, pathlib.Path(__file__).with_name("attacker.py")]
        program = script if kind == "attacker" else [self.layout.build / PROGRAMS[kind]]
        return program + [word for each in rest for word in words.get(each, [each])]

    def beside(self, phase):
        if phase != ATTACKED:
            count = {ALONE: 0, BUSY: self.attack.busy, CROWDED: self.attack.cores}[phase]
            return Beside([[sys.executable, "-c", SPIN]] * count, dict(os.environ), self.folder)
        command, env = list(map(str, self.command())), arm_set.tubetest.base_environment()
        if self.attack.function:
            command, env = self.arm.started_by(command, "attacker"), self.arm.env("attacker")
        return Beside([command] * self.attack.processes, env, self.folder, self.attack.stopped)

    def requests(self):
        """One block of them, with what was wrong with their results in `said`."""
        limit = time.monotonic() + BEGIN_S + 10 * self.seconds
        self.bystander.send(f"{REQUEST} {self.seconds * 1000:.0f}")
        self.bystander.expect("prepared", limit)
        self.bystander.send("go")
        block = self.bystander.expect("block", limit)
        self.bystander.send("verify")
        return dict(block, said=self.bystander.expect("verified", limit)["wrong"])

    def phase(self, phase, shown):
        """One phase; returns what was wrong."""
        beside = self.beside(phase)
        try:
            cpu, server = beside.cpu_ns(), cpu_ns(self.proxy.process.pid)
            block = self.requests()
            took = block["end_ns"] - block["begin_ns"]
            cpu, server = beside.cpu_ns() - cpu, cpu_ns(self.proxy.process.pid) - server
            wrong = beside.ended()
        finally:
            beside.end()
        shown.add(block, cpu / took, server / took)
        self.settle()
        return [f"{phase}: {words}" for words in [*wrong, block["said"]] if words]

    def settle(self):
        """Until the bystander is the proxy's only function again."""
        self.proxy.wait_status(lambda status: [
            f["pid"] for f in status["functions"] if f.get("state") != "dead"
        ] == [self.bystander.pid], END_S)

    def rounds(self, count):
        """(VALUES of each phase, what was wrong)."""
        shown, wrong = {phase: Shown() for phase in PHASES}, []
        for number in range(count):
            if number and self.runner.late(f"round {number + 1} beside {self.attack.name}"):
                break
            shift = number % len(PHASES)
            for phase in PHASES[shift:] + PHASES[:shift]:
                wrong += self.phase(phase, shown[phase])
        return compared(shown), wrong


@contextlib.contextmanager
def fresh_arm(attack, layout, backend, driver):
    """Tube's arm with a proxy of its own, in a small control group where the attack wants one."""
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(memory_group(SMALL_GROUP_BYTES)) if attack.small else None
        arms = stack.enter_context(arm_set.ArmSet(layout, backend, driver, []))
        arms.arms["tube"] = arm_set.TubeArm("tube", arms, before=before)
        yield arms.arms["tube"]


def run(runner, attack, layout, driver, options):
    """Measures one attack and writes its row."""
    values, wrong = {}, []
    try:
        with fresh_arm(attack, layout, options.backend, driver) as arm:
            scene = Scene(runner, attack, arm, options)
            values, wrong = scene.rounds(options.rounds)
            scene.bystander.finish(time.monotonic() + END_S)
    except (WorkerError, RuntimeError, OSError) as error:
        wrong.append(str(error))
    return runner.add_row(GROUP, attack.name, values, wrong)


def worst(rows):
    """The row of the attack with the largest p99 against alone; None where something was wrong."""
    if not rows or any(row["wrong"] or len(row["arms"]) < len(PHASES) for row in rows):
        return None
    found = max(rows, key=lambda row: row["arms"][ATTACKED]["p99_over_alone"])
    return dict(found, name=WORST, attack=found["name"])
