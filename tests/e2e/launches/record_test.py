"""What a proxy keeps between runs makes the next start faster and nothing else.

record_test.py --build FOLDER [unittest arguments].
"""
import argparse
import pathlib
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
PROGRAMS = LAYOUT.build / "tests/programs"
TIMEOUT_S = 100


class Record(unittest.TestCase):
    def run_with(self, cache):
        """(what the program prints, how many kernels were loaded before it asked)"""
        with tubetest.Proxy(LAYOUT, "sim", extra_env={"TUBE_CACHE": str(cache)}) as proxy:
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            done = subprocess.run([PROGRAMS / "library"], env=env, text=True, capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, proxy.status()["modules"]["kernels_early"]

    def test_kernels_of_earlier_runs_are_loaded_with_their_image(self):
        """Whatever became of the record meanwhile."""
        with tempfile.TemporaryDirectory(prefix="tube-cache-") as cache:
            record = pathlib.Path(cache, "kernels", "test")
            printed, early = self.run_with(cache)
            self.assertEqual(early, 0)
            text = record.read_bytes()
            again, early = self.run_with(cache)
            self.assertEqual(again, printed)
            self.assertGreater(early, 0)
            for spoilt in (text.replace(b" ", b" no_such_"), text[:40], b"\xff" * 1000):
                record.write_bytes(spoilt)
                self.assertEqual(self.run_with(cache), (printed, 0))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
