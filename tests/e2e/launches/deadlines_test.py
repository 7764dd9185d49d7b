"""Deadlines beside long kernels: who misses them gets multiprocessors of its own by itself, and gives
them back. The clock of the simulated GPU stands while a step is to be late.

deadlines_test.py --build FOLDER [unittest arguments]. The program is launches.cc.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402
from launch_clients import Clock, finish, ready  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
SMS = 16
BLOCK_MS = 50
HEAVY_BLOCKS = 641
LIGHT_KERNELS = 10
ALONE_MS = LIGHT_KERNELS * BLOCK_MS
SLO_MS = 1000


class Deadlines(unittest.TestCase):
    def start(self, **settings):
        folder = tempfile.TemporaryDirectory(prefix="tube-clock-")
        self.addCleanup(folder.cleanup)
        control = pathlib.Path(folder.name) / "clock"
        env = {
            "TUBE_SIM_TIME": "virtual",
            "TUBE_SIM_SMS": str(SMS),
            "TUBE_SIM_BLOCK_NS": str(BLOCK_MS * 1_000_000),
            "TUBE_SIM_CONTROL": str(control),
            "TUBE_LAUNCH_HOLD_MS": "60000",
            **settings
        }
        self.proxy = tubetest.Proxy(LAYOUT, "sim", extra_env=env)
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        self.clock = Clock(self, control)

    def of(self, client):
        return self.proxy.function(client.process.pid)

    def holder(self):
        return self.proxy.status()["gpus"][0]["slices"]["function"]

    def miss(self, light, count):
        """So many steps that are late, since no kernel ends."""
        for _ in range(count):
            before = self.of(light)["deadlines"]["missed"]
            self.clock.ask("hold")
            light.say("go")
            while self.of(light)["deadlines"]["missed"] == before:
                self.assertIsNone(light.process.poll())
            self.clock.ask("run")
            light.took_ms()

    def heavy(self, count):
        clients = [ready(self, self.proxy, "heavy", HEAVY_BLOCKS) for _ in range(count)]
        for client in clients:
            while self.of(client)["launches"]["held"] < 3:
                self.assertIsNone(client.process.poll())
        return clients

    def light(self, slo_ms=SLO_MS):
        return ready(self, self.proxy, "light", LIGHT_KERNELS, 1, "queued", TUBE_SLO_MS=str(slo_ms))

    def test_who_misses_its_deadline_beside_long_kernels_gets_multiprocessors_of_its_own(self):
        self.start(TUBE_AUTO_SLICE_MS="60000")
        light = self.light()
        heavy = self.heavy(3)
        self.assertIsNone(self.holder())
        self.miss(light, 3)
        while self.holder() != self.of(light)["id"]:
            self.assertIsNone(light.process.poll())
        self.assertEqual(light.step_ms(), ALONE_MS)
        self.assertEqual(self.of(light)["slices"], [{"gpu": 0, "multiprocessors": 8}])
        for client in heavy:  # their streams have moved, and their work goes on
            wanted = self.of(client)["launches"]["long"] + 2
            while self.of(client)["launches"]["long"] < wanted:
                self.assertIsNone(client.process.poll())
        self.assertEqual(light.step_ms(), ALONE_MS)
        finish(self, heavy)
        seen = json.loads(
            subprocess.run([LAYOUT.tubectl, "gpu", "--json", "-w", self.proxy.workflow],
                           env={**tubetest.base_environment(), "TUBE_DIR": str(self.proxy.dir)},
                           capture_output=True, text=True, check=True).stdout)
        mine = [each for each in seen["functions"] if each["pid"] == light.process.pid]
        self.assertGreaterEqual(mine[0]["deadlines"]["missed"], 3)
        self.assertEqual(mine[0]["deadlines"]["slo_ms"], SLO_MS)

    def test_the_multiprocessors_go_back_when_nobody_needs_them(self):
        self.start(TUBE_AUTO_SLICE_MS="1")
        light = self.light()
        heavy = self.heavy(2)
        self.miss(light, 3)
        while "gives its multiprocessors back" not in self.proxy.log_tail(100000):
            self.assertTrue(self.proxy.alive())
        finish(self, heavy)
        while self.holder() is not None:
            self.assertTrue(self.proxy.alive())

    def test_a_late_step_alone_changes_nothing(self):
        """Nor do steps beside others when it is turned off."""
        self.start(TUBE_AUTO_SLICE_MS="60000")
        light = self.light(slo_ms=100)
        self.miss(light, 5)
        self.assertIsNone(self.holder())
        self.start(TUBE_AUTO_SLICE_MS="0")
        light = self.light(slo_ms=100)
        heavy = self.heavy(2)
        self.miss(light, 5)
        self.assertIsNone(self.holder())
        finish(self, heavy)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
