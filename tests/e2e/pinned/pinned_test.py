"""Pinned memory that the proxy holds ready: requests that make no registration, memory that goes
from one function to the next without a byte of it, what becomes of it when functions are killed,
and how it goes back to the driver.

pinned_test.py --build DIR --program FILE [Pinned.test_NAME...]
"""
import argparse
import pathlib
import random
import select
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

MIB = 1 << 20
TIMEOUT_S = 60
OPTIONS = argparse.Namespace()
LAYOUT = None


class Pinned(unittest.TestCase):
    def proxy(self, mebibytes, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", extra_env={"TUBE_PINNED": str(mebibytes * MIB)},
                               **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def start(self, proxy, *words):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        program = subprocess.Popen([OPTIONS.program, *map(str, words)], env=env, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def end():
            program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout):
                pipe.close()

        self.addCleanup(end)
        return program

    def run_scene(self, proxy, *words):
        program = self.start(proxy, *words)
        out, _ = program.communicate(timeout=TIMEOUT_S)
        self.assertEqual(program.returncode, 0, out + proxy.log_tail())
        return out

    def wait_pinned(self, proxy, condition):
        """The status of the pools, once it is so."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition(pinned := proxy.status()["pinned"]):
            self.assertLess(time.monotonic(), deadline, f"{pinned}\n{proxy.log_tail()}")
            select.select([], [], [], 0.01)
        return pinned

    def test_next_function_finds_memory_and_no_bytes(self):
        proxy = self.proxy(256)
        self.assertEqual(self.run_scene(proxy, "fill", 48), "filled\n")
        before = self.wait_pinned(proxy, lambda pinned: pinned["ready_places"] == 1)
        self.assertEqual((before["hits"], before["misses"]), (0, 1))
        self.assertEqual(self.run_scene(proxy, "look", 48), "0 of somebody's bytes\nequal\n")
        after = self.wait_pinned(proxy, lambda pinned: pinned["ready_places"] == 1)
        self.assertEqual((after["hits"], after["misses"]), (1, 1), "nothing was registered for it")

    def test_requests_are_served_ahead(self):
        proxy = self.proxy(256)
        program = self.start(proxy, "keep", 16)
        for number in range(4):
            program.stdin.write("x")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline(), "here\n")
            pinned = self.wait_pinned(proxy, lambda pinned: pinned["idle_bytes"] >= 16 * MIB)
            self.assertEqual((pinned["hits"], pinned["misses"]), (number, 1))
        function = proxy.function(program.pid)
        self.assertEqual((function["pinned_hits"], function["pinned_misses"]), (3, 1))
        self.assertEqual(function["pinned_bytes"], 64 * MIB)

    def test_nothing_is_held_without_a_budget(self):
        proxy = self.proxy(0)
        for _ in range(2):
            self.assertEqual(self.run_scene(proxy, "look", 16), "0 of somebody's bytes\nequal\n")
        pinned = self.wait_pinned(proxy, lambda pinned: pinned["held_bytes"] == 0)
        self.assertEqual((pinned["hits"], pinned["misses"], pinned["made_ahead"]), (0, 2, 0))

    def test_janitor_takes_what_exceeds_the_budget(self):
        proxy = self.proxy(16)
        program = self.start(proxy, "give_back", 160)
        self.assertEqual(program.stdout.readline(), "freed\n")
        self.wait_pinned(proxy, lambda pinned: pinned["held_bytes"] <= 16 * MIB)
        out, _ = program.communicate(timeout=TIMEOUT_S)
        self.assertEqual(out, "0 of somebody's bytes\nequal\n")
        self.assertEqual(self.wait_pinned(proxy, lambda pinned: True)["misses"], 2)

    def test_killed_functions_leave_the_pool_whole(self):
        proxy = self.proxy(64)
        start = proxy.counts_at_rest()
        rng = random.Random(20261123)
        for seed in range(30):
            programs = [self.start(proxy, "churn", 3 * seed + i) for i in range(1 + seed % 3)]
            for program in programs:
                for _ in range(rng.randrange(1, 60)):
                    self.assertEqual(program.stdout.readline(), "on\n", proxy.log_tail())
                program.kill()
                program.wait()
        self.assertEqual(proxy.counts_back_to(start), start)
        self.wait_pinned(proxy, lambda pinned: pinned["held_bytes"] <= 64 * MIB)
        self.assertEqual(self.run_scene(proxy, "look", 8), "0 of somebody's bytes\nequal\n")
        self.assertEqual(proxy.status()["places"]["lost"], 0)
        self.assertEqual(proxy.stop(), 0)

    def test_a_child_keeps_its_parents_memory(self):
        proxy = self.proxy(256)
        parent = self.start(proxy, "leave_a_child", 8)
        self.assertEqual(parent.stdout.readline(), "left\n")
        self.assertEqual(parent.wait(TIMEOUT_S), 0)
        proxy.wait_empty()
        self.assertEqual(self.run_scene(proxy, "look", 8), "0 of somebody's bytes\nequal\n")
        # Only the place of the second one is wiped.
        pinned = self.wait_pinned(proxy, lambda pinned: pinned["ready_places"] == 1)
        self.assertEqual((pinned["hits"], pinned["misses"]), (0, 2))
        parent.stdin.close()
        self.assertEqual(parent.stdout.readline(), "all still there\n")
        self.wait_pinned(proxy, lambda pinned: pinned["ready_places"] == 2)


def main():
    global LAYOUT
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    parser.add_argument("--program", required=True)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    LAYOUT = tubetest.Layout(OPTIONS.build)
    LAYOUT.require()
    unittest.main(argv=[sys.argv[0], *OPTIONS.tests])


if __name__ == "__main__":
    main()
