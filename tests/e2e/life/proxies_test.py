"""How proxies and functions meet when they begin, end or live in other namespaces.

proxies_test.py --build FOLDER [unittest arguments]. The functions are scenes of life.cc.
"""
import argparse
import contextlib
import fcntl
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/life/life"
TIMEOUT_S = 100
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Proxies(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def environment(self, proxy, **settings):
        return dict(tubetest.environment(LAYOUT, "preload", "sim", proxy), **settings)

    def assert_computes(self, proxy):
        done = subprocess.run([PROGRAM, "compute"], env=self.environment(proxy), text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                         done.stderr + proxy.log_tail())

    # ---- PID namespaces
    # ------------------------------------------------------------------------------------------------

    def proxy_in_a_namespace(self):
        """A proxy for which no function has a process number: they are outside of its PID
        namespace."""
        if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
            self.skipTest("no PID namespaces of one's own can be made here (unshare)")
        layout = tubetest.Layout(options.build)
        proxy = tubetest.Proxy(layout, "sim")
        self.addCleanup(proxy.__exit__, None, None, None)
        layout.tubed = proxy.dir / "tubed"
        layout.tubed.write_text(f'#!/bin/sh\nexec {" ".join(UNSHARE)} {LAYOUT.tubed} "$@"\n')
        layout.tubed.chmod(0o700)
        proxy.start()
        self.addCleanup(self.end, proxy)
        return proxy

    def end(self, proxy):
        """`unshare` itself passes no signals on."""
        self.assertTrue(proxy.request("stop")["ok"])
        self.assertEqual(proxy.wait_end(), 0)

    def test_functions_of_other_namespaces_join_beside_each_other(self):
        proxy = self.proxy_in_a_namespace()
        with contextlib.ExitStack() as connections:
            for _ in range(12):  # more than one process may have that say nothing
                other = connections.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                other.connect(str(proxy.dir / f"{proxy.workflow}.sock"))
            self.assert_computes(proxy)

    def test_a_function_of_another_namespace_has_its_limit_alone(self):
        proxy = self.proxy_in_a_namespace()
        function = subprocess.Popen([PROGRAM, "stay"], text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE,
                                    env=self.environment(proxy, TUBE_MEMORY="64M"))
        self.addCleanup(function.communicate)
        self.assertEqual(function.stdout.readline(), "here\n", proxy.log_tail())
        told = {"free_bytes": 3 << 30, "total_bytes": 4 << 30}
        uuid = proxy.request("ping")["gpus"][0]
        self.assertEqual(proxy.status()["functions"][0]["pid"], 0)
        self.assertEqual(proxy.request("seen", uuid=uuid, **told), {"ok": True, **told})

    # ---- beside another proxy of the name
    # ------------------------------------------------------------------------------------------------

    def folder_with_lock(self):
        """A runtime folder, and the lock of a workflow's proxy, held by this process."""
        folder = tempfile.TemporaryDirectory(prefix="tube-test-")
        self.addCleanup(folder.cleanup)
        lock = open(pathlib.Path(folder.name, "test.owner"), "wb")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return pathlib.Path(folder.name), lock

    def start_tubed(self, folder):
        env = dict(tubetest.base_environment(), TUBE_DIR=str(folder))
        process = subprocess.Popen(
            [LAYOUT.tubed, "--workflow", "test", "--backend", "sim", "--sim",
             LAYOUT.sim / "libcuda.so.1"], env=env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.terminate)
        return process

    def hear(self, process, words):
        for line in process.stderr:
            if words in line:
                return
        self.fail(f"it ended without: {words}")

    def dead_sockets(self, folder):
        for suffix in ("sock", "ctl"):
            kind = socket.SOCK_SEQPACKET if suffix == "sock" else socket.SOCK_STREAM
            with socket.socket(socket.AF_UNIX, kind) as dead:
                dead.bind(str(folder / f"test.{suffix}"))

    def test_of_two_that_start_at_once_one_serves(self):
        folder, lock = self.folder_with_lock()
        self.dead_sockets(folder)
        two = [self.start_tubed(folder) for _ in range(2)]
        for process in two:
            self.hear(process, "waiting for it")
        lock.close()
        ready, _, _ = select.select([process.stdout for process in two], [], [], TIMEOUT_S)
        serves = next((process for process in two if process.stdout in ready), None)
        self.assertIsNotNone(serves)
        other = two[1 - two.index(serves)]
        self.assertIn("tubed: ready", serves.stdout.readline())
        self.hear(other, "is served by a running proxy")
        self.assertEqual(other.wait(TIMEOUT_S), 1)
        self.assert_computes(types.SimpleNamespace(dir=folder, workflow="test", log_tail=str))
        serves.terminate()
        self.assertEqual(serves.wait(TIMEOUT_S), 0)
        self.assertEqual({file.name for file in folder.iterdir()} & {"test.sock", "test.ctl"}, set())

    def test_one_that_waits_for_another_can_be_told_to_end(self):
        folder, _ = self.folder_with_lock()
        process = self.start_tubed(folder)
        self.hear(process, "waiting for it")
        process.terminate()
        self.assertEqual(process.wait(TIMEOUT_S), 1)

    def test_one_whose_files_were_removed_leaves_those_of_the_next(self):
        folder, lock = self.folder_with_lock()
        lock.close()
        first = self.start_tubed(folder)
        self.assertIn("tubed: ready", first.stdout.readline())
        for suffix in ("sock", "ctl", "owner"):
            (folder / f"test.{suffix}").unlink()
        second = self.start_tubed(folder)
        self.assertIn("tubed: ready", second.stdout.readline())
        first.terminate()
        self.assertEqual(first.wait(TIMEOUT_S), 0)
        self.assert_computes(types.SimpleNamespace(dir=folder, workflow="test", log_tail=str))
        second.terminate()
        self.assertEqual(second.wait(TIMEOUT_S), 0)
        self.assertEqual({file.name for file in folder.iterdir()} & {"test.sock", "test.ctl"}, set())

    def test_a_wrong_setting_is_told(self):
        with tempfile.TemporaryDirectory(prefix="tube-test-") as folder:
            env = dict(tubetest.base_environment(), TUBE_DIR=folder)
            for setting, words in (({}, ["--weight", "20000"]), ({"TUBE_HANG_TIMEOUT_S": "soon"}, []),
                                   ({"TUBE_LAUNCH_POLICY": "mine"}, [])):
                done = subprocess.run([LAYOUT.tubectl, "proxy", "start", "--backend", "sim", *words],
                                      env=dict(env, **setting), text=True, capture_output=True,
                                      stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertRegex(done.stderr, "20000|soon|mine")

    def test_a_proxy_that_starts_anew_stays_the_one(self):
        proxy = self.proxy()
        subprocess.run([PROGRAM, "fault"], env=self.environment(proxy), capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assert_computes(proxy)
        self.assertEqual(proxy.status()["totals"]["restarts"], 1)
        with open(proxy.dir / "test.owner", "rb") as lock, self.assertRaises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_a_proxy_that_ends_is_waited_for(self):
        proxy = self.proxy(extra_env={"TUBE_TEARDOWN_MS": "200"})
        program = subprocess.Popen([PROGRAM, "wait_for_no_value"], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, env=self.environment(proxy))
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "CUDA_ERROR_NOT_READY\n")
        proxy.process.terminate()
        while (proxy.dir / "test.sock").exists():
            select.select([], [], [], 0.001)
        env = dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir))
        done = subprocess.run([LAYOUT.tubectl, "run", "-w", "test", "--backend", "sim", "--",
                               PROGRAM, "compute"], env=env, text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        log = (proxy.dir / "test.log").read_text()
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                         done.stderr + log)
        self.assertIn("waiting for it", log)
        proxy.wait_end()
        stopped = subprocess.run([LAYOUT.tubectl, "proxy", "stop", "-w", "test"], env=env,
                                 capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(stopped.returncode, 0, stopped.stderr)


if __name__ == "__main__":
    LAYOUT.require()
    LAYOUT.require(PROGRAM)
    sys.exit(not unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful())
