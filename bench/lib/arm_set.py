"""The arms of a bench: native, native under MPS, Tube, Tube without spinning; each starts programs
and knows its own server.

`tube:NAME=VALUE` (more of them behind further colons) is Tube with these variables on both sides,
to hold two settings against each other; `1.NAME=VALUE` is for the first program alone, which is the
measured one. `mps:NAME=VALUE` is the same for programs under MPS.

An arm that cannot be had here (no MPS, a proxy that does not start) is left out aloud, with the
reason in the result; the others go on. Everything that was started is gone when the set is closed.
"""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tests" / "gpu"), str(HERE.parents[1] / "tests" / "e2e")]
import mps  # noqa: E402
import probe  # noqa: E402
import tubetest  # noqa: E402
from arms import Worker  # noqa: E402

NAMES = ("native", "mps", "tube", "tube-slo", "tube-block")
SLO_MS = 10
WORDS = {
    "native": "one native process per function",
    "mps": "native processes under one MPS server",
    "tube": "through Tube, one proxy",
    "tube-slo": f"through Tube, the measured function started with --slo-ms {SLO_MS}",
    "tube-block": "through Tube, TUBE_SPIN_US=0 on both sides"
}
SETTINGS = re.compile(r"(tube|mps)((:(1\.)?[A-Z_]+=[^:,]*)+)")
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR", "NUMBA_CACHE_DIR",
          "CUDA_CACHE_PATH")


def words(name):
    """What an arm is, to print."""
    kind, *settings = name.split(":")
    where = "under MPS, " if kind == "mps" else "through Tube, "
    return WORDS.get(name) or where + " ".join(settings).replace("1.", "the measured one ")


def cpu_ns(pid):
    """CPU time of all threads that a process has now, from the scheduler's own count; 0 when it is
    gone."""
    total = 0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    if total == 0:  # A kernel without that count: clock ticks.
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total = (int(fields[11]) + int(fields[12])) * (1_000_000_000 //
                                                           os.sysconf("SC_CLK_TCK"))
    return total


class Arm:
    """One way to run programs."""

    def __init__(self, name, bench_set):
        self.name, self.set, self.layout, self.started = name, bench_set, bench_set.layout, 0

    def env(self, function):
        raise NotImplementedError

    def started_by(self, command, function):
        """The command that starts `command` in this arm."""
        return command

    def first_settings(self):
        """What the measured program has for itself."""
        return {}

    def servers(self):
        """Pids whose CPU time is spent for the functions."""
        return []

    def counters(self, pids):
        """Sums of what the proxy counted for these processes, or None for arms without one."""
        return None

    def spawn(self, command, extra_env=None):
        """A measured program, started and not yet waited for (tests/gpu/arms.py)."""
        self.started += 1
        label = f"{self.name.replace(':', '-')}-{self.started}"
        function = f"{pathlib.Path(command[0]).name}-{self.started}"
        env = dict(self.env(function), **(extra_env or {}))
        for cache in CACHES:
            env[cache] = str(self.set.work / f"cache-{re.split('[-:]', self.name)[0]}" /
                             cache.lower())
        env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        worker = Worker(label, self.started_by(command, function), env, str(self.set.work / label))
        self.set.workers.append(worker)
        return worker

    def confirm(self, count):
        """Called when `count` programs are ready: raises when they are not what the arm's name
        says."""

    def close(self):
        pass


class NativeArm(Arm):
    def env(self, function):
        return tubetest.environment(self.layout, "native", self.set.backend, driver=self.set.driver)


class MpsArm(NativeArm):
    def __init__(self, name, bench_set):
        super().__init__(name, bench_set)
        self.server = mps.Mps(tubetest.base_environment(), bench_set.driver).__enter__()

    def env(self, function):
        return dict(super().env(function), **self.server.client_env())

    def confirm(self, count):
        self.server.require_clients(count)

    def servers(self):
        return sorted(self.server.servers_seen)

    def close(self):
        self.server.__exit__()


class TubeArm(Arm):
    def __init__(self, name, bench_set, environment=None, gpus=None, before=None):
        """`gpus`: numbers of those that the proxy serves, without them the set's. `before`: called
        in the proxy's process before it is tubed."""
        super().__init__(name, bench_set)
        self.extra = environment or {}
        self.proxy = tubetest.Proxy(self.layout, bench_set.backend, workflow="bench",
                                    driver=bench_set.driver, extra_env=self.extra,
                                    gpus=numbers(gpus) if gpus else bench_set.gpus,
                                    before=before).__enter__()

    def env(self, function):
        if self.set.backend == "sim":
            env = tubetest.environment(self.layout, "preload", "sim", self.proxy, function)
        else:
            env = tubetest.environment(self.layout, "native", "driver", driver=self.set.driver)
            env.update(TUBE_DIR=str(self.proxy.dir), TUBE_REAL_DRIVER=str(self.set.driver))
        return dict(env, TUBE_LIBRARY=str(self.layout.libtube), **self.extra)

    def started_by(self, command, function):
        """On a GPU as a user would. tubectl becomes the program: the process is the same."""
        if self.set.backend == "sim":
            return command
        return [
            str(self.layout.tubectl), "run", "--no-start", "--workflow", self.proxy.workflow,
            "--function", function, "--", *command
        ]

    def servers(self):
        return [self.proxy.process.pid]

    def counters(self, pids):
        total = {"calls": {}}
        for entry in self.proxy.status()["functions"]:
            if entry["pid"] in pids and entry["state"] != "dead":
                add(total, entry)
        return total

    def close(self):
        self.proxy.__exit__(None, None, None)


