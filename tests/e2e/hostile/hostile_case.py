"""What the tests of this folder share: a proxy of one's own, programs beside it that are scenes of
hostile.cc, and how a module of tests is run.

A module parses its options before its classes are made:  hostile_test.py --build FOLDER [unittest
arguments].
"""
import argparse
import os
import pathlib
import select
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/hostile/hostile"
TIMEOUT_S = 100


class HostileCase(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def start(self, proxy, *scene):
        program = subprocess.Popen([PROGRAM, *scene],
                                   env=tubetest.environment(LAYOUT, "preload", "sim", proxy),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.addCleanup(program.stdin.close)
        return program

    def run_scene(self, proxy, *scene):
        return subprocess.run([PROGRAM, *scene],
                              env=tubetest.environment(LAYOUT, "preload", "sim", proxy),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TIMEOUT_S)

    def assert_computes(self, proxy):
        done = self.run_scene(proxy, "compute")
        self.assertEqual((done.returncode, done.stdout), (0, "computes 7\n"),
                         done.stderr + proxy.log_tail())

    def bystander(self, proxy):
        """A function that computes on, and the check that it computed right all the time."""
        program = self.start(proxy, "keep_computing")
        self.assertEqual(self.line(program), "computes\n")

        def was_right():
            program.stdin.close()
            self.assertEqual(self.line(program), "was right\n", proxy.log_tail())
            self.assertEqual(program.wait(TIMEOUT_S), 0)

        return was_right

    def connect(self, proxy, kind, name):
        connection = socket.socket(socket.AF_UNIX, kind)
        self.addCleanup(connection.close)
        connection.connect(name)
        return connection

    def line(self, program):
        """The program's next line; none within the time limit fails the test."""
        ready, _, _ = select.select([program.stdout], [], [], TIMEOUT_S)
        self.assertTrue(ready, "the program says nothing")
        return program.stdout.readline()

    def group(self, controller, limits):
        """A control group with limits, each of a file of v1 and of v2 with its text, or a skipped
        test: its folder."""
        name = f"tube-test-{os.getpid()}"
        for version, root in enumerate((pathlib.Path("/sys/fs/cgroup", controller),
                                        pathlib.Path("/sys/fs/cgroup"))):
            try:
                (root / name).mkdir()
            except OSError:
                continue
            self.addCleanup(lambda folder=root / name: folder.rmdir())
            try:
                for file, text in limits[version].items():
                    (root / name / file).write_text(str(text))
            except OSError:
                continue
            return root / name
        return self.skipTest(f"no control group of {controller} can be made here")


def main():
    """Runs the tests of the module that was started; none but skipped ones: says so and why."""
    LAYOUT.require(PROGRAM)
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    if result.testsRun == len(result.skipped) != 0:
        print(f"skipped: {result.skipped[0][1]}")
        sys.exit(tubetest.SKIP)
    sys.exit(not result.wasSuccessful())
