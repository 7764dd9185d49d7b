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
from copies_test import Clock  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/copies/wide"
MIB = 1 << 20


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

    def ask(self, line, answer):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.expect(answer)

    def end(self):
        self.process.stdin.close()
        self.test.assertEqual(self.process.wait(60), 0)


class Wide(unittest.TestCase):
    def proxy(self, gpus, paths, **settings):
        """NVLink between all GPUs; every copy goes through lanes."""
        proxy = tubetest.Proxy(
            LAYOUT, "sim", gpus=",".join(map(str, range(gpus))), extra_env=dict(
                settings, TUBE_SIM_TOPOLOGY="hgx-h200", TUBE_SIM_COUNT=str(gpus),
                TUBE_COPY_LANE="always", TUBE_COPY_PATHS=str(paths)))
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
            for size, offset, gpu in (4 * MIB, 0, 0), (37 * MIB + 13, 1, gpus - 1), (
                    4 * MIB + 4097, 4095, 0), (9 * MIB - 1, 2 * MIB + 7, 1):
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

    def test_one_path_is_one_link(self):
        proxy = self.proxy(2, 1)
        client = Client(self, proxy, "pinned", 20 * MIB, 3)
        client.ask("up", "right")
        client.ask("down", "right")
        client.end()
        self.assertNotIn("several_links", self.shown(proxy))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
