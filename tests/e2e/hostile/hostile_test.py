"""A machine that has no more to give, or a proxy that does not answer, costs the call that asks: the
proxy, the other programs and the program's other threads go on.

hostile_test.py --build FOLDER [unittest arguments]. The programs are scenes of hostile.cc.
"""
import fcntl
import json
import os
import pathlib
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hostile_case import LAYOUT, PROGRAM, TIMEOUT_S, HostileCase, main  # noqa: E402
import tubetest  # noqa: E402

LIFE = LAYOUT.build / "tests/e2e/life/life"
OTHER_USER = 65534
FAILING_KINDS = ("memory", "mappings", "threads", "files")  # of failing_calls.cc


class Hostile(HostileCase):
    def test_a_function_for_which_no_thread_is_left(self):
        """It is told so and can come later. The limit holds for users other than root only."""
        user = {}
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tube-hostile-"))
        self.addCleanup(shutil.rmtree, folder)
        parts = {"tubed": LAYOUT.tubed, "hostile": PROGRAM, "hook": LAYOUT.hook / "libcuda.so.1",
                 "sim": LAYOUT.sim / "libcuda.so.1"}
        for name, path in parts.items():
            shutil.copy(path, folder / name)
        (folder / "run").mkdir(mode=0o700)
        if os.geteuid() == 0:
            user = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
            os.chown(folder / "run", OTHER_USER, OTHER_USER)
            folder.chmod(0o755)
        env = dict(tubetest.base_environment(), TUBE_DIR=str(folder / "run"), TUBE_WORKFLOW="test",
                   TUBE_LOG="info")
        tubed = subprocess.Popen([folder / "tubed", "--backend", "sim", "--sim", folder / "sim"],
                                 env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 text=True, **user)
        self.addCleanup(tubed.stdout.close)
        self.addCleanup(tubed.wait)
        self.addCleanup(tubed.terminate)
        self.assertIn("ready", self.line(tubed))

        def compute():
            return subprocess.run([folder / "hostile", "compute"],
                                  env=dict(env, LD_PRELOAD=str(folder / "hook")),
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  timeout=TIMEOUT_S, **user)

        self.assertEqual(compute().stdout, "computes 7\n")
        def allow(threads):
            subprocess.run(["prlimit", f"--pid={tubed.pid}", f"--nproc={threads}:"], check=True, **user)

        allow(1)
        refused = compute()
        self.assertEqual(refused.returncode, 1)
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", refused.stderr)
        self.assertIn("no thread can be started for it", refused.stderr)
        self.assertIsNone(tubed.poll())
        allow(resource.getrlimit(resource.RLIMIT_NPROC)[0])
        self.assertEqual(compute().stdout, "computes 7\n")

    def test_a_fork_does_not_wait_for_the_answer_to_a_registration(self):
        proxy = self.proxy()
        program = self.start(proxy, "fork_beside_a_registration")
        self.assertEqual(self.line(program), "ready\n")
        proxy.process.send_signal(signal.SIGSTOP)
        # the last of its threads stands, which the signal's sending does not wait for
        os.waitid(os.P_PID, proxy.process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            program.stdin.close()
            self.assertEqual(self.line(program), "child 7, parent 2\n")
        finally:
            proxy.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.line(program), "registered: CUDA_SUCCESS, parent 2\n")
        self.assertEqual(program.wait(TIMEOUT_S), 0)

    def greet_with_garbage(self, proxy):
        """A line in the proxy's log."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as garbage:
            garbage.connect(str(proxy.dir / "test.sock"))
            garbage.settimeout(TIMEOUT_S)
            garbage.send(b"what am I?")
            self.assertEqual(garbage.recv(1), b"")

    # ---- calls of the system that fail in the proxy

    def failing_proxy(self):
        """A proxy, and how each kind of call of its own code fails: each n-th, 0 for none."""
        control = tempfile.NamedTemporaryFile()
        self.addCleanup(control.close)
        control.truncate(3 * 8 * len(FAILING_KINDS))
        preload = LAYOUT.build / "tests/e2e/hostile/libfailing_calls.so"
        proxy = self.proxy(extra_env={"LD_PRELOAD": str(preload), "FAILING_CALLS": control.name,
                                      "TUBE_TEARDOWN_MS": "1000"})

        def fail(kind, each):
            with open(control.name, "r+b") as file:
                file.seek(3 * 8 * FAILING_KINDS.index(kind))
                file.write(struct.pack("<Q", each))

        def failed(kind):
            with open(control.name, "rb") as file:
                file.seek(3 * 8 * FAILING_KINDS.index(kind) + 16)
                return struct.unpack("<Q", file.read(8))[0]

        return proxy, fail, failed

    def calls_that_fail(self, kind, rates):
        """Functions that come meanwhile work or are told of it; when it is over they work."""
        proxy, fail, failed = self.failing_proxy()
        self.assert_computes(proxy)
        process = proxy.process.pid
        there = self.start(proxy, "stay")  # or the proxy would start anew when work is lost
        self.assertEqual(self.line(there), "here\n")
        for each in rates:
            fail(kind, each)
            scenes = (["compute"], ["load"], ["pin", str(64 << 20)])
            programs = [self.start(proxy, *scene) for scene in scenes]
            for program in programs:
                code = program.wait(TIMEOUT_S)
                self.assertGreaterEqual(code, 0, f"a program ended with signal {-code}")
                self.assertIsNone(proxy.process.poll(), proxy.log_tail())
            fail(kind, 0)
            self.assert_computes(proxy)
        self.assertGreater(failed(kind), 0)
        there.stdin.close()
        self.assertEqual(there.wait(TIMEOUT_S), 0)
        self.assert_computes(proxy)
        self.assertEqual(proxy.status()["pid"], process)
        self.assertEqual(proxy.stop(), 0)

    def test_allocations_that_fail(self):
        self.calls_that_fail("memory", (1, 2, 3, 5, 7, 11, 17, 29, 53, 101, 211))

    def test_allocations_that_fail_while_the_proxy_starts_anew(self):
        """It tries again until there is memory, and a function that comes meanwhile waits."""
        proxy, fail, _ = self.failing_proxy()
        self.assert_computes(proxy)
        process = proxy.process.pid
        for each in (1, 3, 101):
            there = self.start(proxy, "stay")
            self.assertEqual(self.line(there), "here\n")
            fault = subprocess.run([LIFE, "fault"], capture_output=True, timeout=TIMEOUT_S,
                                   env=tubetest.environment(LAYOUT, "preload", "sim", proxy))
            self.assertEqual(fault.returncode, 0, fault.stderr)
            before = proxy.log_tail(10000).count("start of the proxy failed")
            fail("memory", each)
            there.stdin.close()
            while proxy.log_tail(10000).count("start of the proxy failed") == before:
                self.assertIsNone(proxy.process.poll(), proxy.log_tail())
                select.select([], [], [], 0.01)
            meanwhile = self.start(proxy, "compute")
            fail("memory", 0)
            self.assertEqual(self.line(meanwhile), "computes 7\n", proxy.log_tail())
            self.assertEqual(meanwhile.wait(TIMEOUT_S), 0)
            there.wait(TIMEOUT_S)
            self.assert_computes(proxy)
        self.assertEqual(proxy.status()["pid"], process)
        self.assertEqual(proxy.stop(), 0)

    def test_mappings_that_fail(self):
        self.calls_that_fail("mappings", (1, 2, 3, 5))

    def test_threads_that_fail(self):
        self.calls_that_fail("threads", (1, 2))

    def test_memory_files_that_fail(self):
        self.calls_that_fail("files", (1, 2, 3, 5))

    # ---- who connects and does nothing

    def test_connections_that_never_greet(self):
        """Of one process, and of many: a function that comes then joins."""
        proxy = self.proxy()
        was_right = self.bystander(proxy)
        name = str(proxy.dir / "test.sock")
        silent = [self.connect(proxy, socket.SOCK_SEQPACKET, name) for _ in range(200)]
        self.assert_computes(proxy)
        hold, release = os.pipe()
        children = []
        for _ in range(24):  # eight of each stay
            child = os.fork()
            if child == 0:
                os.close(release)
                mine = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
                for connection in mine:
                    connection.connect(name)
                os.read(hold, 1)
                os._exit(0)
            children.append(child)
        for _ in range(3):
            self.assert_computes(proxy)
        os.close(release)
        for child in children:
            os.waitpid(child, 0)
        os.close(hold)
        was_right()
        del silent

    def test_a_control_client_that_does_not_read_holds_up_nobody(self):
        """Its answers wait for it, in order and whole."""
        proxy = self.proxy()
        was_right = self.bystander(proxy)
        slow = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(slow.close)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        slow.connect(str(proxy.dir / "test.ctl"))
        asked = 300
        slow.sendall(b'{"verb":"status"}\n' * asked)
        for _ in range(3):
            self.assertTrue(proxy.request("ping")["ok"])
            self.assert_computes(proxy)
        slow.settimeout(TIMEOUT_S)
        answers = b""
        while answers.count(b"\n") < asked:
            block = slow.recv(1 << 20)
            self.assertTrue(block, f"dropped after {answers.count(10)} answers")
            answers += block
        for answer in answers.splitlines():
            self.assertTrue(json.loads(answer)["ok"])
        was_right()

    def test_descriptors_run_out(self):
        """Who comes then is told so, those that are there go on, the log stays short, and when
        there are descriptors again functions join."""
        proxy = self.proxy()
        subprocess.run(["prlimit", f"--pid={proxy.process.pid}", "--nofile=96:96"], check=True)
        was_right = self.bystander(proxy)
        held = []
        for _ in range(64):
            held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            self.addCleanup(held[-1].close)
            held[-1].settimeout(1)
            try:
                held[-1].connect(proxy.broker_name())
            except (BlockingIOError, socket.timeout):
                break
        functions = []
        while True:
            functions.append(self.start(proxy, "keep_computing"))
            if self.line(functions[-1]) == "":
                break
            self.assertLess(len(functions), 20)
        self.assertEqual(functions[-1].wait(TIMEOUT_S), 1)
        self.assertIn("file descriptors left", proxy.log_tail(1000))
        self.assertLess(len(proxy.log_tail(10000).splitlines()), 300)
        for connection in held:
            connection.close()
        for function in functions[:-1]:
            function.stdin.close()
            self.assertEqual(function.wait(TIMEOUT_S), 0)
        was_right()
        proxy.wait_empty()
        self.assert_computes(proxy)

    # ---- the log

    def test_a_log_that_nobody_reads(self):
        """A full pipe costs lines, not the proxy's time; how many is said."""
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
        proxy = self.proxy(log=write_end)
        os.close(write_end)
        was_right = self.bystander(proxy)
        for _ in range(300):
            self.greet_with_garbage(proxy)
        self.assert_computes(proxy)
        os.set_blocking(read_end, False)
        text = os.read(read_end, 1 << 16)
        self.assert_computes(proxy)  # whose line may have found room before
        self.assertIn(b"lines left out)", text + os.read(read_end, 1 << 16))
        was_right()

    def test_lines_that_a_client_causes_are_bounded(self):
        proxy = self.proxy()
        for _ in range(3000):
            self.greet_with_garbage(proxy)
        self.assert_computes(proxy)
        self.assertLess(len(proxy.log_tail(10000).splitlines()), 1500)
        left_out = [b for b in proxy.status()["budgets"] if b["name"] == "log_lines_left_out"]
        self.assertGreater(left_out[0]["used"], 1000)

    def test_a_limit_of_file_size(self):
        """Memory files and the log are under it, too: functions are refused in words."""
        kilobytes = 16 << 10
        proxy = self.proxy(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                             (kilobytes, kilobytes)))
        for _ in range(500):
            self.greet_with_garbage(proxy)
        refused = self.run_scene(proxy, "compute")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("ulimit -f", refused.stderr)
        self.assertTrue(proxy.request("ping")["ok"])
        self.assertEqual(proxy.stop(), 0)

    # ---- memory

    def test_no_locked_memory(self):
        nothing = lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        proxy = self.proxy(before=nothing)
        done = subprocess.run([PROGRAM, "pin", str(32 << 20)], preexec_fn=nothing,
                              env=tubetest.environment(LAYOUT, "preload", "sim", proxy),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "pinned 32 MiB, then CUDA_SUCCESS\n"),
                         done.stderr)

    def test_a_registered_file_cut_short(self):
        proxy = self.proxy()
        was_right = self.bystander(proxy)
        done = self.run_scene(proxy, "cut_a_registered_file")
        self.assertEqual((done.returncode, done.stdout), (0, "copied 0\n"),
                         done.stderr + proxy.log_tail())
        was_right()

    def test_writes_where_the_gpu_only_reads(self):
        """They cost that program the call: the pages are read-only in the proxy, too."""
        proxy = self.proxy()
        was_right = self.bystander(proxy)
        done = self.run_scene(proxy, "write_where_the_gpu_only_reads")
        writes = ("copy", "small copy", "region", "memset", "write")
        self.assertEqual((done.returncode, done.stdout.splitlines()),
                         (0, [f"{what}: CUDA_ERROR_NOT_PERMITTED" for what in writes]
                          + ["read 07070707"]), done.stderr + proxy.log_tail())
        was_right()

    def test_functions_that_reserve_all_addresses(self):
        """A quarter of the window is left to allocations, and the next function has another one."""
        proxy = self.proxy()

        def reserved(program):
            said = self.line(program)
            self.assertRegex(said, r"^CUDA_ERROR_OUT_OF_MEMORY after \d+ GiB, computes 7\n")
            return int(said.split()[2])

        programs = [self.start(proxy, "reserve_all") for _ in range(2)]
        both = [reserved(program) for program in programs]
        self.assert_computes(proxy)
        programs.append(self.start(proxy, "reserve_all"))
        third = reserved(programs[2])
        self.assertLessEqual(max(both), third)
        self.assertLessEqual(sum(both), third * 2 * 3 / 4 + 64)
        for program in programs:
            program.stdin.close()
            self.assertEqual(program.wait(TIMEOUT_S), 0)

    def test_pinned_memory_in_a_small_control_group(self):
        """It is charged to the proxy, which refuses what would end it."""
        group = self.group("memory", ({"memory.limit_in_bytes": 400 << 20}, {"memory.max": 400 << 20}))
        proxy = self.proxy(before=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        was_right = self.bystander(proxy)
        done = self.run_scene(proxy, "pin", str(1 << 30))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("then CUDA_ERROR_OUT_OF_MEMORY", done.stdout)
        self.assertGreater(int(done.stdout.split()[1]), 64)
        self.assertIsNone(proxy.process.poll())
        self.assertIn("bytes of host memory (pinned) are refused", proxy.log_tail(100))
        was_right()
        proxy.wait_empty()
        self.assert_computes(proxy)
        self.assertEqual(proxy.stop(), 0)

    # ---- who keeps others waiting

    def test_a_silent_function_that_keeps_others_waiting(self):
        """It is named, and with a limit ended; what it kept waiting goes on."""
        proxy = self.proxy(arguments=["--hang-timeout", "2"], extra_env={"TUBE_STALL_S": "1"})
        silent = self.start(proxy, "wait_for_ever")
        self.assertEqual(self.line(silent), "waits\n")
        loading = self.start(proxy, "load")
        self.assertEqual(self.line(loading), "loaded\n", proxy.log_tail())
        self.assertEqual(silent.wait(TIMEOUT_S), -signal.SIGKILL)
        log = proxy.log_tail(100)
        self.assertIn(f"(pid {silent.pid}) sent nothing for 2 s", log)
        self.assertIn(f"(pid {loading.pid}) makes no progress", log)

    def test_who_makes_no_progress_is_named(self):
        proxy = self.proxy(extra_env={"TUBE_STALL_S": "1"})
        silent = self.start(proxy, "wait_for_ever")
        self.assertEqual(self.line(silent), "waits\n")
        loading = self.start(proxy, "load")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            stalls = proxy.status()["stalls"]
            threads = [one for one in stalls if f"(pid {loading.pid})" in one["who"]]
            if threads:
                break
            self.assertLess(time.monotonic(), deadline, proxy.log_tail())
            select.select([], [], [], 0.02)
        self.assertIn("its thread in the proxy is in tube", threads[0]["what"])
        silent.kill()
        self.assertEqual(self.line(loading), "loaded\n", proxy.log_tail())

    # ---- the proxy's own place

    def test_a_proxy_is_started_outside_of_its_first_functions_limits(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tube-hostile-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "run").mkdir(mode=0o700)
        env = dict(tubetest.base_environment(), TUBE_DIR=str(folder / "run"), TUBE_WORKFLOW="test",
                   SECRET="of the function", CUDA_LAUNCH_BLOCKING="1",
                   TUBE_LOG_FILE=str(folder / "function.log"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

        def narrow():
            os.chdir(folder)
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

        done = subprocess.run([LAYOUT.tubectl, "run", "--backend", "sim", "--", PROGRAM, "compute"],
                              env=env, preexec_fn=narrow, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "computes 7\n"), done.stderr)
        stop = [LAYOUT.tubectl, "proxy", "stop", "-w", "test"]
        self.addCleanup(subprocess.run, stop, env=env, capture_output=True)
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(folder / "run/test.ctl"))
            control.sendall(b'{"verb":"ping"}\n')
            pid = json.loads(control.makefile().readline())["pid"]
        process = pathlib.Path(f"/proc/{pid}")
        self.assertEqual(os.readlink(process / "cwd"), "/")
        self.assertEqual(os.sched_getaffinity(pid), os.sched_getaffinity(0))
        self.assertRegex((process / "limits").read_text(), rf"Max open files +{hard} +{hard} ")
        variables = (process / "environ").read_text().split("\0")
        self.assertFalse([v for v in variables if v.startswith(("SECRET=", "CUDA_LAUNCH", "LD_PRELOAD"))])
        status = (process / "status").read_text()
        self.assertEqual(int(status.split("SigBlk:")[1].split()[0], 16) >> (signal.SIGUSR1 - 1) & 1, 0)
        self.assertFalse((folder / "function.log").exists())


if __name__ == "__main__":
    main()
