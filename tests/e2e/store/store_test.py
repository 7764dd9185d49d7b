"""The workflow's store: functions find each other's objects by name, at one address and without a
copy; streams wait for each other by it; a killed function leaves nothing behind; nobody ever reads
anything but what was put.

store_test.py --build DIR --program FILE [--backend driver] [--steps N] [StoreTest.test_NAME...]

On a real GPU (--backend driver) those that want a small one, two or no proxy do not hold.

--steps (or STORE_STEPS): of each random program. 250,000 are a million operations of the four of
test_random_programs_read_no_garbage, a quarter of an hour of two cores.
"""
import argparse
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

STEPS, TIMEOUT_S = 0, 120  # of random programs; 0: as many as are quick
NOT_FOUND = "2\n"
OPTIONS = argparse.Namespace()
LAYOUT = None


class StoreScenes(unittest.TestCase):
    """Proxies, and programs of store.cc."""

    def proxy(self, *arguments, memory="2G", workflow="test", folder=None, **env):
        gpus = env.pop("gpus", "0")
        proxy = tubetest.Proxy(LAYOUT, OPTIONS.backend, arguments=arguments, gpus=gpus, workflow=workflow,
                               folder=folder, extra_env={"TUBE_SIM_MEMORY": memory, **env})
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def start(self, proxy, *words, arm="preload", **settings):
        env = tubetest.environment(LAYOUT, arm, OPTIONS.backend, proxy)
        env.update(settings)
        program = subprocess.Popen([OPTIONS.program, *map(str, words)], env=env, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def end():
            program.kill()
            program.wait()
            program.stdin.close()
            program.stdout.close()

        self.addCleanup(end)
        return program

    def until_here(self, proxy, program):
        self.assertEqual(program.stdout.readline(), "here\n", proxy.log_tail())

    def started(self, proxy, *words, **settings):
        program = self.start(proxy, *words, **settings)
        self.until_here(proxy, program)
        return program

    def finish(self, proxy, program, status=0):
        out, _ = program.communicate(timeout=TIMEOUT_S)
        self.assertEqual(program.returncode, status, out + proxy.log_tail())
        return out

    def run_scene(self, proxy, *words, **settings):
        return self.finish(proxy, self.start(proxy, *words, **settings))

    def kill(self, program):
        program.kill()
        program.wait()

    def store(self, proxy):
        return proxy.request("store")

    def until(self, proxy, what, truth):
        """Waits for a state that must come by itself."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            store = self.store(proxy)
            if truth(store):
                return store
            self.assertLess(time.monotonic(), deadline,
                            f"{what}: {json.dumps(store)}\n{proxy.log_tail()}")

    def wait_empty(self, proxy):
        """Nothing of the store is left, and no GPU memory of anybody."""
        def empty(store):
            counts, status = store["counts"], proxy.status()
            return not any(counts[k] for k in ("objects", "deleted_held", "clients", "gpu_bytes",
                                               "host_bytes", "idle_bytes")) and \
                status["objects"]["blocks"] == 0 and status["objects"]["regions"] == 0 and \
                status["gpus"][0]["memory"]["held_bytes"] == 0
        self.until(proxy, "the store is not empty", empty)


class StoreTest(StoreScenes):
    def test_killed_clients_leave_nothing(self):
        """First of all: whoever dies, and whatever it held."""
        for place in ("gpu", "host"):
            proxy = self.proxy()
            # Reserved and not sealed: the name is free again, the bytes are back.
            maker = self.started(proxy, "reserve", "a", 5000, place)
            self.assertEqual(self.store(proxy)["objects"][0]["state"], "reserved")
            self.kill(maker)
            self.until(proxy, "a reserved object stays", lambda s: s["counts"]["objects"] == 0)
            # A sealed object outlives its maker; who holds a deleted one keeps its bytes.
            maker = self.started(proxy, "make", "a", 5000, 7, place)
            self.kill(maker)
            self.assertIn("equal", self.run_scene(proxy, "take", "a", 7, place))
            holders = [self.started(proxy, "hold", "a", place) for _ in range(3)]
            self.assertEqual(self.run_scene(proxy, "delete", "a"), "0\n")
            self.assertEqual(self.run_scene(proxy, "wait", "a", 0), NOT_FOUND)
            counts = self.store(proxy)["counts"]
            self.assertEqual((counts["objects"], counts["deleted_held"]), (1, 1))
            for n, holder in enumerate(holders):
                self.assertEqual(self.store(proxy)["counts"]["objects"], 1, n)
                self.kill(holder)
            self.wait_empty(proxy)
            # Killed anywhere, among others that go on.
            steady = self.start(proxy, "churn", 77, 1500)
            chance = random.Random(5)
            for seed in range(8):
                program = self.start(proxy, "endless", seed)
                for _ in range(1 + chance.randrange(3)):
                    self.until_here(proxy, program)
                self.kill(program)
            self.assertEqual(self.finish(proxy, steady), "equal\n")
            proxy.request("store")
            for name in "abcdefghijkl":
                self.run_scene(proxy, "delete", f"churn/{name}")
            self.wait_empty(proxy)

    def test_an_object_is_where_it_was_put(self):
        proxy = self.proxy()
        for kib in (1, 1024, 20000):
            maker = self.started(proxy, "make", f"x{kib}", kib, kib)
            takes = [self.run_scene(proxy, "take", f"x{kib}", kib, arm=arm)
                     for arm in ("preload", "library-path")]
            self.assertEqual(len(set(takes)), 1, takes)
            maker.stdin.close()
            maker.wait()
            self.assertEqual(self.run_scene(proxy, "take", f"x{kib}", kib), takes[0])
        blocks = proxy.status()["objects"]["blocks"]
        self.assertLessEqual(blocks, 3, "somebody copied")
        for kib in (1, 1024, 20000):
            self.run_scene(proxy, "delete", f"x{kib}")
        self.wait_empty(proxy)

    def test_streams_wait_for_each_other(self):
        for mode in ({}, {"TUBE_SIM_TIME": "virtual"}, {"TUBE_COPY_LANE": "always"}):
            proxy = self.proxy(**mode)
            self.assertEqual(self.run_scene(proxy, "chain", "c", 3000, 200), "equal\n")
            self.assertEqual(self.run_scene(proxy, "chain", "c", 4, 200), "equal\n")
            self.assertEqual(self.run_scene(proxy, "pace", 200), "equal\n")
            self.wait_empty(proxy)

    def test_what_was_put_outlives_an_orderly_end(self):
        for mode in ({}, {"TUBE_COPY_LANE": "always"}):
            proxy = self.proxy(**mode)
            for place in ("gpu", "host"):
                for n in range(5):
                    self.run_scene(proxy, "make", f"{place}{n}", 9000, n, place, 0, 0, "leave")
                    self.assertIn("equal", self.run_scene(proxy, "take", f"{place}{n}", n, place))
                    self.run_scene(proxy, "delete", f"{place}{n}")
            self.wait_empty(proxy)

    def test_host_functions_share_host_memory(self):
        proxy = self.proxy()
        maker = self.started(proxy, "make", "h", 3000, 9, "host")
        takes = {self.run_scene(proxy, "take", "h", 9, "host", arm=arm)
                 for arm in ("preload", "library-path")}
        self.assertEqual(len(takes), 1, takes)
        # A GPU function gets it in GPU memory, and the other way round; the copy is made once.
        self.assertEqual(len({self.run_scene(proxy, "take", "h", 9) for _ in range(3)}), 1)
        self.assertEqual(self.store(proxy)["counts"]["gpu_bytes"], 4 << 20)
        gpu = self.started(proxy, "make", "g", 5000, 4)
        self.assertEqual(len({self.run_scene(proxy, "take", "g", 4, "host") for _ in range(3)}), 1)
        self.kill(maker)
        self.kill(gpu)
        self.run_scene(proxy, "delete", "h")
        self.run_scene(proxy, "delete", "g")
        self.wait_empty(proxy)

    def test_objects_end_when_they_are_told_to(self):
        proxy = self.proxy()
        self.kill(self.started(proxy, "make", "two", 3000, 1, "gpu", 2))
        for left in (2, 1):
            self.assertEqual(self.store(proxy)["counts"]["objects"], 1, left)
            self.run_scene(proxy, "take", "two", 1)
        self.until(proxy, "consumed objects stay", lambda s: s["counts"]["objects"] == 0)
        self.assertEqual(self.store(proxy)["counts"]["consumed"], 1)
        # A time that is over: nobody gets it, and the next one to make something takes it away.
        self.kill(self.started(proxy, "make", "short", 3000, 1, "gpu", 0, 1))
        self.until(proxy, "time passes", lambda s: not s["objects"] or
                   s["objects"][0]["age_ns"] > 2_000_000)
        self.assertEqual(self.run_scene(proxy, "wait", "short", 0), NOT_FOUND)
        self.kill(self.started(proxy, "make", "other", 1, 1))
        self.until(proxy, "an object stays for ever", lambda s: s["counts"]["objects"] == 1)
        self.assertEqual(self.store(proxy)["counts"]["expired"], 1)
        self.run_scene(proxy, "delete", "other")
        self.wait_empty(proxy)

    def test_waiters_are_woken(self):
        proxy = self.proxy()
        waiters = [self.start(proxy, "take", "later", 3, place) for place in ("host", "host")]
        self.until(proxy, "two clients", lambda s: s["counts"]["clients"] == 2)
        maker = self.started(proxy, "make", "later", 100, 3, "host")
        for waiter in waiters:
            self.assertIn("equal", self.finish(proxy, waiter))
        # One that is killed while it waits is no burden for those that make objects.
        waiter = self.start(proxy, "take", "never", 3, "host")
        self.until(proxy, "a client more", lambda s: s["counts"]["clients"] == 2)
        self.kill(waiter)
        self.assertEqual(self.run_scene(proxy, "wait", "never", 1), NOT_FOUND)
        self.kill(maker)
        self.run_scene(proxy, "delete", "later")
        self.wait_empty(proxy)

    def test_random_programs_read_no_garbage(self):
        for mode in ({}, {"TUBE_COPY_LANE": "always"}):
            proxy = self.proxy(memory="256M", **mode)
            programs = [self.start(proxy, "churn", seed, STEPS or 2500) for seed in range(4)]
            for program in programs:
                self.assertEqual(self.finish(proxy, program), "equal\n")
            counts = self.store(proxy)["counts"]
            self.assertGreater(counts["claimed"], 500, counts)
            for name in "abcdefghijkl":
                self.run_scene(proxy, "delete", f"churn/{name}")
            self.wait_empty(proxy)

    def test_every_name_is_new(self):
        proxy = self.proxy()
        names = "".join(self.run_scene(proxy, "ids", 100) for _ in range(3)).split()
        self.assertEqual(len(set(names)), 300)
        self.wait_empty(proxy)

    def test_who_scribbles_over_its_pins_harms_nobody(self):
        """It can keep deleted objects, until it ends; the index it can only read."""
        proxy = self.proxy(memory="256M")
        vandal = self.start(proxy, "vandal", 3)
        self.assertEqual(vandal.stdout.readline(), "sealed\n")
        programs = [self.start(proxy, "churn", seed, 800) for seed in range(2)]
        for program in programs:
            self.assertEqual(self.finish(proxy, program), "equal\n")
        for name in "abcdefghijkl":
            self.run_scene(proxy, "delete", f"churn/{name}")
        self.until(proxy, "the vandal alone", lambda s: s["counts"]["clients"] == 1)
        self.kill(vandal)
        self.wait_empty(proxy)

    def test_tubectl_shows_it(self):
        proxy = self.proxy()
        maker = self.started(proxy, "make", "seen", 100, 1, "gpu", 3)
        done = subprocess.run([LAYOUT.tubectl, "store", "-w", proxy.workflow], text=True,
                              capture_output=True, timeout=TIMEOUT_S,
                              env=dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"seen +- +100.0 KiB +gpu 0 +sealed +0 +0/3")
        for name, status, bytes_ in (("seen", 0, b"\1\0\0\0" * (25 << 10)), ("nothing", 1, b"")):
            done = subprocess.run([LAYOUT.tubectl, "store", "-w", proxy.workflow, "--get", name],
                                  capture_output=True, timeout=TIMEOUT_S,
                                  env=dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir)))
            self.assertEqual((done.returncode, done.stdout), (status, bytes_), done.stderr)
        self.kill(maker)
        self.run_scene(proxy, "delete", "seen")

    def test_limits_hold(self):
        proxy = self.proxy("--memory", "64M", memory="256M")
        # The function's own limit, then the workflow's.
        failed = self.start(proxy, "make", "large", 40 << 10, 1, TUBE_MEMORY="32M")
        self.finish(proxy, failed, status=1)
        self.kill(self.started(proxy, "make", "large", 40 << 10, 1))
        holder = self.started(proxy, "hold", "large")
        failed = self.start(proxy, "make", "more", 40 << 10, 1)
        self.finish(proxy, failed, status=1)
        self.kill(holder)
        self.run_scene(proxy, "delete", "large")
        # What the store keeps idle is in nobody's way.
        keeper = self.started(proxy, "make", "small", 1, 1)
        self.kill(self.started(proxy, "make", "again", 50 << 10, 1))
        self.kill(keeper)
        self.run_scene(proxy, "delete", "again")
        self.run_scene(proxy, "delete", "small")
        self.wait_empty(proxy)

    def places(self, proxy):
        """{name: place} of all objects; "copied" behind it where there is a copy on a GPU."""
        return {each["name"]: each["place"] + (" copied" if any(d >= 0 for d in each["copies"])
                                                else "")
                for each in self.store(proxy)["objects"]}

    def test_objects_leave_when_memory_is_short(self):
        for mode in ({}, {"TUBE_COPY_LANE": "never"}, {"TUBE_STORE_POLICY": "lru"}):
            proxy = self.proxy(memory="256M", **mode)
            names = [f"o{n}" for n in range(5)]
            for n, name in enumerate(names):
                self.kill(self.started(proxy, "make", name, 40 << 10, n))
            # What somebody holds never moves, whatever the others ask for.
            holders = [self.started(proxy, "hold", name) for name in names]
            self.assertEqual(self.alloc(proxy, 120), 2)
            self.assertEqual(set(self.places(proxy).values()), {"gpu 0"})
            for holder in holders:
                self.kill(holder)
            self.until(proxy, "holders", lambda s: not any(o["holders"] for o in s["objects"]))
            self.assertEqual(self.alloc(proxy, 120), 0)
            counts = self.store(proxy)["counts"]
            self.assertGreaterEqual(counts["left"], 2, counts)
            self.assertGreater(counts["host_bytes"], 60 << 20)
            for n, name in enumerate(names):
                self.assertIn("equal", self.run_scene(proxy, "take", name, n))
                self.run_scene(proxy, "delete", name)
            self.wait_empty(proxy)

    def alloc(self, proxy, mib):
        """What cuMemAlloc answers; the memory is free again."""
        program = self.start(proxy, "alloc", mib)
        answer = int(program.stdout.readline())
        self.until_here(proxy, program)
        self.kill(program)
        self.until(proxy, "freed", lambda _: all(
            f["state"] == "dead" for f in proxy.status()["functions"] if f["pid"] == program.pid))
        return answer

    def test_the_last_in_the_queue_leaves_and_comes_back_before_its_turn(self):
        order = {"queue": {"a", "b"}, "lru": {"c", "d"}}
        for policy, stay in order.items():
            proxy = self.proxy(memory="1G", TUBE_STORE_GPU="100M", TUBE_STORE_POLICY=policy)
            keeper = self.started(proxy, "make", "keeper", 1, 1, "host")
            self.assertEqual(self.run_scene(proxy, "queue", *"abcd"), "0\n")
            for n, name in enumerate("abcd"):
                self.kill(self.started(proxy, "make", name, 40 << 10, n))
                # What a client holds does not leave, also while its session ends.
                self.until(proxy, "its session stays", lambda s: s["counts"]["clients"] == 1)
            on_gpu = {name for name, place in self.places(proxy).items() if "gpu" in place}
            # The newest needs its place when it is made: the others go for it.
            self.assertEqual(on_gpu, {"a", "d"} if policy == "queue" else stay)
            for n, name in enumerate("abcd"):
                self.assertIn("equal", self.run_scene(proxy, "take", name, n))
                self.run_scene(proxy, "delete", name)
                if policy == "queue" and name == "a":
                    self.until(proxy, "b does not come back",
                               lambda s: any(o["name"] == "b" and 0 in o["copies"]
                                             for o in s["objects"]))
            counts = self.store(proxy)["counts"]
            self.assertEqual(counts["returned"] > 0, policy == "queue", counts)
            self.kill(keeper)
            self.run_scene(proxy, "delete", "keeper")
            self.wait_empty(proxy)

    def test_under_pressure_nobody_reads_garbage(self):
        for mode in ({}, {"TUBE_COPY_LANE": "always", "TUBE_STORE_POLICY": "lru"}):
            proxy = self.proxy(memory="64M", TUBE_STORE_GPU="6M", **mode)
            programs = [self.start(proxy, "press", seed, STEPS or 250, 12) for seed in range(3)]
            victim = self.start(proxy, "endless", 9)
            self.until_here(proxy, victim)
            self.kill(victim)
            for program in programs:
                self.assertEqual(self.finish(proxy, program), "equal\n")
            counts = self.store(proxy)["counts"]
            self.assertGreater(counts["left"], 0, counts)
            for name in "abcdefghijkl":
                self.run_scene(proxy, "delete", f"churn/{name}")
            self.wait_empty(proxy)

    def test_another_gpu_gets_its_own(self):
        proxy = self.proxy(gpus="0,1", TUBE_SIM_COUNT="2", memory="256M")
        self.kill(self.started(proxy, "make", "x", 20 << 10, 5))
        here = self.run_scene(proxy, "take", "x", 5)
        there = {self.run_scene(proxy, "take", "x", 5, CUDA_VISIBLE_DEVICES="1") for _ in range(2)}
        self.assertEqual(len(there), 1)
        self.assertNotIn(here, there)
        self.assertEqual(self.store(proxy)["objects"][0]["copies"], [1])
        self.assertEqual(self.store(proxy)["counts"]["fetched"], 1)
        self.assertIn("equal", self.run_scene(proxy, "take", "x", 5, "host"))
        self.assertEqual(self.run_scene(proxy, "take", "x", 5), here)
        # Short of memory the first GPU drops what the second has.
        self.kill(self.started(proxy, "make", "y", 200 << 10, 6))
        self.assertEqual(self.alloc(proxy, 60), 0)
        self.assertEqual({each["name"]: each["place"] for each in self.store(proxy)["objects"]}["x"],
                         "gpu 1")
        for name, value in (("x", 5), ("y", 6)):
            for env in ({}, {"CUDA_VISIBLE_DEVICES": "1"}):
                self.assertIn("equal", self.run_scene(proxy, "take", name, value, **env))
            self.run_scene(proxy, "delete", name)
        self.wait_empty(proxy)

    def test_a_native_program_reads_an_object_by_its_descriptor(self):
        proxy = self.proxy()
        libraries = os.environ["LD_LIBRARY_PATH"] if OPTIONS.backend == "driver" else LAYOUT.sim
        for place in ("gpu", "host"):
            for kib in (1, 1024, 20000):
                self.kill(self.started(proxy, "make", "x", kib, 1000 + kib, place))
                for where in ("gpu", "host"):  # the object, and its copy
                    self.assertEqual(self.run_scene(proxy, "export", "x", 1000 + kib, libraries,
                                                    where), "equal\n", (place, where, kib))
                self.run_scene(proxy, "delete", "x")
        self.wait_empty(proxy)

    def test_who_writes_to_a_sealed_object_is_found(self):
        proxy = self.proxy("--verify-shared")
        for place in ("gpu", "host"):
            before = self.store(proxy)["counts"]["changed"]
            self.kill(self.started(proxy, "make", "x", 300, 7, place))
            # Readers change nothing.
            holders = [self.started(proxy, "hold", "x", place, TUBE_FUNCTION=f"reader{i}")
                       for i in range(2)]
            self.assertIn("equal", self.run_scene(proxy, "take", "x", 7, place))
            for holder in holders:
                self.kill(holder)
            self.until(proxy, "holders", lambda s: s["counts"]["clients"] == 0)
            self.assertEqual(self.store(proxy)["counts"]["changed"], before)
            culprit = self.start(proxy, "scribble", "x", place, TUBE_FUNCTION="culprit")
            self.assertEqual(self.finish(proxy, culprit), "done\n")
            seen = self.until(proxy, "nobody notices", lambda s: s["counts"]["changed"] > before)
            found = seen["objects"][0]["changed_by"]
            self.assertIn(f"culprit (pid {culprit.pid})", found)
            self.assertIn("object 'x' of the store was written to behind its seal",
                          proxy.log_path.read_text())
            self.run_scene(proxy, "take", "x", 0x5c5c5c5c, place)
            self.run_scene(proxy, "delete", "x")
        self.wait_empty(proxy)

    def test_who_writes_behind_its_release_is_found(self):
        proxy = self.proxy("--verify-shared")
        self.kill(self.started(proxy, "make", "x", 300, 7))
        culprit = self.started(proxy, "scribble_later", "x", TUBE_FUNCTION="culprit")
        # Each is to be had when it was looked at: by the second, so was 'x', and nothing was wrong.
        for other in ("y", "z"):
            self.kill(self.started(proxy, "make", other, 1, 8))
            self.assertIn("equal", self.run_scene(proxy, "take", other, 8))
        self.assertEqual(self.store(proxy)["counts"]["changed"], 0)
        self.assertEqual(self.finish(proxy, culprit), "done\n")
        self.until(proxy, "nobody notices", lambda s: s["counts"]["changed"] != 0)
        found = {each["name"]: each.get("changed_by") for each in self.store(proxy)["objects"]}
        self.assertIn(f"culprit (pid {culprit.pid})", found["x"])

    def test_all_else_is_the_same_when_it_is_verified(self):
        proxy = self.proxy("--verify-shared", memory="256M", TUBE_STORE_GPU="20M")
        programs = [self.start(proxy, "press", seed, 120, 12) for seed in range(2)]
        for program in programs:
            self.assertEqual(self.finish(proxy, program), "equal\n")
        self.assertEqual(self.run_scene(proxy, "pace", 20), "equal\n")
        self.assertEqual(self.store(proxy)["counts"]["changed"], 0, proxy.log_tail())
        for name in "abcdefghijkl":
            self.run_scene(proxy, "delete", f"churn/{name}")
        self.wait_empty(proxy)

    def test_without_a_proxy_it_is_the_process_own(self):
        env = tubetest.base_environment()
        env.update(LAYOUT.preload())
        env["LD_LIBRARY_PATH"] = str(LAYOUT.sim)  # for the loader: nothing of CUDA is called
        run = subprocess.run([OPTIONS.program, "wait", "nothing", "1"], env=env, text=True,
                             capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual((run.returncode, run.stdout), (0, NOT_FOUND), run.stderr)
        run = subprocess.run([OPTIONS.program, "make", "x", "1", "1", "host"], env=env, text=True,
                             capture_output=True, timeout=TIMEOUT_S, input="")
        self.assertEqual((run.returncode, run.stdout), (0, "here\n"), run.stderr)
        run = subprocess.run([OPTIONS.program, "make", "x", "1", "1"], env=env, text=True,
                             capture_output=True, timeout=TIMEOUT_S, input="")
        self.assertEqual(run.returncode, 1)
        self.assertIn("there is no proxy", run.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--backend", choices=("sim", "driver"), default="sim")
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STORE_STEPS", "0")))
    parsed, rest = parser.parse_known_args()
    # A file that is run and imported is two modules: both say it.
    for module in {sys.modules["__main__"], sys.modules[__name__],
                   sys.modules.get("store_test", sys.modules[__name__])}:
        module.OPTIONS, module.LAYOUT = parsed, tubetest.Layout(parsed.build)
        if parsed.steps != 0:
            module.STEPS, module.TIMEOUT_S = parsed.steps, max(3000, parsed.steps // 20)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
