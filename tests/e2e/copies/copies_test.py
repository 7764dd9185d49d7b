"""Copies on the clock of the simulated GPU, which the test moves (sim/README.md): by a program alone
and by functions of one proxy.

copies_test.py --build FOLDER [unittest arguments]. The program is copies.cc.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/copies/copies"
MEGABYTE = 1_000_000
TAKES = MEGABYTE + 4000  # nanoseconds, with a byte in each and copy_ns


class Client:
    def __init__(self, test, env, count, size=MEGABYTE, *how):
        self.test = test
        self.process = subprocess.Popen([PROGRAM, str(size), str(count), *how], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.expect("ready")

    def expect(self, line):
        said = self.process.stdout.readline().rstrip("\n")
        while said.startswith("cu"):
            self.test.assertIn("CUDA_SUCCESS", said)
            said = self.process.stdout.readline().rstrip("\n")
        self.test.assertEqual(said, line)

    def submit(self, line="go"):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.expect("submitted")

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(60)


class Copies(unittest.TestCase):
    def test_a_program_alone_is_timed_to_the_nanosecond(self):
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        env = dict(tubetest.environment(LAYOUT, "native", "sim"), **clock.settings)
        client = Client(self, env, 3)
        clock.connect()
        begin = clock.ask("hold")
        client.submit()
        self.assertEqual(clock.ask("pending"), 1)
        self.assertEqual(clock.ask("step 2"), 2)
        self.assertEqual(clock.ask("now"), begin + 2 * TAKES)
        self.assertEqual(clock.ask("until %d" % (begin + 3 * TAKES - 1)), begin + 3 * TAKES - 1)
        self.assertEqual(len(clock.served()), 2)
        clock.ask("run")
        client.expect("done")
        copies = clock.served()
        self.assertEqual([c.way for c in copies], ["up", "up", "up", "down"])
        self.assertEqual([c.end - begin for c in copies], [TAKES * n for n in range(1, 5)])

    def test_functions_of_a_proxy_copy_on_its_clock(self):
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        with tubetest.Proxy(LAYOUT, "sim", extra_env=clock.settings) as proxy:
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            first, second = Client(self, env, 3), Client(self, env, 1)
            clock.connect()
            begin, before = clock.ask("hold"), len(clock.served())
            first.submit()
            second.submit()
            clock.ask("wait 1")
            self.assertEqual(clock.ask("now"), begin)
            self.assertEqual(clock.ask("step"), 1)
            self.assertGreater(clock.ask("now"), begin)
            clock.ask("run")
            first.expect("done")
            second.expect("done")
            moved = collections.Counter()
            for copy in clock.served()[before:]:
                moved[copy.way] += copy.bytes
            self.assertEqual(moved, {"up": 4 * MEGABYTE, "down": 2 * MEGABYTE})
            self.assertEqual([first.end(), second.end()], [0, 0])

    BULK, SMALL = 40, 300_000  # copies of the one function; bytes of the other one's copy

    def place_of_a_newcomer(self, lanes, *how):
        """How many uploads of a function that copies without pause end before the one upload of a
        function that comes when the first of them is under way."""
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        with tubetest.Proxy(LAYOUT, "sim", extra_env=dict(clock.settings, TUBE_COPY_LANE=lanes)
                            ) as proxy:
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            bulk = Client(self, env, self.BULK, MEGABYTE, *how)
            newcomer = Client(self, env, 1, self.SMALL)
            clock.connect()
            clock.ask("hold")
            before = len(clock.served())
            bulk.submit()
            clock.ask("wait 1")
            newcomer.submit()
            ended = []
            while self.SMALL not in ended:
                clock.ask("wait 1")
                clock.ask("step")
                ended = [copy.bytes for copy in clock.served()[before:] if copy.way == "up"]
            clock.ask("run")
            bulk.expect("done")
            newcomer.expect("done")
            self.assertEqual([bulk.end(), newcomer.end()], [0, 0])
            return ended.index(self.SMALL)

    def test_without_a_lane_a_newcomer_waits_for_all(self):
        self.assertEqual(self.place_of_a_newcomer("never"), self.BULK)

    def test_with_a_lane_a_newcomer_waits_for_what_is_in_flight(self):
        self.assertLessEqual(self.place_of_a_newcomer("always"), 3)
        direct = (16 << 20) // MEGABYTE  # that go without the lane as long as nobody else copies
        self.assertLessEqual(self.place_of_a_newcomer("auto"), direct + 3)

    def test_a_small_upload_beside_a_busy_link_waits_for_nothing(self):
        """Nor for a turn of the clock: its bytes do not use the copy engine."""
        direct = (8 << 20) // MEGABYTE  # these fill no lane
        for count in (direct, self.BULK):
            clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
            with tubetest.Proxy(LAYOUT, "sim", extra_env=clock.settings) as proxy:
                env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
                bulk, small = Client(self, env, count), Client(self, env, 1, 51 << 10)
                clock.connect()
                clock.ask("hold")
                bulk.submit()
                clock.ask("wait 1")
                small.submit("up")
                small.expect("done")
                clock.ask("run")
                bulk.expect("done")
                small.submit()  # the bytes that came are the right ones
                small.expect("done")
                self.assertEqual([bulk.end(), small.end()], [0, 0])

    def test_copies_of_a_graph_take_turns(self):
        self.assertEqual(self.place_of_a_newcomer("never", "graph"), self.BULK)
        self.assertLessEqual(self.place_of_a_newcomer("always", "graph"), 3)

    def test_a_function_that_copied_before_hears_of_its_copy(self):
        """What the GPU writes behind a direct copy uses the copy's queue; beside a busy lane that
        would never be served."""
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        with tubetest.Proxy(LAYOUT, "sim", extra_env=dict(clock.settings, TUBE_COPY_LANE="auto")
                            ) as proxy:
            env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
            bulk, other = Client(self, env, self.BULK), Client(self, env, 1, self.SMALL)
            clock.connect()
            other.submit("up")
            other.expect("done")
            clock.ask("hold")
            before = len(clock.served())
            bulk.submit()
            clock.ask("wait 1")
            other.submit("up")
            while not any(copy.bytes == self.SMALL for copy in clock.served()[before:]):
                clock.ask("wait 1")
                clock.ask("step")
            other.expect("done")  # while the bulk's copies stand
            self.assertLess(len(clock.served()) - before, self.BULK)
            clock.ask("run")
            bulk.expect("done")
            self.assertEqual([bulk.end(), other.end()], [0, 0])

    def shown(self, proxy, *words, verb="copies"):
        """What `tubectl copies` says."""
        done = subprocess.run([LAYOUT.tubectl, verb, "-w", proxy.workflow, *words],
                              env=dict(os.environ, TUBE_DIR=str(proxy.dir)),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def first_look(self, proxy):
        watch = subprocess.Popen([LAYOUT.tubectl, "copies", "-w", proxy.workflow, "--watch", "1"],
                                 env=dict(os.environ, TUBE_DIR=str(proxy.dir)),
                                 stdout=subprocess.PIPE, text=True)
        try:
            for line in watch.stdout:
                if "from GPU" in line:
                    return line
            self.fail("no line of a download")
        finally:
            watch.kill()
            watch.wait()
            watch.stdout.close()

    def test_the_ways_of_copies_are_shown(self):
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        with tubetest.Proxy(LAYOUT, "sim", extra_env=dict(clock.settings, TUBE_COPY_LANE="auto")
                            ) as proxy:
            env = dict(tubetest.environment(LAYOUT, "preload", "sim", proxy, function="mover"),
                       TUBE_SLO_MS="100")
            client = Client(self, env, 20)
            clock.connect()
            for _ in range(3):
                clock.ask("hold")
                client.submit()
                clock.ask("run")
                client.expect("done")
            said = json.loads(self.shown(proxy, "--json"))
            self.assertEqual((said["policy"], said["lanes"]), ("deadlines", "auto"))
            function, = said["functions"]
            self.assertEqual((function["name"], function["slo_ms"]), ("mover", 100))
            up, down = function["directions"]
            total = collections.Counter()
            for way in up["ways"].values():
                total.update(way)
            self.assertEqual(total, {"copies": 60, "bytes": 60 * MEGABYTE})
            # 16 MiB at most stand directly at a time; how many of the rest find others in the lane
            # depends on when the session reads them ("submitted" is said by the client).
            self.assertIn("alone", up["ways"])
            self.assertLessEqual(set(up["ways"]), {"alone", "much", "lane busy"})
            in_lane = 60 - up["ways"]["alone"]["copies"]
            self.assertEqual(sum(lane["copies"] for lane in up["lanes"]), in_lane)
            self.assertEqual(down["ways"], {"alone": {"copies": 3, "bytes": 3 * MEGABYTE}})
            self.assertTrue(function["infer_learnt"])
            gpu, = json.loads(self.shown(proxy, "--json", verb="topo"))["gpus"]
            self.assertEqual((gpu["index"], gpu["peers"]), (0, []))
            text = self.shown(proxy, "-f", "mover")
            self.assertRegex(text, r"mover +[0-9]+ +to GPU +60 ")
            self.assertRegex(text, r"100 less [0-9.e-]+ learnt")
            self.assertNotIn("mover", self.shown(proxy, "-f", "other"))
            # What was copied before the first look is no rate: no download is in a lane.
            self.assertRegex(self.first_look(proxy), r"from GPU +3 +\S+ \S+ +- ")
            client.end()

    def test_proxies_of_a_user_see_each_others_links(self):
        lanes = {"TUBE_COPY_LANE": "auto"}
        with tubetest.Proxy(LAYOUT, "sim", extra_env=lanes) as first:
            second = tubetest.Proxy(LAYOUT, "sim", "other", extra_env=lanes)
            # both would be in the user's one runtime folder
            os.link(first.dir / "links", second.dir / "links")
            with second:
                env = tubetest.environment(LAYOUT, "preload", "sim", second)
                client = Client(self, env, 5)
                client.submit()
                client.expect("done")
                seen = {link["direction"]: link
                        for link in json.loads(self.shown(first, "--json"))["other_proxies"]}
                self.assertEqual({way: link["bytes"] for way, link in seen.items()},
                                 {"to GPU": 5 * MEGABYTE, "from GPU": MEGABYTE})
                self.assertEqual({link["workflow"] for link in seen.values()}, {"other"})
                client.end()
                second.process.kill()
                second.process.wait()
            self.assertEqual(json.loads(self.shown(first, "--json"))["other_proxies"], [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
