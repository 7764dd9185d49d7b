"""Large copies over the links of several simulated GPUs.

wide_test.py --build FOLDER [unittest arguments]. The program is wide.cc.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/copies/wide"
KIB, MIB = 1 << 10, 1 << 20


class Client:
    def __init__(self, test, proxy, *words):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        self.test = test
        self.process = subprocess.Popen([PROGRAM, *map(str, words)], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for clean in (self.process.wait, self.process.kill, self.process.stdout.close,
                      self.process.stdin.close):
            test.addCleanup(clean)
        self.expect("ready")

    def expect(self, line):
        self.test.assertEqual(self.process.stdout.readline(), line + "\n")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line, answer):
        self.tell(line)
        self.expect(answer)

    def end(self):
        self.process.stdin.close()
        self.test.assertEqual(self.process.wait(60), 0)


class Wide(unittest.TestCase):
    def proxy(self, gpus, paths, **settings):
        """NVLink between all GPUs; every copy goes through lanes. `paths` 0: as many as pay."""
        settings = dict({"TUBE_SIM_TOPOLOGY": "hgx-h200", "TUBE_SIM_COUNT": str(gpus),
                         "TUBE_COPY_LANE": "always", "TUBE_COPY_PATHS": str(paths)}, **settings)
        proxy = tubetest.Proxy(LAYOUT, "sim", gpus=",".join(map(str, range(gpus))),
                               extra_env=settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def shown(self, proxy):
        done = subprocess.run([LAYOUT.tubectl, "copies", "-w", proxy.workflow, "--json"],
                              env=dict(os.environ, TUBE_DIR=str(proxy.dir)), capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def several_links(self, proxy):
        return self.shown(proxy)["several_links"]

    def all_bytes(self, gpus):
        proxy = self.proxy(gpus, gpus)
        wide = 0
        for host in "pinned", "registered", "pageable":
            for size, offset, gpu in (16 * MIB, 0, 0), (37 * MIB + 13, 1, gpus - 1), (
                    16 * MIB + 4097, 4095, 0), (19 * MIB - 1, 2 * MIB + 7, 1):
                client = Client(self, proxy, host, size, offset, gpu)
                client.ask("up", "right")
                client.ask("down", "right")
                client.end()
                wide += 2 if host != "pageable" else 0
        counts = self.several_links(proxy)
        self.assertEqual((counts["copies"], counts["failed_paths"], counts["taken_paths"]),
                         (wide, 0, 0))
        self.assertGreater(counts["relayed_bytes"], 0)

    def test_all_bytes_of_copies_over_two_links(self):
        self.all_bytes(2)

    def test_all_bytes_of_copies_over_four_links(self):
        self.all_bytes(4)

    def test_functions_of_two_gpus_at_once(self):
        """The links of the others are lent to both."""
        proxy = self.proxy(4, 2)
        clients = [Client(self, proxy, "pinned", 20 * MIB + 4097 * i, i, i % 2) for i in range(4)]
        for what in "up", "down", "up", "down":
            for client in clients:
                client.tell(what)
            for client in clients:
                client.expect("right")
        for client in clients:
            client.end()
        self.assertEqual(self.several_links(proxy)["copies"], 16)

    def test_peer_copies_that_fail_in_the_middle(self):
        proxy = self.proxy(2, 2, TUBE_SIM_FAULT="call=cuMemcpyPeerAsync:error=1:after=2")
        client = Client(self, proxy, "pinned", 60 * MIB + 1, 3, 1)
        client.ask("up", "right")
        client.ask("down", "right")
        client.end()
        self.assertGreaterEqual(self.several_links(proxy)["failed_paths"], 1)

    def test_one_path_is_one_link(self):
        proxy = self.proxy(2, 1)
        client = Client(self, proxy, "pinned", 20 * MIB, 3)
        client.ask("up", "right")
        client.ask("down", "right")
        client.end()
        self.assertNotIn("several_links", self.shown(proxy))

    def held(self, clock):
        """The clock stands; what was served so far is not counted."""
        if not hasattr(clock, "lines"):
            clock.connect()
        clock.ask("hold")
        self.before = len(clock.served())

    def served(self, clock):
        return clock.served()[self.before:]

    BYTES = 128 * MIB

    LONG, REST = 224 * MIB, 32 * MIB  # ThreadSanitizer leaves a client 256 MiB of pinned memory

    def upload_ns(self, paths):
        """How long an upload takes on the clock, which goes on only when each link has its next
        piece. Not so for the rest, when a link may have had its last one: how that is shared is a
        race with the proxy's thread."""
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        proxy = self.proxy(2, paths, **clock.settings)
        client = Client(self, proxy, "pinned", self.LONG, 0)
        self.held(clock)
        begin = clock.ask("now")
        client.ask("submit", "submitted")
        done = 0
        while done < self.LONG:
            clock.ask("wait %d" % (paths if done < self.LONG - self.REST else 1))
            clock.ask("step")
            done = sum(copy.bytes for copy in self.served(clock) if copy.bytes > MIB)
        took = clock.ask("now") - begin
        clock.ask("run")
        client.ask("wait", "done")
        client.end()
        return took

    def test_two_links_take_little_more_than_half_the_time_of_one(self):
        one, two = self.upload_ns(1), self.upload_ns(2)
        # If one link carried all of the rest, it would be 1.75.
        self.assertLess(1.7 * two, one)

    def test_as_many_links_as_pay(self):
        """The proxy measures them on the clock at its start: two carry twice as much as one."""
        proxy = self.proxy(2, 0, **tubetest.Clock(self, TUBE_SIM_PCIE="1e9").settings)
        client = Client(self, proxy, "pinned", 64 * MIB, 0)
        client.ask("up", "right")
        client.end()
        self.assertEqual(self.several_links(proxy)["copies"], 1)

    def test_gpus_without_nvlink_do_not_help(self):
        proxy = self.proxy(2, 2, TUBE_SIM_TOPOLOGY="1x")
        client = Client(self, proxy, "pinned", 20 * MIB, 1)
        client.ask("up", "right")
        client.end()
        counts = self.several_links(proxy)
        self.assertEqual((counts["copies"], counts["stayed"]["one link"]), (0, 1))

    def one_copy(self, proxy):
        client = Client(self, proxy, "pinned", 17 * MIB + 1, 1)
        client.ask("up", "right")
        client.end()

    def test_killed_in_the_middle(self):
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        proxy = self.proxy(2, 2, **clock.settings)
        clock.connect()
        self.one_copy(proxy)  # what it goes through is kept for a minute
        start = proxy.counts_at_rest(stays=("blocks", "memory", "regions"))
        for pieces in 0, 1, 5:
            client = Client(self, proxy, "pinned", self.BYTES, 1)
            self.held(clock)
            client.ask("submit", "submitted")
            for _ in range(pieces):
                clock.ask("wait 1")  # on either link: which one is next is a race
                clock.ask("step")
            clock.ask("wait 1")
            client.process.kill()
            client.process.wait()
            clock.ask("run")
        self.one_copy(proxy)
        self.assertEqual(proxy.counts_back_to(start), start, proxy.log_tail())

    def test_a_function_of_the_lending_gpu_is_served(self):
        """It waits for what is in flight there, not for the guest's whole copy; and its own copy
        stays whole, or it would wait for the guest's link, too."""
        own = 8 * MIB - 64 * KIB
        clock = tubetest.Clock(self, TUBE_SIM_PCIE="1e9")
        proxy = self.proxy(2, 2, **clock.settings)
        guest = Client(self, proxy, "pinned", self.BYTES, 0, 0)
        owner = Client(self, proxy, "pinned", own, 0, 1)
        self.held(clock)
        guest.ask("submit", "submitted")
        clock.ask("wait 2")
        first = len(self.served(clock))
        owner.ask("submit", "submitted")
        while True:
            clock.ask("wait 2")
            clock.ask("step")
            there = [copy.bytes for copy in self.served(clock)[first:] if copy.device == 1]
            if own in there or sum(there) >= self.BYTES // 4:
                break
        self.assertLessEqual(there.index(own), 4)
        clock.ask("run")
        owner.ask("wait", "done")
        guest.ask("wait", "done")
        lanes = {function["pid"]: function["directions"][0]["lanes"]
                 for function in self.shown(proxy)["functions"]}
        self.assertIn((1, True), [(lane["gpu"], lane.get("lent"))
                                  for lane in lanes[guest.process.pid]])
        guest.end()
        owner.end()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