def with_settings(kind, text):
    """The kind of arm with these variables: `:NAME=VALUE:1.NAME=VALUE`."""
    chosen = dict(pair.split("=", 1) for pair in text[1:].split(":"))
    everybody = {name: value for name, value in chosen.items() if not name.startswith("1.")}
    first = {name[2:]: value for name, value in chosen.items() if name.startswith("1.")}

    class Chosen(kind):
        def __init__(self, name, bench_set):
            super().__init__(name, bench_set, *([everybody] if kind is TubeArm else []))

        def first_settings(self):
            return first

        def spawn(self, command, extra_env=None):
            more = {**everybody, **(first if self.started == 0 else {})}
            return super().spawn(command, dict(extra_env or {}, **more))

    return Chosen


class SloArm(TubeArm):
    """The first program, which is the measured one, has a deadline; those beside it have none."""

    def spawn(self, command, extra_env=None):
        slo = {"TUBE_SLO_MS": str(SLO_MS)} if self.started == 0 else {}
        return super().spawn(command, dict(extra_env or {}, **slo))


def numbers(gpus):
    """As tubed takes them."""
    return ",".join(map(str, gpus))


def add(total, entry, sign=1):
    """Adds the numbers of a function's status to `total`, also those of nested tables."""
    for key, value in entry.items():
        if key in ("id", "pid", "gpu", "age_s"):
            continue
        if isinstance(value, dict):
            add(total.setdefault(key, {}), value, sign)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            total[key] = total.get(key, 0) + sign * value


def difference(before, after):
    """What was counted between two looks; None when there is no count."""
    if before is None or after is None:
        return None
    total = {}
    add(total, after)
    add(total, before, -1)
    return total


class ArmSet:
    """The arms of one run. `missing` says in words which are not there. `gpus`: numbers of those
    that the proxies serve."""

    def __init__(self, layout, backend, driver, names, gpus=(0,)):
        self.layout, self.backend, self.driver = layout, backend, driver
        self.gpus = numbers(gpus)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="tube-bench-"))
        self.workers, self.arms, self.missing = [], {}, {}
        for name in names:
            if name not in NAMES and not SETTINGS.fullmatch(name):
                sys.exit(f"bench: no arm {name}: there are {', '.join(NAMES)} and tube:NAME=VALUE or "
                         "mps:NAME=VALUE")
        for name in names:
            self.add(name)

    def add(self, name):
        kinds = {"native": NativeArm, "mps": MpsArm, "tube": TubeArm, "tube-slo": SloArm,
                 "tube-block": lambda n, s: TubeArm(n, s, {"TUBE_SPIN_US": "0"})}
        if name.startswith("mps") and self.backend == "sim":
            self.missing[name] = "the simulated GPU has no MPS"
            return
        if settings := SETTINGS.fullmatch(name):
            kinds[name] = with_settings({"tube": TubeArm, "mps": MpsArm}[settings[1]], settings[2])
        try:
            self.arms[name] = kinds[name](name, self)
        except (mps.MpsError, RuntimeError, OSError) as error:
            self.drop(name, str(error))

    def drop(self, name, reason):
        """Goes on without an arm."""
        self.missing[name] = reason
        arm = self.arms.pop(name, None)
        if arm is not None:
            arm.close()
        print(f"bench: going on without {name}: {reason}", file=sys.stderr, flush=True)

    def in_turns(self, round_number):
        """The arms in the order of this round: each begins once."""
        arms = list(self.arms.values())
        shift = round_number % max(1, len(arms))
        return arms[shift:] + arms[:shift]

    def close_workers(self):
        """Their input ends, so they do, in order; who has not ended after ten seconds is killed."""
        for worker in self.workers:
            with contextlib.suppress(BrokenPipeError):
                worker.process.stdin.close()
        deadline = time.monotonic() + 10
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.01, deadline - time.monotonic()))
            worker.close()
        self.workers.clear()

    def close(self):
        self.close_workers()
        for arm in self.arms.values():
            with contextlib.suppress(RuntimeError, OSError):
                arm.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def find_backend(backend):
    """(driver path or None, reason to skip or None)."""
    if backend != "driver":
        return None, None
    driver = tubetest.find_driver()
    if driver is None or not probe.has_gpu(driver):
        return None, f"no NVIDIA GPU here ({'no libcuda.so.1 found' if driver is None else f'{driver} finds no device'})"
    return driver, None
