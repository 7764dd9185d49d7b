"""Small machines: full file systems, control groups with little memory or a part of a core. What is
refused is refused in words, and whoever is there goes on.

limits_test.py --build FOLDER [unittest arguments]. The programs are scenes of hostile.cc.
"""
import ctypes
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hostile_case import LAYOUT, PROGRAM, TIMEOUT_S, HostileCase, main  # noqa: E402
import tubetest  # noqa: E402

CLONE_NEWNS = 0x20000


class Limits(HostileCase):
    def small_filesystem(self, folder, size):
        """Mounts one at the folder, seen by this process and its children only; or a skipped test.
        A function that fills it, and returns one that makes room again."""
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
            self.skipTest("no mounts of one's own can be made here (unshare)")
        for command in (["mount", "--make-rprivate", "/"],
                        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "tmpfs", folder]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                self.skipTest(f"no file system can be mounted here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)
        filler = pathlib.Path(folder, "filler")

        def fill():
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            return filler.unlink

        return fill

    def folder_on(self, filesystem):
        """New temporary folders lie there until the end of the test."""
        before = tempfile.tempdir
        tempfile.tempdir = filesystem
        self.addCleanup(setattr, tempfile, "tempdir", before)

    def wait_until(self, what, true):
        deadline = time.monotonic() + TIMEOUT_S
        while not true():
            self.assertLess(time.monotonic(), deadline, what)
            select.select([], [], [], 0.01)

    # ---- full file systems

    def test_a_full_dev_shm(self):
        """Nothing of Tube lies there."""
        self.small_filesystem("/dev/shm", "64k")()
        self.assertEqual(os.statvfs("/dev/shm").f_bavail, 0)
        proxy = self.proxy()
        was_right = self.bystander(proxy)
        for _ in range(3):
            self.assert_computes(proxy)
        done = self.run_scene(proxy, "pin", str(32 << 20))
        self.assertEqual((done.returncode, done.stdout), (0, "pinned 32 MiB, then CUDA_SUCCESS\n"))
        was_right()
        self.assertEqual(proxy.stop(), 0)

    def test_a_disk_that_fills_up(self):
        """Logs and traces lose lines; nothing else is lost, and with room there are lines again."""
        folder = tempfile.mkdtemp(prefix="tube-full-")
        self.addCleanup(os.rmdir, folder)
        fill = self.small_filesystem(folder, "1m")
        self.folder_on(folder)
        traces = pathlib.Path(folder, "traces")
        proxy = self.proxy(extra_env={"TUBE_TRACE_RECORDS": str(traces)})
        was_right = self.bystander(proxy)
        self.assert_computes(proxy)
        self.wait_until("no trace", lambda: traces.exists() and traces.stat().st_size != 0)
        make_room = fill()
        env = dict(tubetest.environment(LAYOUT, "preload", "sim", proxy), TUBE_LOG="debug",
                   TUBE_LOG_FILE=str(pathlib.Path(folder, "hook.log")),
                   TUBE_TRACE_START=str(pathlib.Path(folder, "start")))
        for _ in range(3):
            done = subprocess.run([PROGRAM, "compute"], env=env, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
            self.assertEqual((done.returncode, done.stdout), (0, "computes 7\n"), done.stderr)
        self.assertTrue(proxy.status()["ok"])
        self.assertEqual(os.statvfs(folder).f_bavail, 0)
        make_room()
        program = self.start(proxy, "stay")
        self.assertEqual(self.line(program), "here\n")
        joined = f"(pid {program.pid}) joined"
        self.wait_until("no line in the log", lambda: joined in proxy.log_tail())
        was_right()
        self.assertEqual(proxy.stop(), 0)

    def test_a_disk_that_is_full_at_the_start(self):
        """The sockets, and what lies beside them, need no room; or the refusal says what is full."""
        folder = tempfile.mkdtemp(prefix="tube-full-")
        self.addCleanup(os.rmdir, folder)
        fill = self.small_filesystem(folder, "1m")
        pathlib.Path(folder, "run").mkdir(mode=0o700)
        fill()
        env = dict(tubetest.base_environment(), TUBE_DIR=f"{folder}/run")
        stop = [LAYOUT.tubectl, "proxy", "stop", "--all"]
        self.addCleanup(subprocess.run, stop, env=env, capture_output=True)
        done = subprocess.run([LAYOUT.tubectl, "run", "--backend", "sim", "--", PROGRAM, "compute"],
                              env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT_S)
        if done.returncode == 0:
            self.assertEqual(done.stdout, "computes 7\n")
        else:
            self.assertIn("No space left on device", done.stderr)

    # ---- control groups

    def in_group(self, group):
        return lambda: (group / "cgroup.procs").write_text(str(os.getpid()))

    def test_a_proxy_with_little_memory(self):
        """It serves, or turns functions away in words; the kernel does not end it."""
        for mebibytes in (64, 96, 160):
            limits = ({"memory.limit_in_bytes": mebibytes << 20}, {"memory.max": mebibytes << 20})
            with self.subTest(mebibytes=mebibytes):
                group = self.group("memory", limits)
                proxy = self.proxy(before=self.in_group(group))
                for _ in range(3):
                    done = self.run_scene(proxy, "compute")
                    if done.returncode == 0:
                        self.assertEqual(done.stdout, "computes 7\n")
                    else:
                        self.assertRegex(done.stderr, "memory")
                    self.assertIsNone(proxy.process.poll(), proxy.log_tail())
                self.assertEqual(proxy.stop(), 0)
                self.doCleanups()

    def test_a_function_with_a_tenth_of_a_core(self):
        """Its thread in the proxy rests while others want the cores; everybody computes right."""
        group = self.group("cpu", ({"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 10000},
                                   {"cpu.max": "10000 100000"}))
        proxy = self.proxy(before=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        was_right = self.bystander(proxy)
        flood = self.start(proxy, "flood")
        self.assertEqual(self.line(flood), "floods\n")
        self.assertIsNone(proxy.function(flood.pid)["cpu"]["share_thousandths"])
        (group / "cgroup.procs").write_text(str(flood.pid))
        self.wait_until("it does not rest",
                        lambda: proxy.function(flood.pid)["cpu"]["rested_ms"] >= 100)
        self.assertEqual(proxy.function(flood.pid)["cpu"]["share_thousandths"], 100)
        text = subprocess.run([LAYOUT.tubectl, "status", "-w", "test"],
                              env=dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir)),
                              capture_output=True, text=True).stdout
        self.assertIn(f"(pid {flood.pid}): 0.10 of a core", text)
        self.assertRegex(text, r"session_cpu_ms +[1-9]")
        flood.stdin.close()
        self.assertEqual(self.line(flood), "was right\n")
        self.assertEqual(flood.wait(TIMEOUT_S), 0)
        was_right()
        self.assertEqual(proxy.stop(), 0)


if __name__ == "__main__":
    main()
