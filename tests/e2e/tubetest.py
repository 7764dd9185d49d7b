"""What the end-to-end, stress and GPU tests share: where the parts are, environments for each arm,
one proxy of one's own.

Works from a build folder (TUBE_BUILD, or build/ in the checkout) and from the bundle. An arm is a
way to run a program: native (the backend's own libcuda.so.1, no Tube) or through Tube in one of its
two load modes. Standard library only.
"""
import collections
import contextlib
import faulthandler
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = 77
END_S = 20  # for a proxy that was told to end
RELAY_BLOCK = 32 << 20  # bytes of a GPU's relay buffers (proxy/copy/relay_buffers.h)
ARMS = ("native", "preload", "library-path")
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu",
                  "/usr/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu", "/usr/lib/wsl/lib")


def say_where_processes_stand(number, _):
    """In a second: then meson kills it."""
    for task in pathlib.Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            print(f"{child}:\n{system_calls_of(child)}", file=sys.stderr, flush=True)
    for proxy in list(Proxy.running):
        print(proxy.log_tail(), file=sys.stderr, flush=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# A test that meson ends for its time says where it stood, and then where its processes stand.
signal.signal(signal.SIGTERM, say_where_processes_stand)
faulthandler.register(signal.SIGTERM, chain=True)


class Layout:
    """The built parts, in a build folder or in the bundle."""

    def __init__(self, build=None):
        bundled = (ROOT / "bin" / "tubed").exists()
        self.build = pathlib.Path(build or os.environ.get("TUBE_BUILD") or
                                  (ROOT if bundled else ROOT / "build")).resolve()
        if (self.build / "bin" / "tubed").exists():
            self.tubed, self.tubectl = self.build / "bin" / "tubed", self.build / "bin" / "tubectl"
            self.hook, self.sim = self.build / "lib/tube/hook", self.build / "lib/tube/sim"
            self.libtube = self.build / "lib/tube/libtube.so.1"
        else:
            self.tubed, self.tubectl = self.build / "proxy/tubed", self.build / "tools/tubectl/tubectl"
            self.hook, self.sim = self.build / "hook/lib", self.build / "sim/lib"
            self.libtube = self.build / "libtube/libtube.so.1"

    def preload(self, *libraries):
        """LD_PRELOAD for a program in this build: a sanitizer's runtime comes before everything
        else."""
        marker = self.build / "tests/sanitizer_runtime"
        runtime = marker.read_text().split() if marker.exists() else []
        return {
            "LD_PRELOAD": ":".join([*runtime, *map(str, libraries)])
        } if runtime or libraries else {}

    def require(self, *parts):
        """Ends the program with one line when a part is not built; without arguments: proxy, hook
        and simulated GPU."""
        for path in parts or (self.tubed, self.hook / "libcuda.so.1", self.sim / "libcuda.so.1"):
            if not path.exists():
                sys.exit(
                    f"{path} is not built; run ./dev build, or point at a build folder with --build DIR"
                )

    def commit(self):
        if (self.build / "COMMIT").exists():
            return (self.build / "COMMIT").read_text().strip()
        out = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True,
                             text=True)
        return out.stdout.strip() or "unknown"


def find_driver():
    """Path of the real libcuda.so.1, or None. The toolkit's stub and Tube's own libraries have no
    place in this list."""
    given = os.environ.get("TUBE_REAL_DRIVER")
    if given:
        return pathlib.Path(given)
    folders = [
        f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if f and "tube" not in f and "stubs" not in f
    ]
    for folder in [*folders, *DRIVER_FOLDERS]:
        path = pathlib.Path(folder) / "libcuda.so.1"
        if path.exists():
            return path
    return None


def threads_of(pid):
    """What each thread of a process that should have ended is in: its stack where gdb is, else its
    system call."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 20"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if "#0" in done.stdout:
            return done.stdout[done.stdout.find("\nThread "):]
    return system_calls_of(pid)


def system_calls_of(pid):
    found = []
    for task in sorted(pathlib.Path("/proc", str(pid), "task").glob("*")):
        with contextlib.suppress(OSError):
            found.append(" ".join([task.name, *((task / name).read_text().strip()
                                                for name in ("comm", "wchan", "syscall"))]))
    return "\n".join(found)


def base_environment():
    """This process's environment without anything of Tube in it; nothing is kept between runs."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("TUBE_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")
    }
    return {**kept, "TUBE_CACHE": "off"}


def for_every_proxy():
    """Variables of all proxies that a test starts: TEST_PROXY_ENV="NAME=VALUE ..." runs a whole suite
    in another mode."""
    return dict(pair.split("=", 1) for pair in os.environ.get("TEST_PROXY_ENV", "").split())


