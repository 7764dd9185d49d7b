"""What kernels print reaches the function that launched them and no other, also when several print
at once.

printing_test.py --build FOLDER [unittest arguments]. The program is speaker.cc, one scene a test.
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
PROGRAM = LAYOUT.build / "tests/e2e/printing/speaker"
TIMEOUT_S = 100


def said(number, rounds):
    return "".join(
        f"kernel says {number * 1000000 + i}\n" for i in range(rounds)) + f"{number} is done\n"


class Printing(unittest.TestCase):
    def setUp(self):
        self.proxy = tubetest.Proxy(LAYOUT, "sim")
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)

    def start(self, *words):
        env = tubetest.environment(LAYOUT, "preload", "sim", self.proxy)
        program = subprocess.Popen([PROGRAM, *map(str, words)], env=env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        for stream in (program.stdin, program.stdout, program.stderr):
            self.addCleanup(stream.close)
        return program

    def test_several_speakers(self):
        rounds = 120
        programs = {number: self.start("speak", number, rounds) for number in (1, 2, 3, 4)}
        for number, program in programs.items():
            out, err = program.communicate(timeout=TIMEOUT_S)
            self.assertEqual((program.returncode, out), (0, said(number, rounds)),
                             err + self.proxy.log_tail())
        self.assertNotIn("kernel says", self.proxy.log_tail(1000))

    def test_a_speaker_that_leaves_without_asking(self):
        rounds = 60
        speaker = self.start("speak", 7, rounds)
        for _ in range(3):
            out, err = self.start("leave", 8, 40).communicate(timeout=TIMEOUT_S)
            self.assertEqual(out, "", err)
        out, err = speaker.communicate(timeout=TIMEOUT_S)
        self.assertEqual(out, said(7, rounds), err + self.proxy.log_tail())
        self.assertEqual(self.proxy.request("status") is not None, True)

    def test_an_assertion_s_text(self):
        other = self.start("wait")
        self.assertEqual(other.stdout.readline(), "kernel says 1\n")
        out, err = self.start("assert").communicate(timeout=TIMEOUT_S)
        self.assertEqual(out, "CUDA_ERROR_ASSERT\n", err)
        self.assertEqual(err.count("Assertion `value > 0` failed."), 1, err)
        out, err = other.communicate("go on\n", timeout=TIMEOUT_S)
        self.assertEqual(out, "CUDA_ERROR_ASSERT\n")  # the context is everybody's
        self.assertNotIn("Assertion", err)             # the text is not
        self.assertIn("Assertion `value > 0` failed.", self.proxy.log_tail(1000))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
