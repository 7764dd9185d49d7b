"""GPU memory that moves to the host while its function waits: functions that together hold more
than the GPU take turns and find their bytes, whoever is killed at whatever point.

evict_test.py --build DIR --program FILE [Evict.test_NAME...]

EVICT_ALL=1: all cases and more steps.
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tubetest  # noqa: E402

MIB = 1 << 20
PART = 64 * MIB  # policies/memory/eviction.h
KIB_OF_MIB = 1024
OUT_OF_MEMORY = "2"
TIMEOUT_S = 120
ALL = os.environ.get("EVICT_ALL")  # cases and steps: the deep part's
OPTIONS = argparse.Namespace()
LAYOUT = None


class Function(tubetest.ToldProgram):
    def __init__(self, test, proxy, must_come=True, **settings):
        env = dict(tubetest.environment(LAYOUT, "preload", "sim", proxy), **settings)
        super().__init__(test, [OPTIONS.program], env, proxy, must_come)

    def take(self, mebibytes, blocks=1):
        return self.ask("take", blocks, mebibytes * KIB_OF_MIB // blocks)

    def status(self):
        return self.proxy.function(self.pid)


class Evict(unittest.TestCase):
    def proxy(self, *arguments, memory="128M", gpus="0", **env):
        settings = {"TUBE_SIM_MEMORY": memory, "TUBE_EVICT_HOST": "1G",
                    "TUBE_MEMORY_WAIT_MS": "60000"}
        settings.update(env)
        proxy = tubetest.Proxy(LAYOUT, "sim", arguments=arguments, extra_env=settings, gpus=gpus)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def check_turns(self, proxy, functions, rounds):
        for _ in range(rounds):
            for function in functions:
                for what in ("bump", "graph"):
                    self.assertEqual(function.ask(what), "done")
                self.assertEqual(function.ask("check"), "equal", proxy.log_tail())

    def test_two_functions_of_70_percent_take_turns(self):
        for blocks in (1, 6):
            proxy = self.proxy()
            functions = [Function(self, proxy) for _ in range(2)]
            for function in functions:
                self.assertEqual(function.take(84, blocks), "0", proxy.log_tail())
            self.check_turns(proxy, functions, 4)
            self.assertGreater(proxy.status()["evicted"]["evictions"], 4)
            for function in functions:
                function.kill()
            proxy.wait_holds_nothing()

    def test_twelve_functions_of_20_percent_take_turns(self):
        for policy in ("queue", "lru"):
            proxy = self.proxy(TUBE_EVICT_POLICY=policy)
            functions = [Function(self, proxy) for _ in range(12)]
            for function in functions:
                self.assertEqual(function.take(24, 3), "0", proxy.log_tail())
            self.check_turns(proxy, functions, 3)
            self.assertEqual(proxy.status()["evicted"]["policy"], policy)

    def test_turns_without_lanes_and_without_a_pool(self):
        proxy = self.proxy(TUBE_COPY_LANE="never", TUBE_POOL="0")
        functions = [Function(self, proxy) for _ in range(3)]
        for function in functions:
            self.assertEqual(function.take(70, 5), "0", proxy.log_tail())
        self.check_turns(proxy, functions, 2)

    def test_all_work_at_once(self):
        """Each needs what the others have: whoever gets only some of its memory gives it away
        again."""
        proxy = self.proxy()
        functions = [Function(self, proxy) for _ in range(4)]
        for function in functions:
            self.assertEqual(function.take(76, 4), "0", proxy.log_tail())
        for _ in range(2):
            for what, answer in (("bump", "done"), ("graph", "done"), ("check", "equal")):
                for function in functions:
                    function.tell(what)
                for function in functions:
                    function.hear(answer)

    def test_all_work_at_once_on_two_gpus(self):
        """Each has come back to one GPU while the other one has come back to the other."""
        proxy = self.proxy(gpus="0,1", TUBE_SIM_COUNT="2")
        functions = [Function(self, proxy) for _ in range(2)]
        for function in functions:
            self.assertEqual(function.take(84, 4), "0", proxy.log_tail())
            self.assertEqual(function.ask("far", 84 * KIB_OF_MIB), "0", proxy.log_tail())
        for _ in range(2):
            for what, answer in (("bump", "done"), ("check", "equal")):
                for function in functions:
                    function.tell(what)
                for function in functions:
                    function.hear(answer)

    def test_what_does_not_fit_alone_is_out_of_memory(self):
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(64), "0")
        self.assertEqual(two.take(129), OUT_OF_MEMORY)
        self.assertEqual(two.take(64), "0")
        self.assertEqual(two.take(80), OUT_OF_MEMORY)
        self.check_turns(proxy, (one, two), 1)
        self.assertEqual(one.take(80), OUT_OF_MEMORY)
        self.check_turns(proxy, (one, two), 1)

    def test_nothing_moves_for_a_function_beyond_its_own_limit(self):
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy, TUBE_MEMORY="32M")
        self.assertEqual(one.take(100), "0")
        self.assertEqual(two.take(33), OUT_OF_MEMORY)
        self.assertEqual(proxy.status()["evicted"]["evictions"], 0)
        self.assertEqual(two.take(30), "0")
        self.check_turns(proxy, (one, two), 2)

    def test_a_function_that_never_rests_is_stopped_for_others(self):
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(84, 3), "0")
        one.tell("spin")
        one.hear("spinning")
        self.assertEqual(two.take(84, 3), "0", proxy.log_tail())
        two.tell("spin")
        two.hear("spinning")
        for function in (one, two):
            function.tell("")
            function.hear("spun")
        for function in (one, two):
            self.assertEqual(function.ask("check"), "equal")

    def test_who_may_not_wait_is_out_of_memory(self):
        proxy = self.proxy(TUBE_MEMORY_WAIT_MS="0")
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(84), "0")
        one.tell("spin")
        one.hear("spinning")
        self.assertEqual(two.take(84), OUT_OF_MEMORY)
        one.tell("")
        one.hear("spun")
        self.assertEqual(one.ask("check"), "equal")
        self.assertEqual(proxy.status()["evicted"]["refused"], 1)

    def test_shared_memory_and_arrays_stay(self):
        proxy = self.proxy()
        one, two, three = (Function(self, proxy) for _ in range(3))
        self.assertEqual(one.take(40), "0")
        self.assertEqual(one.ask("share", 0), "shared")
        self.assertEqual(two.ask("array", 40 * KIB_OF_MIB), "0")
        self.assertEqual(three.take(60), OUT_OF_MEMORY)
        function = next(f for f in proxy.request("mem")["functions"] if f["pid"] == one.pid)
        self.assertGreaterEqual(function["gpus"][0]["stays_bytes"], 40 * MIB)
        self.assertEqual(three.take(32), "0")
        self.check_turns(proxy, (one, three), 1)

    def test_frees_and_requests_while_memory_is_away(self):
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy)
        for _ in range(3):
            self.assertEqual(one.take(84, 6), "0", proxy.log_tail())
            self.assertEqual(two.take(84, 6), "0", proxy.log_tail())
            used = proxy.status()["evicted"]["used_bytes"]
            self.assertGreater(used, 0)
            for block in (5, 3):  # both are away: nobody uses the GPU yet
                self.assertEqual(one.ask("free", block), "freed")
            self.assertEqual(one.ask("again", 1), "0")
            self.check_turns(proxy, (one, two), 1)
            for function, blocks in ((one, 4), (two, 6)):
                for _ in range(blocks):
                    self.assertEqual(function.ask("free", 0), "freed")
        for function in (one, two):
            function.kill()
        proxy.wait_holds_nothing()

    def test_full_host_memory_is_out_of_memory(self):
        proxy = self.proxy(TUBE_EVICT_HOST="80M")
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(84, 6), "0")
        self.assertEqual(two.take(84, 6), OUT_OF_MEMORY)
        self.check_turns(proxy, (one, two), 1)

    def test_a_block_that_could_not_change_places_is_out_of_memory(self):
        """It would go in one piece, for which host memory has no room beside what left for it."""
        for host, blocks, answer in (("140M", 1, OUT_OF_MEMORY), ("180M", 1, OUT_OF_MEMORY),
                                     ("180M", 6, "0"), ("200M", 1, "0")):
            proxy = self.proxy(TUBE_EVICT_HOST=host)
            one, two = Function(self, proxy), Function(self, proxy)
            self.assertEqual(one.take(60), "0")
            self.assertEqual(two.take(96, blocks), answer, proxy.log_tail())
            self.check_turns(proxy, (one, two), 2)

    def test_objects_of_the_store_make_room_for_a_return(self):
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(100, 4), "0", proxy.log_tail())
        self.assertEqual(two.take(60, 4), "0", proxy.log_tail())
        two.kill()
        proxy.wait_status(lambda status: len(status["functions"]) == 1)
        store = pathlib.Path(OPTIONS.build, "tests/e2e/store/store_scenes")
        subprocess.run([store, "make", "a", str(60 * KIB_OF_MIB), "7", "gpu", "0", "0", "leave"],
                       env=tubetest.environment(LAYOUT, "preload", "sim", proxy), check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assertEqual(proxy.request("store")["counts"]["gpu_bytes"], 60 * MIB)
        self.check_turns(proxy, (one,), 1)

    def test_limits_go_down_and_up(self):
        proxy = self.proxy("--memory", "100M", memory="1G")
        one, two = Function(self, proxy), Function(self, proxy)
        for function in (one, two):
            self.assertEqual(function.take(70, 5), "0", proxy.log_tail())
        self.check_turns(proxy, (one, two), 1)
        self.assertTrue(proxy.request("limit", memory_bytes=40 * MIB)["ok"])
        self.check_turns(proxy, (one, two), 1)
        self.assertEqual(one.take(4), OUT_OF_MEMORY)
        self.assertTrue(proxy.request("limit", memory_bytes=300 * MIB)["ok"])
        self.assertEqual(one.take(4), "0")
        before = proxy.status()["evicted"]["evictions"]
        self.check_turns(proxy, (one, two), 1)
        self.check_turns(proxy, (one, two), 1)
        self.assertEqual(proxy.status()["evicted"]["evictions"], before)

    def test_free_and_total_agree(self):
        proxy = self.proxy()
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(84, 6), "0")
        self.assertEqual(two.take(84, 6), "0")
        for function in (one, two):
            free, total = map(int, function.ask("info").split())
            held = function.status()["memory"][0]["held_bytes"]
            self.assertLessEqual(free + held, total)
            self.assertGreaterEqual(held, 84 * MIB)
        gpu = proxy.status()["gpus"][0]
        self.assertLessEqual(gpu["memory_used_by_clients"], 128 * MIB)
        self.assertEqual(gpu["memory"]["held_bytes"], gpu["memory_used_by_clients"])

    def test_random_programs_keep_their_bytes(self):
        proxy = self.proxy(memory="64M")
        programs = [Function(self, proxy) for _ in range(4)]
        for seed, program in enumerate(programs):
            program.tell("churn", seed, 250 if ALL else 120)
        for program in programs:
            program.hear("equal")
            program.kill()
        proxy.wait_holds_nothing()

    def test_random_programs_are_killed(self):
        proxy = self.proxy(memory="48M")
        chance = random.Random(11)
        steady = Function(self, proxy)
        steady.tell("churn", 99, 400)
        asks_for_too_much = 1  # before its fourth "here"
        for seed in range(10):
            program = Function(self, proxy)
            program.tell("endless", asks_for_too_much if seed % 2 else seed)
            for _ in range(1 + chance.randrange(4)):
                program.hear("here")
            program.kill()
        steady.hear("equal")
        steady.kill()
        proxy.wait_holds_nothing()

    def came(self, program):
        """Whether it joined. The faults may also meet what a join needs: that is said, and is all."""
        if program.program.stdout.readline() == "ready\n":
            return True
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", program.program.stderr.read())
        return False

    def test_every_driver_call_may_fail(self):
        """Each call of this machinery in turn: nobody finds wrong bytes, nothing is left."""
        faults = ((4, 5, "64M"), (13, 5, "64M"), (13, 1, "144M"), (24, 1, "144M"))
        step = 1 if ALL else 2
        for index, (call, code) in enumerate((("cuMemCreate", 2), ("cuMemMap", 2), ("cuMemSetAccess", 2),
                           ("cuMemUnmap", 1), ("cuMemHostRegister_v2", 2),
                           ("cuEventCreate", 2), ("cuMemcpyAsync", 1))):
            for after, blocks, memory in faults[index % step::step]:
                with self.subTest(call=call, after=after, blocks=blocks):
                    fault = f"call={call}:error={code}:after={after}:count=2"
                    proxy = self.proxy(memory=memory, TUBE_SIM_FAULT=fault)
                    programs = [program for program in (Function(self, proxy, must_come=False)
                                                        for _ in range(2)) if self.came(program)]
                    for program in programs:
                        program.tell("take", blocks, (9 if blocks > 1 else 100) * KIB_OF_MIB)
                    alive = [p for p in programs if p.program.stdout.readline().strip() == "0"]
                    for _ in range(2):
                        for program in list(alive):
                            program.tell("bump")
                            program.tell("check")
                            answers = [program.program.stdout.readline().strip() for _ in "ab"]
                            self.assertNotIn("differs", answers, proxy.log_tail())
                            if answers != ["done", "equal"]:
                                alive.remove(program)
                    for program in programs:
                        program.kill()
                    if call != "cuMemUnmap":
                        proxy.wait_holds_nothing()

    def settled(self, proxy, mebibytes):
        """What `status` says of host memory once so much or more is wanted, and is there."""
        while True:
            evicted = proxy.status()["evicted"]
            if evicted["settled"] and evicted["wanted_bytes"] >= mebibytes * MIB \
                    and evicted["pinned_bytes"] >= evicted["wanted_bytes"]:
                return evicted

    def test_host_memory_is_there_before_anything_has_to_leave(self):
        proxy = self.proxy()
        functions = [Function(self, proxy) for _ in range(2)]
        self.assertEqual(functions[0].take(84, 6), "0")
        self.assertEqual(self.settled(proxy, 40)["evictions"], 0)
        self.assertEqual(functions[1].take(84, 6), "0", proxy.log_tail())
        before = self.settled(proxy, 160)["made_on_request_bytes"]
        self.check_turns(proxy, functions, 3)
        evicted = proxy.status()["evicted"]
        self.assertEqual(evicted["made_on_request_bytes"], before)
        self.assertGreater(evicted["evictions"], 3)
        ours = {each["who"]: each for each in proxy.status()["registrations"]}["evicted memory"]
        self.assertEqual(ours["bytes"], evicted["made_ahead_bytes"] + before)
        self.assertEqual(ours["failed"], 0)
        for function in functions:
            function.kill()
        proxy.wait_holds_nothing()

    def test_a_function_alone_has_no_host_memory_made(self):
        proxy = self.proxy()
        one = Function(self, proxy)
        self.assertEqual(one.take(120, 6), "0")
        for _ in range(20):
            self.assertEqual(proxy.status()["evicted"]["wanted_bytes"], 0)
        self.assertEqual(proxy.status()["evicted"]["pinned_bytes"], 0)

    def test_host_memory_ahead_stays_within_its_bound(self):
        proxy = self.proxy(TUBE_EVICT_HOST="32M")
        one, two = Function(self, proxy), Function(self, proxy)
        self.assertEqual(one.take(84, 6), "0")
        self.assertEqual(self.settled(proxy, 32)["pinned_bytes"], 32 * MIB)
        self.assertEqual(two.take(84, 6), OUT_OF_MEMORY)
        self.check_turns(proxy, (one, two), 1)

    def away(self, proxy, function):
        mem = proxy.request("mem")
        return next(f for f in mem["functions"] if f["pid"] == function.pid)["gpus"][0][
            "evicted_bytes"]

    def until_away(self, proxy, function, mebibytes):
        while self.away(proxy, function) < mebibytes * MIB:
            self.assertIsNone(function.program.poll(), proxy.log_tail())

    def test_memory_of_idle_functions_leaves_without_need(self):
        proxy = self.proxy(TUBE_EVICT_IDLE_MS="20", TUBE_EVICT_HOST="256M")
        functions = [Function(self, proxy) for _ in range(2)]
        for function in functions:
            self.assertEqual(function.take(24, 3), "0", proxy.log_tail())
        for _ in range(3):
            for function in functions:
                self.until_away(proxy, function, 24)
            self.check_turns(proxy, functions, 1)
        self.assertIn("it is idle", {move["why"] for move in proxy.request("mem")["moves"]})
        # Who is killed while its memory is away leaves nothing.
        for function in functions:
            self.until_away(proxy, function, 24)
            function.kill()
        proxy.wait_holds_nothing()

    def test_idle_functions_leave_host_memory_for_exchange(self):
        """Two would fit, but then none could change places with one that holds the whole GPU."""
        proxy = self.proxy(TUBE_EVICT_IDLE_MS="20", TUBE_EVICT_HOST="180M")
        one, two = Function(self, proxy), Function(self, proxy)
        for function in (one, two):
            self.assertEqual(function.take(32, 4), "0", proxy.log_tail())
        while self.away(proxy, one) + self.away(proxy, two) < 32 * MIB:
            pass
        for _ in range(20):
            self.assertLess(self.away(proxy, one) + self.away(proxy, two), 64 * MIB)
        self.check_turns(proxy, (one, two), 2)

    def test_who_takes_the_room_of_idle_ones_changes_places_with_them(self):
        """Its only block goes in one piece the first time."""
        proxy = self.proxy(TUBE_EVICT_IDLE_MS="20", TUBE_EVICT_HOST="180M")
        idle, large = Function(self, proxy), Function(self, proxy)
        self.assertEqual(idle.take(40), "0", proxy.log_tail())
        self.until_away(proxy, idle, 40)
        self.assertEqual(large.take(100), "0", proxy.log_tail())
        self.check_turns(proxy, (idle, large), 3)

    def test_one_comes_back_while_the_other_leaves(self):
        """One block each, in parts. The clock is held: what is wanted back is on its way as soon as
        the first part of what leaves has left."""
        clock = tubetest.Clock(self)
        proxy = self.proxy(memory="512M", **clock.settings)
        clock.connect()
        leaves, comes = Function(self, proxy), Function(self, proxy)
        for function in (leaves, comes):
            self.assertEqual(function.take(352), "0", proxy.log_tail())
        for function in (comes, leaves, comes, leaves):  # both are in parts, `comes` is away
            self.assertEqual(function.ask("bump"), "done")
        before = self.away(proxy, comes)
        self.assertGreater(before, 2 * PART)
        stayed = self.away(proxy, leaves)
        clock.ask("hold")
        first = len(clock.served(0))
        comes.tell("bump")
        while sum(copy.bytes for copy in clock.served(first) if copy.way != "up") < PART:
            clock.ask("wait 1")
            clock.ask("step 1")
        # From here on no copy ends, so what leaves has not left.
        while self.away(proxy, leaves) - stayed < PART \
                or before - self.away(proxy, comes) < PART or clock.ask("up") == 0:
            pass
        self.assertGreater(clock.ask("down"), 0)
        self.assertEqual(self.away(proxy, leaves) - stayed, PART)
        clock.ask("run")
        comes.hear("done")
        self.assertGreater(self.away(proxy, leaves) - stayed, 2 * PART)
        self.assertEqual(comes.ask("check"), "equal", proxy.log_tail())
        self.assertEqual(leaves.ask("check"), "equal", proxy.log_tail())

    def test_memory_moves_over_two_links(self):
        """Memory of the first of two GPUs, in both directions by the second one's link, too."""
        proxy = self.proxy(memory="256M", gpus="0,1", TUBE_SIM_COUNT="2",
                           TUBE_SIM_TOPOLOGY="hgx-h200", TUBE_COPY_PATHS="2")
        functions = [Function(self, proxy) for _ in range(2)]
        for function in functions:
            self.assertEqual(function.take(176, 2), "0", proxy.log_tail())
        self.check_turns(proxy, functions, 3)
        counts = proxy.request("copies")["several_links"]
        self.assertGreaterEqual(counts["copies"], 4)
        self.assertGreater(counts["relayed_bytes"], 0)  # how much is for the clock to say
        self.assertEqual(counts["failed_paths"], 0)
        functions[0].kill()
        self.check_turns(proxy, functions[1:], 1)
        functions[1].kill()
        proxy.wait_holds_nothing()

    def test_memory_in_parts_is_handed_on(self):
        proxy = self.proxy(memory="256M")
        one, two = Function(self, proxy), Function(self, proxy)
        for function in (one, two):
            self.assertEqual(function.take(176), "0", proxy.log_tail())
        self.check_turns(proxy, (one, two), 2)
        self.assertEqual(one.ask("share", 0), "shared")
        function = next(f for f in proxy.request("mem")["functions"] if f["pid"] == one.pid)
        self.assertGreaterEqual(function["gpus"][0]["stays_bytes"], 176 * MIB)
        self.assertEqual(one.ask("check"), "equal", proxy.log_tail())
        for function in (one, two):
            function.kill()
        proxy.wait_holds_nothing()

    def test_memory_in_parts_is_freed_wherever_it_is(self):
        proxy = self.proxy(memory="256M")
        one, two = Function(self, proxy), Function(self, proxy)
        for _ in range(3):
            for function in (one, two):
                self.assertEqual(function.take(176), "0", proxy.log_tail())
            self.check_turns(proxy, (one, two), 1)
            self.assertEqual(one.ask("free", 0), "freed")  # a part of it is away
            self.check_turns(proxy, (two,), 1)
            self.assertEqual(two.ask("free", 0), "freed")
        for function in (one, two):
            function.kill()
        proxy.wait_holds_nothing()

    def test_freed_memory_is_there_for_others(self):
        """A free that has returned counts, though its record is not read yet: its session waits
        with the end of an array for a third function's kernel, which the held clock does not end.
        Nothing may move, so nothing else can make room."""
        clock = tubetest.Clock(self)
        proxy = self.proxy(TUBE_EVICT_HOST="0", TUBE_POOL="0", TUBE_SIM_BLOCK_NS="1000000",
                           **clock.settings)
        clock.connect()
        one, two, third = (Function(self, proxy) for _ in range(3))
        self.assertEqual(third.take(4), "0")
        self.assertEqual(one.take(84), "0")
        self.assertEqual(one.ask("array", 4), "0")
        self.assertEqual(two.take(84), OUT_OF_MEMORY)
        clock.ask("hold")
        self.assertEqual(third.ask("async"), "done")
        self.assertEqual(one.ask("unarray"), "begun")
        proxy.wait_status(lambda _: "cuArrayDestroy" in one.status()["calls"])
        self.assertEqual(one.ask("drop", 0), "freed")
        waits = proxy.status()["evicted"]["waits_for_frees"]
        two.tell("take", 1, 84 * KIB_OF_MIB)
        proxy.wait_status(lambda status: status["evicted"]["waits_for_frees"] > waits)
        clock.ask("run")
        two.hear("0")
        self.check_turns(proxy, (two,), 1)

    def test_what_left_during_a_request_comes_back_before_it_is_served(self):
        """Else a function could hold more than the GPU has, and would never be whole again. The
        request waits for the end of a third function, which the held clock keeps; meanwhile
        another one has its turn and the asking function's memory leaves."""
        clock = tubetest.Clock(self)
        proxy = self.proxy(TUBE_POOL="0", TUBE_SIM_BLOCK_NS="1000000", **clock.settings)
        clock.connect()
        asking, other, third = (Function(self, proxy) for _ in range(3))
        self.assertEqual(other.take(40), "0")
        self.assertEqual(third.ask("array", 40 * KIB_OF_MIB), "0")
        self.assertEqual(asking.take(80), "0", proxy.log_tail())
        self.assertEqual(third.ask("bump"), "done")
        clock.ask("hold")
        launches = third.status()["calls"]["tubeLaunch"]
        self.assertEqual(third.ask("async"), "done")
        proxy.wait_status(lambda _: third.status()["calls"]["tubeLaunch"] > launches)
        before = proxy.status()["evicted"]
        third.kill()
        asking.tell("take", 1, 46 * KIB_OF_MIB)
        proxy.wait_status(
            lambda status: status["evicted"]["waits_for_frees"] > before["waits_for_frees"])
        other.tell("bump")
        while proxy.status()["evicted"]["returns"] == before["returns"]:
            clock.ask("step")
        clock.ask("run")
        asking.hear(OUT_OF_MEMORY)
        other.hear("done")
        self.check_turns(proxy, (asking, other), 1)

    def test_the_end_of_a_function_is_waited_for(self):
        """Its process is gone, its session still at work."""
        proxy = self.proxy(TUBE_EVICT_HOST="0", TUBE_POOL="0")
        two = Function(self, proxy)
        self.assertEqual(two.ask("bump"), "done")
        for _ in range(8):
            one = Function(self, proxy)
            self.assertEqual(one.take(84, 84), "0", proxy.log_tail())
            self.assertEqual(one.ask("async"), "done")
            one.kill()
            self.assertEqual(two.take(84), "0", proxy.log_tail())
            self.assertEqual(two.ask("free", 0), "freed")

    def test_functions_killed_at_any_point_leave_nothing(self):
        """The clock is held, so that copies away and back end one by one: each function is killed
        behind so many of them, while the other one goes on. Blocks are whole or in parts."""
        for which, blocks in (("leaves", 6), ("comes", 6), ("leaves", 1), ("comes", 1)):
            clock = tubetest.Clock(self)
            proxy = self.proxy(**clock.settings)
            clock.connect()
            steady = Function(self, proxy)
            self.assertEqual(steady.take(84, blocks), "0")
            for steps in (0, 1, 3, 8, 13) if ALL else (0, 3, 13):
                other = Function(self, proxy)
                self.assertEqual(other.take(84, blocks), "0", proxy.log_tail())
                self.assertEqual(other.ask("bump"), "done")
                leaves, comes = other, steady
                if which == "comes":
                    self.assertEqual(steady.ask("bump"), "done")
                    leaves, comes = steady, other
                clock.ask("hold")
                comes.tell("bump")
                for _ in range(steps):
                    clock.ask("wait 1")
                    clock.ask("step 1")
                clock.ask("wait 1")
                other.kill()
                clock.ask("run")
                if comes is not other:
                    comes.hear("done")
                self.assertEqual(steady.ask("check"), "equal", proxy.log_tail())
            steady.kill()
            proxy.wait_holds_nothing()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--program", required=True)
    OPTIONS, rest = parser.parse_known_args()
    LAYOUT = tubetest.Layout(OPTIONS.build)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
