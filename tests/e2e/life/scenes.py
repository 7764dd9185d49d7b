"""What the tests of this folder share: the program life.cc, one scene a run, natively on the
simulated GPU and through Tube.
"""
import argparse
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/life/life"
HOOK = str(LAYOUT.hook / "libcuda.so.1")
TIMEOUT_S = 100


class Scenes(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def run_scene(self, arm, proxy, *words, extra=None, **settings):
        env = dict(tubetest.environment(LAYOUT, arm, "sim", proxy), **(extra or {}))
        return subprocess.run([PROGRAM, *words], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, **settings)

    def start_scene(self, proxy, *words, **settings):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        program = subprocess.Popen([PROGRAM, *words], env=env, stdout=subprocess.PIPE, text=True,
                                   **settings)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.addCleanup(program.stdout.close)
        return program

    def assert_equal_to_native(self, proxy, *words, extra=None, arms=("preload", "library-path")):
        native = self.run_scene("native", None, *words, extra=extra)
        self.assertEqual(native.returncode, 0, native.stderr)
        for arm in arms:
            done = self.run_scene(arm, proxy, *words, extra=extra)
            self.assertEqual((done.returncode, done.stdout), (native.returncode, native.stdout),
                             done.stderr + proxy.log_tail())
        return native.stdout

    def assert_nothing_left(self, proxy, start):
        self.assertEqual(proxy.counts_back_to(start), start)


def main():
    LAYOUT.require(PROGRAM)
    sys.exit(not unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful())
