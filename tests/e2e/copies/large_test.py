"""Programs that end, fork or are killed in the middle of large pageable copies, with threads that help.

large_test.py --build FOLDER [unittest arguments]. The program is large.cc.
"""
import argparse
import pathlib
import select
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/copies/large"
HELPERS = 3


class Large(unittest.TestCase):
    def setUp(self):
        self.proxy = tubetest.Proxy(LAYOUT, "sim")
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)

    def program(self, *words):
        env = dict(tubetest.environment(LAYOUT, "preload", "sim", self.proxy),
                   TUBE_COPY_THREADS=str(HELPERS + 1))
        program = subprocess.Popen([PROGRAM, *words], env=env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        for clean in (program.wait, program.kill, program.stdout.close, program.stdin.close):
            self.addCleanup(clean)
        self.assertEqual(program.stdout.readline(), "copying\n")
        return program

    def tell(self, program):
        program.stdin.write("go\n")
        program.stdin.flush()

    def helpers(self, program):
        names = []
        for task in pathlib.Path(f"/proc/{program.pid}/task").iterdir():
            try:
                names.append((task / "comm").read_text().strip())
            except OSError:  # it has just ended
                continue
        return names.count("tube-copy")

    def until_helpers(self, program, count):
        while self.helpers(program) != count:
            self.assertIsNone(program.poll())
            select.select([], [], [], 0.005)

    def test_helpers_come_and_go(self):
        program = self.program()
        self.until_helpers(program, HELPERS)
        self.tell(program)
        self.assertEqual(program.stdout.readline(), "right\n")
        self.until_helpers(program, 0)
        self.tell(program)
        self.assertEqual(program.wait(60), 0)

    def test_killed_in_the_middle(self):
        start = self.proxy.counts_at_rest()
        for _ in range(5):
            program = self.program()
            self.until_helpers(program, HELPERS)
            program.kill()
            program.wait()
        self.assertEqual(self.proxy.counts_back_to(start), start, self.proxy.log_tail())
        again = self.program()
        self.tell(again)
        self.assertEqual(again.stdout.readline(), "right\n")

    def test_exit_beside_a_copy(self):
        for _ in range(5):
            program = self.program("exit")
            self.until_helpers(program, HELPERS)
            self.tell(program)
            self.assertEqual(program.wait(60), 7)

    def test_fork_beside_a_copy(self):
        program = self.program("fork")
        self.until_helpers(program, HELPERS)
        self.tell(program)
        self.assertEqual(program.stdout.readline(), "right\n")
        self.tell(program)
        self.assertEqual(program.wait(60), 0)

    def test_stopped_proxy_ends_the_copy(self):
        program = self.program("fail")
        self.until_helpers(program, HELPERS)
        self.proxy.process.kill()
        # The copying thread has its error and ends; nobody waits for a helper.
        self.tell(program)
        self.assertEqual(program.stdout.readline(), "CUDA_ERROR_DEVICE_UNAVAILABLE\n")
        self.tell(program)
        self.assertEqual(program.wait(60), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
