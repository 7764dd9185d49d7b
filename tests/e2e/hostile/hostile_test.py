"""A machine that has no more to give, or a proxy that does not answer, costs the call that asks: the
proxy, the other programs and the program's other threads go on.

hostile_test.py --build FOLDER [unittest arguments]. The programs are scenes of hostile.cc.
"""
import argparse
import os
import pathlib
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/hostile/hostile"
TIMEOUT_S = 100
OTHER_USER = 65534


class Hostile(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def start(self, proxy, scene):
        program = subprocess.Popen([PROGRAM, scene],
                                   env=tubetest.environment(LAYOUT, "preload", "sim", proxy),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.addCleanup(program.stdin.close)
        return program

    def line(self, program):
        """The program's next line; none within the time limit fails the test."""
        ready, _, _ = select.select([program.stdout], [], [], TIMEOUT_S)
        self.assertTrue(ready, "the program says nothing")
        return program.stdout.readline()

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


if __name__ == "__main__":
    LAYOUT.require(PROGRAM)
    sys.exit(not unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful())
