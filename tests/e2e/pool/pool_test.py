"""GPU memory that the proxy holds ready: functions that take it without asking find their own bytes
in it, memory ends at the same call as without it, limits hold, and everything comes back when
functions are killed or the driver fails.

pool_test.py --build DIR --program FILE [Pool.test_NAME...]
"""
import argparse
import pathlib
import random
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

MIB = 1 << 20
TIMEOUT_S = 120
OPTIONS = argparse.Namespace()
LAYOUT = None


class Pool(unittest.TestCase):
    def proxy(self, *arguments, pool=None, memory="2G", **env):
        if pool is not None:
            env["TUBE_POOL"] = str(pool)
        proxy = tubetest.Proxy(LAYOUT, "sim", arguments=arguments,
                               extra_env={"TUBE_SIM_MEMORY": memory, **env})
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def start(self, proxy, *words, **settings):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        env.update(settings)
        program = subprocess.Popen([OPTIONS.program, *map(str, words)], env=env, text=True,
                                   stdout=subprocess.PIPE)

        def end():
            program.kill()
            program.wait()
            program.stdout.close()

        self.addCleanup(end)
        return program

    def finish(self, proxy, program, status=0):
        out, _ = program.communicate(timeout=TIMEOUT_S)
        self.assertEqual(program.returncode, status, out + proxy.log_tail())
        return out

    def run_scene(self, proxy, *words, **settings):
        return self.finish(proxy, self.start(proxy, *words, **settings))

    def test_random_programs_keep_their_bytes(self):
        for pool in (None, 8 * MIB):
            proxy = self.proxy(pool=pool)
            programs = [self.start(proxy, "churn", seed, 400) for seed in range(3)]
            for program in programs:
                self.assertEqual(self.finish(proxy, program), "equal\n")
            proxy.wait_holds_nothing()

    def test_small_allocations_are_cut_by_the_program(self):
        """Also while frees are kept back: with every copy in a lane, streams are held at each."""
        for lane in ({}, {"TUBE_COPY_LANE": "always"}):
            proxy = self.proxy(**lane)
            programs = [self.start(proxy, "small", seed, 300) for seed in range(2)]
            endless = self.start(proxy, "endless_small", 7)
            for _ in range(3):
                self.assertEqual(endless.stdout.readline(), "here\n")
            calls = proxy.function(endless.pid)["calls"]
            self.assertGreater(calls["tubeMemCut"], calls["tubeMemAlloc"], calls)
            endless.kill()
            endless.wait()
            for program in programs:
                self.assertEqual(self.finish(proxy, program), "equal\n")
            proxy.wait_holds_nothing()

    def test_a_loop_over_one_size_asks_once(self):
        proxy = self.proxy()
        self.assertEqual(self.run_scene(proxy, "order", 500), "equal\n")
        program = self.start(proxy, "endless", 1)
        for _ in range(5):
            self.assertEqual(program.stdout.readline(), "here\n")
        blocks = proxy.function(program.pid)["blocks"]
        self.assertGreater(blocks["posted"], blocks["made"], blocks)
        off = self.proxy(pool=0)
        self.assertEqual(self.run_scene(off, "order", 500), "equal\n")
        program = self.start(off, "endless", 1)
        self.assertEqual(program.stdout.readline(), "here\n")
        self.assertIsNone(off.function(program.pid)["blocks"])

    def test_stream_ordered_memory_of_many_sizes_serves_again(self):
        """A pool keeps no more than twice what the program had from it at once, and 64 MiB."""
        proxy = self.proxy(memory="16G")
        program = self.start(proxy, "varied", 600)
        self.assertEqual(program.stdout.readline(), "here\n")
        function = proxy.function(program.pid)
        self.assertLessEqual(function["memory"][0]["held_bytes"], (2 * 18 + 64) * MIB, function)
        self.assertLess(function["calls"].get("tubeMemFreeAsync", 0), 60, function["calls"])

    def test_memory_ends_where_it_ends_without_a_pool(self):
        for size in (3, 16):
            outputs = {self.run_scene(self.proxy(pool=pool, memory="256M"), "fill", size)
                       for pool in (0, None, 64 * MIB)}
            self.assertEqual(len(outputs), 1, outputs)

    def test_limits_hold_as_without_a_pool(self):
        outputs = set()
        for pool in (0, None):
            proxy = self.proxy("--memory", "128M", pool=pool)
            outputs.add(self.run_scene(proxy, "fill", 6, TUBE_MEMORY="64M") +
                        self.run_scene(proxy, "fill", 6))
            proxy.wait_holds_nothing()
        self.assertEqual(len(outputs), 1, outputs)

    def test_what_one_keeps_another_gets(self):
        proxy = self.proxy("--memory", "160M", memory="200M")
        expected = self.run_scene(proxy, "fill", 16)
        others = [self.start(proxy, "endless", seed, TUBE_MEMORY="16M") for seed in (1, 2)]
        for program in others:
            self.assertEqual(program.stdout.readline(), "here\n")
        for program in others:
            program.kill()
            program.wait()
        proxy.wait_holds_nothing()
        self.assertEqual(self.run_scene(proxy, "fill", 16), expected)

    def test_killed_functions_give_everything_back(self):
        proxy = self.proxy()
        chance = random.Random(5)
        steady = self.start(proxy, "churn", 77, 1500)
        for seed in range(12):
            program = self.start(proxy, "endless", seed)
            for _ in range(1 + chance.randrange(3)):
                self.assertEqual(program.stdout.readline(), "here\n")
            program.kill()
            program.wait()
        self.assertEqual(self.finish(proxy, steady), "equal\n")
        proxy.wait_holds_nothing()

    def test_every_driver_call_may_fail(self):
        """Each call of this machinery in turn, at several places: the program is told, or is right
        all the same, and nothing is left."""
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
            for after in (0, 3, 7):
                proxy = self.proxy(TUBE_SIM_FAULT=f"call={call}:error=2:after={after + 1}:count=2")
                for words in (("churn", 3, 200), ("order", 40)):
                    program = self.start(proxy, *words)
                    out, _ = program.communicate(timeout=TIMEOUT_S)
                    self.assertIn(program.returncode, (0, 1), out + proxy.log_tail())
                    if program.returncode == 0:
                        self.assertEqual(out, "equal\n")
                proxy.wait_holds_nothing()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    OPTIONS, rest = parser.parse_known_args()
    LAYOUT = tubetest.Layout(OPTIONS.build)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
