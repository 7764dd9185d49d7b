"""Who waits sleeps, nobody starves, and what needs no wait has none: all by counts, under a proxy
on the simulated GPU.

waiting_test.py --build FOLDER [unittest arguments]. The programs are waiting.cc.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
PROGRAM = LAYOUT.build / "tests/e2e/waiting/waiting"
IDLE = 48
NAP_S = 60  # a session looks by itself that often (sharedmem/wait.cc)


def switches(pid):
    """How often each thread of the process went to sleep or was sent away: (name, id) -> count."""
    counts = {}
    for task in pathlib.Path("/proc", str(pid), "task").iterdir():
        lines = dict(
            line.split(":\t", 1)
            for line in (task / "status").read_text().splitlines()
            if ":\t" in line)
        counts[lines["Name"], int(task.name)] = int(lines["voluntary_ctxt_switches"]) + int(
            lines["nonvoluntary_ctxt_switches"])
    return counts


def waited(function):
    """Calls on whose answer the function waited, but for the probe of who waits long: it says how
    busy the machine is."""
    return {
        call: count
        for call, count in function["round_trip_calls"].items()
        if call != "tubeStreamProbe"
    }


class Client:
    def __init__(self, test, proxy, *words):
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        self.test = test
        self.process = subprocess.Popen([PROGRAM, *map(str, words)], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.expect("ready")

    def expect(self, line):
        said = self.process.stdout.readline().rstrip("\n")
        while said.startswith("cu"):
            self.test.assertIn("CUDA_SUCCESS", said)
            said = self.process.stdout.readline().rstrip("\n")
        self.test.assertEqual(said, line)

    def go(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def work(self):
        self.go()
        self.expect("done")

    def end(self):
        if self.process.poll() is None and not self.process.stdin.closed:
            try:
                self.go()
            except BrokenPipeError:
                pass
            self.process.stdin.close()
        code = self.process.wait()
        self.process.stdout.close()
        return code


class Waiting(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, "sim", **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def test_idle_functions_sleep(self):
        """While another function works, 48 that do nothing and their sessions are not scheduled
        once each."""
        proxy = self.proxy()
        started = time.monotonic()
        clients = [Client(self, proxy, "idle") for _ in range(IDLE)]
        pids = {client.process.pid for client in clients}
        sessions = {f"tube-{f['id']}" for f in proxy.status()["functions"] if f["pid"] in pids}
        self.assertEqual(len(sessions), IDLE)
        busy = Client(self, proxy, "sync", 6000)
        # The simulated GPU's threads have the name of the session that started them: the session's
        # own is the oldest.
        own = {
            name: min(task for other, task in switches(proxy.process.pid) if other == name)
            for name in sessions
        }
        before = {name: switches(proxy.process.pid)[name, task] for name, task in own.items()}
        inside = [switches(client.process.pid) for client in clients]
        busy.work()
        after = switches(proxy.process.pid)
        woken = sum(after[name, task] - before[name] for name, task in own.items())
        naps = IDLE * int(
            (time.monotonic() - started) / NAP_S)  # none, unless the machine is very slow
        self.assertLess(woken, IDLE // 8 + naps, "sessions of idle functions were woken")
        # Of the functions too, the helper thread for host functions among them.
        woken = sum(
            sum(switches(client.process.pid).values()) - sum(then.values())
            for client, then in zip(clients, inside))
        self.assertLess(woken, IDLE // 8, "idle functions were woken")
        self.assertEqual({f["state"] for f in proxy.status()["functions"] if f["pid"] in pids},
                         {"idle"})
        self.assertEqual(busy.end(), 0)

    def test_nobody_starves_on_two_cores(self):
        """Functions that launch without end and one that waits for each launch all get on, with two
        cores for everything."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, set(sorted(before)[:2]))
        self.addCleanup(os.sched_setaffinity, 0, before)
        proxy = self.proxy()
        hammers = [Client(self, proxy, "hammer") for _ in range(5)]
        waiter = Client(self, proxy, "sync", 100)
        start = {
            hammer.process.pid: proxy.function(hammer.process.pid)["records"] for hammer in hammers
        }
        waiter.work()
        for hammer in hammers:
            self.assertGreater(
                proxy.function(hammer.process.pid)["records"], start[hammer.process.pid],
                "a function that launches stood still")
        self.assertEqual(waiter.end(), 0)
        for hammer in hammers:
            self.assertEqual(hammer.end(), 0)

    def test_events_on_an_idle_stream_ask_nobody(self):
        proxy = self.proxy()
        client = Client(self, proxy, "events", 1000)
        before = proxy.function(client.process.pid)
        client.work()
        after = proxy.function(client.process.pid)
        self.assertEqual(waited(after), waited(before))
        self.assertEqual(after["calls"].get("tubeSignal", 0), before["calls"].get("tubeSignal", 0))
        waits = [sum(f["waits"].get("word", {}).values()) for f in (before, after)]
        self.assertEqual(waits[1], waits[0], "a wait for the GPU")
        self.assertEqual(client.end(), 0)

    def test_small_uploads_wait_for_nothing(self):
        for what in ("uploads", "mapped_uploads"):
            with self.subTest(what):
                self.check_uploads(what)

    def check_uploads(self, what):
        proxy = self.proxy()
        client = Client(self, proxy, what, 1000)
        before = proxy.function(client.process.pid)
        client.work()
        after = proxy.function(client.process.pid)
        self.assertEqual(waited(after), waited(before))
        # The first one waits for what was posted before it.
        self.assertLessEqual(after["calls"].get("tubeSignal", 0),
                             before["calls"].get("tubeSignal", 0) + 1)
        self.assertEqual(client.end(), 0)

    def test_updates_of_an_instance_ask_nobody(self):
        """After the first step, which proves what the driver takes, updates and launches of an
        instance are posted."""
        for what in ("updates", "mapped_updates"):
            with self.subTest(what):
                self.check_updates(what)

    def check_updates(self, what):
        proxy = self.proxy()
        client = Client(self, proxy, what, 300)
        before = proxy.function(client.process.pid)
        client.work()
        client.go()
        client.expect("synchronised")  # its results are right
        after = proxy.function(client.process.pid)
        self.assertEqual(waited(after), waited(before))
        expected = {
            "tubeGraphKernelNode": 1200,
            "tubeGraphCopyNode": 600,
            "tubeGraphMemsetNode": 300,
            "cuGraphLaunch": 300
        }
        self.assertEqual({call: after["calls"][call] - before["calls"][call] for call in expected},
                         expected)
        self.assertEqual(client.end(), 0)

    def test_a_posted_update_that_fails_is_reported(self):
        """The driver refuses what it always took: the next synchronisation says so, it is counted,
        and the node is asked about anew."""
        # Two steps of four kernels, then the sixth step's first update.
        proxy = self.proxy(
            extra_env={
                "TUBE_COALESCE_US": "0",
                "TUBE_SIM_FAULT": "call=cuGraphExecKernelNodeSetParams_v2:error=1:after=28:count=1"
            })
        client = Client(self, proxy, "refused", 10)
        before = proxy.function(client.process.pid)
        client.go()
        client.expect("refused 1")
        client.expect("done")
        after = proxy.function(client.process.pid)
        self.assertEqual(after["errors"], before["errors"] + 1)
        # One step in which every node's update is awaited again, a copy's behind the question what
        # it was.
        grown = {
            call: count - waited(before).get(call, 0)
            for call, count in waited(after).items()
            if count != waited(before).get(call, 0)
        }
        self.assertEqual(
            grown, {
                "tubeGraphKernelNode": 4,
                "tubeGraphCopyNode": 2,
                "tubeGraphNodeGet": 2,
                "tubeGraphMemsetNode": 1
            })
        self.assertEqual(client.end(), 0)

    def test_an_update_that_the_driver_takes_no_more_is_awaited(self):
        """Its answer comes at the call, as the simulated driver gives it, not at the next
        synchronisation."""
        client = Client(self, self.proxy(), "dropped", 4)
        client.go()
        for _ in range(4):
            client.expect("answered 1")
        client.expect("done")
        self.assertEqual(client.end(), 0)

    def test_records_are_executed_many_for_each_wake(self):
        """Launches that nobody waits for, and their graphs: at whatever period they repeat, though
        no boundary comes."""
        proxy = self.proxy(extra_env={"TUBE_COALESCE_US": "200000"})
        for length in (1, 3, 40, 60):
            client = Client(self, proxy, "loop", 8192, length)
            client.work()
            client.go()
            client.expect("synchronised")
            function = proxy.function(client.process.pid)
            self.assertGreater(function["coalesced_launches"], 8192 * 3 // 4, length)
            # Each wait of the session, spun or slept, is a wake.
            self.assertGreater(function["records"], 4 * sum(function["waits"]["record"].values()),
                               length)
            self.assertEqual(client.end(), 0)

    def test_a_new_stream_has_the_graphs_of_the_last_one(self):
        """While another program's stream stands none can be made."""
        proxy = self.proxy(extra_env={"TUBE_COALESCE_US": "200000"})
        client = Client(self, proxy, "streams", 4)
        client.go()
        client.expect("first")
        made = proxy.function(client.process.pid)["coalesced_launches"]
        self.assertGreater(made, 0)
        standing = Client(self, proxy, "stand")
        client.work()
        function = proxy.function(client.process.pid)
        self.assertEqual(function["coalesced_launches"], 4 * made)
        self.assertEqual([client.end(), standing.end()], [0, 0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
