"""Slices of a GPU, on the clock of the simulated GPU: who runs beside long kernels on multiprocessors
of its own, and who gets them back.

slices_test.py --build FOLDER [unittest arguments]. The program is launches.cc.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402
from launch_clients import Client, finish, ready  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
SMS = 16
BLOCK_MS = 50
CLOCK = {
    "TUBE_SIM_TIME": "virtual",
    "TUBE_SIM_SMS": str(SMS),
    "TUBE_SIM_BLOCK_NS": str(BLOCK_MS * 1_000_000),
    "TUBE_LAUNCH_HOLD_MS": "60000"
}
HEAVY_BLOCKS = 641
LIGHT_KERNELS = 10
ALONE_MS = LIGHT_KERNELS * BLOCK_MS


class Slices(unittest.TestCase):
    def proxy(self, *arguments, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", extra_env={**CLOCK, **settings}, arguments=arguments)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def heavy(self, proxy, count):
        return [ready(self, proxy, "heavy", HEAVY_BLOCKS) for _ in range(count)]

    def light(self, proxy, **settings):
        return ready(self, proxy, "light", LIGHT_KERNELS, 1, "queued", **settings)

    def slice_of(self, proxy, client):
        return proxy.function(client.process.pid)["slices"]

    def wait_functions(self, proxy, count):
        while len(proxy.status()["functions"]) != count:
            self.assertTrue(proxy.alive())

    def wait_moved(self, proxy, clients):
        """Until each has had long launches since; there is no other way to see the GPU's side."""
        for client in clients:
            wanted = proxy.function(client.process.pid)["records"] + 400
            while proxy.function(client.process.pid)["records"] < wanted:
                self.assertIsNone(client.process.poll())

    def test_short_kernels_on_multiprocessors_of_their_own_are_as_fast_as_alone(self):
        """Though nobody's long kernels take turns."""
        proxy = self.proxy("--slices", TUBE_LAUNCH_POLICY="native")
        light = self.light(proxy, TUBE_SM_PERCENT="40")
        heavy = self.heavy(proxy, 4)
        self.assertEqual(self.slice_of(proxy, light), [{"gpu": 0, "multiprocessors": 8}])
        self.assertEqual(self.slice_of(proxy, heavy[0]), [])
        self.assertEqual(proxy.status()["gpus"][0]["slices"],
                         {"function": proxy.function(light.process.pid)["id"], "multiprocessors": 8,
                          "others": SMS - 8, "made": [8]})
        for _ in range(3):
            self.assertEqual(light.step_ms(), ALONE_MS)
        finish(self, heavy)

    def test_neighbours_that_run_already_make_room(self):
        """Their streams move: the split is made beside them."""
        proxy = self.proxy(TUBE_LAUNCH_POLICY="native")
        heavy = self.heavy(proxy, 2)
        light = self.light(proxy, TUBE_SM_PERCENT="40")
        self.wait_moved(proxy, heavy)
        self.assertEqual(light.step_ms(), ALONE_MS)
        finish(self, heavy)

    def test_the_rest_is_whole_again_when_the_holder_is_killed(self):
        proxy = self.proxy("--slices", TUBE_LAUNCH_POLICY="native")
        for _ in range(3):
            light = self.light(proxy, TUBE_SM_PERCENT="40")
            other = ready(self, proxy, "light", 1, SMS, "queued")
            self.assertEqual(other.step_ms(), 2 * BLOCK_MS)
            light.say("go")
            os.kill(light.process.pid, signal.SIGKILL)
            light.process.wait(60)
            self.wait_functions(proxy, 1)
            self.assertIsNone(proxy.status()["gpus"][0]["slices"]["function"])
            self.assertEqual(other.step_ms(), BLOCK_MS)
            other.end()
            proxy.wait_empty()

    def test_the_next_one_holds_the_slice_when_the_holder_leaves(self):
        proxy = self.proxy(TUBE_LAUNCH_POLICY="native")
        first, second = (self.light(proxy, TUBE_SM_PERCENT="40") for _ in range(2))
        self.assertEqual(self.slice_of(proxy, second), [])
        first.end()
        self.wait_functions(proxy, 1)
        self.assertEqual(second.step_ms(), ALONE_MS)
        self.assertEqual(self.slice_of(proxy, second), [{"gpu": 0, "multiprocessors": 8}])

    def test_runs_of_launches_and_graphs_stay_in_the_part_of_their_stream(self):
        """A step is 2 blocks on each multiprocessor of the part, however it is launched."""
        proxy = self.proxy("--slices", TUBE_LAUNCH_POLICY="native", TUBE_COALESCE_US="1000000")
        light = self.light(proxy, TUBE_SM_PERCENT="40")
        for way in ([], ["graph"], ["nodes"], ["update"]):
            other = ready(self, proxy, "light", LIGHT_KERNELS, SMS, *way)
            for _ in range(12):
                self.assertEqual(other.step_ms(), 2 * ALONE_MS, way)
            if not way:
                self.assertGreater(proxy.function(other.process.pid)["coalesced_runs"], 0)
            other.end()
        self.assertEqual(light.step_ms(), ALONE_MS)

    def test_instances_are_changed_and_updated_when_parts_come_and_go(self):
        """An instance stays where it was made; its changes and updates are as ever."""
        proxy = self.proxy(TUBE_LAUNCH_POLICY="native")
        before = ready(self, proxy, "light", 2, SMS, "update")
        self.assertEqual(before.step_ms(), 2 * BLOCK_MS)
        light = self.light(proxy, TUBE_SM_PERCENT="40")
        during = ready(self, proxy, "light", 2, SMS, "update")
        holder = ready(self, proxy, "light", 2, SMS, "update", TUBE_SM_PERCENT="40")
        for _ in range(2):
            self.assertEqual(before.step_ms(), 2 * BLOCK_MS)
            self.assertEqual(during.step_ms(), 4 * BLOCK_MS)
            self.assertEqual(holder.step_ms(), 4 * BLOCK_MS)
        light.end()
        self.wait_functions(proxy, 3)
        for _ in range(2):
            self.assertEqual(before.step_ms(), 2 * BLOCK_MS)
            self.assertEqual(during.step_ms(), 4 * BLOCK_MS)
            self.assertEqual(holder.step_ms(), 4 * BLOCK_MS)

    def test_functions_that_exchange_memory_hold_no_slice(self):
        proxy = self.proxy("--slices", TUBE_SIM_TIME="", TUBE_SIM_BLOCK_NS="0")
        for holder in (0, 1):
            both = [Client(self, proxy, "meet", **({"TUBE_SM_PERCENT": "40"} if i == holder else {}))
                    for i in range(2)]
            handle = both[0].hear()
            both[1].hear()
            both[0].say("first")
            both[1].say(handle)
            for client in both:
                self.assertEqual(client.hear(), "ready")
            self.assertEqual(self.slice_of(proxy, both[holder]), [])
            for client in both:
                client.say("go")
            for client in both:
                self.assertEqual([client.hear(), client.hear()], ["submitted", "met"])
            for client in both:
                client.end()
            proxy.wait_empty()

    def test_what_programs_compute_is_the_same_in_a_slice_and_beside_one(self):
        """The holder comes and goes, so that streams of the others move."""
        proxy = self.proxy("--slices", TUBE_SIM_TIME="", TUBE_SIM_BLOCK_NS="0", TUBE_SIM_SMS="132")
        for name in ("legacy_stream", "thread_streams", "threads", "reduction"):
            program = LAYOUT.build / "tests/programs" / name
            env = tubetest.environment(LAYOUT, "native", "sim")
            native = subprocess.run([program], env=env, capture_output=True, text=True, timeout=120)
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            for settings in ({}, {"TUBE_SM_PERCENT": "12"}, {"TUBE_PRIORITY": "high"}):
                tube = subprocess.Popen([program], env={**env, **settings}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                while tube.poll() is None:
                    self.light(proxy, TUBE_SM_PERCENT="12").end()
                out, err = tube.communicate()
                self.assertEqual((tube.returncode, out), (native.returncode, native.stdout), name + err)

    def test_kernels_of_a_high_priority_come_before_others_that_wait(self):
        """Natively ordered: of two long kernels that run, the one that waits stands behind."""
        steps = {}
        for priority in ("normal", "high"):
            proxy = self.proxy(TUBE_LAUNCH_POLICY="native")
            light = self.light(proxy, TUBE_PRIORITY=priority)
            heavy = self.heavy(proxy, 4)
            steps[priority] = light.step_ms()
            finish(self, heavy)
        self.assertLessEqual(steps["high"], 2 * ALONE_MS)
        self.assertGreater(steps["normal"], 10 * ALONE_MS)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
