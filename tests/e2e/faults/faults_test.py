"""A fault names its author, to everybody; what ps, status, doctor and ping say of functions is so;
what ends tubed is in its log.

faults_test.py --build FOLDER [--backend driver] [unittest arguments]. The functions are client.py.
"""
import argparse
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
parser.add_argument("--backend", choices=("driver", "sim"), default="sim")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
TIMEOUT_S = 60
ILLEGAL_ADDRESS, NOT_READY, INVALID_PTX = 700, 600, 218


class Function:
    """One client.py, told word by word; without a proxy natively."""

    def __init__(self, test, proxy, name):
        arm = "native" if proxy is None else "preload"
        env = tubetest.environment(LAYOUT, arm, options.backend, proxy, function=name)
        self.process = subprocess.Popen([sys.executable, HERE / "client.py"],
                                        env=tubetest.interpreted(env), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.pid = self.process.pid
        self.stderr = None
        test.addCleanup(self.end)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def end(self):
        """What it wrote to standard error."""
        if self.stderr is None:
            self.stderr = self.process.communicate(timeout=TIMEOUT_S)[1]
        return self.stderr


class Faults(unittest.TestCase):
    def proxy(self, **settings):
        proxy = tubetest.Proxy(LAYOUT, options.backend, **settings)
        proxy.__enter__()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def function(self, proxy, name, *words):
        function = Function(self, proxy, name)
        for word in ("init", *words):
            self.assertEqual(function.tell(word), 0, word)
        return function

    def tubectl(self, proxy, *words):
        env = dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir), TUBE_WORKFLOW=proxy.workflow)
        return subprocess.run([LAYOUT.tubectl, *words], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)

    def state(self, proxy, function):
        done = self.tubectl(proxy, "ps", "--json")
        return next(f for f in json.loads(done.stdout)["functions"] if f["pid"] == function.pid)

    def wait_for(self, what):
        deadline = time.monotonic() + TIMEOUT_S
        while not what():
            self.assertLess(time.monotonic(), deadline)
            select.select([], [], [], 0.01)

    def wait_for_state(self, proxy, function, state):
        self.wait_for(lambda: self.state(proxy, function)["state"] == state)

    def test_a_kernel_that_runs_is_not_idle(self):
        proxy = self.proxy()
        function = self.function(proxy, "spinner", "spin", "answer")
        self.assertEqual([function.tell("query") for _ in range(20)], [NOT_READY] * 20)
        self.wait_for_state(proxy, function, "running")
        for _ in range(20):
            shown = self.state(proxy, function)
            self.assertEqual((shown["state"], shown["errors"]), ("running", 0))
        function.process.send_signal(signal.SIGSTOP)
        self.wait_for_state(proxy, function, "stopped")
        function.process.send_signal(signal.SIGCONT)
        self.assertEqual(function.tell("release"), 0)
        self.assertEqual(function.tell("sync"), 0)
        self.wait_for_state(proxy, function, "idle")
        self.assertEqual(self.tubectl(proxy, "ping").returncode, 0)

    def test_the_author_is_named(self):
        """To the culprit, to a bystander whose kernels are over, in the log, by every tool."""
        proxy = self.proxy()
        bystander = self.function(proxy, "bystander", "good", "sync")
        culprit = self.function(proxy, "culprit", "good", "sync", "bad")
        self.assertEqual(culprit.tell("sync"), ILLEGAL_ADDRESS)
        self.assertEqual(bystander.tell("sync"), ILLEGAL_ADDRESS)
        said = f"kernel `bad` of function `culprit` (pid {culprit.pid}) ended the context of all " \
            "functions: CUDA_ERROR_ILLEGAL_ADDRESS (700)"
        done = self.tubectl(proxy, "ping")
        self.assertEqual(done.returncode, 5)
        self.assertEqual(done.stderr, f"tubectl: workflow `test`, GPU 0: {said}\n")
        for verb in ("ps", "status", "doctor"):
            self.assertIn(said, " ".join(self.tubectl(proxy, verb).stdout.split()), verb)
        self.assertEqual(self.tubectl(proxy, "doctor").returncode, 1)
        self.assertEqual(self.state(proxy, bystander)["state"], "faulted")
        log = [line for line in proxy.log_path.read_text().splitlines() if said in line]
        self.assertEqual(len(log), 1, log)
        self.assertRegex(log[0], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z tube: error: workflow `test`")
        for function in (culprit, bystander):
            lines = [line for line in function.end().splitlines() if "ended the context" in line]
            self.assertEqual(len(lines), 1, function.stderr)
            self.assertTrue(lines[0].startswith(f"tube: error: workflow `test`, GPU 0: {said}; every"))

    def test_two_that_may_have_done_it_are_both_named(self):
        proxy = self.proxy()
        culprit = self.function(proxy, "culprit")
        spinner = self.function(proxy, "spinner", "spin", "answer")
        self.assertEqual(culprit.tell("bad"), 0)
        self.assertEqual(culprit.tell("sync"), ILLEGAL_ADDRESS)
        fault = json.loads(self.tubectl(proxy, "ping", "--json").stdout)["faults"][0]
        self.assertEqual({(s["function"], s["pid"], *s["kernels"]) for s in fault["suspects"]},
                         {("spinner", spinner.pid, "spin"), ("culprit", culprit.pid, "bad")})
        self.assertIn("one of these ended", fault["text"])

    def test_each_class_of_fault_is_told_as_natively_and_ends_one_workflow(self):
        other = self.proxy(workflow="other")
        elsewhere = self.function(other, "elsewhere", "good", "sync")
        for kernel in ("bad", "far", "misaligned", "trapped", "failed"):
            natively = self.function(None, "natively", "good", "sync", kernel)
            code = natively.tell("sync")
            natively.end()
            self.assertNotEqual(code, 0, kernel)
            proxy = self.proxy()
            bystander = self.function(proxy, "bystander", "good", "sync")
            culprit = self.function(proxy, "culprit", "good", "sync", kernel)
            self.assertEqual((culprit.tell("sync"), bystander.tell("sync")), (code, code), kernel)
            done = self.tubectl(proxy, "ping")
            self.assertEqual(done.returncode, 5)
            self.assertIn(f"kernel `{kernel}` of function `culprit` (pid {culprit.pid}) ended the "
                          "context of all functions", done.stderr)
            self.assertIn(f"({code})", done.stderr)
            self.assertEqual([elsewhere.tell(word) for word in ("good", "sync")], [0, 0], kernel)
            for function in (culprit, bystander):
                function.end()
        self.assertEqual(self.tubectl(other, "ping").returncode, 0)

    def test_functions_on_a_dead_context_are_ended_when_that_is_asked_for(self):
        proxy = self.proxy(arguments=["--on-fault", "end"])
        bystander = self.function(proxy, "bystander", "good", "sync")
        culprit = self.function(proxy, "culprit", "bad")
        self.assertNotEqual(culprit.tell("sync"), 0)
        # Nobody leaves, and yet somebody new can come.
        newcomer = self.function(proxy, "newcomer", "good", "sync")
        self.assertNotEqual(bystander.tell("sync"), 0)
        self.assertEqual(newcomer.tell("sync"), 0)
        self.assertEqual(proxy.status()["totals"]["restarts"], 1)

    def test_a_compiler_that_crashes_or_hangs_costs_one_function(self):
        # A sanitizer would end the child with an exit code of its own.
        asan = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
        proxy = self.proxy(extra_env={"TUBE_COMPILE": "child", "TUBE_COMPILE_S": "1",
                                      "ASAN_OPTIONS": asan.lstrip(":")})
        bystander = self.function(proxy, "bystander", "good", "sync")
        culprit = self.function(proxy, "culprit")
        for text, said in (("crash", "the compiler crashed on PTX (SIGSEGV)"),
                           ("hang", "the compiler came to no end with PTX (1 s, 16 GiB)")):
            for _ in range(2):  # the second time it is known
                self.assertEqual(culprit.tell("load:tube." + text), INVALID_PTX)
            lines = [l for l in proxy.log_path.read_text().splitlines() if "culprit: " + said in l]
            self.assertEqual(len(lines), 1, proxy.log_tail())
        self.assertEqual(culprit.tell("load:harmless"), 0)
        for function in (culprit, bystander):
            self.assertEqual([function.tell(word) for word in ("good", "sync")], [0, 0])
        children = pathlib.Path("/proc", str(proxy.process.pid), "task").glob("*/children")
        self.assertEqual("".join(file.read_text() for file in children), "")

    def test_a_signal_that_ends_tubed_is_in_its_log(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and by the proxy then
        proxy = self.proxy()
        proxy.process.send_signal(signal.SIGHUP)
        self.assertEqual(proxy.wait_end(), 0)
        self.assertRegex(proxy.log_path.read_text(),
                         rf"told to end by signal 1 \(HUP\) of process {os.getpid()}")
        self.assertEqual([f.name for f in proxy.dir.iterdir() if f.suffix in (".sock", ".ctl")], [])

    def test_a_crash_of_tubed_leaves_a_trace(self):
        proxy = self.proxy()
        function = self.function(proxy, "victim", "good", "sync")
        proxy.process.send_signal(signal.SIGSEGV)
        self.assertEqual(proxy.wait_end(), -signal.SIGSEGV)
        log = proxy.log_path.read_text()
        self.assertIn(f"crashes in thread `tubed`: SIGSEGV sent by process {os.getpid()}", log)
        self.assertRegex(log, r"#\d+ tube::proxy::Server::run\(\) \+ 0x[0-9a-f]+ \(tubed \+ 0x")
        function.tell("good")
        self.assertNotEqual(function.tell("sync"), 0)
        self.assertIn("died", function.end())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
