"""What bench/faas12 and bench/density rest on: processes that come and go with their requests, when
the number of functions stops growing; and a run of both on the simulated GPU.

faas_test.py --build DIR
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE / "lib"),
    str(HERE.parent / "tests" / "gpu"),
    str(HERE.parent / "tests" / "e2e"),
    str(HERE.parent / "examples" / "workflows" / "runner")
]
import density_runs  # noqa: E402
import faas_functions  # noqa: E402
import faas_report  # noqa: E402
import faas_runs  # noqa: E402
import keep_alive  # noqa: E402
import python_with  # noqa: E402
from arms import Worker  # noqa: E402

OPTIONS = argparse.Namespace()
MS = 1_000_000

# Answers as a function does (examples/workflows/lib/serving.py); fails when its parameters say so,
# and answers nothing before there is a file that they name.
FUNCTION = """import json, os, sys, time
print("@ready", json.dumps({"pid": os.getpid(), "seconds": 0.5}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    while "gate" in asked["params"] and not os.path.exists(asked["params"]["gate"]):
        time.sleep(0.001)
    now = time.monotonic_ns()
    stamps = {"start": now, "inputs": now + 1, "computed": now + 3, "outputs": now + 4}
    if asked["params"].get("fail"):
        print("@failed", json.dumps({"id": asked["id"], "error": "it was told to"}), flush=True)
    else:
        print("@done", json.dumps({"id": asked["id"], "stamps": stamps, "result": "r"}), flush=True)
"""


class Platforms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.count = 0

    def spawn(self, command, env):
        self.count += 1
        return Worker(f"copy-{self.count}", command, dict(os.environ, **env),
                      os.path.join(self.folder.name, str(self.count)))

    def platform(self, keep_s=keep_alive.FOREVER, most=2, **params):
        function = keep_alive.Function("f", [sys.executable, "-c", FUNCTION],
                                       {"inputs": {}, "params": params, "outputs": {}})
        platform = keep_alive.Platform([function], self.spawn, keep_s, most)
        self.addCleanup(platform.close)
        return platform, function

    def deadline(self):
        return time.monotonic() + 60

    def test_the_first_request_starts_a_process_and_the_next_one_finds_it(self):
        platform, function = self.platform()
        first, = platform.replay([(0.0, "f")], self.deadline())
        second, = platform.replay([(0.0, "f")], self.deadline())
        self.assertEqual((first.cold, second.cold, self.count), (True, False, 1))
        self.assertEqual((first.result, first.error), ("r", None))
        self.assertEqual(function.starts[0][1], 500 * MS)

    def test_a_process_that_is_idle_for_too_long_is_ended(self):
        platform, function = self.platform(keep_s=0)
        platform.replay([(0.0, "f")], self.deadline())
        platform.until(lambda: not function.copies and not platform.ending, self.deadline())
        record, = platform.replay([(0.0, "f")], self.deadline())
        self.assertEqual((record.cold, self.count), (True, 2))

    def test_requests_at_once_have_processes_of_their_own_up_to_the_limit(self):
        gate = os.path.join(self.folder.name, "gate")
        platform, function = self.platform(gate=gate)
        for _ in range(3):
            platform.submit("f", time.monotonic_ns())
        platform.until(lambda: platform.busy == 2, self.deadline())
        self.assertEqual((len(function.copies), len(function.queue)), (2, 1))
        pathlib.Path(gate).touch()
        records = platform.drained(self.deadline())
        self.assertEqual([record.error for record in records], [None] * 3)
        self.assertEqual(self.count, 2)

    def test_warm_processes_make_no_request_cold(self):
        platform, _ = self.platform()
        platform.warm(2, self.deadline())
        records = platform.replay([(0.0, "f"), (0.0, "f")], self.deadline())
        self.assertEqual([record.cold for record in records], [False, False])

    def test_failures_are_named(self):
        platform, _ = self.platform(fail=True)
        record, = platform.replay([(0.0, "f")], self.deadline())
        self.assertEqual(record.error, "it was told to")
        with self.assertRaisesRegex(RuntimeError, "warm-up: it was told to"):
            platform.warm(1, self.deadline())

    def test_a_request_without_an_answer_in_time_has_an_error(self):
        platform, _ = self.platform(gate="/nowhere")
        record, = platform.replay([(0.0, "f")], time.monotonic())
        self.assertIsNone(record.result)

    def test_without_pause(self):
        platform, _ = self.platform()
        platform.warm(1, self.deadline())
        records = platform.closed(["f"], 0.05)
        self.assertGreater(len(records), 1)
        self.assertGreater(faas_runs.rate(records), 0)


def record(at, took, function="f", cold=False, result="r"):
    stamps = {"start": at, "inputs": at + 1, "computed": at + took - 1, "outputs": at + took}
    return keep_alive.Record(function, at, cold, stamps, at + took, result)


class Values(unittest.TestCase):
    def test_requests_are_those_of_the_seed(self):
        names = ["vgg11", "bert", "s2s"]
        first, words = faas_runs.requests(names, 20, 2, 1)
        self.assertEqual((first, words), faas_runs.requests(names, 20, 2, 1))
        self.assertNotEqual(first, faas_runs.requests(names, 20, 2, 2)[0])
        self.assertEqual({name for _, name in first} | set(names), set(names))
        low, high = faas_functions.A_MINUTE
        self.assertTrue(all(low <= rate <= high
                            for rate in faas_functions.rates(names, 1).values()))

    def test_copies_of_a_function_are_asked_less(self):
        names = faas_functions.copies(["bert", "s2s"], 2)
        self.assertEqual(names, ["bert", "s2s", "bert-2", "s2s-2"])
        self.assertEqual([faas_functions.base(name) for name in names], ["bert", "s2s"] * 2)
        rates = faas_functions.rates(names, 1)
        self.assertLessEqual(max(rates["bert-2"], rates["s2s-2"]), 20)

    def test_the_share_of_the_compute_bound(self):
        """Two requests of 10 one after the other, 8 of each computing."""
        self.assertEqual(faas_runs.bound_share([record(0, 10), record(10, 10)]), 16 / 20)
        self.assertIsNone(faas_runs.bound_share([record(0, 10)]))

    def test_results_of_another_arm_count_as_wrong(self):
        want = {}
        self.assertEqual(faas_runs.wrong([record(0, 10)], want), 0)
        self.assertEqual(faas_runs.wrong([record(0, 10), record(0, 10, result="x")], want), 1)

    def test_rows_and_their_text(self):
        records = [record(i * 20 * MS, 10 * MS, cold=i == 0) for i in range(4)]
        mine = {"records": records, "starts": {"f": [(900 * MS, 300 * MS)]},
                "alone": {"f": records}, "together": records, "memory": (2**30, 2**31)}
        rows = faas_runs.rows(["f"], {"native": mine})
        one = rows[0]["arms"]["native"]
        self.assertEqual((one["cold_share"], one["start_ns"], one["load_ns"], one["p99_ns"]),
                         (0.25, 600 * MS, 300 * MS, 10 * MS))
        result = {"commit": "c", "date": "d", "rows": rows, "arms": {"native": "n"},
                  "problems": ["bad"], "arrivals": {"f": "some"},
                  "machine": {"gpu": "g", "driver": "d", "cpu": "c", "cores": 1, "kernel": "k"},
                  "options": {"seconds": 1, "speedup": 2, "seed": 1, "most": 4}}
        text = faas_report.text(result)
        self.assertIn("peak 2048 MiB", text)
        self.assertIn("WRONG: bad", text)

    def test_an_input_is_what_its_handle_says(self):
        one = faas_functions.Input("x", "float32", [3, 100_000])
        self.addCleanup(one.close)
        self.assertEqual(os.fstat(one.fd).st_size, 1_200_000)
        self.assertEqual(one.handle["key"].split(".")[:2], [str(os.getpid()), str(one.fd)])


class FakeDensity:
    """Each function takes 100 bytes; P99 is 10 ns up to `fast` functions, then 100."""

    def __init__(self, fast, most=64):
        self.options, self.fast, self.count = types.SimpleNamespace(most=most), fast, 0

    def grow(self, count):
        self.count = count

    shrink = grow

    def window(self):
        return [record(0, 10 if self.count <= self.fast else 100)]

    def read(self):
        return 1000 + 100 * self.count


class Density(unittest.TestCase):
    def measure(self, fast, cap, most=64):
        density = FakeDensity(fast, most)
        search = density_runs.Search(density, 1000, density.read, None, cap,
                                     time.monotonic() + 60)
        values = search.run()
        return values["functions"], values["stopped_by"], search.bound_ns

    def setUp(self):
        density_runs.footprint_runs.POLL_S = 0.001

    def test_it_finds_the_largest_number_that_breaks_no_bound(self):
        self.assertEqual(self.measure(fast=64, cap=850), (8, "memory", 15))
        self.assertEqual(self.measure(fast=7, cap=10_000), (7, "latency", 15))
        self.assertEqual(self.measure(fast=64, cap=10_000, most=4), (4, "count", 15))
        self.assertEqual(self.measure(fast=64, cap=50), (0, "memory", 15))


class OnTheSimulatedGpu(unittest.TestCase):
    """Both benches with stand-ins; counts are checked, no time is."""

    def run_bench(self, name, *options):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([
                python_with.with_packages(OPTIONS.build), str(HERE / name), "--build",
                str(OPTIONS.build), "--backend", "sim", "--out", folder, "--arms",
                "native,tube", *options
            ], capture_output=True, text=True)
            if done.returncode == 77:
                self.skipTest(done.stdout.strip())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(pathlib.Path(folder, f"{name}.json").read_text())

    def test_faas12(self):
        result = self.run_bench("faas12", "--functions", "s2s", "--seconds", "1", "--speedup", "4",
                                "--closed", "0.2")
        self.assertEqual([row["name"] for row in result["rows"]], ["s2s", "all"])
        for row in result["rows"]:
            self.assertEqual({arm: mine["lost"] for arm, mine in row["arms"].items()},
                             {"native": 0, "tube": 0})

    def test_density(self):
        result = self.run_bench("density", "--function", "s2s", "--most", "2", "--seconds", "0.5",
                                "--rate", "16", "--slo-ms", "60000")
        arms = result["rows"][0]["arms"]
        self.assertEqual({arm: mine["functions"] for arm, mine in arms.items()},
                         {"native": 2, "tube": 2})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
