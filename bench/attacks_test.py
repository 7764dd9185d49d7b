"""A short run of bench/attacks on the simulated GPU: every attack begins and goes on, all results
are right and every row has what it must. Times say nothing here.

attacks_test.py --build DIR
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE / "lib"),
    str(HERE.parent / "tests" / "gpu"),
    str(HERE.parent / "tests" / "e2e")
]
import attack_runs  # noqa: E402
import figures  # noqa: E402
import latency  # noqa: E402

OPTIONS = argparse.Namespace()


def shown(p99_of_rounds):
    """What a phase showed whose rounds had these p99s."""
    made = attack_runs.Shown()
    for p99 in p99_of_rounds:
        made.add({"latency_ns": [100] * 90 + [p99] * 10, "wrong": 0}, 0, 0)
    return made


class Attacks(unittest.TestCase):
    def run_bench(self, *more):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(HERE / "attacks"), "--build", OPTIONS.build, "--quick",
                 "--out", folder, *more], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(pathlib.Path(folder, "attacks.json").read_text())

    def test_each_attack(self):
        result = self.run_bench("--seconds", "0.05")
        names = [attack.name for attack in attack_runs.ATTACKS]
        self.assertEqual([row["name"] for row in result["rows"]], [*names, attack_runs.WORST])
        for row in result["rows"]:
            self.assertEqual(set(row["arms"]), set(attack_runs.PHASES))
            self.assertEqual((row["wrong"], row["group"]), ([], attack_runs.GROUP))
            for values in row["arms"].values():
                self.assertEqual(values["wrong_results"], 0)
                self.assertGreater(values["samples"], 0)
            self.assertLessEqual({"p99_over_alone", "p99_over_busy", "p99_over_crowded"},
                                 set(row["arms"]["tube"]))
        self.assertTrue(any("worst p99" in line for line in result["figures"]))

    def test_some(self):
        result = self.run_bench("--seconds", "0.02", "--only", "kernels")
        self.assertEqual([row["name"] for row in result["rows"]], ["names of kernels without end"])
        self.assertEqual(result["figures"], [])

    def test_ratios_are_the_median_of_the_rounds(self):
        phases = {"alone": shown([200, 200, 400]), "busy": shown([400, 400, 400]),
                  "crowded": shown([800, 800, 800]), "tube": shown([400, 8000, 800])}
        attacked = attack_runs.compared(phases)["tube"]
        self.assertEqual(attacked["p99_over_alone"], 2)
        self.assertEqual(attacked["p99_over_busy"], 2)
        self.assertEqual(attacked["p99_over_crowded"], 1)
        self.assertEqual(attacked["p50_over_alone"], 1)

    def test_no_worst_one_where_something_was_wrong(self):
        def row(name, over, wrong=()):
            arms = {phase: latency.summary([1]) for phase in attack_runs.PHASES}
            arms["tube"]["p99_over_alone"] = over
            return {"group": attack_runs.GROUP, "name": name, "arms": arms, "wrong": list(wrong)}

        found = attack_runs.worst([row("mild", 1.5), row("bad", 3)])
        self.assertEqual((found["name"], found["attack"]), (attack_runs.WORST, "bad"))
        shown_figures = figures.rows({"attacks": {"rows": [found]}})
        self.assertEqual(shown_figures[0][-1], "NOT reached")
        self.assertIsNone(attack_runs.worst([row("mild", 1.5), row("wrong", 1, ["a result"])]))
        self.assertIsNone(attack_runs.worst([]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
