"""Limits of GPU memory: every way to take some ends at them with the driver's code, neighbours go
on, what a function is told agrees with them, and nothing stays counted of what is gone.

budgets_test.py --build DIR --program FILE [Budgets.test_NAME...]
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

MIB = 1 << 20
OUT_OF_MEMORY = "2"
ROUNDS = 40
TIMEOUT_S = 60
WAYS = ("alloc", "pitch", "async", "pool", "create", "mapped", "array", "array3d", "mipmap", "node",
        "captured", "small")
OPTIONS = argparse.Namespace()
LAYOUT = None


class Function(tubetest.ToldProgram):
    def __init__(self, test, proxy, memory=None, arm="preload"):
        env = tubetest.environment(LAYOUT, arm, "sim", proxy)
        if memory is not None:
            env["TUBE_MEMORY"] = str(memory)
        super().__init__(test, [OPTIONS.program], env, proxy)

    def take(self, way, mebibytes):
        return self.ask("take", way, mebibytes)

    def fill(self, way, mebibytes):
        """Takes until it fails: how often it did not, and the error."""
        count = 0
        while (code := self.take(way, mebibytes)) == "0":
            count += 1
        return count, code

    def info(self):
        """Free and total; what the device says is the same total."""
        free, total, device_total = map(int, self.ask("info").split())
        self.test.assertEqual(total, device_total)
        self.test.assertLessEqual(free, total)
        return free, total

    def memory(self, gpu=0):
        """What the proxy counts, behind all that was asked for here: frees are posted."""
        self.info()
        entry = self.proxy.function(self.pid)["memory"][gpu]
        return entry["held_bytes"], entry["limit_bytes"]


class Budgets(unittest.TestCase):

    def proxy(self, *arguments, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", arguments=arguments, **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def held(self, proxy, gpu=0):
        return proxy.status()["gpus"][gpu]["memory"]["held_bytes"]

    def wait_held(self, proxy, wanted):
        """Of the workflow, once it is so: a function's end takes a moment."""
        deadline = time.monotonic() + TIMEOUT_S
        while (held := self.held(proxy)) != wanted:
            self.assertLess(time.monotonic(), deadline, f"{held} held\n{proxy.log_tail()}")

    def limit(self, proxy, **request):
        answer = proxy.request("limit", **request)
        self.assertTrue(answer["ok"], answer)
        return answer

    def test_every_way_ends_at_the_limit(self):
        proxy = self.proxy()
        function, neighbour = Function(self, proxy, "64M"), Function(self, proxy)
        for way in WAYS:
            with self.subTest(way=way):
                count, code = function.fill(way, 12)
                self.assertEqual(code, OUT_OF_MEMORY)
                # A mipmapped array is larger by its levels.
                self.assertEqual(count, 4 if way == "mipmap" else 5)
                held, limit = function.memory()
                self.assertEqual(limit, 64 * MIB)
                self.assertLessEqual(held, limit)
                self.assertGreater(held, 40 * MIB)
                for other in WAYS:
                    self.assertEqual(function.take(other, 24), OUT_OF_MEMORY)
                self.assertEqual(neighbour.take(way, 96), "0")
                function.ask("drop_all")
                self.assertGreaterEqual(function.info()[0], 62 * MIB, "a slab waits for the next")
                self.assertEqual(function.take(way, 64 if way != "mipmap" else 32), "0")
                function.ask("drop")
        self.assertGreater(proxy.function(function.pid)["memory_refusals"], 2 * len(WAYS))
        neighbour.ask("drop_all")

    def test_free_and_total_agree_with_what_is_taken(self):
        proxy = self.proxy("--memory", "1G")
        for memory, total in (("256M", 256 * MIB), (None, None)):
            function = Function(self, proxy, memory)
            free, at_first = function.info()
            self.assertEqual(at_first, total or at_first)
            for way in WAYS:
                with self.subTest(way=way, memory=memory):
                    before, _ = function.info()
                    self.assertEqual(function.take(way, 32), "0")
                    after, now = function.info()
                    self.assertEqual(now, at_first, "total never changes")
                    more = 11 * MIB if way == "mipmap" else 0  # its levels
                    self.assertAlmostEqual(before - after, 32 * MIB + more, delta=MIB)
                    function.ask("drop")
                    self.assertAlmostEqual(function.info()[0], before, delta=2 * MIB)
            function.end()
            proxy.wait_empty()

    def test_killed_functions_give_everything_back(self):
        proxy = self.proxy("--memory", "256M")
        neighbour = Function(self, proxy, "32M")
        self.assertEqual(neighbour.take("alloc", 16), "0")
        random.seed(1)
        for seed in range(ROUNDS):
            function = Function(self, proxy, "128M")
            function.tell("churn", seed)
            for _ in range(random.randrange(60)):
                self.assertIn(function.hear(), ("0", OUT_OF_MEMORY))
            function.end()
            self.wait_held(proxy, 16 * MIB)
        self.assertEqual(neighbour.fill("alloc", 4), (4, OUT_OF_MEMORY))
        self.assertEqual(neighbour.ask("drop_all"), "0")
        neighbour.end()
        self.wait_held(proxy, 0)

    def test_mem_says_whose_memory_is_where_and_what_became_of_it(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        machine = pathlib.Path(folder.name) / "machine"
        machine.write_text(f"gpu * {4096 * MIB} {3500 * MIB},{3200 * MIB} 0\n")
        nvml = {
            "TUBE_REAL_NVML": str(LAYOUT.build / "sim/nvml/libnvidia-ml.so.1"),
            "TUBE_SIM_NVML": str(machine),
            "TUBE_LAZY_BACKING": "0"  # what is held is there
        }
        proxy = self.proxy("--memory", "512M", extra_env=nvml)
        function, neighbour = Function(self, proxy, "128M"), Function(self, proxy)
        self.assertEqual((function.ask("code"), neighbour.ask("code")), ("0", "0"))
        for mebibytes in (64, 32):
            self.assertEqual(function.take("alloc", mebibytes), "0")
        function.ask("drop")
        held, limit = function.memory()

        def look():
            answer = proxy.request("mem")
            one = next(f for f in answer["functions"] if f["pid"] == function.pid)
            return answer, answer["gpus"][0], one, one["gpus"][0]

        answer, gpu, whole, place = look()
        self.assertEqual(gpu["context_bytes"], 300 * MIB)
        self.assertEqual((place["held_bytes"], place["limit_bytes"]), (held, limit))
        self.assertEqual((place["backed_bytes"], place["evicted_bytes"]), (held, 0))
        self.assertEqual(place["pool_bytes"], 32 * MIB)
        self.assertGreaterEqual(whole["reserved_bytes"], 96 * MIB)
        other = next(f for f in answer["functions"] if f["pid"] == neighbour.pid)["gpus"][0]
        self.assertGreater(place["code_bytes"], 0)
        self.assertEqual(place["code_bytes"], other["code_bytes"], "one load, shared out")
        self.assertAlmostEqual(place["code_bytes"] + other["code_bytes"] + gpu["kept_code_bytes"],
                               gpu["code_bytes"], delta=1)
        self.assertEqual(answer["history"], [])

        self.assertEqual(function.take("alloc", 120), OUT_OF_MEMORY)
        answer, gpu, whole, place = look()
        self.assertEqual(place["pool_bytes"], 0)
        self.assertEqual([(e["what"], e["pid"], e["bytes"], e["why"]) for e in answer["history"]],
                         [("pool", function.pid, 32 * MIB, "its own limit was in the way"),
                          ("refused", function.pid, 120 * MIB, "its limit")])
        shown = self.tubectl(proxy, "mem")
        for word in ("CONTEXT", "300.0 MiB", "refused", "its own limit was in the way"):
            self.assertIn(word, shown)
        self.assertNotIn("refused", self.tubectl(proxy, "mem", "--last", "0"))
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        watch = subprocess.Popen([LAYOUT.tubectl, "mem", "-w", proxy.workflow, "--watch", "1", "--json"],
                                 env={k: v for k, v in env.items() if k != "LD_PRELOAD"}, text=True,
                                 stdout=subprocess.PIPE)
        lines = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.kill()
        watch.communicate()
        self.assertEqual([line["gpus"][0]["context_bytes"] for line in lines], [300 * MIB] * 2)

    def test_a_limit_is_lowered_and_raised(self):
        proxy = self.proxy()
        function = Function(self, proxy, "64M")
        self.assertEqual(function.fill("alloc", 16), (4, OUT_OF_MEMORY))
        answer = self.limit(proxy, pid=function.pid, memory_bytes=32 * MIB)
        self.assertEqual(answer["function"]["gpus"][0], {
            "gpu": 0,
            "held_bytes": 64 * MIB,
            "limit_bytes": 32 * MIB
        })
        self.assertEqual(function.info(), (0, 64 * MIB))
        for remaining in (48, 32):  # not yet below the limit
            function.ask("drop")
            self.assertEqual(function.memory()[0], remaining * MIB)
            self.assertEqual(function.take("create", 2), OUT_OF_MEMORY)
        function.ask("drop")
        self.assertEqual(function.info(), (16 * MIB, 64 * MIB))
        self.assertEqual(function.fill("create", 8), (2, OUT_OF_MEMORY))
        self.limit(proxy, pid=function.pid, memory_bytes=128 * MIB)
        self.assertEqual(function.info(), (32 * MIB, 64 * MIB), "free fits the total that it knows")
        self.assertEqual(function.fill("alloc", 16), (6, OUT_OF_MEMORY))
        self.limit(proxy, pid=function.pid, memory_bytes=None)
        self.assertEqual(function.memory()[1], None)
        self.assertEqual(function.take("alloc", 256), "0")
        self.assertEqual(function.info(), (0, 64 * MIB))
        for wrong in ({"memory_bytes": 0}, {"memory_bytes": -1}, {"memory_bytes": "4G"},
                      {"memory_bytes": MIB, "gpu": 1}, {"memory_bytes": MIB, "pid": 1},
                      {"memory_bytes": MIB, "pid": "x"}, {"memory_bytes": MIB, "pid": 0}, {"each_bytes": []}):
            self.assertFalse(proxy.request("limit", **wrong)["ok"], wrong)
        self.assertEqual(proxy.status()["memory"]["gpus"][0]["limit_bytes"], None)

    def test_limits_change_under_load(self):
        proxy = self.proxy("--memory", "512M")
        functions = [Function(self, proxy) for _ in range(2)]
        for seed, function in enumerate(functions):
            function.tell("churn", seed)
        for turn in range(60):
            function = functions[turn % 2]
            bytes_now = (None, 8, 64, 256)[turn % 4]
            self.limit(proxy, pid=function.pid, memory_bytes=bytes_now and bytes_now * MIB)
            self.limit(proxy, memory_bytes=(512, 16, 128)[turn % 3] * MIB)
            for one in functions:
                self.assertIn(one.hear(), ("0", OUT_OF_MEMORY))
        for function in functions:
            function.end()
        self.wait_held(proxy, 0)

    def test_two_functions_share_a_workflow(self):
        proxy = self.proxy("--memory", "96M", extra_env={"TUBE_EVICT_HOST": "0"})
        one, two = Function(self, proxy, "64M"), Function(self, proxy)
        total = two.info()[1]
        self.assertGreater(total, 96 * MIB, "the GPU's: it has no limit of its own")
        self.assertEqual(one.fill("alloc", 16), (4, OUT_OF_MEMORY))
        self.assertEqual(two.info(), (32 * MIB, total))
        for way in WAYS:
            self.assertEqual(two.take(way, 64), OUT_OF_MEMORY)
        self.assertEqual(two.fill("create", 16), (2, OUT_OF_MEMORY))
        one.ask("drop")
        self.assertEqual(one.info(), (16 * MIB, 64 * MIB))
        self.assertEqual(two.take("alloc", 16), "0")
        self.assertEqual(one.info(), (0, 64 * MIB), "its workflow has no more")
        self.assertEqual(one.take("alloc", 16), OUT_OF_MEMORY)
        self.limit(proxy, memory_bytes=128 * MIB)
        self.assertEqual(one.take("alloc", 16), "0")
        self.assertEqual(two.info(), (16 * MIB, total))
        self.limit(proxy, memory_bytes=32 * MIB)
        self.assertEqual((one.info()[0], two.info()), (0, (0, total)))
        one.end()
        self.wait_held(proxy, 48 * MIB)
        self.assertEqual(two.take("alloc", 2), OUT_OF_MEMORY)

    def test_a_wish_only_lowers(self):
        proxy = self.proxy("--function-memory", "32M")
        for wish, limit in (("64M", 32), ("16M", 16), ("none", 32), (None, 32), ("much", 32),
                            (f"{8 * MIB}", 8), ("0", 32), ("18446744073709551615", 32)):
            with self.subTest(wish=wish):
                function = Function(self, proxy, wish)
                self.assertEqual(function.info()[1], limit * MIB)
                self.assertEqual(function.memory()[1], limit * MIB)
                self.assertEqual(function.take("alloc", limit + 2), OUT_OF_MEMORY)
                self.assertEqual(function.take("alloc", limit), "0")
        function = Function(self, proxy)
        self.limit(proxy, each_bytes=64 * MIB)
        self.assertEqual(Function(self, proxy).info()[1], 64 * MIB)
        self.assertEqual(function.info()[1], 32 * MIB, "of functions to come")

    def test_limits_are_of_each_gpu(self):
        proxy = self.proxy("--memory", "96M,64M", gpus="0,1", extra_env={"TUBE_SIM_COUNT": "2"})
        function = Function(self, proxy, "48M")
        self.assertEqual(function.fill("alloc", 16), (3, OUT_OF_MEMORY))
        function.ask("gpu", 1)
        self.assertEqual(function.info(), (48 * MIB, 48 * MIB))
        for way in WAYS:
            self.assertEqual(function.take(way, 20), "0", way)
            self.assertEqual(function.take(way, 40), OUT_OF_MEMORY, way)
            self.assertGreaterEqual(function.memory(1)[0], 20 * MIB)
            function.ask("drop")
        self.assertEqual(function.fill("create", 16), (3, OUT_OF_MEMORY))
        other = Function(self, proxy)
        self.assertEqual(other.info()[0], 48 * MIB)
        self.limit(proxy, pid=function.pid, memory_bytes=64 * MIB, gpu=1)
        self.assertRegex(self.tubectl(proxy, "ps", "--wide"), r" 48.0 MiB +0: 48.0 MiB, 1: 64.0 MiB ")
        other.ask("gpu", 1)
        self.assertEqual(other.info()[0], 16 * MIB)
        self.limit(proxy, memory_bytes=48 * MIB, gpu=1)
        self.assertEqual(other.info()[0], 0)
        other.ask("gpu", 0)
        self.assertEqual(other.info()[0], 48 * MIB)

    def test_imports_are_their_makers(self):
        proxy = self.proxy()
        maker, opener = Function(self, proxy, "64M"), Function(self, proxy, "16M")
        self.assertEqual(maker.take("alloc", 32), "0")
        handle = maker.ask("offer")
        for _ in range(3):
            self.assertEqual(opener.ask("open", handle), "0")
        self.assertEqual((maker.memory()[0], opener.memory()[0]), (32 * MIB, 0))
        maker.ask("drop")
        self.assertEqual(maker.memory()[0], 32 * MIB, "it is still open")
        self.assertEqual(maker.take("alloc", 48), OUT_OF_MEMORY)
        opener.ask("drop_all")
        self.wait_held(proxy, 0)
        self.assertEqual(maker.take("create", 32), "0")
        self.assertEqual(maker.ask("export"), "0")
        self.assertEqual(maker.memory()[0], 32 * MIB)
        maker.ask("drop_all")
        self.wait_held(proxy, 0)
        self.assertEqual(maker.take("alloc", 32), "0")
        self.assertEqual(opener.ask("open", maker.ask("offer")), "0")
        maker.end()
        self.assertEqual(self.held(proxy), 32 * MIB)
        opener.end()
        self.wait_held(proxy, 0)

    def test_the_heap_of_kernels_counts(self):
        proxy = self.proxy()
        function = Function(self, proxy, "64M")
        self.assertEqual(function.ask("heap", 8), "0")
        self.assertEqual(function.memory()[0], 0, "every context has that")
        self.assertEqual(function.ask("heap", 128), OUT_OF_MEMORY)
        for mebibytes, held in ((24, 16), (12, 16), (40, 32)):
            self.assertEqual(function.ask("heap", mebibytes), "0")
            self.assertEqual(function.memory()[0], held * MIB)
        self.assertEqual(function.fill("alloc", 16), (2, OUT_OF_MEMORY))
        self.assertEqual(function.ask("heap", 48), OUT_OF_MEMORY)
        function.end()
        self.wait_held(proxy, 0)

    def test_without_limits_the_driver_decides(self):
        proxy = self.proxy(extra_env={"TUBE_SIM_MEMORY": str(256 * MIB)})
        function = Function(self, proxy)
        self.assertEqual(function.info()[1], 256 * MIB)
        self.assertEqual(function.memory()[1], None)
        count, code = function.fill("alloc", 32)
        self.assertEqual(code, OUT_OF_MEMORY)
        self.assertEqual(function.memory()[0], count * 32 * MIB)
        self.assertEqual(proxy.function(function.pid)["memory_refusals"], 0)
        self.limit(proxy, memory_bytes=1 << 40)
        self.assertEqual(function.info()[1], 256 * MIB, "the GPU's memory is less")
        self.assertEqual(Function(self, proxy, "1T").info()[1], 256 * MIB)

    def tubectl(self, proxy, *words, code=0):
        env = dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir), TUBE_WORKFLOW="test")
        done = subprocess.run([LAYOUT.tubectl, *map(str, words)], env=env, text=True,
                              capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_tubectl_says_and_sets_them(self):
        proxy = self.proxy("--memory", "1G")
        function = Function(self, proxy, "64M")
        function.take("alloc", 16)
        self.assertRegex(self.tubectl(proxy, "ps", "--wide"), r"HELD +LIMIT .*\n.* 16.0 MiB +64.0 MiB")
        self.assertRegex(self.tubectl(proxy, "status"), r"HELD +LIMIT .*\n.* 16.0 MiB +1.0 GiB")
        self.assertIn("16.0 MiB held of GPU 0, at most 64.0 MiB", self.tubectl(proxy, "stat"))
        self.tubectl(proxy, "limit", "--function", function.pid, "--memory", "32M")
        self.assertEqual(function.memory()[1], 32 * MIB)
        self.tubectl(proxy, "limit", "--memory", "none", "--each", "2G")
        shown = json.loads(self.tubectl(proxy, "limit", "--json"))["memory"]
        self.assertEqual((shown["gpus"][0]["limit_bytes"], shown["function_limit_bytes"]),
                         (None, 2 << 30))
        self.assertRegex(self.tubectl(proxy, "limit", "-f", function.pid), r"pid.* 32.0 MiB")
        self.assertIn("no function with process number 1 ",
                      self.tubectl(proxy, "limit", "-f", 1, "--memory", "1G", code=1))
        self.tubectl(proxy, "limit", "-f", 0, "--memory", "1G", code=1)
        for wrong in ("4 G", "4GB", "-1", "0", "1.5G", "G", "99999999999999999999", "16777216T", "",
                      "1G,2G"):
            for verb in (("limit", "--memory"), ("run", "--memory")):
                with self.subTest(wrong=wrong, verb=verb):
                    self.assertIn("tubectl: --memory", self.tubectl(proxy, *verb, wrong, code=2))
        self.assertIn("tubectl limit",
                      self.tubectl(proxy, "proxy", "start", "--memory", "3G", code=4))
        # A program that tubectl starts.
        env = dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir), TUBE_WORKFLOW="test")
        done = subprocess.run([LAYOUT.tubectl, "run", "--backend", "sim", "--memory", "48M", "--",
                               OPTIONS.program], env=env, text=True, input="info\n",
                              capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(done.stdout.split(), ["ready"] + 3 * [str(48 * MIB)], done.stderr)

    def started_anew(self, proxy):
        """The status of the proxy that replaced the first one, which ends connections."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                status = proxy.status()
                if status["totals"]["restarts"] != 0:
                    return status
            except (ConnectionError, ValueError):  # in the middle of its end
                pass
            self.assertLess(time.monotonic(), deadline, proxy.log_tail())

    def test_a_new_proxy_keeps_them(self):
        proxy = self.proxy("--memory", "1G", "--function-memory", "64M")
        function = Function(self, proxy)
        self.limit(proxy, memory_bytes=512 * MIB, each_bytes=48 * MIB)
        before = proxy.status()
        function.end()
        subprocess.run([OPTIONS.fault], env=tubetest.environment(LAYOUT, "preload", "sim", proxy),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S,
                       check=False)
        status = self.started_anew(proxy)
        self.assertEqual(status["memory"], before["memory"])
        self.assertEqual(Function(self, proxy).info()[1], 48 * MIB)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--fault", help="a program that ends the shared context")
    parser.add_argument("names", nargs="*")
    OPTIONS = parser.parse_args()
    LAYOUT = tubetest.Layout(OPTIONS.build)
    LAYOUT.require()
    unittest.main(argv=[sys.argv[0], *OPTIONS.names], verbosity=2)
