"""How proxies and functions meet when they begin, end or live in other namespaces.

proxies_test.py --build FOLDER [unittest arguments]. The functions are scenes of life.cc.
"""
import argparse
import contextlib
import pathlib
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/life/life"
TIMEOUT_S = 100
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Proxies(unittest.TestCase):
    def environment(self, proxy, **settings):
        return dict(tubetest.environment(LAYOUT, "preload", "sim", proxy), **settings)

    def assert_computes(self, proxy):
        done = subprocess.run([PROGRAM, "compute"], env=self.environment(proxy), text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                         done.stderr + proxy.log_tail())

    # ---- PID namespaces
    # ------------------------------------------------------------------------------------------------

    def proxy_in_a_namespace(self):
        """A proxy for which no function has a process number: they are outside of its PID
        namespace."""
        if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
            self.skipTest("no PID namespaces of one's own can be made here (unshare)")
        layout = tubetest.Layout(options.build)
        proxy = tubetest.Proxy(layout, "sim")
        self.addCleanup(proxy.__exit__, None, None, None)
        layout.tubed = proxy.dir / "tubed"
        layout.tubed.write_text(f'#!/bin/sh\nexec {" ".join(UNSHARE)} {LAYOUT.tubed} "$@"\n')
        layout.tubed.chmod(0o700)
        proxy.start()
        self.addCleanup(self.end, proxy)
        return proxy

    def end(self, proxy):
        """`unshare` itself passes no signals on."""
        self.assertTrue(proxy.request("stop")["ok"])
        self.assertEqual(proxy.wait_end(), 0)

    def test_functions_of_other_namespaces_join_beside_each_other(self):
        proxy = self.proxy_in_a_namespace()
        with contextlib.ExitStack() as connections:
            for _ in range(12):  # more than one process may have that say nothing
                other = connections.enter_context(
                    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                other.connect(str(proxy.dir / f"{proxy.workflow}.sock"))
            self.assert_computes(proxy)

    def test_a_function_of_another_namespace_has_its_limit_alone(self):
        proxy = self.proxy_in_a_namespace()
        function = subprocess.Popen([PROGRAM, "stay"], text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE,
                                    env=self.environment(proxy, TUBE_MEMORY="64M"))
        self.addCleanup(function.communicate)
        self.assertEqual(function.stdout.readline(), "here\n", proxy.log_tail())
        told = {"free_bytes": 3 << 30, "total_bytes": 4 << 30}
        uuid = proxy.request("ping")["gpus"][0]
        self.assertEqual(proxy.status()["functions"][0]["pid"], 0)
        self.assertEqual(proxy.request("seen", uuid=uuid, **told), {"ok": True, **told})


if __name__ == "__main__":
    LAYOUT.require()
    LAYOUT.require(PROGRAM)
    sys.exit(not unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful())
