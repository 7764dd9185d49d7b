"""Objects in the order of streams that stand: what is sealed, taken and released behind them comes
behind their work, and nobody else waits for it.

order_test.py --build DIR --program FILE [--backend driver] [OrderTest.test_NAME...]
"""
import os
import select
import signal

import store_test
from store_test import StoreScenes


class OrderTest(StoreScenes):
    """Programs of order.cc."""

    def test_a_synchronous_upload_is_over(self):
        """One of an engine's length stands in front, and no lane goes between its pieces."""
        proxy = self.proxy(TUBE_SIM_COPIES="engine", TUBE_COPY_LANE="never")
        self.assertEqual(self.run_scene(proxy, "upload"), "equal\n")

    def test_events_of_objects_are_behind_the_legacy_stream(self):
        for scene in ("seal", "release"):
            self.assertEqual(self.run_scene(self.proxy(), scene), "equal\n", scene)

    def test_a_copy_stands_behind_no_consumer(self):
        for lane in ("auto", "always", "never"):
            proxy = self.proxy(TUBE_COPY_LANE=lane)
            self.assertEqual(self.run_scene(proxy, "gets"), "equal\n", lane)
            for end in (self.finish, lambda _, program: self.kill(program)):
                stands = self.started(proxy, "stand", "x")
                self.assertEqual(self.run_scene(proxy, "go", "x"), "equal\n", lane)
                end(proxy, stands)
                self.run_scene(proxy, "delete", "x")
            for name in ("there", "later"):
                self.run_scene(proxy, "delete", name)
            self.wait_empty(proxy)

    def test_one_s_own_object_can_be_had_before_its_seal(self):
        for lane in ("auto", "always", "never"):
            proxy = self.proxy(TUBE_COPY_LANE=lane)
            self.assertEqual(self.run_scene(proxy, "own"), "equal\n", lane)
            self.wait_empty(proxy)

    def test_a_deleted_object_is_gone_in_other_workflows(self):
        """When tube_delete has returned, even if the other proxy stood meanwhile."""
        shop = self.proxy("--share-store", "all", workflow="shop")
        desk = self.proxy(workflow="desk", folder=shop.dir)
        owner = self.start(shop, "renew", "x", 2)
        follower = self.start(desk, "follow", "//shop/x", 2)

        def turn(program):
            program.stdin.write("\n")
            program.stdin.flush()

        self.assertEqual(owner.stdout.readline(), "\n")
        turn(follower)
        self.assertEqual(follower.stdout.readline(), "\n")
        desk.process.send_signal(signal.SIGSTOP)
        self.addCleanup(desk.process.send_signal, signal.SIGCONT)
        os.waitid(os.P_PID, desk.process.pid, os.WSTOPPED)  # all of its threads
        turn(owner)
        early, _, _ = select.select([owner.stdout], [], [], 0.3)
        if not early:
            desk.process.send_signal(signal.SIGCONT)
        self.assertEqual(owner.stdout.readline(), "\n")
        turn(follower)
        self.assertEqual(follower.stdout.readline(), "\n")
        desk.process.send_signal(signal.SIGCONT)
        turn(owner)
        for program in (follower, owner):
            self.finish(desk, program)
        self.wait_empty(desk)
        self.wait_empty(shop)

    def test_what_a_killed_maker_has_not_written_is_gone(self):
        proxy = self.proxy()
        maker = self.started(proxy, "lose", "x")
        self.kill(maker)
        self.until(proxy, "the maker stays", lambda s: s["counts"]["clients"] == 0)
        self.assertEqual(self.store(proxy)["counts"]["objects"], 0)
        self.wait_empty(proxy)

    def test_what_a_killed_maker_that_waits_for_memory_has_not_written_is_gone(self):
        """Its streams are let go before its thread ends."""
        proxy = self.proxy(memory="128M", TUBE_EVICT_HOST="1G", TUBE_MEMORY_WAIT_MS="60000")
        busy = self.started(proxy, "busy", 84)
        maker = self.started(proxy, "lose", "x", 100)
        self.until(proxy, "it does not wait", lambda _: proxy.status()["evicted"]["waiting"] != 0)
        self.kill(maker)
        self.until(proxy, "the maker stays", lambda s: s["counts"]["clients"] == 0)
        self.assertEqual(self.store(proxy)["counts"]["objects"], 0)
        self.finish(proxy, busy)
        self.wait_empty(proxy)

    def test_a_release_is_in_no_capture(self):
        proxy = self.proxy()
        self.assertEqual(self.run_scene(proxy, "capture"), "equal\n", proxy.log_tail())
        self.wait_empty(proxy)

    def test_a_program_s_own_limit_moves_nobody_else_s_memory(self):
        proxy = self.proxy(memory="1G", TUBE_EVICT_HOST="1G")
        hoard = self.started(proxy, "hoard", "84")
        self.assertEqual(self.run_scene(proxy, "quota", "40", TUBE_MEMORY="64M"), "equal\n")
        self.assertEqual(proxy.status()["evicted"]["evictions"], 0)
        self.finish(proxy, hoard)

    def test_a_program_s_own_limit_is_of_each_gpu(self):
        two = {"TUBE_SIM_COUNT": "2"}
        proxy = self.proxy(memory="1G", gpus="0,1", **two)
        self.assertEqual(self.run_scene(proxy, "two", "40", TUBE_MEMORY="64M", **two), "equal\n")

    def test_a_copy_for_a_gpu_that_does_not_reach_the_object(self):
        for topology in ("4xa10", "hgx-h200"):
            two = {"TUBE_SIM_COUNT": "2", "TUBE_SIM_TOPOLOGY": topology}
            proxy = self.proxy(gpus="0,1", **two)
            self.assertEqual(self.run_scene(proxy, "far", **two), "equal\n", proxy.log_tail())

    def test_copies_that_wait_leave_queues_for_others(self):
        proxy = self.proxy(TUBE_SIM_QUEUES="32")
        stands = self.started(proxy, "queues", 40)
        self.run_scene(proxy, "hoard", 4)
        self.finish(proxy, stands)

    def test_copies_take_memory_by_everybody_s_rules(self):
        # What others can do without makes room, as for cuMemAlloc.
        proxy = self.proxy(memory="128M", TUBE_EVICT_HOST="1G")
        hoard = self.started(proxy, "hoard", "84")
        self.assertEqual(self.run_scene(proxy, "room", "64"), "0\nequal\n", proxy.log_tail())
        self.finish(proxy, hoard)
        # Nobody leaves for what cannot leave again.
        proxy = self.proxy(memory="128M", TUBE_EVICT_HOST="1G", TUBE_STORE_POLICY="off")
        hoard = self.started(proxy, "hoard", "84")
        self.assertEqual(self.run_scene(proxy, "room", "64"), "4\nequal\n", proxy.log_tail())
        self.finish(proxy, hoard)
        # The function's own limit.
        proxy = self.proxy(memory="1G")
        self.assertEqual(self.run_scene(proxy, "room", "64", TUBE_MEMORY="32M"), "4\nequal\n")
        # Host memory counts as all that the proxy holds for functions.
        used = {each["name"]: each["used"] for each in proxy.status()["budgets"]}
        self.assertGreaterEqual(used["pinned"], 64 << 20)


if __name__ == "__main__":
    store_test.main()
