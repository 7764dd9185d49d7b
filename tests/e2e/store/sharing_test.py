"""Objects of one workflow in another one: two proxies of the simulated GPU in one runtime folder. Who
is killed, on either side, costs nobody anything; what is not shared stays unseen.

sharing_test.py --build DIR --program FILE [--backend driver] [SharingTest.test_NAME...]
"""
import sys
import unittest

import store_test
from store_test import NOT_FOUND, StoreScenes, tubetest


class SharingTest(StoreScenes):
    def shop(self, *arguments, share="all", **settings):
        """The owner: workflow `shop`."""
        return self.proxy("--share-store", share, *arguments, workflow="shop", **settings)

    def desk(self, shop, **settings):
        """Another workflow of the same user."""
        return self.proxy(workflow="desk", folder=shop.dir, **settings)

    def wait_lent(self, proxy, loans):
        self.until(proxy, f"{loans} loans",
                   lambda s: sum(o["loans"] for o in s["objects"]) == loans)

    def test_killed_programs_leave_nothing(self):
        """First of all: functions and proxies, on both sides."""
        for place in ("gpu", "host"):
            shop = self.shop()
            desk = self.desk(shop)
            self.kill(self.started(shop, "make", "a", 5000, 7, place))
            holders = [self.started(desk, "hold", "//shop/a", place) for _ in range(2)]
            self.wait_lent(shop, 1)
            self.assertEqual(self.store(shop)["counts"]["lent"], 1, "the second one asked again")
            # The consumers die: the owner has its object for itself again.
            for holder in holders:
                self.wait_lent(shop, 1)
                self.kill(holder)
            self.wait_lent(shop, 0)
            self.wait_empty(desk)
            # The owner's proxy dies: who has the object keeps its bytes, the name is gone.
            reader = self.start(desk, "keep", "//shop/a", 7, place)
            self.until_here(desk, reader)
            shop.process.kill()
            shop.process.wait()
            self.until(desk, "the name stays", lambda s: s["counts"]["deleted_held"] == 1)
            self.assertEqual(self.run_scene(desk, "wait", "//shop/a", 0), NOT_FOUND)
            self.assertEqual(self.finish(desk, reader), "equal\n")
            self.wait_empty(desk)
            # The consumers' proxy dies.
            shop = self.shop()
            desk = self.desk(shop)
            self.kill(self.started(shop, "make", "a", 5000, 7, place))
            holder = self.started(desk, "hold", "//shop/a", place)
            self.wait_lent(shop, 1)
            desk.process.kill()
            self.wait_lent(shop, 0)
            self.kill(holder)
            self.run_scene(shop, "delete", "a")
            self.wait_empty(shop)

    def test_it_is_one_mapping_for_all_functions(self):
        shop = self.shop()
        desk = self.desk(shop)
        for n, kib in enumerate((1, 1024, 20000)):
            self.kill(self.started(shop, "make", f"x{kib}", kib, kib))
            first = self.started(desk, "hold", f"//shop/x{kib}")
            takes = {self.run_scene(desk, "take", f"//shop/x{kib}", kib) for _ in range(3)}
            self.assertEqual(len(takes), 1, takes)
            self.assertEqual(self.store(desk)["counts"]["gpu_bytes"], 0, "somebody copied")
            self.assertEqual(self.store(desk)["counts"]["fetched"], n)
            # In host memory, too: the workflow's own copy.
            self.assertIn("equal", self.run_scene(desk, "take", f"//shop/x{kib}", kib, "host"))
            self.kill(first)
            self.run_scene(shop, "delete", f"x{kib}")
        self.assertEqual(self.store(desk)["counts"]["imported"], 3)
        self.wait_empty(desk)
        self.wait_empty(shop)

    def test_only_what_is_shared_can_be_had(self):
        shop = self.shop(share="open/,both/")
        desk = self.desk(shop)
        shy = self.proxy(workflow="shy", folder=shop.dir)
        for proxy, name in ((shop, "open/a"), (shop, "closed/a"), (shy, "open/a")):
            self.kill(self.started(proxy, "make", name, 10, 3))
        self.assertIn("equal", self.run_scene(desk, "take", "//shop/open/a", 3))
        for name in ("//shop/closed/a", "//shy/open/a", "//nobody/open/a", "//shop/open/b"):
            self.assertEqual(self.run_scene(desk, "wait", name, 1), NOT_FOUND, name)
        for name in ("//shop", "//shop/", "///a", "//../a"):
            self.assertEqual(self.run_scene(desk, "wait", name, 1), "5\n", name)
        # What a workflow has from another one it neither makes, nor deletes, nor passes on.
        failed = self.start(desk, "make", "//shop/open/new", 1, 1)
        self.finish(desk, failed, status=1)
        holder = self.started(desk, "hold", "//shop/open/a")
        self.assertEqual(self.run_scene(desk, "delete", "//shop/open/a"), "5\n")
        self.assertEqual(self.run_scene(shop, "wait", "//desk//shop/open/a", 1), NOT_FOUND)
        self.kill(holder)
        for proxy, name in ((shop, "open/a"), (shop, "closed/a"), (shy, "open/a")):
            self.run_scene(proxy, "delete", name)
        for proxy in (shop, shy, desk):
            self.wait_empty(proxy)

    def test_a_deleted_object_ends_everywhere(self):
        shop = self.shop()
        desk = self.desk(shop)
        self.kill(self.started(shop, "make", "a", 3000, 5))
        holder = self.started(desk, "hold", "//shop/a")
        self.assertEqual(self.run_scene(shop, "delete", "a"), "0\n")
        self.until(desk, "the name stays", lambda s: s["counts"]["deleted_held"] == 1)
        self.assertEqual(self.store(shop)["counts"]["deleted_held"], 1)
        self.kill(self.started(shop, "make", "a", 3000, 6))
        self.assertIn("equal", self.run_scene(desk, "take", "//shop/a", 6))
        self.kill(holder)
        self.until(shop, "the old one stays", lambda s: s["counts"]["deleted_held"] == 0)
        # Expected consumers: a workflow is one of them, when it is done; dead ones are none.
        self.kill(self.started(shop, "make", "two", 100, 1, "gpu", 2))
        self.kill(self.started(desk, "hold", "//shop/two"))
        self.wait_lent(shop, 0)
        for left in (2, 1):
            self.assertEqual(self.store(shop)["counts"]["objects"], left)
            self.run_scene(desk, "take", "//shop/two", 1)
            self.wait_lent(shop, 0)
            if left == 2:
                self.run_scene(shop, "delete", "a")
        self.wait_empty(desk)
        self.wait_empty(shop)

    def test_waiters_get_what_comes_later(self):
        shop = self.shop()
        desk = self.desk(shop)
        waiter = self.start(desk, "take", "//shop/later", 3)
        self.until(desk, "a client", lambda s: s["counts"]["clients"] == 1)
        self.kill(self.started(shop, "make", "later", 100, 3))
        self.assertIn("equal", self.finish(desk, waiter))
        self.run_scene(shop, "delete", "later")
        self.wait_empty(shop)

    def test_random_programs_read_no_garbage(self):
        shop = self.shop(memory="256M")
        desk = self.desk(shop, memory="256M")
        makers = [self.start(shop, "churn", seed, store_test.STEPS or 1500) for seed in range(2)]
        takers = [self.start(desk, "borrow", seed, store_test.STEPS or 400, "shop")
                  for seed in range(3)]
        victim = self.start(desk, "borrow", 9, 1_000_000, "shop")
        for program in takers:
            self.assertEqual(self.finish(desk, program), "equal\n")
        self.kill(victim)
        for program in makers:
            self.assertEqual(self.finish(shop, program), "equal\n")
        self.assertGreater(self.store(desk)["counts"]["imported"], 0)
        for name in "abcdefghijkl":
            self.run_scene(shop, "delete", f"churn/{name}")
        self.wait_empty(desk)
        self.wait_empty(shop)

    def test_nothing_is_there_unless_it_is_asked_for(self):
        proxy = self.proxy()
        self.run_scene(proxy, "wait", "own", 0)
        self.assertFalse((proxy.dir / "test.store").exists())
        before = self.store(proxy)["counts"]
        self.assertEqual((before["imported"], before["lent"]), (0, 0))


if __name__ == "__main__":
    store_test.main()
