"""An arm of bench/workflows: the functions of one workflow, started in one way, and what a turn of
them costs.

An arm is called `ARM+PASSING`: an arm of arm_set.py (native, mps, tube, tube:NAME=VALUE) and how
data goes from one GPU function to the next (host, pinned, ipc, files, store). Each has processes and
servers of its own, so that what the GPU holds for it can be told: all arms are started at once, as
a start is mostly the import of libraries, and ended one after the other. What an arm held is by how
much the memory in use shrinks when it is ended; what it held before follows from what each of its
turns added.
"""
import dataclasses
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples" / "workflows" / "runner"))
import arm_set  # noqa: E402
import deployment  # noqa: E402
import memory  # noqa: E402
import probe  # noqa: E402

SETTLE_S, POLL_S, ALIKE = 3.0, 0.1, 3


@dataclasses.dataclass
class Turn:
    """What one turn of an arm was: its kind (solo, closed, open), its round, the records, and what
    it cost. `used`: bytes in use on all GPUs (begin, end, mean, peak), None without a reading."""
    kind: str
    round: int
    records: list
    seconds: float
    function_cpu_ns: int
    server_cpu_ns: int
    counted: dict
    used: tuple


def parts(name):
    """("tube", "ipc") of "tube+ipc"; the way may have a second word: "tube+ipc+pinned"."""
    arm, plus, passing = name.partition("+")
    if not plus:
        sys.exit(f"bench: arm {name} does not say how data passes: {name}+host, {name}+ipc")
    return arm, passing


def words(name):
    arm, passing = parts(name)
    ways = {
        "host": "through host memory",
        "host-place": "through host memory, which host functions write in place",
        "pinned": "through pinned host memory",
        "ipc": "by CUDA IPC",
        "ipc+pinned": "by CUDA IPC, to and from the host pinned",
        "files": "through files",
        "store": "by the store, to and from the host, too",
        "store+host": "by the store, to and from the host through shared memory",
        "store-host": "by the store's host memory, nothing kept on the GPU"
    }
    return f"{arm_set.words(arm)}; between GPU functions {ways.get(passing, passing)}"


def memory_reader(driver, gpus=1):
    """What tells the memory in use on all GPUs together, often; None where nothing does."""
    known = [probe.Nvml(driver, probe.GPU + number) for number in range(gpus)] if driver else []
    if not known or any(one.lib is None or one.memory_used() is None for one in known):
        return None
    return lambda: sum(one.memory_used() for one in known)


def settled(read):
    """Memory in use once it stands still, or what it is after SETTLE_S."""
    deadline, readings = time.monotonic() + SETTLE_S, []
    while True:
        readings.append(read())
        if len(readings) >= ALIKE and len(set(readings[-ALIKE:])) == 1:
            return readings[-1]
        if time.monotonic() > deadline:
            return readings[-1]
        time.sleep(POLL_S)


class WorkflowArm:
    """Started by prepare() and start(), driven by turn(), ended by close(); raises what goes
    wrong."""

    def __init__(self, name, wf, bench):
        """`bench`: layout, backend, driver, batch, copies, devices, place, state, read (memory in
        use, or None)."""
        self.name, self.wf, self.bench = name, wf, bench
        self.set, self.deployment, self.turns = None, None, []
        self.start_s, self.held = None, None

    def prepare(self):
        """The arm's servers, which end when the thread that started them does: call it in the one
        that stays."""
        bench, (name, passing) = self.bench, parts(self.name)
        self.set = arm_set.ArmSet(bench.layout, bench.backend, bench.driver, [name],
                                  gpus=bench.devices)
        if self.set.missing:
            raise RuntimeError(self.set.missing[name])
        self.deployment = deployment.Deployment(
            self.wf, self.set.arms[name], passing, bench.batch, copies=bench.copies,
            devices=bench.devices, place=bench.place, standin=bench.backend == "sim",
            state=bench.state)

    def start(self, deadline):
        """All processes, warm. Several arms are started at once, each in a thread."""
        begin = time.monotonic()
        self.deployment.start(deadline)
        self.start_s = time.monotonic() - begin

    def cpu_ns(self):
        """(of the functions, of the servers), since each began."""
        functions = sum(arm_set.cpu_ns(worker.pid) for worker in self.set.workers)
        servers = sum(arm_set.cpu_ns(pid) for arm in self.set.arms.values()
                      for pid in arm.servers())
        return functions, servers

    def counters(self):
        pids = {worker.pid for worker in self.set.workers}
        return next(iter(self.set.arms.values())).counters(pids)

    def turn(self, kind, number, drive):
        """Runs `drive(deployment)`, which returns records, and keeps what it cost."""
        cpu, counted, read = self.cpu_ns(), self.counters(), self.bench.read
        used = [read()] if read else None
        sampler = memory.Sampler(read, 0.01).start() if read else None
        begin = time.monotonic()
        try:
            records = drive(self.deployment)
        finally:
            seconds = time.monotonic() - begin
            sampled = sampler.stop() if sampler else None
        after = self.cpu_ns()
        if sampled:
            used += [read(), sampled["mean"], sampled["peak"]]
        turn = Turn(kind, number, records, seconds, after[0] - cpu[0], after[1] - cpu[1],
                    arm_set.difference(counted, self.counters()), used if sampled else None)
        self.turns.append(turn)
        return turn

    def of(self, kind):
        return [turn for turn in self.turns if turn.kind == kind]

    def close(self):
        """Ends everything; `held` is what the GPU got back."""
        read = self.bench.read
        before = settled(read) if read and self.turns else None
        if self.deployment is not None:
            self.deployment.close()
        if self.set is not None:
            self.set.close()
        if before is not None:
            self.held = before - settled(read)
        self.set = self.deployment = None


def held_in(turns, held):
    """(mean, peak) of what an arm held in its open turns, when it held `held` bytes at its end;
    None when the memory was not read."""
    shares, at_end = [], held
    for turn in reversed(turns):
        if turn.used is None or held is None:
            return None
        begin, end, mean, peak = turn.used
        before = at_end - (end - begin)
        if turn.kind == "open":
            shares.append((turn.seconds, before + mean - begin, before + peak - begin))
        at_end = before
    seconds = sum(share[0] for share in shares)
    if not seconds:
        return None
    return (sum(s * mean for s, mean, _ in shares) / seconds, max(peak for _, _, peak in shares))
