"""`tubectl profile` and `--memory-mode lazy`: memory behind an allocation when its address reaches
the GPU, for functions that were seen not to need it otherwise.

Each way of a pointer is found before the work begins, or the profile says which kernel missed what.

profile_test.py --build DIR --program FILE [Profile.test_NAME...]
"""
import argparse
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
# By these ways an address is found, in the record or in what it uploads ...
FOUND = ("direct", "in_struct", "in_array", "in_table", "in_pinned_table", "constant", "copied",
         "filled", "texture", "written")
# ... and by these it is not: what the program does, the kernel that then reaches nothing, and how
# large the block is.
MISSED = {
    "encoded": (("take 4", "encoded"), "encoded", 4),
    "computed": (("take 4", "computed"), "computed", 4),
    "in_pinned": (("take 4", "in_pinned"), "in_array", 4),
    "in_pinned of an instance": (("take 4", "graph"), "a kernel of a graph", 4),
    "polls": (("polls", ), "polls", 4)
}
OPTIONS = argparse.Namespace()
LAYOUT = None


class Function(tubetest.ToldProgram):
    """In mode lazy."""

    def __init__(self, test, proxy, name):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy, function=name)
        env["TUBE_MEMORY_MODE"] = "lazy"
        super().__init__(test, [OPTIONS.program], env, proxy)

    def status(self):
        return next(f for f in self.proxy.request("mem")["functions"] if f["pid"] == self.pid)

    def memory(self):
        return self.status()["gpus"][0]

    def by_address(self):
        return self.status()["lazy"]["by_address"]


