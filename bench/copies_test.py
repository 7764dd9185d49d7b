"""What the benches of copies rest on, and a tiny run of each on the simulated GPU: every row has
every arm, the samples that were asked for and the right bytes. Times say nothing here.

copies_test.py --build DIR
"""
import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE / "lib"),
    str(HERE.parent / "tests" / "gpu"),
    str(HERE.parent / "tests" / "e2e")
]
import copy_runs  # noqa: E402
import evict_runs  # noqa: E402
import figures  # noqa: E402
import isolate_runs  # noqa: E402

OPTIONS = argparse.Namespace()
MIB = copy_runs.MIB


def script(name):
    """A bench as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def values(p50_ns, **more):
    return dict({"p50_ns": p50_ns, "p99_ns": 2 * p50_ns, "blocks_ns": [p50_ns]}, **more)


class TinyRuns(unittest.TestCase):
    def run_bench(self, name, *more):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(HERE / name), "--build", OPTIONS.build, "--backend", "sim",
                 "--tiny", "--out", folder, *more],
                capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(pathlib.Path(folder, f"{name}.json").read_text())["rows"]

    def check(self, rows, count, samples=None):
        self.assertEqual(len(rows), count)
        for row in rows:
            elsewhere = "another proxy" in row["name"]
            self.assertEqual(sorted(row["arms"]), ["tube"] if elsewhere else ["native", "tube"])
            for arm in row["arms"].values():
                self.assertIn(arm["samples"], [samples] if samples else range(1, 100))

    def test_isolate(self):
        rows = self.run_bench("isolate", "--arms", "native,tube")
        self.check(rows, 11)
        for row in rows:
            beside = row["name"] != "alone"
            for arm in row["arms"].values():
                self.assertEqual(beside, "p99_over_alone" in arm)

    def test_partition(self):
        slice_of = "tube:TUBE_SLICES=1:1.TUBE_SM_PERCENT=12"
        rows = self.run_bench("partition", "--arms", f"native,tube,{slice_of}")
        self.assertEqual([row["name"] for row in rows], ["alone", "2 heavy"])
        for row in rows:
            self.assertEqual(set(row["arms"]), {"native", "tube", slice_of})

    def test_neighbours(self):
        rows = self.run_bench("neighbours", "--arms", "native,tube,tube:TUBE_LAUNCH_POLICY=native")
        self.assertEqual([row["name"] for row in rows],
                         ["alone", "2 launch-bound", "1 heavy", "2 heavy", "a second", "2 heavy",
                          "2 light", "1 against 2", "alone", "one that holds 4 streams",
                          "one with 8 long blocks"])
        for row in rows[4:]:
            self.assertEqual(set(row["arms"]), {"native", "tube", "tube:TUBE_LAUNCH_POLICY=native"})
        for row in rows[:4]:
            for arm in row["arms"].values():
                self.assertEqual(row["name"] != "alone", "others_per_s" in arm)

    def test_pinned_copies(self):
        rows = self.run_bench("pinned_copies")
        self.check(rows, 9, 4)
        self.assertEqual(sum("over_one" in row["arms"]["tube"] for row in rows), 3)

    def test_pageable(self):
        self.check(self.run_bench("pageable"), 12, 2)

    def test_pinned(self):
        rows = self.run_bench("pinned")
        self.check(rows[:1], 1, 1)
        self.check(rows[1:2] + rows[3:], 9, 2)
        self.check(rows[2:3], 1, 3)

    def test_pool(self):
        self.check(self.run_bench("pool", "--arms", "native,tube"), 6, 4)

    def test_functions_that_hold_more_than_there_is(self):
        rows = self.run_bench("evict", "--arms", "native,tube")
        self.assertEqual([row["wrong"] for row in rows], [[]] * 9)
        for row in rows[3:]:
            self.assertEqual(list(row["arms"]), ["tube"])
            if row["name"] != "alone":
                self.assertGreater(row["arms"]["tube"]["moved_bytes"], 0, row["name"])

    def test_what_moves_over_two_links(self):
        rows = self.run_bench("evict", "--gpus", "2")
        self.assertEqual([row["wrong"] for row in rows], [[]] * 5)
        for row in rows[:3]:
            self.assertEqual(set(row["arms"]), {"native", "tube", evict_runs.ONE_LINK})
        for row in rows[3:]:
            self.assertEqual(set(row["arms"]), {"tube", evict_runs.ONE_LINK})
            for arm in row["arms"].values():
                self.assertGreater(arm["moved_bytes"], 0, row["name"])
                self.assertIn("of_one_link", arm)

    def test_multipath(self):
        rows = self.run_bench("multipath")
        self.check([row for row in rows if row["group"].endswith(
            ("pinned to the device", "pinned from the device", "pinned both at once",
             "pageable to the device", "pageable from the device"))], 30, 2)
        for row in rows:
            self.assertFalse(row["wrong"], row["name"])
        groups = [row["group"] for row in rows]
        self.assertEqual(sum(group.startswith("plain program") for group in groups), 4)
        self.assertEqual(sum(group.startswith("2 GPUs at once") for group in groups), 2)
        self.assertEqual(sum(group.startswith("on a lending GPU") for group in groups), 6)
        self.assertEqual(groups.count("all links"), 2)
        for links in "1 link,", "2 links", "links that pay":
            self.assertEqual(sum(row["group"].startswith(links) for row in rows), 10)


class Figures(unittest.TestCase):
    def planned(self, bench):
        """(group, row) that a whole run measures."""
        module, options = script(bench), types.SimpleNamespace(tiny=False, quick=False)
        if bench == "isolate":
            return {row[:2] for row in module.plan(options)}
        names = {copy_runs.size_words(size) for size in module.sizes(options)}
        groups = {
            "pinned_copies": list(module.WAYS.values()) if bench == "pinned_copies" else [],
            "pageable": ["to the device, pages there", "from the device, pages there"],
            "pinned": ["cuMemHostAlloc, warm", "cuMemHostAlloc, ahead"],
            "multipath": ["2 links, pinned to the device", "2 links, pinned from the device"],
        }[bench]
        return {(group, name) for group in groups for name in names}

    def test_every_figure_is_a_row_of_its_bench(self):
        for words, bench, group, name, *_ in figures.FIGURES:
            if bench in ("isolate", "pinned_copies", "pageable", "pinned", "multipath"):
                if group not in ("slowest size", "PyTorch", "all links"):
                    self.assertIn((group, name), self.planned(bench), words)

    def test_an_aim_of_another_kind(self):
        def row(rate):
            return {"group": "to the device, pages there", "name": "1 GiB", "arms": {
                "native": values(100), "tube": values(25, bytes_per_s=rate)}}

        for rate, verdict in ((46e9, "aim reached"), (44e9, "reached")):
            lines = figures.text({"pageable": {"rows": [row(rate)]}})
            self.assertRegex(lines[1], rf">= 3x +>= 45 GB/s +4.000x .* {verdict}")
        self.assertEqual(figures.verdict("speed", 2.9, 3, None), "NOT reached")
        self.assertEqual(figures.verdict("p99 alone", 1.8, 1.8, 1.5), "reached")


class Rates(unittest.TestCase):
    BULK = {"begin_ns": 0, "ended_ns": [100, 200, 400], "bytes": 1000}

    def test_a_round_is_spread_over_its_time(self):
        self.assertEqual(isolate_runs.moved(self.BULK, 0, 400), 3000)
        self.assertEqual(isolate_runs.moved(self.BULK, 50, 100), 500)
        self.assertEqual(isolate_runs.moved(self.BULK, 150, 300), 1000)
        self.assertEqual(isolate_runs.moved(self.BULK, 300, 900), 500)

    def test_all_bytes_against_the_bulk_alone(self):
        victim = {"begin_ns": 200, "end_ns": 400, "bytes": 100, "latency_ns": [1, 1]}
        alone, both = isolate_runs.rates(victim, [self.BULK], 150, 0)
        self.assertAlmostEqual(alone, 10e9)
        self.assertAlmostEqual(both, 6e9)

    def test_the_slowest_row_is_by_its_ratio_to_native(self):
        rows = [{"name": name, "arms": {"native": values(native), "tube": values(tube)}}
                for name, native, tube in (("a", 1000, 1010), ("b", 10, 11), ("c", 10, 10))]
        self.assertEqual(copy_runs.slowest(rows, "tube")["name"], "b")
        self.assertIsNone(copy_runs.slowest(rows, "mps"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
