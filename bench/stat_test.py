"""`tubectl stat` says what a function did: a known number of calls is made through a proxy on the
simulated GPU, then it is asked.

stat_test.py --build DIR
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "lib"))
import arm_set  # noqa: E402
import call_runs  # noqa: E402
import tubetest  # noqa: E402

OPTIONS = argparse.Namespace()
LIMIT_S = 60


class Stat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.layout = tubetest.Layout(OPTIONS.build)
        cls.arms = arm_set.ArmSet(cls.layout, "sim", None, ["tube"])
        cls.arm = cls.arms.arms["tube"]

    @classmethod
    def tearDownClass(cls):
        cls.arms.close()

    def setUp(self):
        self.worker = self.arm.spawn([str(call_runs.client_path(self.layout))])
        self.worker.ready(time.monotonic() + LIMIT_S)

    def tearDown(self):
        self.arms.close_workers()
        self.arm.proxy.wait_empty()

    def stat(self, *options):
        env = dict(tubetest.base_environment(), TUBE_DIR=str(self.arm.proxy.dir))
        return subprocess.run(
            [str(self.layout.tubectl), "stat", "-w", self.arm.proxy.workflow, *options], env=env,
            capture_output=True, text=True, check=True).stdout

    def function(self):
        (found,) = json.loads(self.stat("--json"))["functions"]
        self.assertEqual(found["pid"], self.worker.pid)
        return found

    def during(self, operation, samples):
        """What `samples` (before the operation's cost divides them) of an operation added, without
        the fence behind them."""
        deadline = time.monotonic() + LIMIT_S
        self.worker.send(f"run {operation} {samples}")
        self.worker.expect("prepared", deadline)
        before = self.function()
        self.worker.send("go")
        made = self.worker.expect("block", deadline)["samples"]
        added = call_runs.without_fence(arm_set.difference(before, self.function()), 1)
        added["round_trip_calls"]["tubeMemGetInfo"] -= 1
        self.worker.send("verify")
        self.assertEqual(self.worker.expect("verified", deadline)["wrong"], "")
        return made, added

    def test_records_are_the_sum_of_the_calls_and_round_trips_of_those_waited_for(self):
        found = self.function()
        self.assertEqual(found["records"], sum(found["calls"].values()))
        self.assertEqual(found["round_trips"], sum(found["round_trip_calls"].values()))
        self.assertEqual(found["posted"], found["records"] - found["round_trips"])
        for call, count in found["round_trip_calls"].items():
            self.assertLessEqual(count, found["calls"][call], call)

    def test_a_wait_for_an_answer_is_counted_by_its_call(self):
        made, added = self.during("event_elapsed", 500)
        self.assertEqual(added["round_trip_calls"]["tubeEventElapsed"], made)
        self.assertEqual(added["round_trips"], made)

    def test_memory_that_was_freed_is_taken_without_asking(self):
        made, added = self.during("alloc_free_2m", 500)
        self.assertEqual((added["round_trips"], added["calls"]["tubeMemTake"]), (0, made))

    def test_posted_launches_are_no_round_trips(self):
        made, added = self.during("launch", 300)
        self.assertEqual((added["round_trips"], added["calls"]["tubeLaunch"]), (0, made))
        self.assertGreaterEqual(added["record_bytes"], made * 64)

    def test_bytes_of_copies_are_counted_whichever_way_they_travel(self):
        for operation, size in (("h2d_4k_pinned", 4096), ("h2d_4k_pageable", 4096),
                                ("d2h_64k_pageable", 65536), ("d2h_1m_pinned", 1 << 20)):
            made, added = self.during(operation, 400)
            self.assertEqual(added["copy_bytes"], made * size, operation)

    def test_every_wait_for_a_stream_that_was_not_over_spins_or_sleeps(self):
        made, added = self.during("launch_sync", 600)
        word = added["waits"].get("word", {})
        self.assertGreater(word.get("spun", 0) + word.get("slept", 0), 0)
        self.assertLessEqual(word.get("spun", 0) + word.get("slept", 0), made)

    def test_an_idle_session_has_gone_to_sleep(self):
        deadline = time.monotonic() + LIMIT_S
        while self.function()["state"] != "idle" and time.monotonic() < deadline:
            pass
        self.assertEqual(self.function()["state"], "idle")
        self.worker.send("run launch_sync 3")
        self.worker.expect("prepared", deadline)
        waits = self.function()["waits"]["record"]
        self.assertGreater(waits["slept"] + waits["spun"], 0)

    def test_the_text_shows_all_of_it(self):
        self.during("event_elapsed", 100)
        self.during("h2d_4k_pageable", 100)
        self.during("launch_sync", 300)
        text = self.stat("--top", "0")
        for words in ("round trips", "of records", "copied", "WAITED FOR", "tubeLaunch",
                      "of the session for records"):
            self.assertIn(words, text)
        (asked,) = [
            line.split() for line in text.splitlines() if line.endswith(" tubeEventElapsed")
        ]
        self.assertEqual(asked[0], asked[1])
        (launch,) = [line.split() for line in text.splitlines() if line.endswith(" tubeLaunch")]
        self.assertEqual(launch[1], "0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
