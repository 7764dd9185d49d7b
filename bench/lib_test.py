"""What the benches rest on: histograms, result files, the comparison, the verdicts, and that an MPS
of ours leaves nothing behind.

lib_test.py --build DIR
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "lib"))
import arm_set  # noqa: E402
import bench_parts  # noqa: E402
import call_runs  # noqa: E402
import count_check  # noqa: E402
import figures  # noqa: E402
import footprint_runs  # noqa: E402
import histogram  # noqa: E402
import mps  # noqa: E402
import read_result  # noqa: E402
import result_file  # noqa: E402
import tubetest  # noqa: E402
import turns  # noqa: E402
import workflow_summary  # noqa: E402

OPTIONS = argparse.Namespace()

# Plays nvidia-cuda-mps-control: files of its pipe folder are its memory. A stubborn one neither
# quits nor heeds SIGTERM.
FAKE_CONTROL = """#!{python}
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if "-f" in sys.argv:
    if "stubborn" in {kind!r}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = subprocess.Popen(["sleep", "600"])
    (folder / "server").write_text(str(server.pid))
    (folder / "control").write_text(str(os.getpid()))
    while not (folder / "quit").exists():
        time.sleep(0.01)
    if {kind!r} != "leaves its server":
        server.kill()
    sys.exit(0)
if not (folder / "control").exists():
    sys.exit("Cannot find MPS control daemon process")
command = sys.stdin.readline().split()
if command[0] == "get_server_list":
    print((folder / "server").read_text())
elif command[0] == "get_client_list":
    print("4711")
elif command[0] == "quit" and "stubborn" not in {kind!r}:
    (folder / "quit").touch()
