"""Every error a user meets is one line that says what happened and what to do; the program gets the
right CUDA error; nothing hangs.

errors_test.py --build FOLDER [unittest arguments]. The client is client.py; proxies run the
simulated GPU, each in a runtime folder of its own. A call that hung would end the test by its time
limit.
"""
import argparse
import os
import pathlib
import resource
import shutil
import socket
import struct
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
HOOK = str(LAYOUT.hook / "libcuda.so.1")
TIMEOUT_S = 60
INVALID_VALUE = 1
NO_PROXY, VERSIONS, PROXY_DIED, OUT_OF_MEMORY, NOT_SUPPORTED, NOT_INITIALIZED = 802, 803, 46, 2, 801, 3
DEINITIALIZED = 4
UNKNOWN = 999
HELLO_BYTES, WELCOME_BYTES = 424, 352  # sharedmem/handshake.h
WELCOME_MAGIC = 0x4D4F434C45574254
VALIDITY_CHECK = "D4082055BDE6704B8D34BA123C66E1F2"  # export tables, hook/calls/export_tables.cc
EARLY_TABLE = "F8CFF951000000000000000000000000"  # asked for before cuInit; first bytes count
CUPTI_TABLE = "7CB63F9B000000000000000000000000"  # its first bytes count
# A driver that says in a file what it was shown at its start.
RECORDING_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) {
  FILE* file = fopen("%s", "w");
  const char *tool = getenv("CUDA_INJECTION64_PATH"), *visible = getenv("CUDA_VISIBLE_DEVICES");
  fprintf(file, "%%s %%.4s", tool ? tool : "no tool,", visible ? visible : "all");
  return fclose(file) != 0 || flags != 0;
}
int cuGetExportTable(const void** table, const void* id) { *table = id; return 1; }
int cuDeviceGetCount(int* count) { *count = 0; return 0; }
int cuDeviceGetUuid_v2(void* uuid, int device) { return uuid == 0 || device != 0; }
"""
# One that is not to be started in the child of the process that loaded it.
DRIVER_OF_ONE_PROCESS = """
#include <stdio.h>
#include <unistd.h>
static int loaded_by;
__attribute__((constructor)) static void load(void) { loaded_by = getpid(); }
int cuInit(unsigned flags) {
  FILE* file = fopen("%s", "w");
  fputs(loaded_by == getpid() ? "its own" : "its parent's", file);
  return fclose(file) != 0 || flags != 0;
}
int cuGetExportTable(const void** table, const void* id) { *table = id; return 0; }
int cuDeviceGetCount(int* count) { *count = 0; return 0; }
int cuDeviceGetUuid_v2(void* uuid, int device) { return uuid == 0 || device != 0; }
"""


class Errors(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tube-errors-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def environment(self, folder, **extra):
        env = dict(tubetest.base_environment(), **LAYOUT.preload(HOOK), TUBE_DIR=str(folder),
                   TUBE_WORKFLOW="test")
        return dict(tubetest.interpreted(env), **extra)

    def client(self, folder, *words, **extra):
        return subprocess.run([sys.executable, HERE / "client.py", *words],
                              env=self.environment(folder, **extra), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)

    def start_client(self, folder, *words):
        client = subprocess.Popen([sys.executable, HERE / "client.py", *words],
                                  env=self.environment(folder), text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while (line := client.stdout.readline()) and line != "waiting\n":
            pass
        return client

    def tubed(self, *arguments, folder=None):
        env = dict(tubetest.base_environment(), TUBE_DIR=str(folder or self.dir))
        return subprocess.run([LAYOUT.tubed, "--workflow", "test", "--log", "error", *arguments],
                              env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT_S)

    def test_slow_calls_are_named(self):
        """TUBE_SLOW_CALL_US: the driver's calls that take so long, in the log; none without it."""
        for least, named in (("0", True), (None, False)):
            settings = {} if least is None else {"TUBE_SLOW_CALL_US": least}
            with tubetest.Proxy(LAYOUT, "sim", extra_env=settings) as proxy:
                done = self.client(proxy.dir, "init")
                self.assertEqual(done.returncode, 0, done.stderr)
                log = proxy.log_path.read_text(encoding="utf-8")
            self.assertEqual("slow call: cuInit took " in log, named, log[-2000:])

    def test_more_questions_than_places(self):
        """Whoever comes when the proxy's places for tubectl are taken is answered when one is
        free."""
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            path = str(proxy.dir / f"{proxy.workflow}.ctl")
            taken = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(40)]
            for place in taken:
                place.settimeout(TIMEOUT_S)
                place.connect(path)
            for place in taken:  # in the order in which they came, each makes room for another
                place.sendall(b'{"verb": "ping"}\n')
                self.assertIn(b'"ok":true', place.recv(4096).replace(b" ", b""))
                place.close()
            self.assertTrue(proxy.request("ping")["ok"])

    def assert_one_line(self, text, *parts):
        self.assertEqual(len(text.splitlines()), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def assert_result(self, done, word, code):
        self.assertIn(f"{word} {code}\n", done.stdout, done.stderr)

    # ---- the proxy does not start
    # -----------------------------------------------------------------------------------

    def test_no_gpu(self):
        done = self.tubed("--backend", "driver", "--driver", "/no/such/libcuda.so.1")
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr, "/no/such/libcuda.so.1")
        done = self.tubed("--backend", "sim", "--gpus", "7", "--sim",
                          str(LAYOUT.sim / "libcuda.so.1"))
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr, "no GPU", "--gpus")

    def test_no_gpu_through_tubectl(self):
        env = dict(tubetest.base_environment(), TUBE_DIR=str(self.dir),
                   TUBE_REAL_DRIVER="/no/such/libcuda.so.1")
        done = subprocess.run([LAYOUT.tubectl, "run", "--backend", "driver", "--", "true"], env=env,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 125)
        self.assert_one_line(done.stderr, "tubectl: ")

    def test_workflow_already_served(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            done = self.tubed("--backend", "sim", "--sim", str(LAYOUT.sim / "libcuda.so.1"),
                              folder=proxy.dir)
            self.assertEqual(done.returncode, 1)
            self.assert_one_line(done.stderr)
            self.assertTrue(proxy.alive())
            self.assert_result(self.client(proxy.dir, "init"), "init", 0)

    # ---- the program cannot join
    # --------------------------------------------------------------------------------------

    def test_proxy_not_running(self):
        done = self.client(self.dir, "init", "init", "alloc:16")
        self.assert_result(done, "init", NO_PROXY)
        self.assert_result(done, "alloc:16", NOT_INITIALIZED)
        self.assert_one_line(done.stderr, "no proxy is running", "tubectl")

    def test_socket_path_too_long(self):
        folder = self.dir / ("d" * 100)
        folder.mkdir(mode=0o700)
        done = self.client(folder, "init")
        self.assert_result(done, "init", NO_PROXY)
        self.assert_one_line(done.stderr, "socket path", "TUBE_DIR")

    def test_runtime_folder_open_to_others(self):
        self.dir.chmod(0o755)
        done = self.client(self.dir, "init")
        self.assert_result(done, "init", NO_PROXY)
        self.assert_one_line(done.stderr, str(self.dir))

    @unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/usr/bin/python3"),
                         "needs root, to change the user, and the system's Python")
    def test_no_permission(self):
        self.dir.chmod(0o755)
        folder = self.dir / "run"
        folder.mkdir(mode=0o700)
        # The system's Python: another user may not read this one's, nor this build folder.
        done = subprocess.run([
            "/usr/bin/python3", "-c",
            "import ctypes; print('init', ctypes.CDLL('libcuda.so.1').cuInit(0))"
        ], user=65534, group=65534, extra_groups=[], env=self.environment(folder),
                              capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT_S)
        if "cannot be preloaded" in done.stderr:
            self.skipTest("another user cannot read this build folder")
        self.assert_result(done, "init", NO_PROXY)
        self.assert_one_line(done.stderr, str(folder))

    def test_version_mismatch(self):
        said = b"the proxy is version 9.9.9, this program's hook 0.1.0: end the proxy with `tubectl proxy stop`"
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(server.close)
        server.bind(str(self.dir / "test.sock"))
        server.listen()
        server.settimeout(TIMEOUT_S)
        program = subprocess.Popen([sys.executable, HERE / "client.py", "init"],
                                   env=self.environment(self.dir), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connection, _ = server.accept()
        with connection:
            hello = connection.recv(4096)
            self.assertEqual(len(hello), HELLO_BYTES)
            refusal = struct.pack("<QIIQQIIIIQQ32s256s", WELCOME_MAGIC, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0,
                                  b"9.9.9", said)
            self.assertEqual(len(refusal), WELCOME_BYTES)
            connection.sendall(refusal)
            out, err = program.communicate(timeout=TIMEOUT_S)
        self.assertIn(f"init {VERSIONS}\n", out)
        self.assert_one_line(err, "9.9.9")

    def test_proxy_refuses_another_protocol(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy, socket.socket(socket.AF_UNIX,
                                                                   socket.SOCK_SEQPACKET) as client:
            client.settimeout(TIMEOUT_S)
            client.connect(str(proxy.dir / "test.sock"))
            hello = struct.pack("<QIIQiI64s32s256sQQQIiII", 0x4F4C4C4548425554, 1, 0, 0x1234, os.getpid(),
                                15, b"old", b"0.0.1", b"\x01", 0, 0, 0, 0, 0, 0, 0)
            self.assertEqual(len(hello), HELLO_BYTES)
            client.sendall(hello)
            welcome = client.recv(4096)
            self.assertEqual(struct.unpack_from("<QII", welcome)[2], 1)
            message = welcome[-256:].split(b"\0")[0].decode()
            self.assertIn("0.0.1", message)
            self.assertTrue(proxy.alive())

    def test_shared_memory_exhausted(self):
        with tubetest.Proxy(LAYOUT, "sim", extra_env={"TUBE_SPARES": "0"}) as proxy:
            # The first client makes the proxy reserve its address window, which the limit below
            # must not stop.
            self.assert_result(self.client(proxy.dir, "init"), "init", 0)
            proxy.wait_empty()
            proxy.wait_unmapped(
                "tube-segment")  # or what it frees later would be enough for the second one
            _, hard = resource.prlimit(proxy.process.pid, resource.RLIMIT_AS)
            pages = int(
                pathlib.Path("/proc", str(proxy.process.pid), "statm").read_text().split()[0])
            resource.prlimit(proxy.process.pid, resource.RLIMIT_AS,
                             (pages * 4096 + (1 << 20), hard))
            done = self.client(proxy.dir, "init")
            self.assertNotIn("init 0\n", done.stdout)
            self.assert_one_line(done.stderr, "memory")
            resource.prlimit(proxy.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, hard))
            self.assert_result(self.client(proxy.dir, "init"), "init", 0)

    # ---- while it runs
    # ------------------------------------------------------------------------------------------------

    def test_proxy_dies_under_a_program(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            client = self.start_client(proxy.dir, "init", "sync", "wait", "alloc:1024", "sync")
            proxy.process.kill()
            proxy.process.wait()
            out, err = client.communicate("\n", timeout=TIMEOUT_S)
        self.assertEqual(client.returncode, 0)
        self.assertIn(f"alloc:1024 {PROXY_DIED}\nsync {PROXY_DIED}\n", out)
        self.assert_one_line(err, "died", "test")

    def test_proxy_is_stopped_under_a_program(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            client = self.start_client(proxy.dir, "init", "sync", "wait", "alloc:1024")
            self.assertEqual(proxy.stop(), 0)
            out, err = client.communicate("\n", timeout=TIMEOUT_S)
        self.assertNotIn("alloc:1024 0\n", out)
        self.assert_one_line(err, "stopped")

    def test_callbacks_hear_of_the_proxy_s_end(self):
        """A program that sleeps until its callback comes makes no call that could tell it. What the
        function and the callback wait for never happens: only the callback is called."""
        for end, code in ("kill", PROXY_DIED), ("terminate", DEINITIALIZED):
            with self.subTest(end), tubetest.Proxy(LAYOUT, "sim") as proxy:
                client = self.start_client(proxy.dir, "init", "callbacks", "wait", "called", "sync")
                getattr(proxy.process, end)()
                proxy.process.wait()
                out, err = client.communicate("\n", timeout=TIMEOUT_S)
                self.assertEqual(out.splitlines()[-2:], [f"called {code}", f"sync {code}"], err)
                self.assertNotIn("the function ran", out)

    def test_failed_check_of_the_hook(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            done = subprocess.run([LAYOUT.build / "tests/e2e/errors/failed_check"],
                                  env=dict(tubetest.base_environment(), TUBE_DIR=str(proxy.dir),
                                           TUBE_WORKFLOW=proxy.workflow), capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
            proxy.wait_empty()
        self.assertEqual(done.stdout.splitlines(), [
            "before 0", "checks 0 0", f"a wait of another thread {UNKNOWN}",
            f"after {UNKNOWN} {UNKNOWN} {UNKNOWN}", "the program goes on"
        ], done.stderr)
        self.assertEqual(done.returncode, 0)
        self.assert_one_line(done.stderr, "bug in Tube", "word == 0", "every CUDA call now fails")

    def test_unsupported_call_names_itself_once(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            done = self.client(proxy.dir, "init", *["unsupported:cuGraphicsMapResources"] * 2)
            self.assert_result(done, "unsupported:cuGraphicsMapResources", NOT_SUPPORTED)
            self.assert_one_line(done.stderr, "cuGraphicsMapResources", "CUDA_ERROR_NOT_SUPPORTED")

    def test_out_of_memory(self):
        with tubetest.Proxy(LAYOUT, "sim", extra_env={"TUBE_SIM_MEMORY": "1G"}) as proxy:
            done = self.client(proxy.dir, "init", f"alloc:{1 << 31}", "alloc:1024", "sync")
            self.assert_result(done, f"alloc:{1 << 31}", OUT_OF_MEMORY)
            self.assert_result(done, "alloc:1024", 0)
            self.assert_result(done, "sync", 0)
            self.assert_one_line(done.stderr, str(1 << 31), "tubectl ps")

    def test_a_heap_that_others_have_used(self):
        """Too small for whom comes later, and the proxy says what helps; large enough from the
        start where it was told so."""
        for settings, code in (({}, INVALID_VALUE), ({"TUBE_DEVICE_HEAP_MIB": "256"}, 0)):
            with tubetest.Proxy(LAYOUT, "sim", extra_env=settings) as proxy:
                self.assert_result(self.client(proxy.dir, "init", "malloc:4096"), "malloc:4096", 0)
                done = self.client(proxy.dir, "init", "heap:64", "malloc:4096")
                self.assert_result(done, "heap:64", code)
                self.assert_result(done, "malloc:4096", 0)
                self.assertEqual("TUBE_DEVICE_HEAP_MIB" in proxy.log_tail(), code != 0)

    def test_a_graph_inside_itself(self):
        """Crashes the driver, in which all functions are."""
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            done = self.client(proxy.dir, "init", "graph_in_itself", "sync")
            self.assert_result(done, "graph_in_itself", INVALID_VALUE)
            self.assert_result(done, "sync", 0)
            self.assertTrue(proxy.alive())

    def test_cudart_without_a_driver(self):
        program = LAYOUT.build / "tests/gpu/cudart_static"
        if not program.exists() or tubetest.find_driver() is not None:
            self.skipTest("a driver is here, or the program is not built")
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            done = subprocess.run([program], env=self.environment(proxy.dir), capture_output=True,
                                  text=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
            self.assertNotEqual(done.returncode, 0)
            hooks = [line for line in done.stderr.splitlines() if line.startswith("tube:")]
            self.assert_one_line("\n".join(hooks), "driver", "TUBE_REAL_DRIVER")

    # ---- profilers
    # ----------------------------------------------------------------------------------------------

    def test_a_profiler_is_told_once_that_nothing_is_recorded(self):
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            words = ("init", f"table:{CUPTI_TABLE}", f"table:{CUPTI_TABLE}", "sync")
            done = self.client(proxy.dir, *words)
            self.assert_one_line(done.stderr, "profiler", "CUPTI")
            done = self.client(proxy.dir, *words, CUDA_INJECTION64_PATH="/nowhere/tool.so")
            self.assert_one_line(done.stderr, "profiler", "/nowhere/tool.so")
            self.assert_result(done, "sync", 0)

    def test_an_injection_library_is_kept_from_the_driver_beside_the_hook(self):
        source, seen = self.dir / "driver.c", self.dir / "seen"
        source.write_text(RECORDING_DRIVER % seen)
        driver = self.dir / "libcuda.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", driver, source], check=True)
        for visible in ({}, {"CUDA_VISIBLE_DEVICES": "0"}):
            with tubetest.Proxy(LAYOUT, "sim") as proxy:
                done = self.client(proxy.dir, "init", f"table:{VALIDITY_CHECK}", "sync",
                                   TUBE_REAL_DRIVER=str(driver),
                                   CUDA_INJECTION64_PATH="/nowhere/tool.so", **visible)
            self.assert_result(done, "sync", 0)
            self.assertEqual(seen.read_text(), "no tool, GPU-")

    def test_a_forked_child_starts_a_driver_of_its_own(self):
        """The parent has loaded the driver beside the hook, and CUDA is used in the child alone."""
        source, seen = self.dir / "driver.c", self.dir / "seen"
        source.write_text(DRIVER_OF_ONE_PROCESS % seen)
        driver = self.dir / "libcuda.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", driver, source], check=True)
        with tubetest.Proxy(LAYOUT, "sim") as proxy:
            done = self.client(proxy.dir, f"table:{EARLY_TABLE}", "fork", "init",
                               f"table:{VALIDITY_CHECK}", "sync", TUBE_REAL_DRIVER=str(driver))
        self.assert_result(done, f"table:{EARLY_TABLE}", 0)
        self.assert_result(done, "sync", 0)
        self.assertEqual(seen.read_text(), "its own")

    # ---- programs that never touch CUDA
    # -------------------------------------------------------------------------------

    def test_preload_into_other_programs_shows_nothing(self):
        source = self.dir / "a.c"
        source.write_text("int main(void) { return 3; }\n")
        commands = [["sh", "-c", "echo a; exit 4"], ["ls", "/"],
                    ["gcc", "-static", "-o", self.dir / "a.out", source],
                    ["sh", "-c", f"{self.dir}/a.out"], ["env", "-i", "true"],
                    [sys.executable, "-c", "import os; print(len(os.listdir('/proc/self/fd')))"]]
        plain = tubetest.base_environment()
        for extra in ({}, {"TUBE_LOG": "trace"}):
            for command in commands:
                results = [
                    subprocess.run(command, env=env, capture_output=True, stdin=subprocess.DEVNULL,
                                   timeout=TIMEOUT_S)
                    for env in (plain,
                                dict(plain, **LAYOUT.preload(HOOK), TUBE_DIR=str(self.dir /
                                                                                 "none"), **extra))
                ]
                native, hooked = [(r.returncode, r.stdout, r.stderr) for r in results]
                self.assertEqual(native, hooked, command)
        self.assertFalse((self.dir / "none").exists())


if __name__ == "__main__":
    LAYOUT.require()
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    for _, why in result.skipped:
        print(why)
    if result.skipped and result.testsRun == len(result.skipped):
        sys.exit(tubetest.SKIP)
    sys.exit(not result.wasSuccessful())
