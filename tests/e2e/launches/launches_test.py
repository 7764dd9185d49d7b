"""Long kernels of functions beside each other: on the clock of the simulated GPU, where blocks are
dealt out as a GPU does, and programs whose every launch takes its turn.

launches_test.py --build FOLDER [unittest arguments]. The program is launches.cc.
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
# A heavy kernel takes 41 waves of 50 ms, so that a hold's bound is out of reach.
CLOCK = {
    "TUBE_SIM_TIME": "virtual",
    "TUBE_SIM_SMS": "4",
    "TUBE_SIM_BLOCK_NS": "50000000",
    "TUBE_LAUNCH_HOLD_MS": "60000"
}
HEAVY_BLOCKS, HEAVY_MS = 161, 41 * 50
LIGHT_KERNELS = 10


class Launches(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", extra_env=settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def heavy(self, proxy, count, *way):
        clients = [Client(self, proxy, "heavy", HEAVY_BLOCKS, *way) for _ in range(count)]
        for client in clients:
            self.assertEqual(client.hear(), "ready")
        return clients

    def launches(self, proxy, client):
        return proxy.function(client.process.pid)["launches"]

    def wait_for(self, proxy, clients, what, count):
        """Until each has so many more."""
        for client in clients:
            wanted = self.launches(proxy, client)[what] + count
            while self.launches(proxy, client)[what] < wanted:
                self.assertIsNone(client.process.poll())

    def step_ms(self, policy):
        proxy = self.proxy(TUBE_LAUNCH_POLICY=policy, **CLOCK)
        light = ready(self, proxy, "light", LIGHT_KERNELS)
        heavy = self.heavy(proxy, 4)
        if policy != "native":
            self.wait_for(proxy, heavy, "held", 3)
        light.say("go")
        word, took = light.hear().split()
        self.assertEqual(word, "took")
        if policy != "native":
            self.assertEqual(self.launches(proxy, light)["long"], 0)
            # Each of its kernels counts, not only those that were measured.
            self.assertGreaterEqual(self.launches(proxy, light)["gpu_ms"], LIGHT_KERNELS * 50 / 2)
            self.assertGreater(self.launches(proxy, heavy[0])["gpu_ms"], HEAVY_MS)
        finish(self, heavy)
        return float(took)

    def test_short_kernels_starve_beside_long_ones_in_the_order_of_the_hardware(self):
        self.assertGreater(self.step_ms("native"), LIGHT_KERNELS * HEAVY_MS)

    def test_short_kernels_are_served_beside_long_ones_that_take_turns(self):
        self.assertLess(self.step_ms("feedback"), LIGHT_KERNELS * HEAVY_MS / 2)

    def test_a_function_that_is_killed_leaves_nothing_behind(self):
        proxy = self.proxy(**CLOCK)
        stays = self.heavy(proxy, 2)
        for _ in range(3):  # one is held, or in flight
            gone = self.heavy(proxy, 2)
            self.wait_for(proxy, gone, "held", 2)
            for client in gone:
                os.kill(client.process.pid, signal.SIGKILL)
                client.process.wait(60)
            self.wait_for(proxy, stays, "long", 5)
        self.assertEqual(self.launches(proxy, stays[0])["holds_ran_out"], 0)
        finish(self, stays)
        for client in stays:
            client.end()
        proxy.wait_empty()

    def test_kernels_that_wait_for_each_other_end(self):
        proxy = self.proxy(TUBE_LAUNCH_HOLD_MS="50", TUBE_SIM_SMS="4")
        first, second = Client(self, proxy, "meet"), Client(self, proxy, "meet")
        handle = first.hear()
        second.hear()
        first.say("first")
        second.say(handle)
        for client in (first, second):
            self.assertEqual(client.hear(), "ready")
        for client in (first, second):
            client.say("go")
        for client in (first, second):
            self.assertEqual(client.hear(), "submitted")
        for client in (first, second):
            self.assertEqual(client.hear(), "met")
        used = [self.launches(proxy, client) for client in (first, second)]
        self.assertGreaterEqual(sum(each["long"] for each in used), 2)

    def stand(self, proxy, *words):
        """Twenty streams that wait for their program, of eight hardware queues."""
        client = Client(self, proxy, "stand", 20, *words)
        self.assertEqual(client.hear(), "standing")
        return client

    def test_streams_that_wait_for_their_program_stop_nobody(self):
        for words in ((), ("host",)):
            proxy = self.proxy(TUBE_SIM_QUEUES="8", CUDA_DEVICE_MAX_CONNECTIONS="8")
            stands = [self.stand(proxy, *words) for _ in range(2)]
            others = [Client(self, proxy, "light", LIGHT_KERNELS) for _ in range(6)]
            for client in others:
                self.assertEqual(client.hear(), "ready")
            for client in others:
                client.say("go")
            for client in others:
                self.assertEqual(client.hear().split()[0], "took")
            os.kill(stands[0].process.pid, signal.SIGKILL)
            stands[0].process.wait(60)
            stands[1].say("go")
            self.assertEqual(stands[1].hear(), "done")
            for client in (*others, stands[1]):
                client.end()
            proxy.wait_empty()

    def test_a_stream_that_is_full_behind_a_wait_stops_nobody(self):
        """More launches than are kept back, and behind them what lets them go."""
        proxy = self.proxy(CUDA_DEVICE_MAX_CONNECTIONS="8")
        full = Client(self, proxy, "fill", 20, 20000)
        other = ready(self, proxy, "light", LIGHT_KERNELS)
        other.say("go")
        self.assertEqual(other.hear().split()[0], "took")
        self.assertEqual(full.hear(), "done")

    def test_every_way_to_launch_takes_turns_but_the_cooperative_one(self):
        proxy = self.proxy(**CLOCK)
        plain = self.heavy(proxy, 1)
        for way in ("ex", "graph"):
            other = self.heavy(proxy, 1, way)
            self.wait_for(proxy, plain + other, "held", 2)
            finish(self, other)
        other = ready(self, proxy, "heavy", 8, "cooperative")  # all at once on the GPU
        self.wait_for(proxy, [other], "gpu_ms", 1000)
        self.assertEqual(self.launches(proxy, other)["held"], 0)
        finish(self, [other])
        finish(self, plain)

    def test_a_kernel_that_never_ends_keeps_nobody_back_for_long(self):
        proxy = self.proxy(TUBE_LAUNCH_HOLD_MS="20", TUBE_LAUNCH_LONG_US="0")
        spin = Client(self, proxy, "spin")
        self.assertEqual(spin.hear(), "spinning")
        heavy = self.heavy(proxy, 2)
        self.wait_for(proxy, heavy, "long", 20)
        finish(self, heavy)
        os.kill(spin.process.pid, signal.SIGKILL)

    def test_a_proxy_of_little_weight_holds_its_launches_beside_another_one(self):
        little = self.proxy(TUBE_WEIGHT="1", **CLOCK)
        usual = tubetest.Proxy(LAYOUT, "sim", workflow="other", extra_env=CLOCK)
        usual.dir.rmdir()
        usual.log_path = little.dir / "other.log"
        usual.dir = little.dir  # where proxies of a machine meet
        usual.start()
        self.addCleanup(usual.stop)
        light, heavy = self.heavy(little, 2), self.heavy(usual, 2)
        reason = "another proxy's share"
        while reason not in self.launches(little, light[0])["held_for"]:
            self.assertIsNone(light[0].process.poll())
        self.wait_for(usual, heavy, "long", 3)
        usual.process.kill()  # what it wanted counts for nobody
        usual.process.wait(60)
        self.wait_for(little, light, "long", 5)
        finish(self, light)

    def test_loads_of_code_wait_for_a_quiet_moment(self):
        """And long kernels go on beside a program that loads without end."""
        proxy = self.proxy(**CLOCK)
        loads = ready(self, proxy, "loads")
        heavy = self.heavy(proxy, 2)
        self.wait_for(proxy, heavy, "held", 2)
        before = self.launches(proxy, loads)["quiet_moments"]
        loads.say("5")
        self.assertEqual(loads.hear(), "loaded")
        self.assertGreaterEqual(self.launches(proxy, loads)["quiet_moments"], before + 5)
        loads.say("1000000")
        self.wait_for(proxy, heavy, "long", 5)
        os.kill(loads.process.pid, signal.SIGKILL)
        loads.process.wait(60)
        finish(self, heavy)
        for client in heavy:
            client.end()
        proxy.wait_empty()

    def test_what_programs_compute_is_the_same_when_every_launch_takes_its_turn(self):
        """Beside two functions that always want one, too."""
        proxy = self.proxy(TUBE_LAUNCH_LONG_US="0")
        heavy = self.heavy(proxy, 2)
        for name in ("legacy_stream", "thread_streams", "threads", "reduction"):
            program = LAYOUT.build / "tests/programs" / name
            env = tubetest.environment(LAYOUT, "native", "sim")
            native = subprocess.run([program], env=env, capture_output=True, text=True, timeout=120)
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            tube = subprocess.run([program], env=env, capture_output=True, text=True, timeout=120)
            self.assertEqual((tube.returncode, tube.stdout), (native.returncode, native.stdout),
                             name + tube.stderr)
        held = sum(self.launches(proxy, client)["held"] for client in heavy)
        self.assertGreater(held, 0)
        finish(self, heavy)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
