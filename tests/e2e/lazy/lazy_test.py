"""GPU memory that is promised until its function's next work: by whatever way a pointer gets to the
GPU, there is memory behind it; what nobody reaches costs nothing; whoever is killed leaves nothing.

lazy_test.py --build DIR --program FILE [Lazy.test_NAME...]
"""
import argparse
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

MIB = 1 << 20
OUT_OF_MEMORY = "2"
WAYS = ("direct", "in_struct", "in_array", "in_table", "in_pinned_table", "encoded", "computed",
        "constant", "in_pinned", "copied", "filled", "graph", "texture", "written")
OPTIONS = argparse.Namespace()
LAYOUT = None


class Function(tubetest.ToldProgram):
    def __init__(self, test, proxy):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        super().__init__(test, [OPTIONS.program], env, proxy)

    def memory(self):
        return next(f for f in self.proxy.request("mem")["functions"]
                    if f["pid"] == self.pid)["gpus"][0]


class Lazy(unittest.TestCase):
    def proxy(self, memory="256M", **env):
        settings = {"TUBE_SIM_MEMORY": memory, "TUBE_EVICT_HOST": "1G",
                    "TUBE_MEMORY_WAIT_MS": "60000"}
        settings.update(env)
        proxy = tubetest.Proxy(LAYOUT, "sim", extra_env=settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def take_promised(self, function, mib):
        """It is promised once the GPU has nothing of the function's, which a driver may say a
        little after the function knows it."""
        for _ in range(100):
            self.assertEqual(function.ask("take", mib), "0")
            if function.memory()["promised_bytes"] == mib * MIB:
                return
            self.assertEqual(function.ask("drop"), "freed")
        self.fail("nothing is promised")

    def test_every_way_of_a_pointer(self):
        proxy = self.proxy(TUBE_POOL="0")
        function = Function(self, proxy)
        for way in WAYS:
            with self.subTest(way=way):
                self.take_promised(function, 4)
                self.assertEqual(function.ask(way), "right", proxy.log_tail())
                self.assertEqual(function.memory()["promised_bytes"], 0)
                self.assertEqual(function.ask("drop"), "freed")

    def test_a_kernel_that_waits_for_an_address(self):
        function = Function(self, self.proxy())
        for _ in range(3):
            self.assertEqual(function.ask("polls"), "right")

    def test_a_kernel_that_waits_for_the_address_of_a_block_that_was_freed(self):
        """Which the function takes again without asking."""
        function = Function(self, self.proxy())
        for _ in range(3):
            self.assertEqual(function.ask("take", 4), "0")
            self.assertEqual(function.ask("drop"), "freed")
            self.assertEqual(function.ask("polls"), "right", function.proxy.log_tail())

    def test_what_is_freed_before_work_costs_nothing(self):
        """Also where the driver has no memory to give."""
        proxy = self.proxy(TUBE_SIM_FAULT="call=cuMemCreate:error=2:after=1")  # of the constructor
        function = Function(self, proxy)
        self.assertIn("0", (function.ask("take", 64) for _ in range(100)))  # see take_promised
        self.assertEqual(function.ask("drop"), "freed")
        for _ in range(200):
            self.assertEqual(function.ask("take", 64), "0", proxy.log_tail())
            self.assertEqual(function.ask("drop"), "freed")

    def test_promised_memory_is_nobody_elses(self):
        proxy = self.proxy(TUBE_EVICT_HOST="0")
        one, two = Function(self, proxy), Function(self, proxy)
        self.take_promised(one, 160)
        self.assertEqual(two.ask("take", 100), OUT_OF_MEMORY)
        self.assertEqual(two.ask("take", 60), "0")
        self.assertEqual(two.ask("direct"), "right")
        self.assertEqual(one.ask("direct"), "right", proxy.log_tail())

    def test_promised_memory_gives_way_like_all_memory(self):
        """Without a copy on the host."""
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.ask("take", 160), "0")
        self.assertEqual(two.ask("take", 160), "0", proxy.log_tail())
        self.assertEqual(two.ask("direct"), "right")
        self.assertEqual(one.memory()["evicted_bytes"], 160 * MIB)
        self.assertEqual(proxy.status()["evicted"]["used_bytes"], 0)
        for function in (one, two, one):
            self.assertEqual(function.ask("direct"), "right", proxy.log_tail())

    def test_what_the_driver_refuses_after_all(self):
        """Each call of the backing in turn: the function is told the driver's code, the others go
        on, and nothing is left."""
        for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess"):
            with self.subTest(call=call):
                # Two functions' tables are there by then.
                proxy = self.proxy(TUBE_EVICT_HOST="0",
                                   TUBE_SIM_FAULT=f"call={call}:error=2:after=2:count=1")
                one, two = Function(self, proxy), Function(self, proxy)
                self.assertEqual(one.ask("take", 8), "0")
                one.tell("direct")
                self.assertEqual(one.program.stdout.readline(), "")
                self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", one.program.stderr.read())
                self.assertEqual(two.ask("take", 8), "0")
                self.assertEqual(two.ask("direct"), "right", proxy.log_tail())
                two.kill()
                proxy.wait_holds_nothing()

    def test_random_programs_keep_their_bytes(self):
        proxy = self.proxy(memory="256M")
        programs = [Function(self, proxy) for _ in range(3)]
        for seed, program in enumerate(programs):
            program.tell("churn", seed, 600)
        for program in programs:
            self.assertEqual(program.hear(), "equal", proxy.log_tail())
            program.kill()
        proxy.wait_holds_nothing()

    def test_functions_killed_at_any_point_leave_nothing(self):
        proxy = self.proxy(memory="256M")
        steady = Function(self, proxy)
        steady.tell("churn", 99, 400)
        for seed in range(8):
            program = Function(self, proxy)
            program.tell("endless", seed)
            for _ in range(1 + seed % 3):
                self.assertEqual(program.hear(), "here")
            program.kill()
        self.assertEqual(steady.hear(), "equal", proxy.log_tail())
        steady.kill()
        proxy.wait_holds_nothing()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    OPTIONS, rest = parser.parse_known_args()
    LAYOUT = tubetest.Layout(OPTIONS.build)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
