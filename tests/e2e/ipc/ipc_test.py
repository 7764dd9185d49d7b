"""Memory and events between functions of one proxy, between proxies, and with programs that do not
run through Tube; what happens when one of them is killed.

ipc_test.py --build FOLDER [unittest arguments]. The programs are client.py; the GPU is simulated.
Whatever dies, the others go on, and in the end the proxies hold what they held at the start.
"""
import argparse
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
SMALL, LARGE = 4096, 8 << 20
INVALID_VALUE, MAP_FAILED, NOT_READY, PROXY_DIED = 1, 205, 600, 46
WINDOW_BYTES = 1 << 44  # sharedmem/windows.h


class Program:
    """A client process; each call sends one command. A command that does not return is ended by the
    test's time limit."""

    def __init__(self, test, proxy=None, link=None, **extra):
        arm = "native" if proxy is None else "preload"
        env = dict(tubetest.interpreted(tubetest.environment(LAYOUT, arm, "sim", proxy, "ipc")),
                   **extra)
        if link is not None:
            env["LINK_FD"] = str(link.fileno())
        self.process = subprocess.Popen([sys.executable, HERE / "client.py"], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        pass_fds=[link.fileno()] if link else [])
        test.programs.append(self)
        test.addCleanup(self.kill)
        test.assertEqual(self.hear(), "ready")

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def __call__(self, *words):
        self.say(*words)
        return self.hear()

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        return self.process.returncode


