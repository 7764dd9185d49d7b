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

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/launches/launches"
# A heavy kernel takes 41 waves of 50 ms, so that a hold's bound is out of reach.
CLOCK = {
    "TUBE_SIM_TIME": "virtual",
    "TUBE_SIM_SMS": "4",
    "TUBE_SIM_BLOCK_NS": "50000000",
    "TUBE_LAUNCH_HOLD_MS": "60000"
}
HEAVY_BLOCKS, HEAVY_MS = 161, 41 * 50
LIGHT_KERNELS = 10


class Client:
    def __init__(self, test, proxy, *words):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        self.process = subprocess.Popen([PROGRAM, *map(str, words)], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        test.addCleanup(self.end)

    def hear(self):
        said = self.process.stdout.readline().rstrip("\n")
        while said.startswith("cu"):
            assert "CUDA_SUCCESS" in said, said
            said = self.process.stdout.readline().rstrip("\n")
        return said

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(60)


class Launches(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", extra_env=settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def heavy(self, proxy, count):
        clients = [Client(self, proxy, "heavy", HEAVY_BLOCKS) for _ in range(count)]
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

    def finish(self, clients):
        for client in clients:
            client.say("stop")
        for client in clients:
            self.assertEqual(client.hear(), "done")

    def step_ms(self, policy):
        proxy = self.proxy(TUBE_LAUNCH_POLICY=policy, **CLOCK)
        light = Client(self, proxy, "light", LIGHT_KERNELS)
        self.assertEqual(light.hear(), "ready")
        heavy = self.heavy(proxy, 4)
        if policy != "native":
            self.wait_for(proxy, heavy, "held", 3)
        light.say("go")
        word, took = light.hear().split()
        self.assertEqual(word, "took")
        if policy != "native":
            self.assertEqual(self.launches(proxy, light)["long"], 0)
            self.assertGreater(self.launches(proxy, heavy[0])["gpu_ms"], HEAVY_MS)
        self.finish(heavy)
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
        self.finish(stays)
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
        self.finish(heavy)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
