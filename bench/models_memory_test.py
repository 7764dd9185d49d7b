"""bench/models_memory: what counts as held, what is saved, and the whole bench with stand-ins on
the simulated GPU; counts, results and certificates are checked, no time is.

models_memory_test.py --build DIR
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
    str(HERE.parent / "tests" / "e2e"),
    str(HERE.parent / "examples" / "workflows" / "runner")
]
import figures  # noqa: E402
import model_runs  # noqa: E402
import python_with  # noqa: E402

OPTIONS = argparse.Namespace()
GIB = 1 << 30


class Values(unittest.TestCase):
    def test_memory_behind_allocations_and_idle_blocks_count(self):
        def function(*gpus):
            return {"gpus": [dict(zip(("backed_bytes", "pool_bytes", "promised_bytes"), gpu))
                             for gpu in gpus]}

        both = [function((1, 20, 9)), function((300, 0, 9), (4000, 0, 9))]
        self.assertEqual(model_runs.held({"functions": both}), 4321)

    def test_what_is_saved_is_against_the_arm_with_everything_off(self):
        arms = {figures.HOLDS: {"held_peak_bytes": 4 * GIB, "held_mean_bytes": 4 * GIB},
                figures.SAYS: {"held_peak_bytes": 3 * GIB, "held_mean_bytes": GIB},
                "native": {"gpu_peak_bytes": 9 * GIB}}
        model_runs.compare(arms)
        self.assertEqual((arms[figures.SAYS]["saved_of_peak"], arms[figures.SAYS]["saved_of_mean"]),
                         (0.25, 0.75))
        self.assertNotIn("saved_of_peak", arms["native"])
        row = {"group": model_runs.group("each tensor an allocation"), "name": model_runs.ROW,
               "arms": arms, "wrong": []}
        shown = figures.rows({"models_memory": {"rows": [row]}})
        self.assertEqual([cells[3:5] for cells in shown], [["0.250", "4.00 -> 3.00 GiB"]])
        row["wrong"] = ["a result"]
        self.assertEqual(figures.rows({"models_memory": {"rows": [row]}}), [])

    def test_requests_are_those_of_the_seed(self):
        first = model_runs.requests(10, 2, 1)
        self.assertEqual(first, model_runs.requests(10, 2, 1))
        self.assertEqual({name for _, name in first[0]}, set(model_runs.NAMES))


class OnTheSimulatedGpu(unittest.TestCase):
    def test_every_arm_with_both_allocators(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([
                python_with.with_packages(OPTIONS.build), str(HERE / "models_memory"), "--build",
                str(OPTIONS.build), "--backend", "sim", "--out", folder, "--seconds", "1"
            ], capture_output=True, text=True)
            if done.returncode == 77:
                self.skipTest(done.stdout.strip())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(pathlib.Path(folder, "models_memory.json").read_text())
        self.assertEqual([row["group"] for row in result["rows"]],
                         [model_runs.group(each) for each in model_runs.ALLOCATORS])
        for row in result["rows"]:
            self.assertEqual(list(row["arms"]), [figures.HOLDS, "tube", figures.SAYS])
            self.assertEqual(len({mine["requests"] for mine in row["arms"].values()}), 1)
            for mine in row["arms"].values():
                self.assertGreater(mine["held_mean_bytes"], 0)
            says = row["arms"][figures.SAYS]
            self.assertEqual((says["certified"], says["departures"]), (len(model_runs.NAMES), 0),
                             (row["group"], result["notes"]))
            # The workspaces that no request names, if nothing else.
            self.assertGreater(says["saved_of_peak"], 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