class Profile(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tube-profile-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = self.folder / "cache"
        os.mkdir(self.folder / "run", 0o700)

    def command(self, name, memory):
        env = tubetest.base_environment()
        env.update(LAYOUT.preload(), TUBE_DIR=str(self.folder / "run"), TUBE_CACHE=str(self.cache),
                   TUBE_SIM_MEMORY=memory, TUBE_SIM_LIB=str(LAYOUT.sim / "libcuda.so.1"),
                   TUBE_TUBED=str(LAYOUT.tubed), TUBE_HOOK_LIB=str(LAYOUT.hook / "libcuda.so.1"))
        words = ["profile", "--backend", "sim", "--json", "-f", name, "--", OPTIONS.program]
        return [str(LAYOUT.tubectl), *words], env

    def left_nothing(self):
        left = set(os.listdir(self.folder / "run")) - {"links"}  # of all proxies of the user
        self.assertEqual(left, set())

    def profile(self, name, *lines, memory="256M"):
        command, env = self.command(name, memory)
        done = subprocess.run(command, env=env, text=True,
                              input="".join(line + "\n" for line in lines), capture_output=True,
                              check=False)
        self.assertIn("{\n", done.stdout, done.stderr)
        self.left_nothing()
        answer = json.loads(done.stdout[done.stdout.index("{\n"):])
        self.assertEqual(done.returncode, 0 if answer["ok"] else 1, done.stderr)
        return answer

    def certified(self, name, *lines, **more):
        answer = self.profile(name, *lines, **more)
        self.assertTrue(answer["ok"], answer)
        return answer["functions"][0]

    def refused(self, name, *lines, **more):
        answer = self.profile(name, *lines, **more)
        self.assertFalse(answer["ok"], answer)
        return answer["functions"][0]

    def proxy(self, memory="256M", **env):
        settings = {"TUBE_SIM_MEMORY": memory, "TUBE_EVICT_HOST": "1G",
                    "TUBE_MEMORY_WAIT_MS": "60000", "TUBE_CACHE": str(self.cache)}
        settings.update(env)
        proxy = tubetest.Proxy(LAYOUT, "sim", extra_env=settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def test_ways_that_are_found(self):
        for way in FOUND:
            with self.subTest(way=way):
                # A second block, which nothing names: it must not be backed by the way's work.
                found = self.certified(way, "take 8", "take 4", way)
                self.assertEqual(found["untouched_bytes"], 8 * MIB)

    def test_ways_that_are_not_found_are_refused_by_name(self):
        for way, (lines, kernel, mebibytes) in MISSED.items():
            with self.subTest(way=way):
                refused = self.refused("missed", *lines)
                self.assertIn(kernel, refused["why"])
                missed = refused["fault"]["missed"]
                self.assertEqual(len(missed), 1, refused)
                self.assertEqual(missed[0]["address"], missed[0]["allocation"])
                self.assertEqual(missed[0]["bytes"], mebibytes * MIB)
                self.assertFalse(self.cache.exists(), "no certificate")
                # Where nothing else uses the GPU, by whatever way: without the mode it is right.
                function = Function(self, self.proxy(), "missed")
                for line in lines:
                    self.assertIn(function.ask(*line.split()), ("0", "right"))

    def test_a_miss_ends_an_earlier_certificate(self):
        path = pathlib.Path(self.certified("other input", "take 4", "direct")["certificate"])
        self.profile("other input", "nonsense")
        self.assertTrue(path.exists(), "that says nothing")
        self.refused("other input", "take 4", "encoded")
        self.assertFalse(path.exists())

    def test_tubectl_run_asks_for_it(self):
        self.certified("run", "take 8", "take 4", "direct")
        proxy = self.proxy()
        env = dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir))
        command = [
            LAYOUT.tubectl, "run", "-w", proxy.workflow, "--no-start", "-f", "run", "--memory-mode",
            "lazy", "--", OPTIONS.program
        ]
        with subprocess.Popen(command, env=env, text=True, bufsize=1, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as program:
            self.addCleanup(program.kill)
            self.assertEqual(program.stdout.readline(), "ready\n")
            for line, answer in (("take 8", "0"), ("take 4", "0"), ("direct", "right")):
                print(line, file=program.stdin, flush=True)
                self.assertEqual(program.stdout.readline().strip(), answer)
            memory = proxy.request("mem")["functions"][0]
            self.assertTrue(memory["lazy"]["by_address"])
            self.assertEqual(memory["gpus"][0]["promised_bytes"], 8 * MIB)
            program.stdin.close()
            self.assertEqual(program.wait(), 0)

    def test_who_ends_the_command_ends_the_program_and_its_proxy(self):
        command, env = self.command("endless", "256M")
        with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as profile:
            self.addCleanup(profile.kill)
            self.assertEqual(profile.stdout.readline(), "ready\n")
            profile.terminate()
            answer = json.loads(profile.stdout.read())
        self.assertIn("SIGTERM", answer["functions"][0]["why"])
        self.assertEqual(answer["exit_status"], 128 + signal.SIGTERM)
        self.left_nothing()

    def test_who_ends_the_command_before_its_program_starts_ends_it(self):
        command, env = self.command("never", "256M")
        with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as profile:
            self.addCleanup(profile.kill)
            while not os.listdir(self.folder / "run"):
                os.sched_yield()
            profile.terminate()
            answer = json.loads(profile.stdout.read())
        self.assertEqual((answer["exit_status"], answer["functions"]), (128 + signal.SIGTERM, []))
        self.left_nothing()

    def test_a_killed_command_leaves_the_program_and_then_nothing(self):
        command, env = self.command("orphan", "256M")
        with subprocess.Popen(command, env=env, text=True, bufsize=1, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as profile:
            self.assertEqual(profile.stdout.readline(), "ready\n")
            profile.kill()
            profile.wait()
            for line, answer in (("take 8", "0"), ("take 4", "0"), ("direct", "right")):
                print(line, file=profile.stdin, flush=True)
                self.assertEqual(profile.stdout.readline().strip(), answer)
            profile.stdin.close()
            self.assertEqual(profile.stdout.read(), "")
        deadline = time.monotonic() + 60
        while set(os.listdir(self.folder / "run")) - {"links"} and time.monotonic() < deadline:
            select.select([], [], [], 0.01)
        self.left_nothing()

    def test_a_program_that_fails_is_not_certified(self):
        answer = self.profile("fails", "nonsense")
        self.assertFalse(answer["ok"])
        self.assertEqual(answer["exit_status"], 1)
        self.assertFalse(self.cache.exists())

    def test_a_certified_function_holds_what_it_touches(self):
        self.certified("twenty", "touch 20 1", memory="32G")
        proxy = self.proxy(memory="32G")
        function = Function(self, proxy, "twenty")
        self.assertEqual(function.ask("touch", 20, 1), "0")
        memory = function.memory()
        self.assertTrue(function.by_address())
        self.assertLessEqual(memory["backed_bytes"] + memory["pool_bytes"], 1.05 * GIB)
        self.assertEqual(memory["promised_bytes"], 19 * GIB)
        function.kill()
        proxy.wait_holds_nothing()

    def test_without_a_certificate_everything_is_backed(self):
        proxy = self.proxy()
        function = Function(self, proxy, "nobody")
        self.assertEqual(function.ask("take", 8), "0")
        self.assertEqual(function.ask("take", 4), "0")
        self.assertEqual(function.ask("direct"), "right")
        self.assertFalse(function.by_address())
        self.assertEqual(function.memory()["promised_bytes"], 0)
        self.assertEqual(proxy.log_path.read_text().count("there is no certificate"), 1)

    def departs(self, name, *asked):
        proxy = self.proxy()
        function = Function(self, proxy, name)
        self.assertEqual(function.ask("take", 8), "0")
        self.assertTrue(function.by_address())
        for words in asked:
            function.ask(*words)
        self.assertFalse(function.by_address())
        self.assertEqual(function.status()["lazy"]["departures"], 1)
        self.assertEqual(function.ask("encoded"), "right", "which the profile never saw")
        self.assertEqual(function.memory()["promised_bytes"], 0)
        self.assertEqual(proxy.log_path.read_text().count("backed from now on"), 1)

    def test_another_allocation_is_another_function(self):
        self.certified("sizes", "take 8", "take 4", "direct")
        self.departs("sizes", ("take", 6))

    def test_more_allocations_are_another_function(self):
        self.certified("more", "take 8", "direct")
        self.departs("more", ("take", 8))

    def test_an_unknown_image_is_another_function(self):
        self.certified("images", "take 8", "take 4", "direct")
        self.departs("images", ("take", 4), ("load", ))

    def test_an_address_that_the_function_had_before_is_backed_with_the_next_work(self):
        """Something on the GPU may still name it."""
        lines = ("take 8", "take 4", "direct", "drop", "take 4", "filled")
        self.certified("again", *lines)
        function = Function(self, self.proxy(TUBE_POOL="0"), "again")
        for line in lines[:4]:
            self.assertIn(function.ask(*line.split()), ("0", "right", "freed"))
        self.assertEqual(function.ask("take", 4), "0")
        self.assertEqual(function.memory()["promised_bytes"], 12 * MIB)
        self.assertEqual(function.ask("filled"), "right")
        self.assertEqual(function.memory()["promised_bytes"], 8 * MIB)

    def test_files_that_are_no_certificates(self):
        path = pathlib.Path(self.certified("file", "take 8", "direct")["certificate"])
        good = path.read_text()
        body = json.loads(good)
        bad = {
            "empty": "",
            "cut": good[:len(good) // 2],
            "version": json.dumps(dict(body, tube_certificate=2)),
            "rules": json.dumps(dict(body, rules=99)),
            "name": json.dumps(dict(body, function="other")),
            "gpu": json.dumps(dict(body, gpu="another GPU")),
            "sizes": json.dumps(dict(body, allocations=[-1, "x", {}])),
            "images": json.dumps(dict(body, images=["00", 7, "g" * 32])),
            "many": json.dumps(dict(body, allocations=[1] * 70000)),
            "large": good + " " * (5 << 20),
            "deep": "[" * 100000,
        }
        proxy = self.proxy()
        for what, text in bad.items():
            with self.subTest(what=what):
                path.write_text(text)
                function = Function(self, proxy, "file")
                self.assertEqual(function.ask("take", 8), "0")
                self.assertFalse(function.by_address())
                function.kill()
        path.write_text(good)
        path.chmod(0o666)
        self.assertFalse(self.lazy("file", proxy))
        path.chmod(0o600)
        self.assertTrue(self.lazy("file", proxy))
        path.rename(path.with_suffix(".moved"))
        path.symlink_to(path.with_suffix(".moved"))
        self.assertFalse(self.lazy("file", proxy))

    def lazy(self, name, proxy):
        function = Function(self, proxy, name)
        self.assertEqual(function.ask("take", 8), "0")
        by_address = function.by_address()
        function.kill()
        return by_address

    def test_what_nothing_names_gives_way_and_comes_back_as_a_promise(self):
        lines = ("take 160", "take 4", "direct")
        self.certified("wide", *lines)
        proxy = self.proxy()
        one, two = (Function(self, proxy, "wide") for _ in range(2))
        for function in (one, two):
            for line in lines:
                self.assertIn(function.ask(*line.split()), ("0", "right"), proxy.log_tail())
        self.assertEqual(one.memory()["evicted_bytes"], 160 * MIB)
        for function, other in ((one, two), (two, one)):
            self.assertEqual(function.ask("filled"), "right", proxy.log_tail())
            self.assertEqual(function.memory()["promised_bytes"], 160 * MIB)
            self.assertEqual(other.memory()["evicted_bytes"], 160 * MIB)
        self.assertEqual(proxy.status()["evicted"]["used_bytes"], 0, "nothing is copied")
        for function in (one, two):
            function.kill()
        proxy.wait_holds_nothing()

    def test_what_the_pool_has_learnt_is_kept(self):
        kept = None
        wrong = json.dumps({"tube_pool": 1, "sizes": [{"gpu": -1}]})
        for found in (None, "as it was", "", "[" * 1000, wrong):
            if found not in (None, "as it was"):
                kept.write_text(found)
            proxy = self.proxy(TUBE_POOL_POLICY="demand")
            function = Function(self, proxy, "learns")
            for _ in range(5):
                self.assertEqual(function.ask("take", 8), "0")
                self.assertEqual(function.ask("filled"), "right")
                self.assertEqual(function.ask("drop"), "freed")
            function.kill()
            proxy.wait_holds_nothing()
            kept, = (self.cache / "pool").iterdir()
            sizes = json.loads(kept.read_text())["sizes"]
            self.assertIn(8 * MIB, [size["bytes"] for size in sizes])
            self.assertEqual(kept.name in proxy.log_path.read_text(),
                             found not in (None, "as it was"))

    def test_random_programs_keep_their_bytes(self):
        for seed in range(3):
            self.certified(f"churn{seed}", f"churn {seed} 300")
        proxy = self.proxy(memory="128M")
        programs = [Function(self, proxy, f"churn{seed}") for seed in range(3)]
        for seed, program in enumerate(programs):
            program.tell("churn", seed, 300)
        for program in programs:
            self.assertEqual(program.hear(), "equal", proxy.log_tail())
            program.kill()
        proxy.wait_holds_nothing()

    def test_functions_killed_at_any_point_leave_nothing(self):
        self.certified("endless", "churn 1 300")
        proxy = self.proxy(memory="128M")
        for times in (1, 2, 3):
            program = Function(self, proxy, "endless")
            program.tell("endless", 1)
            for _ in range(times):
                self.assertEqual(program.hear(), "here", proxy.log_tail())
            program.kill()
        proxy.wait_holds_nothing()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    OPTIONS, rest = parser.parse_known_args()
    LAYOUT = tubetest.Layout(OPTIONS.build)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