"""


@contextlib.contextmanager
def fake_control(kind):
    """On the path while the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "nvidia-cuda-mps-control")
        path.write_text(FAKE_CONTROL.format(python=sys.executable, kind=kind))
        path.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}:{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before


class Mps(unittest.TestCase):
    def setUp(self):
        mps.PATIENCE_S = 0.5

    def run_one(self, kind):
        with fake_control(kind), mps.Mps(dict(os.environ),
                                         pathlib.Path("/nowhere/libcuda.so.1")) as server:
            control = server.process.pid
            pids = [control, *server.servers()]
            server.require_clients(1)
            with self.assertRaises(mps.MpsError):
                server.require_clients(2)
            self.assertTrue(all(map(mps.running, pids)))
        self.assertEqual([pid for pid in pids if mps.running(pid)], [])
        self.assertFalse(server.folder.exists())

    def test_leaves_nothing_behind(self):
        self.run_one("polite")

    def test_ends_a_server_that_its_control_process_leaves(self):
        self.run_one("leaves its server")

    def test_ends_a_control_process_that_does_not_want_to(self):
        self.run_one("stubborn")

    def test_says_so_when_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            before, os.environ["PATH"] = os.environ["PATH"], folder
            try:
                if mps.find_control() is None:
                    self.assertRaises(mps.MpsError, mps.Mps, {},
                                      pathlib.Path("/nowhere/libcuda.so.1"))
            finally:
                os.environ["PATH"] = before


class Histograms(unittest.TestCase):
    def block(self, operation, samples):
        layout = tubetest.Layout(OPTIONS.build)
        with arm_set.ArmSet(layout, "sim", None, ["native"]) as arms:
            worker = arms.arms["native"].spawn([str(call_runs.client_path(layout))])
            deadline = time.monotonic() + 60
            worker.ready(deadline)
            worker.send(f"run {operation} {samples}")
            worker.expect("prepared", deadline)
            worker.send("go")
            return worker.expect("block", deadline)

    def test_a_program_and_the_script_mean_the_same_buckets(self):
        block = self.block("launch_sync", 900)
        times = histogram.Histogram(block["per_sample"]).add(block)
        self.assertEqual(sum(times.counts.values()), block["samples"])
        total = sum(histogram.middle(bucket) * count for bucket, count in times.counts.items())
        self.assertLess(abs(total - block["sum_ns"]), 0.01 * block["sum_ns"])

    def test_percentiles_of_blocks_added_up(self):
        times = histogram.Histogram(2)
        times.add({"hist": [[100, 98]], "samples": 98, "sum_ns": 9800, "max_ns": 100})
        times.add({"hist": [[128, 1], [200, 1]], "samples": 2, "sum_ns": 700, "max_ns": 600})
        self.assertEqual(times.percentile_ns(0.5), 50)
        self.assertEqual(times.percentile_ns(0.985), histogram.middle(128) / 2)
        self.assertEqual(times.operations(), 200)


def result(tube_ns, native_ns=1000.0):
    arms = {
        "native": {
            "p50_ns": native_ns,
            "p99_ns": native_ns
        },
        "tube": {
            "p50_ns": tube_ns,
            "p99_ns": 2 * tube_ns
        }
    }
    return {
        "bench": "calls",
        "commit": "c" * 40,
        "date": "",
        "backend": "driver",
        "machine": {
            "gpu": "g",
            "driver": "d"
        },
        "rows": [{
            "group": "one client",
            "name": "launch",
            "arms": arms,
            "wrong": []
        }]
    }


class WorkflowSummary(unittest.TestCase):
    @staticmethod
    def values(passing, compute, p99, rate=None):
        split = {"queue": 1, "host_to_function": passing, "compute": compute}
        return {"split_ns": split, "tail_split_ns": split, "p99_ns": p99, "rate_per_s": rate}

    def test_six_workflows_are_one_row_of_medians(self):
        rows = [{"group": str(n), "name": "bursty", "wrong": [],
                 "arms": {"native+host": self.values(100, 50, 200),
                          "tube+store": self.values(n, 50, 100 + n)}} for n in (1, 9, 30)]
        rows.append({"group": "4", "name": "highest rate: bursty", "wrong": [],
                     "arms": {"native+host": self.values(1, 1, 1, 2.0), "mps+host":
                              self.values(1, 1, 1, 4.0), "tube+store": self.values(1, 1, 1, 6.0)}})
        found = workflow_summary.row({"rows": rows})["arms"]["tube"]
        self.assertAlmostEqual(found["passing_over"], 0.09)
        self.assertAlmostEqual(found["p99_over"], 109 / 200)
        self.assertAlmostEqual(found["p99_apart_over"], 10 / 101)
        self.assertEqual((found["rate_over"], found["rate_over_mps"]), (3.0, 1.5))
        shown = {row[0]: row[-1] for row in figures.rows({"workflows": {"rows": rows}})}
        self.assertEqual(shown["rate at P99 of 1.5x solo, against native by host memory"], "reached")

    def test_without_the_store_there_is_none(self):
        rows = [{"group": "1", "name": "bursty", "arms": {"native+host": self.values(1, 1, 1)}}]
        self.assertIsNone(workflow_summary.row({"rows": rows}))


# A measured program without a GPU; the third copy's output is another when it is told so.
COPY = """import os, sys
sys.path.insert(0, {items!r})
import worker
output = b"other" if {odd} and os.environ["ITEM_OUTPUTS"].endswith("-3") else b"same"
worker.serve(lambda: (lambda: None, lambda: {{"logits": output}}))
"""


# One that holds 40 MiB and uses them.
HOLDER = """import ctypes, sys
sys.path.insert(0, {items!r})
import worker
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
def setup():
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(40 << 20)) == 0
    assert cuda.cuMemsetD32_v2(memory, 7, ctypes.c_size_t(10 << 20)) == 0
    return step, lambda: {{"word": bytes(word)}}
def step():
    assert cuda.cuMemcpyDtoH_v2(ctypes.byref(word), memory, ctypes.c_size_t(4)) == 0
worker.serve(setup)
"""


class Footprint(unittest.TestCase):
    def setUp(self):
        footprint_runs.POLL_S = 0.001

    def measure(self, counts, odd=False, command=None):
        """Each copy takes 100 MiB of a GPU whose server took 50 when it was started."""
        script = COPY.format(items=str(HERE.parent / "tests" / "gpu" / "items"), odd=odd)
        with arm_set.ArmSet(tubetest.Layout(OPTIONS.build), "sim", None, ["native"]) as arms:
            read = lambda: (1050 + 100 * len(arms.workers)) << 20  # noqa: E731
            return footprint_runs.measure(arms.arms["native"], 1000 << 20, read, command
                                          or [sys.executable, "-c", script], counts, 60)

    def test_copies_are_joined_by_more(self):
        values, hashes, wrong = self.measure([1, 3])
        self.assertEqual({count: mine["gpu_bytes"] >> 20 for count, mine in values.items()},
                         {1: 150, 3: 350})
        self.assertEqual((len(hashes), wrong), (3, []))
        self.assertEqual(footprint_runs.differing(hashes, hashes[0]), [])

    def test_a_copy_with_another_output_is_named(self):
        _, hashes, _ = self.measure([3], odd=True)
        self.assertEqual(footprint_runs.differing(hashes, hashes[0]), ["copy 3: logits differs"])
        self.assertEqual(footprint_runs.differing(hashes, {}), ["no outputs"])

    def test_copies_that_hold_less_than_they_want_answer_in_turn(self):
        script = HOLDER.format(items=str(HERE.parent / "tests" / "gpu" / "items"))
        with arm_set.ArmSet(tubetest.Layout(OPTIONS.build), "sim", None, ["tube"]) as arms:
            arm = arms.arms["tube"]
            values, hashes, wrong = footprint_runs.in_turn(
                arm, [sys.executable, "-c", script], 3, 90 << 20, 2, 60)
            self.assertGreater(arm.proxy.request("mem")["evicted"]["evicted_bytes"], 0)
        self.assertEqual((values["answered"], values["samples"], wrong), (1.0, 6, []))
        self.assertEqual(footprint_runs.differing(hashes, hashes[0]), [])

    def test_what_a_proxy_holds_is_told_by_part(self):
        script = HOLDER.format(items=str(HERE.parent / "tests" / "gpu" / "items"))
        with arm_set.ArmSet(tubetest.Layout(OPTIONS.build), "sim", None, ["tube"]) as arms:
            values, _, wrong = footprint_runs.measure(
                arms.arms["tube"], 0, lambda: 7, [sys.executable, "-c", script], [2], 60)
        self.assertEqual(wrong, [])
        self.assertEqual(values[2]["parts"]["functions"], 2 * (40 << 20))
        self.assertEqual(values[2]["parts"]["idle"], 0)

    def test_what_was_measured_stays_when_a_copy_does_not_start(self):
        values, hashes, wrong = self.measure([1], command=["/bin/false"])
        self.assertEqual((values, hashes, len(wrong)), ({}, [], 1))
        self.assertIn("native, 1 copies", wrong[0])

    def test_memory_stands_still_before_it_counts(self):
        readings = iter([9, 8, 7, 7, 7, 7, 1])
        self.assertEqual(footprint_runs.settled(lambda: next(readings)), 7)
        readings = iter([64 << 20] * 6 + [5] * 4)
        self.assertEqual(footprint_runs.settled(lambda: next(readings), 0), 5)

    def test_its_table_and_figures(self):
        used = {"native": {1: {"gpu_bytes": 2**30}, 8: {"gpu_bytes": 8 * 2**30}},
                "tube": {1: {"gpu_bytes": 2**30}, 8: {"gpu_bytes": 2 * 2**30}}}
        mine = dict(result(1), bench="footprint", arms={"native": "n", "tube": "t"}, missing={},
                    rows=footprint_runs.rows("ResNet-50 functions", [1, 8, 20], used))
        mine["machine"] = {"gpu": "g", "driver": "d", "cpu": "c", "cores": 1, "kernel": "k"}
        text = result_file.text(mine)
        self.assertRegex(text, r"8 +8.00 +2.00 +0.25 +1024 +146")
        self.assertIn("0.250x  8.00 (-) -> 2.00 GiB", "\n".join(figures.text({"footprint": mine})))


class Results(unittest.TestCase):
    def compare(self, a, b, *options):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, content in (("a", a), ("b", b)):
                paths.append(pathlib.Path(folder, f"{name}.json"))
                paths[-1].write_text(json.dumps(content))
            return subprocess.run(
                [sys.executable, str(HERE / "compare"), *map(str, paths), *options],
                capture_output=True, text=True)

    def test_compare_marks_what_became_worse_and_better(self):
        self.assertIn("worse", self.compare(result(100), result(150)).stdout)
        self.assertIn("better", self.compare(result(100), result(50)).stdout)
        same = self.compare(result(100), result(105)).stdout
        self.assertNotIn("worse", same)
        self.assertEqual(self.compare(result(100), result(150), "--fail").returncode, 1)
        self.assertEqual(self.compare(result(100), result(100), "--fail").returncode, 0)

    def test_a_slower_machine_is_not_a_worse_tube(self):
        self.assertNotIn("worse", self.compare(result(100), result(200, 2000.0)).stdout)

    def test_blocks_in_turns_are_compared_with_their_neighbours(self):
        """The machine was slow for two thirds of one arm's time and one third of the other's; each
        pair met the same."""
        row = result(100)["rows"][0]
        row["arms"] = {
            "native": {
                "p50_ns": 10.0,
                "blocks_ns": [10, 20, 10, 20, 10]
            },
            "tube": {
                "p50_ns": 18.0,
                "blocks_ns": [9, 18, 9, 18, 18]
            }
        }
        self.assertEqual(result_file.ratio(row, "tube"), 0.9)
        row["arms"]["tube"].pop("blocks_ns")
        self.assertEqual(result_file.ratio(row, "tube"), 1.8)
        self.assertIsNone(turns.ratio([], []))

    def test_every_round_has_other_cpus(self):
        rounds = [turns.cpus_of(number, range(16)) for number in range(16)]
        self.assertTrue(all(len(cpus) == 4 for cpus in rounds))
        self.assertEqual(set().union(*rounds[:4]), set(range(16)))
        self.assertEqual(len({frozenset(cpus) for cpus in rounds}), 16)
        self.assertIsNone(turns.cpus_of(0, range(4)))
        with subprocess.Popen(["sleep", "60"]) as process:
            turns.move(process.pid, {min(os.sched_getaffinity(0))})
            self.assertEqual(os.sched_getaffinity(process.pid), {min(os.sched_getaffinity(0))})
            process.kill()
        turns.move(process.pid, {0})  # gone

    def test_arms_with_settings(self):
        self.assertEqual(arm_set.words("tube:TUBE_SPIN_US=128:TUBE_LOG=info"),
                         "through Tube, TUBE_SPIN_US=128 TUBE_LOG=info")
        self.assertTrue(arm_set.SETTINGS.fullmatch("tube:TUBE_SPIN_US=128"))
        for wrong in ("tube", "tube:", "tube-block:A=1", "native:A=1", "tube:A"):
            self.assertFalse(arm_set.SETTINGS.fullmatch(wrong), wrong)

    def test_compare_refuses_what_it_cannot_compare(self):
        self.assertEqual(self.compare(result(100), {"something": "else"}).returncode, 2)
        self.assertEqual(self.compare(result(100), dict(result(100), bench="steps")).returncode, 2)

    def test_every_result_that_is_kept_can_be_read(self):
        folders = {path.parent for path in (HERE / "results").rglob("*.json")
                  } if (HERE / "results").exists() else set()
        for folder in folders:
            for bench, found in read_result.read(folder).items():
                self.assertTrue(all("arms" in row for row in found["rows"]), f"{folder}: {bench}")

    def test_of_several_results_the_last_that_has_tube(self):
        first, second, third = (
            dict(result(ns), commit=commit) for ns, commit in ((40, "a"), (50, "b"), (60, "c")))
        for row in third["rows"]:
            row["arms"].pop("tube")
        merged = read_result.merge([{"calls": r} for r in (first, second, third)])["calls"]
        self.assertEqual({row["commit"] for row in merged["rows"]}, {"b"})
        self.assertEqual(len(merged["rows"]), len(first["rows"]))
        other = dict(first, rows=[dict(first["rows"][0], group="another")])
        self.assertEqual(
            {
                row["commit"] for row in read_result.merge([{
                    "calls": second
                }, {
                    "calls": other
                }])["calls"]["rows"]
            }, {"a", "b"})
        both = dict(first, rows=[first["rows"][0], dict(first["rows"][0], name="event_query")])
        merged = read_result.merge([{"calls": both}, {"calls": second}])["calls"]
        self.assertEqual([(row["name"], row["commit"]) for row in merged["rows"]],
                         [("launch", "b"), ("event_query", "a")])

    def test_a_row_that_lost_an_arm_replaces_none_that_has_it(self):
        first, second = (dict(result(ns), commit=commit) for ns, commit in ((40, "a"), (50, "b")))
        for row in second["rows"]:
            row["arms"].pop("native")
        for missing, kept in ({"native": "did not start"}, "a"), ({}, "b"):
            merged = read_result.merge([{"calls": first}, {"calls": dict(second, missing=missing)}])
            self.assertEqual({row["commit"] for row in merged["calls"]["rows"]}, {kept})

    def test_every_figure_has_the_part_that_measures_it(self):
        for figure in figures.FIGURES:
            parts = [part.name for part in bench_parts.PARTS if bench_parts.gives(part, figure)]
            self.assertEqual(len(parts), 1, f"{figure[0]}: {parts}")
        self.assertEqual(set(bench_parts.missing({})), {part.name for part in bench_parts.PARTS})
        launch = bench_parts.missing({"calls": result(40)})["calls"]
        self.assertNotIn("launch, caller's time", launch)
        self.assertIn("event query", launch)
        with self.assertRaises(KeyError):
            bench_parts.named("calls,nothing")

    def test_verdicts(self):
        self.assertIn("aim reached", "\n".join(figures.text({"calls": result(40)})))
        self.assertIn(" reached", "\n".join(figures.text({"calls": result(200)})))
        self.assertIn("NOT reached", "\n".join(figures.text({"calls": result(300)})))
        self.assertEqual(figures.verdict("rate", 1.2, 1.0, 1.5), "reached")

    def test_a_table_of_a_dropped_arm_and_a_wrong_result(self):
        shown = dict(result(100), arms={
            "native": "n",
            "tube": "t",
            "mps": "m"
        }, missing={"mps": "none here\nlog"})
        shown["rows"][0]["wrong"] = ["tube: the counter is off"]
        text = result_file.text(
            dict(shown, machine=dict(shown["machine"], cpu="c", cores=2, kernel="k")))
        self.assertIn("mps: not measured: none here", text)
        self.assertIn("WRONG: one client/launch: tube: the counter is off", text)


class Counts(unittest.TestCase):
    def problems(self, counted, expected):
        row = {"group": "one client", "name": "launch", "arms": {"tube": {"per_call": counted}}}
        return count_check.problems({"rows": [row]}, {"launch": expected}, "one client")

    def test_a_record_more_is_a_problem_and_so_is_a_call_that_was_not_there(self):
        expected = {
            "records": [1, 1.34],
            "round_trips": 0,
            "calls": {
                "tubeLaunch": 1,
                "tubeSignal": [0, 0.34]
            }
        }
        self.assertEqual(
            self.problems({
                "records": 1.01,
                "calls": {
                    "tubeLaunch": 1,
                    "tubeSignal": 0.01
                }
            }, expected), [])
        self.assertTrue(
            self.problems({
                "records": 2,
                "calls": {
                    "tubeLaunch": 1,
                    "tubeSignal": 1
                }
            }, expected))
        self.assertTrue(
            self.problems({
                "records": 1,
                "round_trips": 1,
                "calls": {
                    "tubeLaunch": 1
                }
            }, expected))
        self.assertTrue(
            self.problems({
                "records": 1.1,
                "calls": {
                    "tubeLaunch": 1,
                    "tubeMemset": 0.1
                }
            }, expected))
        probed = {
            "records": 1.5,
            "round_trips": 0.5,
            "calls": {
                "tubeLaunch": 1,
                "tubeStreamProbe": 0.5
            }
        }
        self.assertEqual(self.problems(probed, expected), [])
        self.assertTrue(count_check.problems({"rows": []}, {}, "one client"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
