"""What bench/paths rests on, and a quick run: every figure has its row, and what does not depend on
this machine's speed is reached.

paths_test.py --build DIR
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "lib"), str(HERE.parent / "tests" / "gpu")]
import figures  # noqa: E402

OPTIONS = argparse.Namespace()


class Paths(unittest.TestCase):
    def run_bench(self, *more):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, HERE / "paths", "--build", OPTIONS.build, "--backend", "sim",
                 "--quick", "--out", folder, *more], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads((pathlib.Path(folder) / "paths.json").read_text()), done.stdout

    def test_the_figures(self):
        result, text = self.run_bench()
        mine = [f for f in figures.FIGURES if f[1] == "paths"]
        self.assertEqual(len(mine), 3)
        for words, _, group, name, kind, must, aim in mine:
            row = next(r for r in result["rows"] if (r["group"], r["name"]) == (group, name))
            self.assertIn(words, text)
            if kind == "speed":
                value = figures.measured(kind, row)
                self.assertEqual(figures.verdict(kind, value, must, aim, row), "aim reached", words)

    def test_nothing_is_lost_behind_a_switch(self):
        result, _ = self.run_bench("--topology", "hgx-h200")
        pairs = [r for r in result["rows"] if r["group"].endswith("other pairs")]
        self.assertEqual(len(pairs), 5)
        for row in pairs:
            self.assertGreater(figures.measured("speed", row), 0.97, row["name"])

    def test_a_topology_that_is_not_there(self):
        done = subprocess.run([sys.executable, HERE / "paths", "--build", OPTIONS.build,
                               "--topology", "nowhere"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere: no such file", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