def client_settings():
    """The same for programs that run through Tube: TEST_CLIENT_ENV."""
    return dict(pair.split("=", 1) for pair in os.environ.get("TEST_CLIENT_ENV", "").split())


def interpreted(env):
    """For a Python client: the interpreter leaves memory behind, which is no leak of ours."""
    return dict(env, ASAN_OPTIONS=":".join(filter(None,
                                                  [env.get("ASAN_OPTIONS"), "detect_leaks=0"])))


def environment(layout, arm, backend, proxy=None, function=None, driver=None):
    """The environment of a program in one arm; `proxy` is needed for the arms through Tube."""
    env = base_environment()
    inherited = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders = inherited if backend == "driver" else []
    if backend == "driver" and driver is not None and str(driver.parent) not in folders:
        folders = [str(driver.parent), *folders]
    if arm == "native":
        folders = folders if backend == "driver" else [str(layout.sim)]
        env.update(layout.preload())
    else:
        env.update(client_settings(), TUBE_DIR=str(proxy.dir), TUBE_WORKFLOW=proxy.workflow)
        if function:
            env["TUBE_FUNCTION"] = function
        if backend == "driver" and driver is not None:
            env["TUBE_REAL_DRIVER"] = str(driver)
        if arm == "preload":
            env.update(layout.preload(layout.hook / "libcuda.so.1"))
        else:
            env.update(layout.preload())
            folders = [str(layout.hook), *folders]
    if folders:
        env["LD_LIBRARY_PATH"] = ":".join(folders)
    return env