class IpcTest(unittest.TestCase):
    def run(self, result=None):
        self.programs = []
        return super().run(result)

    def proxy(self, workflow="test", **env):
        proxy = tubetest.Proxy(LAYOUT, "sim", workflow=workflow, extra_env=env)
        proxy.start()
        self.addCleanup(proxy.__exit__, None, None, None)
        return proxy

    def ok(self, program, *words):
        answer = program(*words).split(" ", 1)
        self.assertEqual(answer[0], "0", f"{words}")
        return answer[1] if len(answer) > 1 else ""

    def shared(self, exporter, opener, size, value=11):
        """Memory 0 of the exporter, filled and open in the opener as its newest."""
        self.ok(exporter, "alloc", size)
        index = 0
        self.ok(exporter, "fill", index, value, size // 4)
        handle = self.ok(exporter, "export", index)
        self.ok(opener, "open", handle)
        return handle

    def gone(self, proxy, program):
        """Returns once the proxy has given back what the dead program had."""
        while proxy.function(program.process.pid):
            select.select([], [], [], 0.005)

    def assert_back(self, proxy, start):
        # Files of the simulated GPU itself may stay.
        now = proxy.counts_back_to(start)
        self.assertEqual({
            k: v for k, v in now.items() if k != "fds"
        }, {
            k: v for k, v in start.items() if k != "fds"
        })


class OneProxy(IpcTest):
    def setUp(self):
        self.tubed = self.proxy()
        self.start = self.tubed.counts()

    def tearDown(self):
        self.assertTrue(self.tubed.alive(), self.tubed.log_tail())
        for program in self.programs:
            program.kill()
        self.assert_back(self.tubed, self.start)

    def pair(self):
        return Program(self, self.tubed), Program(self, self.tubed)

    def used(self):
        return self.tubed.status()["gpus"][0]["memory_used_by_clients"]

    def test_opening_is_an_alias(self):
        exporter, opener = self.pair()
        self.shared(exporter, opener, LARGE)
        used = self.used()
        self.assertEqual(self.ok(exporter, "address", 0), self.ok(opener, "address", 0))
        self.assertEqual(used, LARGE)

    def test_exporter_killed(self):
        for size in (SMALL, LARGE):
            with self.subTest(size=size):
                exporter, opener = self.pair()
                self.shared(exporter, opener, size)
                exporter.kill()
                self.gone(self.tubed, exporter)
                self.assertEqual(self.ok(opener, "read", 0), "11")
                self.ok(opener, "fill", 0, 12, size // 4)
                self.assertEqual(self.ok(opener, "read", 0, size - 4), "12")
                self.ok(opener, "alloc", size)
                self.ok(opener, "fill", 1, 13, size // 4)
                self.assertEqual(self.ok(opener, "read", 0), "12")
                self.ok(opener, "close", 0)
                self.assertEqual(opener("read", 0).split()[0], str(INVALID_VALUE))
                self.assertEqual(opener.end(), 0)
                self.assert_back(self.tubed, dict(self.start))

    def test_opener_killed(self):
        for size in (SMALL, LARGE):
            with self.subTest(size=size):
                exporter, opener = self.pair()
                self.shared(exporter, opener, size)
                opener.kill()
                self.gone(self.tubed, opener)
                self.assertEqual(self.ok(exporter, "read", 0), "11")
                self.ok(exporter, "free", 0)
                self.assertEqual(exporter.end(), 0)
                self.assert_back(self.tubed, dict(self.start))

    def test_freed_while_open(self):
        for size in (SMALL, LARGE):
            with self.subTest(size=size):
                exporter, opener = self.pair()
                handle = self.shared(exporter, opener, size)
                self.ok(exporter, "free", 0)
                self.assertEqual(exporter("read", 0).split()[0], str(INVALID_VALUE))
                for index in range(1, 4):
                    self.ok(exporter, "alloc", size)
                    self.ok(exporter, "fill", index, 99, size // 4)
                    self.assertNotEqual(self.ok(exporter, "same", 0, index), "1")
                self.assertEqual(self.ok(opener, "read", 0), "11")
                self.ok(opener, "open", handle)  # it has it open: counts
                self.ok(opener, "close", 0)
                late = Program(self, self.tubed)
                self.assertEqual(late("open", handle), str(INVALID_VALUE))
                self.assertEqual(self.ok(opener, "read", 0), "11")
                self.ok(opener, "close", 0)
                self.ok(exporter, "alloc", size)
                for program in (exporter, opener, late):
                    self.assertEqual(program.end(), 0)
                self.assert_back(self.tubed, dict(self.start))

    def test_both_killed_at_once(self):
        exporter, opener = self.pair()
        self.shared(exporter, opener, LARGE)
        exporter.process.kill()
        opener.process.kill()

    def test_other_address_window(self):
        """The opener has something where the exporter's window is, so the memory is mapped a second
        time."""
        first = Program(self, self.tubed)
        self.ok(first, "alloc", 256)
        window = int(self.ok(first, "address", 0), 16) // WINDOW_BYTES * WINDOW_BYTES
        opener = Program(self, self.tubed, OCCUPY=f"{window + (1 << 40):x}")
        for size in (SMALL, LARGE):
            exporter = Program(self, self.tubed)
            self.ok(exporter, "alloc", 256)  # so that the next does not begin its block
            self.ok(exporter, "alloc", size)
            self.ok(exporter, "fill", 1, 21, size // 4)
            self.ok(opener, "open", self.ok(exporter, "export", 1))
            index = 0 if size == SMALL else 1
            self.assertNotEqual(self.ok(exporter, "address", 1), self.ok(opener, "address", index))
            self.assertEqual(self.ok(opener, "read", index, size - 4), "21")
            self.ok(opener, "fill", index, 22, size // 4)
            self.assertEqual(self.ok(exporter, "read", 1), "22")
            exporter.kill()
            self.gone(self.tubed, exporter)
            self.assertEqual(self.ok(opener, "read", index), "22")
        self.ok(opener, "close", 0)
        self.ok(opener, "close", 1)
        self.assertEqual(opener.end(), 0)

    def test_killed_in_a_wait_for_an_event(self):
        exporter, opener = self.pair()
        self.ok(exporter, "event")
        self.ok(exporter, "hold", 0)
        self.ok(exporter, "record", 0, 0)
        self.ok(opener, "open_event", self.ok(exporter, "export_event", 0))
        self.assertEqual(opener("query", 0), str(NOT_READY))
        opener.say("wait", 0)
        opener.kill()
        self.gone(self.tubed, opener)
        self.ok(exporter, "release")
        self.ok(exporter, "wait", 0)

    def test_exporter_of_an_event_killed(self):
        exporter, opener = self.pair()
        self.ok(exporter, "event")
        self.ok(exporter, "record", 0, 0)
        self.ok(opener, "open_event", self.ok(exporter, "export_event", 0))
        exporter.kill()
        self.gone(self.tubed, exporter)
        self.ok(opener, "wait", 0)
        self.ok(opener, "record", 0, 0)
        self.ok(opener, "wait", 0)

    def test_streams_follow_an_event(self):
        exporter, opener = self.pair()
        self.ok(exporter, "event")
        self.ok(exporter, "hold", 0)
        self.ok(exporter, "record", 0, 0)
        self.ok(opener, "open_event", self.ok(exporter, "export_event", 0))
        self.ok(opener, "follow", 1, 0)
        self.assertEqual(opener("query_stream", 1), str(NOT_READY))
        self.ok(exporter, "release")
        self.ok(opener, "wait_stream", 1)

    def test_proxy_dies_under_a_wait_for_an_event(self):
        proxy = self.proxy("dies")
        program = Program(self, proxy)
        self.ok(program, "event")
        self.ok(program, "hold", 0)
        self.ok(program, "record", 0, 0)
        program.say("wait", 0)
        proxy.process.kill()
        self.assertEqual(program.hear(), str(PROXY_DIED))


class SharedWords(IpcTest):
    """Streams of two programs wait for one word."""

    def check(self, share):
        tubed = self.proxy(TUBE_TEARDOWN_MS="200")
        owner, waiter = Program(self, tubed), Program(self, tubed)
        share(owner, waiter)
        for program in (owner, waiter):
            self.ok(program, "watch", 0, 0, 5)
            self.assertEqual(program("query_stream", 0), str(NOT_READY))
        waiter.kill()
        self.gone(tubed, waiter)
        # Nobody but the owner writes what the dead one waited for.
        self.assertEqual(self.ok(owner, "read", 0), "3")
        self.assertEqual(owner("query_stream", 0), str(NOT_READY))
        self.ok(owner, "write", 1, 0, 5)
        self.ok(owner, "wait_stream", 0)

    def test_a_killed_waiter_writes_nothing(self):
        self.check(lambda owner, waiter: self.shared(owner, waiter, LARGE, 3))

    def test_nor_to_a_page_of_a_file(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write((3).to_bytes(4, "little") + bytes(4092))
            file.flush()

            def share(owner, waiter):
                for program in (owner, waiter):
                    self.ok(program, "share_page", file.name)

            self.check(share)


class TwoProxies(IpcTest):
    def setUp(self):
        self.here, self.there = self.proxy("here"), self.proxy("there")
        self.start_here, self.start_there = self.here.counts(), self.there.counts()
        self.exporter, self.opener = Program(self, self.here), Program(self, self.there)

    def assert_all_back(self):
        self.exporter.kill()
        self.opener.kill()
        self.assert_back(self.here, self.start_here)
        self.assert_back(self.there, self.start_there)

    def test_small_memory(self):
        handle = self.shared(self.exporter, self.opener, SMALL)
        self.assertEqual(self.ok(self.opener, "read", 0, SMALL - 4), "11")
        self.ok(self.opener, "fill", 0, 12, SMALL // 4)
        self.assertEqual(self.ok(self.exporter, "read", 0), "12")
        self.ok(self.opener, "open", handle)
        self.assertEqual(self.ok(self.opener, "same", 0, 1), "1")
        self.ok(self.opener, "close", 0)
        self.assertEqual(self.ok(self.opener, "read", 0), "12")
        self.ok(self.opener, "close", 0)
        self.assertEqual(self.opener("close", 0), str(INVALID_VALUE))
        self.ok(self.opener, "open", handle)
        self.assertEqual(self.ok(self.opener, "read", 2), "12")
        self.assert_all_back()

    def test_large_memory(self):
        self.shared(self.exporter, self.opener, LARGE)
        self.assertEqual(self.ok(self.opener, "read", 0, LARGE - 4), "11")
        self.ok(self.opener, "fill", 0, 12, LARGE // 4)
        self.assertEqual(self.ok(self.exporter, "read", 0, LARGE - 4), "12")
        self.assert_all_back()

    def test_freed_while_open(self):
        handle = self.shared(self.exporter, self.opener, SMALL)
        self.ok(self.exporter, "free", 0)
        self.ok(self.exporter, "alloc", SMALL)
        self.assertEqual(self.ok(self.exporter, "same", 0, 1), "0")
        self.ok(self.exporter, "fill", 1, 99, SMALL // 4)
        self.assertEqual(self.ok(self.opener, "read", 0), "11")
        self.ok(self.opener, "close", 0)
        self.assertEqual(self.opener("open", handle), str(INVALID_VALUE))
        self.assert_all_back()

    def test_opener_killed(self):
        self.shared(self.exporter, self.opener, LARGE)
        self.opener.kill()
        self.ok(self.exporter, "free", 0)
        self.assertEqual(self.exporter.end(), 0)
        self.assert_all_back()

    def test_exporter_killed(self):
        self.shared(self.exporter, self.opener, LARGE)
        self.exporter.kill()
        self.here.wait_empty()
        self.assertEqual(self.ok(self.opener, "read", 0), "11")
        self.ok(self.opener, "close", 0)
        self.assertEqual(self.opener.end(), 0)
        self.assert_all_back()

    def test_opener_s_proxy_killed(self):
        self.shared(self.exporter, self.opener, LARGE)
        self.there.process.kill()
        self.there.process.wait()
        self.ok(self.exporter, "free", 0)
        self.assertEqual(self.exporter.end(), 0)
        self.assert_back(self.here, self.start_here)

    def test_owner_s_proxy_killed(self):
        handle = self.shared(self.exporter, self.opener, LARGE)
        self.here.process.kill()
        self.here.process.wait()
        self.assertEqual(self.ok(self.opener, "read", 0), "11")
        self.ok(self.opener, "close", 0)
        self.assertEqual(self.opener("open", handle), str(INVALID_VALUE))
        self.here.start()
        self.assertEqual(self.opener("open", handle), str(INVALID_VALUE))

    def test_a_wrong_token(self):
        handle = self.shared(self.exporter, self.opener, LARGE)
        wrong = handle[:32] + f"{int(handle[32:34], 16) ^ 1:02x}" + handle[34:]
        self.assertEqual(self.opener("open", wrong), str(INVALID_VALUE))
        nowhere = handle[:16] + f"{int(handle[16:18], 16) ^ 1:02x}" + handle[18:]
        self.assertEqual(self.opener("open", nowhere), str(INVALID_VALUE))
        self.assert_all_back()

    def test_events(self):
        self.ok(self.exporter, "event")
        self.ok(self.exporter, "hold", 0)
        self.ok(self.exporter, "record", 0, 0)
        self.ok(self.opener, "open_event", self.ok(self.exporter, "export_event", 0))
        self.assertEqual(self.opener("query", 0), str(NOT_READY))
        self.ok(self.opener, "follow", 1, 0)
        self.assertEqual(self.opener("query_stream", 1), str(NOT_READY))
        self.ok(self.exporter, "release")
        self.ok(self.opener, "wait", 0)
        self.ok(self.opener, "wait_stream", 1)
        self.ok(self.opener, "record", 0, 0)
        self.ok(self.exporter, "wait", 0)
        self.assert_all_back()

    def test_the_broker_survives_nonsense(self):
        handle = self.shared(self.exporter, self.opener, LARGE)
        name = "\0tube-broker-" + bytes.fromhex(handle[16:32])[::-1].hex()
        for message in (b"", b"x", b"x" * 24, b"x" * 5000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(name)
                client.send(message)
                client.settimeout(30)
                self.assertEqual(client.recv(4096), b"")
        question = bytes.fromhex("5455424252" "4f4b31") + bytes.fromhex(handle[32:64])
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(name)
            client.settimeout(30)
            client.send(question)
            _, fds, _, _ = socket.recv_fds(client, 4096, 4)
            self.assertEqual(len(fds), 1)
            os.close(fds[0])
            client.send(question)  # a second one is no part of the exchange
            self.assertEqual(client.recv(4096), b"")
        self.assertEqual(self.ok(self.opener, "read", 0), "11")
        self.assert_all_back()


class NativePrograms(IpcTest):
    def setUp(self):
        self.tubed = self.proxy()
        self.start = self.tubed.counts()

    def test_memory_of_a_native_program(self):
        native, function = Program(self), Program(self, self.tubed)
        for index, size in enumerate((SMALL, LARGE)):
            self.ok(native, "alloc", size)
            self.ok(native, "fill", index, 41, size // 4)
            self.ok(function, "open", self.ok(native, "export", index))
            self.assertEqual(self.ok(function, "read", index, size - 4), "41")
            self.ok(function, "fill", index, 42, size // 4)
            self.assertEqual(self.ok(native, "read", index), "42")
            self.ok(function, "close", index)
            self.assertEqual(function("close", index), str(INVALID_VALUE))
        self.assertEqual(function.end(), 0)
        self.assert_back(self.tubed, self.start)

    def test_function_killed_with_native_memory_open(self):
        native, function = Program(self), Program(self, self.tubed)
        self.shared(native, function, LARGE)
        function.kill()
        self.assert_back(self.tubed, self.start)
        self.assertEqual(self.ok(native, "read", 0), "11")

    def test_events_both_ways(self):
        native, function = Program(self), Program(self, self.tubed)
        for maker, other in ((native, function), (function, native)):
            self.ok(maker, "event")
            self.ok(maker, "hold", 0)
            index = 0 if maker is native else 1
            self.ok(maker, "record", index, 0)
            self.ok(other, "open_event", self.ok(maker, "export_event", index))
            self.assertEqual(other("query", index), str(NOT_READY))
            self.ok(maker, "release")
            self.ok(other, "wait", index)

    def test_memory_by_fd(self):
        for maker_is_native in (True, False):
            with self.subTest(maker_is_native=maker_is_native):
                ends = socket.socketpair()
                maker = Program(self, None if maker_is_native else self.tubed, link=ends[0])
                other = Program(self, self.tubed if maker_is_native else None, link=ends[1])
                self.ok(maker, "create", LARGE)
                self.ok(maker, "fill", 0, 51, LARGE // 4)
                self.ok(other, "adopt", LARGE)
                self.assertEqual(self.ok(other, "read", 0, LARGE - 4), "51")
                self.ok(other, "fill", 0, 52, LARGE // 4)
                self.assertEqual(self.ok(maker, "read", 0), "52")
                maker.kill()
                self.assertEqual(self.ok(other, "read", 0), "52")
                other.kill()
                for end in ends:
                    end.close()
        self.assert_back(self.tubed, self.start)

    def test_function_s_memory_means_nothing_to_a_native_program(self):
        native, function = Program(self), Program(self, self.tubed)
        self.ok(function, "alloc", SMALL)
        self.assertEqual(native("open", self.ok(function, "export", 0)), str(INVALID_VALUE))

    def test_nonsense(self):
        function = Program(self, self.tubed)
        self.assertEqual(function("open", "00" * 64), str(INVALID_VALUE))
        self.assertEqual(function("open_event", "00" * 64), str(MAP_FAILED))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
