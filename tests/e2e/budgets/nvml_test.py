"""Our libnvidia-ml.so.1: what NVML says of memory agrees with CUDA and with the limits, processes
are the functions, everything else is the real library's answer (here the simulated one's).

nvml_test.py --build DIR [Nvml.test_NAME...]
"""
import argparse
import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import tubetest  # noqa: E402

MIB = 1 << 20
TOTAL, FREE, RESERVED = 4096 * MIB, 3500 * MIB, 96 * MIB  # of the machine, as its NVML says
TOO_SMALL, NO_LIBRARY, NO_FUNCTION = "7", "12", "13"
OTHER = 4_000_000  # a process elsewhere on the machine
LAYOUT = None


class Client(tubetest.ToldProgram):
    def numbers(self, *words):
        return [int(word) for word in self.ask(*words).split()]


class Nvml(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = pathlib.Path(folder.name) / "machine"

    def start_proxy(self, *arguments):
        self.proxy = tubetest.Proxy(LAYOUT, "sim", arguments=arguments)
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        self.uuid = self.proxy.request("ping")["gpus"][0]
        self.describe()

    def describe(self, free=FREE, processes=()):
        lines = [f"gpu {self.uuid} {TOTAL} {free} {RESERVED}",
                 f"gpu GPU-of-somebody-else {TOTAL} {free} {RESERVED}"]
        lines += [f"process 0 {pid} {size}" for pid, size in processes]
        self.machine.write_text("\n".join(lines) + "\n")

    def environment(self, memory=None, **more):
        env = tubetest.environment(LAYOUT, "library-path", "sim", self.proxy)
        env.update(TUBE_REAL_NVML=str(LAYOUT.build / "sim/nvml/libnvidia-ml.so.1"),
                   TUBE_SIM_NVML=str(self.machine), **more)
        if memory is not None:
            env["TUBE_MEMORY"] = memory
        return tubetest.interpreted(env)

    def client(self, memory=None, cuda=True, **more):
        client = Client(self, [sys.executable, HERE / "nvml_client.py"],
                        self.environment(memory, **more))
        self.assertEqual(client.ask("init"), "0")
        if cuda:
            self.assertEqual(client.ask("cuda"), "0")
        return client

    def agree(self, client):
        """Total, free: the same from NVML in both forms and from CUDA."""
        total, free, used = client.numbers("memory")
        self.assertEqual(used, total - free)
        self.assertEqual(client.numbers("memory2"), [total, 0, free, used])
        self.assertEqual(client.numbers("info"), [total, free])
        return total, free

    def test_a_limit_is_what_both_say(self):
        self.start_proxy("--memory", "512M")
        function, neighbour = self.client("256M"), self.client()
        self.assertEqual(self.agree(function), (256 * MIB, 256 * MIB))
        self.assertEqual(function.ask("take", 100), "0")
        total, free = self.agree(function)
        self.assertEqual((total, free), (256 * MIB, 156 * MIB), "what it took, and nobody else's")
        self.assertEqual(neighbour.ask("take", 64), "0")
        self.assertEqual(self.agree(function), (total, free), "its own limit is the tighter one")
        self.assertEqual(neighbour.ask("take", 300), "0")
        self.assertEqual(self.agree(function), (total, 48 * MIB), "the workflow's is")
        self.assertTrue(self.proxy.request("limit", pid=function.pid, memory_bytes=110 * MIB)["ok"])
        self.assertEqual(self.agree(function), (total, 10 * MIB))
        self.assertEqual(function.ask("drop"), "0")
        self.assertEqual(function.numbers("info"), [total, 110 * MIB])
        self.assertEqual(self.agree(function), (total, 110 * MIB))

    def test_without_limits_it_is_the_machine(self):
        self.start_proxy()
        function = self.client()
        real = [TOTAL, FREE, TOTAL - FREE]
        self.assertEqual(function.numbers("memory"), real)
        self.assertEqual(function.numbers("memory2"),
                         [TOTAL, RESERVED, FREE, TOTAL - FREE - RESERVED])
        self.assertEqual(function.ask("take", 64), "0")
        self.assertEqual(function.numbers("memory")[1], FREE - 64 * MIB, "what is promised is taken")
        self.assertEqual(function.ask("drop"), "0")
        self.assertEqual(function.numbers("info")[0] > 0, True)  # the free has been heard of
        self.assertEqual(function.numbers("memory"), real, "what is held ready is free")
        off = self.client("256M", cuda=False, TUBE_OFF="1")
        self.assertEqual(off.numbers("memory")[0], TOTAL)
        self.describe(FREE - 64 * MIB)
        self.proxy.stop()
        self.assertEqual(function.numbers("memory"), [TOTAL, FREE - 64 * MIB, TOTAL - FREE + 64 * MIB])

    def test_who_has_not_started_cuda_sees_what_it_would(self):
        self.start_proxy("--function-memory", "1G")
        early = self.client("256M", cuda=False)
        self.assertEqual(early.numbers("memory"), [256 * MIB, 256 * MIB, 0])
        self.assertEqual(self.client(cuda=False).numbers("memory")[0], 1024 * MIB)
        self.assertEqual(self.proxy.status()["functions"], [], "asking NVML starts no CUDA")

    def test_processes_are_the_functions(self):
        self.start_proxy()
        one, two = self.client(), self.client()
        self.assertEqual((one.ask("take", 64), two.ask("take", 32)), ("0", "0"))
        proxy = self.proxy.process.pid
        self.describe(processes=((OTHER, 7 * MIB), (proxy, 500 * MIB)))
        expected = {
            f"{OTHER}:{7 * MIB}", f"{proxy}:{404 * MIB}", f"{one.pid}:{64 * MIB}",
            f"{two.pid}:{32 * MIB}"
        }
        for form in ("1", "3"):
            code, count, *listed = two.ask("processes", form, 10).split()
            self.assertEqual((code, count), ("0", "4"))
            self.assertEqual(set(listed), expected)
            self.assertEqual(two.ask("processes", form, 3), f"{TOO_SMALL} 4")
            self.assertEqual(two.ask("processes", form, 0), f"{TOO_SMALL} 4")
        self.describe()  # as in a container that sees no processes
        code, count, *listed = one.ask("processes", "3", 10).split()
        self.assertEqual(set(listed), {f"{one.pid}:{64 * MIB}", f"{two.pid}:{32 * MIB}"})

    def test_everything_else_is_passed_on(self):
        self.start_proxy()
        client = self.client(cuda=False)
        self.assertEqual(client.ask("count"), "2")
        value = (1 + 2 * 2 + 3 * 3 + 5 * 4 + 7 * 5 + 11 * 6 + 13 * 7 + 17 * 8 + 19 * 9.5 + 23 * 10.25)
        for _ in range(2):  # found, and then known
            self.assertEqual(float(client.ask("arguments")), value)
        self.assertEqual(client.ask("newer"), NO_FUNCTION)
        self.assertEqual(client.ask("error", 0), "Success")

    def test_a_machine_without_nvml(self):
        self.start_proxy()
        env = dict(self.environment(), TUBE_REAL_NVML=str(self.machine / "none"))
        client = Client(self, [sys.executable, HERE / "nvml_client.py"], env)
        self.assertEqual(client.ask("init"), NO_LIBRARY)
        self.assertEqual(client.ask("error", 12), "NVML Shared Library Not Found")

    def test_tubectl_run_finds_it(self):
        self.start_proxy()
        env = {k: v for k, v in self.environment().items() if k != "LD_LIBRARY_PATH"}
        command = [LAYOUT.tubectl, "run", "-w", self.proxy.workflow, "--no-start", "--memory", "256M",
                   "--", sys.executable, HERE / "nvml_client.py"]
        client = Client(self, command, dict(env, TUBE_BACKEND="sim"))
        self.assertEqual((client.ask("init"), client.ask("cuda")), ("0", "0"))
        self.assertEqual(self.agree(client), (256 * MIB, 256 * MIB))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    options, rest = parser.parse_known_args()
    LAYOUT = tubetest.Layout(options.build)
    LAYOUT.require(LAYOUT.hook / "libnvidia-ml.so.1")
    unittest.main(argv=[sys.argv[0], *rest])