class Proxy:
    """One `tubed` in a runtime folder of its own. Use as a context manager; leaves nothing
    behind."""
    running = weakref.WeakSet()

    def __init__(self, layout, backend, workflow="test", driver=None, extra_env=None, gpus=None,
                 arguments=(), log=None, before=None, folder=None):
        self.layout, self.backend, self.workflow, self.driver = layout, backend, workflow, driver
        self.gpus = self.from_chosen("0" if gpus is None else gpus)
        self.extra_env = extra_env or {}
        self.arguments = arguments  # of tubed, more of them
        self.log, self.before = log, before  # another descriptor than the log file's; in the child
        # `folder`: another proxy's, which stays.
        self.dir = folder or pathlib.Path(tempfile.mkdtemp(prefix="tube-test-"))
        self.own_dir = folder is None
        self.log_path = self.dir / ("tubed.log" if folder is None else f"tubed-{workflow}.log")
        self.process = None
        self.stuck = ""  # goes_on() of one that had to be killed

    def from_chosen(self, gpus):
        """Numbers of GPUs counted from the one that a run is for (TEST_GPU); "": all of them."""
        first = int(os.environ.get("TEST_GPU", "0")) if self.backend == "driver" else 0
        return ",".join(str(first + int(gpu)) for gpu in gpus.split(",")) if first and gpus else gpus

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        if kept := os.environ.get("TEST_KEEP_LOGS"):
            shutil.copy(self.log_path, pathlib.Path(kept, f"{self.dir.name}.log"))
        if self.own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)
        if self.stuck and self.backend == "sim":
            raise RuntimeError(self.stuck)

    def wait_end(self, timeout_s=60):
        """The exit status of a proxy that ends by itself, or was told to."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(self.goes_on(self.process.pid, timeout_s)) from None

    def goes_on(self, pid, timeout_s):
        return (f"the proxy did not end within {timeout_s} s:\n{threads_of(pid)}\n"
                f"{self.log_tail()}")

    def start(self, timeout_s=60):
        self.running.add(self)
        env = dict(base_environment(), TUBE_DIR=str(self.dir))
        env.update(for_every_proxy())
        env.update(self.extra_env)
        inherited = os.environ.get("LD_LIBRARY_PATH")
        if inherited and self.backend == "driver":
            env["LD_LIBRARY_PATH"] = inherited
        read_end, write_end = os.pipe()
        command = [
            str(self.layout.tubed), "--workflow", self.workflow, "--gpus", self.gpus, "--backend",
            self.backend, "--ready-fd",
            str(write_end), *self.arguments
        ]
        if self.backend == "sim":
            command += ["--sim", str(self.layout.sim / "libcuda.so.1")]
        elif self.driver is not None:
            command += ["--driver", str(self.driver)]
        with open(self.log_path, "ab") as log:
            output = log if self.log is None else self.log
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                            stdout=output, stderr=output, pass_fds=[write_end],
                                            preexec_fn=self.before)
        os.close(write_end)
        ready, _, _ = select.select([read_end], [], [], timeout_s)
        byte = os.read(read_end, 1) if ready else b""
        os.close(read_end)
        if not byte:
            raise RuntimeError(f"tubed did not become ready:\n{self.log_tail()}")

    def stop(self):
        """SIGTERM; returns the exit status, or None when it had to be killed."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.stuck = self.goes_on(process.pid, END_S)
            process.kill()
            process.wait()
            status = None
        log = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        if any(mark in log for mark in ("WARNING: ThreadSanitizer", "ERROR: AddressSanitizer",
                                        "ERROR: LeakSanitizer", "runtime error:")):
            raise RuntimeError(
                f"a sanitizer has something to say about the proxy:\n{self.log_tail()}")
        return status

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def log_tail(self, lines=25):
        if not self.log_path.exists():
            return "(no log)"
        text = self.log_path.read_text(errors="replace")
        # A sanitizer's report is long, and its first lines say what it is about.
        report = text.find("Sanitizer")
        return text[max(0, report - 20):report +
                    20000] if report >= 0 else "\n".join(text.splitlines()[-lines:])

    def request(self, verb, timeout_s=30, **more):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(timeout_s)
            client.connect(str(self.dir / f"{self.workflow}.ctl"))
            client.sendall(json.dumps({"verb": verb, **more}).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                block = client.recv(1 << 16)
                if not block:
                    break
                answer += block
        return json.loads(answer)

    def status(self):
        return self.request("status")

    def broker_name(self):
        """The abstract name of the socket at which it is asked by other proxies."""
        targets = []
        for file in pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the proxy closes files meanwhile
                targets.append(os.readlink(file))
        sockets = {target[8:-1] for target in targets if target.startswith("socket:[")}
        for line in pathlib.Path("/proc/net/unix").read_text().splitlines():
            words = line.split()
            if len(words) == 8 and words[7].startswith("@tube-broker") and words[6] in sockets:
                return "\0" + words[7][1:]
        raise RuntimeError("the proxy has no socket for other proxies")

    def function(self, pid):
        """The status entry of the function process `pid`, or None."""
        for entry in self.status()["functions"]:
            if entry["pid"] == pid and entry.get("state") != "dead":
                return entry
        return None

    def settled_objects(self, timeout_s=30):
        """The proxy's counts at a moment when no spare segment (one open file, mapped in three
        lines) is being made or given back."""
        deadline = time.monotonic() + timeout_s
        while True:
            objects = self.status()["objects"]
            if objects["settled"]:
                return objects
            if time.monotonic() > deadline:
                raise RuntimeError(f"spare segments still in the making after {timeout_s} s")
            select.select([], [], [], 0.01)

    def fd_count(self):
        """Open files of the proxy, the connection that asks among them, without its spares'
        and those of pools that functions left."""
        objects = self.settled_objects()
        return objects["fds"] - objects["spares"] - objects["pools"]

    def wait_empty(self, timeout_s=30):
        """Returns the status once no function is left; a client's death is noticed by its socket,
        freeing takes a moment."""
        return self.wait_status(
            lambda status: not [f for f in status["functions"] if f.get("state") != "dead"],
            timeout_s)

    def wait_status(self, holds, timeout_s=120):
        """Returns the status once `holds` of it."""
        deadline = time.monotonic() + timeout_s
        while not holds(status := self.status()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not seen for {timeout_s} s: {status}\n{self.log_tail()}")
            select.select([], [], [], 0.01)
        return status

    def wait_holds_nothing(self, timeout_s=120):
        """Returns once no memory of functions is held, on the GPU or beside it. The proxy's own
        buffers for copies over several links stay for a minute; none is on the first GPU, whose
        copies they are for."""
        def holds_nothing(status):
            gpu = status["gpus"][0]
            several = self.request("copies").get("several_links", {})  # none of one GPU alone
            own = several.get("relay_bytes", 0) // RELAY_BLOCK
            return (status["objects"]["blocks"] - own, status["objects"]["regions"] - own,
                    gpu["memory"]["held_bytes"], gpu["pool_bytes"],
                    status["evicted"]["used_bytes"]) == (0, 0, 0, 0, 0)

        self.wait_status(holds_nothing, timeout_s)

    def wait_unmapped(self, name, timeout_s=30):
        """Returns once no session of the proxy maps a memory file of this name: a session leaves
        the status before its segment goes."""
        deadline = time.monotonic() + timeout_s
        while True:
            spares, maps = self.settled_objects()["spares"], pathlib.Path(
                "/proc", str(self.process.pid), "maps").read_text()
            files = {line.split()[4] for line in maps.splitlines() if name in line}
            if len(files) <= spares:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} still mapped after {timeout_s} s")
            select.select([], [], [], 0.01)

    def counts(self):
        """Everything that must return to where it was when the clients are gone, as one flat
        dictionary.

        Loaded modules are kept out: the proxy may keep an image for the next client
        (docs/decisions/0010)."""
        status = self.wait_empty()
        counts = {
            k: v
            for k, v in status["objects"].items()
            if k not in ("modules", "kernels", "fds", "spares", "pools", "settled")
        }
        counts["memory"] = sum(gpu["memory_used_by_clients"] for gpu in status["gpus"])
        counts["fds"] = self.fd_count()
        return counts

    def counts_at_rest(self, timeout_s=20, stays=()):
        """counts() to compare with later: taken when nothing of an earlier client is left, not even
        what goes last. `stays`: what the proxy itself has some of."""
        self.wait_unmapped("tube-segment")
        deadline = time.monotonic() + timeout_s
        before = None
        while True:
            now = self.counts()
            left = [name for name, count in now.items() if count and name not in ("fds", *stays)]
            if (now == before and not left) or time.monotonic() > deadline:
                return now
            before = now
            select.select([], [], [], 0.05)

    def counts_back_to(self, start, timeout_s=20):
        """counts(), once they equal `start` or the time is up: freeing what a dead client owned
        goes on for a moment."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = self.counts()
            if now == start or time.monotonic() > deadline:
                return now
            select.select([], [], [], 0.02)


Copy = collections.namedtuple("Copy", "device way context stream bytes ready begin end")


class Clock:
    """The clock of a simulated GPU: what sim/README.md's table says, a line each. `settings` are the
    environment of whoever has the GPU, before connect()."""

    def __init__(self, test, **settings):
        folder = tempfile.TemporaryDirectory(prefix="tube-test-")
        test.addCleanup(folder.cleanup)
        self.test, self.path = test, os.path.join(folder.name, "clock")
        self.settings = {"TUBE_SIM_TIME": "virtual", "TUBE_SIM_CONTROL": self.path, **settings}

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.test.addCleanup(connection.close)
        connection.settimeout(120)
        connection.connect(self.path)
        self.lines = connection.makefile("rw")
        self.test.addCleanup(self.lines.close)

    def ask(self, line):
        self.lines.write(line + "\n")
        self.lines.flush()
        return int(self.lines.readline())

    def served(self, first=0):
        """The copies that ended, behind so many."""
        self.lines.write(f"served {first}\n")
        self.lines.flush()
        copies = []
        for line in iter(self.lines.readline, ".\n"):
            words = line.split()
            copies.append(Copy(int(words[0]), words[1], *map(int, words[2:])))
        return copies


class ToldProgram:
    """A program of a test that says "ready" and then does as it is told, a line an answer."""

    def __init__(self, test, command, env, proxy=None, must_come=True):
        self.test, self.proxy = test, proxy
        self.program = subprocess.Popen(command, env=env, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.pid = self.program.pid
        test.addCleanup(self.end)
        if must_come:
            self.hear("ready")

    def kill(self):
        self.program.kill()
        self.program.wait()

    def end(self):
        self.kill()
        for pipe in (self.program.stdin, self.program.stdout, self.program.stderr):
            pipe.close()

    def log_tail(self):
        return self.proxy.log_tail() if self.proxy else ""

    def hear(self, wanted=None):
        line = self.program.stdout.readline().rstrip("\n")
        if not line:
            self.test.fail(f"the program ended: {self.program.stderr.read()}{self.log_tail()}")
        if wanted is not None:
            self.test.assertEqual(line, wanted, self.log_tail())
        return line

    def tell(self, *words):
        print(*words, file=self.program.stdin, flush=True)

    def ask(self, *words):
        self.tell(*words)
        return self.hear()


class Outcome:
    """What a finished program left: exit code (negative: signal), stdout, stderr, seconds."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds


def run_program(command, env, timeout_s, copies=1):
    """Runs `copies` of the command at once; returns their outcomes. A program that outlasts the
    time is killed: code None."""
    begin = time.monotonic()
    running = []
    for _ in range(copies):
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        running.append((subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                         stderr=err), out, err))
    outcomes = []
    for process, out, err in running:
        try:
            code = process.wait(max(0.1, begin + timeout_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        out.seek(0)
        err.seek(0)
        outcomes.append(
            Outcome(code,
                    out.read().decode(errors="replace"),
                    err.read().decode(errors="replace"),
                    time.monotonic() - begin))
    return outcomes
