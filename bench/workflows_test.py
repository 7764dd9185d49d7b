"""What bench/workflows rests on: percentiles, the search for a rate, shares of memory, copies by
kind; and a run of a small workflow on the simulated GPU.

workflows_test.py --build DIR
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE / "lib"),
    str(HERE.parent / "tests" / "gpu"),
    str(HERE.parent / "tests" / "e2e"),
    str(HERE.parent / "examples" / "workflows" / "runner")
]
import latency  # noqa: E402
import python_with  # noqa: E402
import rate_search  # noqa: E402
import workflow  # noqa: E402
import workflow_arms  # noqa: E402
import workflow_report  # noqa: E402
import workflow_values  # noqa: E402

OPTIONS = argparse.Namespace()
MS = 1_000_000

SMALL = """
name = "small"
shape = "condition"
slo_ms = 50
batch = 4
batches = [1, 4]
variants = 4
seed = 1
[counts]
has_text = 0.6
[[stage]]
name = "decode"
kind = "host"
program = "none.py"
outputs = {frames = {dtype = "uint8", shape = ["batch", 64, 1024]}}
[[stage]]
name = "first"
kind = "gpu"
program = "none.py"
inputs = ["decode.frames"]
[stage.outputs]
images = {dtype = "float32", shape = ["batch", 3, 1024]}
text = {dtype = "int32", shape = ["has_text", 4096]}
[[stage]]
name = "second"
kind = "gpu"
program = "none.py"
inputs = ["first.images", "first.text"]
outputs = {scores = {dtype = "float32", shape = ["batch", 1024]}}
[[stage]]
name = "end"
kind = "host"
program = "none.py"
inputs = ["second.scores"]
"""


class Latency(unittest.TestCase):
    def test_percentiles_are_values_that_were_measured(self):
        values = list(range(1, 101))
        self.assertEqual([latency.percentile(values, share) for share in (0.5, 0.95, 0.99, 1)],
                         [50, 95, 99, 100])
        self.assertEqual(latency.percentile([7], 0.99), 7)
        self.assertIsNone(latency.percentile([], 0.5))
        self.assertEqual(latency.summary([]), {})

    def test_a_lost_request_is_not_within_the_slo(self):
        self.assertEqual(latency.share_within([1, 2, 3], 2), 2 / 3)
        self.assertEqual(latency.share_within([1, 2, 3], 2, lost=1), 0.5)
        self.assertIsNone(latency.share_within([], 2))

    def test_halves(self):
        self.assertTrue(latency.halves([100] * 99 + [200], [104] * 99 + [220])["agree"])
        self.assertFalse(latency.halves([100] * 99, [106] * 99)["agree"])
        tails = latency.halves([100] * 98 + [200] * 2, [100] * 98 + [231] * 2)
        self.assertFalse(tails["agree"])
        self.assertIsNone(latency.halves([], [1]))

    def test_a_curve_goes_from_least_to_most(self):
        curve = latency.curve(list(range(1000, 0, -1)))
        self.assertEqual((curve[0], curve[-1], len(curve)), (1, 1000, 101))
        self.assertEqual(latency.curve([3, 1]), [1, 3])

    def test_means_count_what_is_missing_as_nothing(self):
        self.assertEqual(latency.mean_of([{"a": 2}, {"a": 4, "b": 2}]), {"a": 3, "b": 1})


class RateSearch(unittest.TestCase):
    def find(self, limit, start, **options):
        """An arm whose P99 stays at 50 up to `limit` and is far beyond above."""
        return rate_search.highest(lambda rate: 50 if rate <= limit else 1000, start, 100,
                                   **options)

    def test_finds_the_rate_from_below_and_from_above(self):
        for start in (10, 100, 400):
            found = self.find(limit=97, start=start, windows=12)
            self.assertTrue(found.bounded)
            self.assertLessEqual(found.rate, 97)
            self.assertGreater(found.rate, 90)

    def test_says_when_nothing_failed_or_nothing_held(self):
        self.assertFalse(self.find(limit=1e9, start=10, windows=3).bounded)
        self.assertEqual(self.find(limit=0, start=10, windows=3).rate, 0.0)

    def test_lost_requests_do_not_hold(self):
        found = rate_search.highest(lambda rate: None, 10, 100, windows=2)
        self.assertEqual((found.rate, len(found.asked)), (0.0, 2))

    def test_a_close_miss_has_a_second_window(self):
        answers = iter([110, 90])
        found = rate_search.highest(lambda rate: next(answers), 10, 100, windows=1)
        self.assertEqual((found.rate, len(found.asked)), (10, 2))


def turn(kind, number, used, seconds=1.0):
    return workflow_arms.Turn(kind, number, [], seconds, 0, 0, None, used)


class Memory(unittest.TestCase):
    def test_what_an_arm_held_follows_from_its_end(self):
        """It held 300 at its end: 100 of them since its last turn, in which it peaked at 500."""
        turns = [turn("solo", 0, (1000, 1000, 1000, 1000)),
                 turn("open", 0, (1000, 1000, 1050, 1200)),
                 turn("open", 1, (1700, 1800, 1750, 2000), seconds=3.0)]
        self.assertEqual(workflow_arms.held_in(turns, 300), (250.0, 500))

    def test_nothing_is_said_without_readings(self):
        self.assertIsNone(workflow_arms.held_in([turn("open", 0, None)], 300))
        self.assertIsNone(workflow_arms.held_in([turn("open", 0, (1, 1, 1, 1))], None))
        self.assertIsNone(workflow_arms.held_in([], 300))

    def test_an_arm_says_how_its_data_passes(self):
        self.assertEqual(workflow_arms.parts("tube:TUBE_SPIN_US=0+ipc"),
                         ("tube:TUBE_SPIN_US=0", "ipc"))
        self.assertEqual(workflow_arms.parts("tube+ipc+pinned"), ("tube", "ipc+pinned"))
        self.assertIn("CUDA IPC", workflow_arms.words("native+ipc"))
        self.assertRaises(SystemExit, workflow_arms.parts, "native")


def small():
    return workflow.parse(workflow.tomllib.loads(SMALL), pathlib.Path("/nowhere"))


def record(number, text=16, begin=0):
    """A request of 10 ms whose stages take 1 ms each for what they do."""
    at, stages = begin, {}
    sizes = {"decode": {}, "first": {"frames": 100}, "second": {"images": 40, "text": text},
             "end": {"scores": 8}}
    for name, taken in sizes.items():
        stamps = {key: at + step * MS // 2
                  for step, key in enumerate(("queued", "start", "inputs", "computed", "outputs"))}
        stages[name] = dict(stamps, instance=0, bytes={"in": taken, "out": {}})
        at = stamps["outputs"]
    return types.SimpleNamespace(id=number, variant=0, arrived_ns=begin, ended_ns=at, error=None,
                                 result="r", stages=stages)


class Values(unittest.TestCase):
    def test_copies_by_kind(self):
        found = workflow_values.copies_mean(small(), [record(0), record(1, text=0)])
        self.assertEqual(found, {
            "host to function": {"count": 1, "bytes": 100},
            "function to function": {"count": 1.5, "bytes": 48},
            "function to host": {"count": 1, "bytes": 8}
        })

    def test_what_lies_in_host_memory_crosses_the_bus_twice(self):
        moved = workflow_values.copies_mean(small(), [record(0)])
        self.assertEqual(workflow_values.crossings(moved, "host"),
                         {"to the GPU": 156, "from the GPU": 64})
        self.assertEqual(workflow_values.crossings(moved, "ipc"),
                         {"to the GPU": 100, "from the GPU": 8})
        self.assertEqual(workflow_values.crossings(moved, "store"),
                         workflow_values.crossings(moved, "ipc"))
        self.assertEqual(workflow_values.crossings(moved, "store-host"),
                         workflow_values.crossings(moved, "host"))

    def test_the_split_sums_to_the_latency(self):
        split = workflow_values.split_of(small(), [record(0), record(1)])
        self.assertEqual(sum(split.values()), 8 * MS)

    def arm(self):
        turns = [turn(kind, number, None) for kind in ("solo", "closed", "open")
                 for number in range(2)]
        for index, each in enumerate(turns):
            each.records = [record(n, begin=(100 * index + n) * MS) for n in range(4)]
        by_kind = lambda kind: [t for t in turns if t.kind == kind]  # noqa: E731
        return types.SimpleNamespace(name="native+host", turns=turns, of=by_kind, held=None,
                                     start_s=1.0)

    def measured(self, want="r"):
        bench = types.SimpleNamespace(names=["native+host", "gone+host"])
        plan = types.SimpleNamespace(measure="latency")
        return types.SimpleNamespace(
            wf=small(), bench=bench, plan=plan, done=[self.arm()], missing={"gone+host": "why"},
            want={0: want}, repeats=True, notes=[], first="native+host", slo_ns=12 * MS, rate=3.0,
            rate_words="as asked for", arrivals="some", found={})

    def test_a_row_and_its_text(self):
        row = workflow_values.row(self.measured(), "bursty, batch 4, 1 GPU")
        mine = row["arms"]["native+host"]
        self.assertEqual((mine["p50_ns"], mine["samples"], mine["wrong"], mine["slo_share"]),
                         (8 * MS, 8, 0, 1.0))
        self.assertTrue(mine["halves"]["agree"])
        self.assertEqual(row["wrong"], ["gone+host: does not run: why"])
        text = "\n".join(workflow_report.row_text(json.loads(json.dumps(row))))
        self.assertIn("two halves of the run agree", text)
        self.assertIn("WRONG: small: gone+host", text)

    def test_wrong_results_are_counted(self):
        row = workflow_values.row(self.measured(want="another"), "bursty")
        self.assertEqual(row["arms"]["native+host"]["wrong"], 24)
        self.assertIn("24 results differ", row["wrong"][0])


class OnTheSimulatedGpu(unittest.TestCase):
    """The whole bench, with stand-ins; counts and results are checked, no time is."""

    def run_bench(self, folder, *options):
        done = subprocess.run([
            python_with.with_packages(OPTIONS.build), str(HERE / "workflows"), "--build",
            str(OPTIONS.build), "--backend", "sim", "--out", folder, "--budget", "8",
            "--shape", "poisson", *options
        ], capture_output=True, text=True)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        path = pathlib.Path(folder, "workflows.json")
        self.assertTrue(path.exists(), done.stderr)
        return done, json.loads(path.read_text())

    def small(self, folder):
        pathlib.Path(folder, "small").mkdir()
        pathlib.Path(folder, "small", "workflow.toml").write_text(SMALL)
        return f"{folder}/small"

    def test_arms_compute_the_same_and_one_that_fails_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            arms = ["native+host", "mps+host", "tube+host", "tube+ipc", "tube+store"]
            done, result = self.run_bench(folder, "--workflows", f"nonesuch,{self.small(folder)}",
                                          "--arms", ",".join(arms), "--rate", "50")
        lost, row = result["rows"]
        self.assertEqual(lost["arms"], {})
        self.assertIn("no workflow 'nonesuch'", lost["wrong"][0])
        self.assertEqual(set(row["arms"]), {"native+host", "tube+host", "tube+ipc", "tube+store"}, done.stderr)
        self.assertEqual(row["wrong"], [
            "mps+host: does not run: the simulated GPU has no MPS"
        ])
        self.assertEqual(done.returncode, 1)
        for name, mine in row["arms"].items():
            self.assertEqual((mine["wrong"], mine["lost"]), (0, 0), name)
            self.assertGreater(mine["copies"]["function to function"]["bytes"], 0)
        self.assertIsNone(row["arms"]["native+host"]["counted"])
        self.assertGreater(row["arms"]["tube+host"]["counted"]["records"], 10)
        self.assertTrue(re.search(r"tube\+ipc +[\d.]+", workflow_report.text(result)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
