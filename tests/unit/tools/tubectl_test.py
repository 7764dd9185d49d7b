"""tubectl as a person meets it: exit codes, one-line messages, starting a proxy once, JSON. Against
a fake proxy.

tubectl_test.py TUBECTL. The hook is a stand-in too (any file), because what is run here has no use
for CUDA.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TUBECTL = os.path.abspath(sys.argv.pop(1))
HERE = pathlib.Path(__file__).resolve().parent
STATUS = {
    "workflow": "shop",
    "backend": "sim",
    "driver_version": 13000,
    "uptime_s": 61,
    "version": "0.2.0",
    "gpus": [{
        "index": 0,
        "name": "Simulated",
        "uuid": "GPU-0",
        "memory_total": 1 << 34,
        "memory_used_by_clients": 1 << 20,
        "contexts": 1
    }],
    "functions": [{
        "id": 7,
        "pid": 42,
        "name": "resize",
        "gpu": 0,
        "state": "running",
        "age_s": 3,
        "records": 10,
        "round_trips": 2,
        "posted": 8,
        "errors": 0,
        "device_bytes": 1 << 20,
        "pinned_bytes": 0,
        "streams": 1,
        "events": 0,
        "modules": 1,
        "calls": {
            "cuLaunchKernel": 8,
            "cuMemAlloc_v2": 2
        }
    }],
    "totals": {
        "sessions_started": 1,
        "sessions_ended": 0,
        "sessions_killed": 0
    },
    "objects": {
        "streams": 1
    }
}


class Tubectl(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tubectl-"))
        self.starts = self.dir / "starts"
        hook = self.dir / "hook" / "libcuda.so.1"
        hook.parent.mkdir()
        # A library that exists anyway and does nothing: the real hook has its own tests.
        shutil.copy("/lib/x86_64-linux-gnu/libdl.so.2", hook)
        drop = ("LD_PRELOAD", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR")
        self.env = {
            k: v for k, v in os.environ.items() if not k.startswith("TUBE_") and k not in drop
        }
        self.env.update(TUBE_DIR=str(self.dir / "run"), TUBE_TUBED=str(HERE / "fake_tubed.py"),
                        TUBE_HOOK_LIB=str(hook), TUBE_FAKE_STARTS=str(self.starts),
                        TUBE_FAKE_STATUS=json.dumps(STATUS))

    def tearDown(self):
        self.call("proxy", "stop", "--all")
        shutil.rmtree(self.dir)

    def call(self, *args, **env):
        return subprocess.run([TUBECTL, *args], env=dict(self.env, **env), capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=60)

    def started(self):
        return self.starts.read_text().splitlines() if self.starts.exists() else []

    def assert_one_line(self, text, *parts):
        self.assertEqual(len(text.splitlines()), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def test_run_starts_a_proxy_and_says_so_once(self):
        first = self.call("run", "--", "sh", "-c", "exit 7")
        self.assertEqual(first.returncode, 7)
        self.assert_one_line(first.stderr, "started proxy `default`")
        second = self.call("run", "--", "true")
        self.assertEqual((second.returncode, second.stderr), (0, ""))
        self.assertEqual(len(self.started()), 1)

    def test_the_proxy_is_a_daemon_and_outlives_run(self):
        self.call("run", "--", "true")
        pid, session, _ = self.started()[0].split()
        self.assertNotEqual(int(session), os.getsid(0))
        self.assertEqual(self.call("status").returncode, 0)
        fds = {os.readlink(f"/proc/{pid}/fd/{n}") for n in ("0", "1", "2")}
        self.assertEqual(fds, {"/dev/null", str(self.dir / "run" / "default.log")})

    def test_runs_that_race_start_one_proxy(self):
        racers = [
            subprocess.Popen([TUBECTL, "run", "--", "true"], env=self.env, stderr=subprocess.PIPE)
            for _ in range(8)
        ]
        said = b"".join(r.communicate(timeout=60)[1] for r in racers)
        self.assertEqual([r.returncode for r in racers], [0] * 8)
        self.assertEqual(len(self.started()), 1)
        self.assertEqual(said.count(b"started proxy"), 1)

    def test_a_proxy_that_a_batch_job_starts_is_no_batch_job(self):
        done = subprocess.run([TUBECTL, "run", "--", "true"], env=self.env, stderr=subprocess.PIPE,
                              preexec_fn=lambda: os.sched_setscheduler(0, os.SCHED_BATCH,
                                                                       os.sched_param(0)))
        self.assertEqual(done.returncode, 0, done.stderr)
        pid = int(self.started()[0].split()[0])
        self.assertEqual(os.sched_getscheduler(pid), os.SCHED_OTHER)

    def test_signals_pass_on(self):
        self.assertEqual(
            self.call("run", "--", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_environment_of_the_program(self):
        out = self.call("run", "-w", "shop", "--function", "f", "--", "env",
                        LD_LIBRARY_PATH="/nowhere").stdout
        hook = self.env["TUBE_HOOK_LIB"]
        for line in (f"LD_PRELOAD={hook}", f"LD_LIBRARY_PATH={pathlib.Path(hook).parent}:/nowhere",
                     "TUBE_WORKFLOW=shop", "TUBE_FUNCTION=f", "TUBE_PREINIT=1"):
            self.assertIn(line + "\n", out)

    def test_what_the_user_preloads_comes_before_the_hook(self):
        hook = self.env["TUBE_HOOK_LIB"]
        libraries = self.dir / "tcmalloc.so", self.dir / "asan.so", self.dir / "old" / "libcuda.so.1"
        done = self.call("run", "--", "env", LD_PRELOAD=f"{libraries[0]} {libraries[1]}:{libraries[2]}")
        self.assertIn(f"LD_PRELOAD={libraries[0]}:{libraries[1]}:{hook}\n", done.stdout)

    def test_tube_off_runs_the_program_alone(self):
        out = self.call("run", "--", "env", TUBE_OFF="1")
        self.assertNotIn("LD_PRELOAD", out.stdout)
        self.assertEqual(self.started(), [])

    def test_program_that_does_not_exist(self):
        done = self.call("run", "--", "/no/such/program", TUBE_OFF="1")
        self.assertEqual(done.returncode, 127)
        self.assert_one_line(done.stderr, "/no/such/program", "No such file")
        self.assertEqual(self.call("run", "--", "/etc/passwd", TUBE_OFF="1").returncode, 126)

    def test_proxy_that_dies_at_start(self):
        done = self.call("run", "--", "true", TUBE_FAKE_FAIL="tubed: no GPU 9 here")
        self.assertEqual(done.returncode, 125)
        self.assert_one_line(done.stderr, "no GPU 9 here", "default.log")
        self.assertEqual(self.call("proxy", "start", TUBE_FAKE_FAIL="tubed: no").returncode, 4)

    def test_a_proxy_that_another_one_was_faster_than(self):
        done = self.call("run", "--", "sh", "-c", "exit 7", TUBE_FAKE_BEATEN="is served")
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        self.assertEqual(len(self.started()), 1)

    def test_a_proxy_that_ends_when_it_is_asked(self):
        self.call("proxy", "start", TUBE_FAKE_ENDS="1")
        done = self.call("run", "--", "sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assert_one_line(done.stderr, "started proxy `default`")
        self.assertEqual(len(self.started()), 2)

    def test_no_start(self):
        done = self.call("run", "--no-start", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assert_one_line(done.stderr, "no proxy runs", "tubectl proxy start")

    def test_what_is_no_number(self):
        for word in ("hold", "-1", "1.5", "9" * 30):
            done = self.call("limit", f"--function={word}")
            self.assertEqual(done.returncode, 2, word)
            self.assert_one_line(done.stderr, "--function", f"'{word}' is not a number")

    def test_version_mismatch(self):
        self.call("proxy", "start", TUBE_FAKE_VERSION="9.9.9")
        done = self.call("run", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assert_one_line(done.stderr, "9.9.9", "0.2.0", "tubectl proxy stop")
        self.assertIn("9.9.9", self.call("doctor").stdout)
        for verb, code in ((["run", "--no-start", "--", "true"], 125), (["proxy", "start"], 4)):
            done = self.call(*verb)
            self.assertEqual(done.returncode, code, verb)
            self.assert_one_line(done.stderr, "9.9.9", "0.2.0", "tubectl proxy stop")

    def test_a_proxy_that_hangs_hides_no_other(self):
        for workflow in ("shop", "stuck"):
            self.call("proxy", "start", "-w", workflow)
        stuck = int(self.started()[1].split()[0])
        os.kill(stuck, signal.SIGSTOP)
        try:
            while pathlib.Path("/proc", str(stuck), "stat").read_text().rsplit(")")[-1].split()[0] != "T":
                pass
            done = self.call("ps")
            self.assertEqual(done.returncode, 1)
            self.assertIn("resize", done.stdout)
            self.assert_one_line(done.stderr, "`stuck`", "stopped", f"kill -CONT {stuck}")
            said = json.loads(self.call("ps", "--json").stdout)
            self.assertEqual([one["workflow"] for one in said["unreachable"]], ["stuck"])
            self.assertEqual(self.call("ping", "-w", "stuck").returncode, 1)
            self.assertIn("kill -CONT", self.call("doctor").stdout.replace("\n" + 25 * " ", " "))
            self.assertIn("does not answer", self.call("proxy", "list").stdout)
        finally:
            os.kill(stuck, signal.SIGCONT)

    def test_a_dead_context_is_told(self):
        fault = "GPU 0 of workflow `default`: broken by `kernel` of `f` (pid 7)"
        self.assertEqual(self.call("ping").returncode, 3)
        self.call("proxy", "start", TUBE_FAKE_FAULT=fault)
        done = self.call("ping")
        self.assertEqual(done.returncode, 5)
        self.assert_one_line(done.stderr, fault)
        for verb in ("ps", "status", "doctor"):
            self.assertIn(fault, " ".join(self.call(verb).stdout.split()), verb)
        self.assertEqual(self.call("doctor", "--json").returncode, 1)
        self.assertIn("faulted", self.call("proxy", "list").stdout)

    def test_a_well_proxy(self):
        self.call("proxy", "start")
        self.assertEqual(self.call("ping").returncode, 0)

    def test_a_relative_runtime_folder(self):
        """tubectl completes it for the proxy and for the program, which have folders of their own."""
        done = subprocess.run([TUBECTL, "run", "--", "sh", "-c", "echo $TUBE_DIR"], cwd=self.dir,
                              env=dict(self.env, TUBE_DIR="run"), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(self.dir / "run")), done.stderr)
        self.assertEqual(self.call("ping").returncode, 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to give a folder away")
    def test_a_runtime_folder_of_another_user(self):
        (self.dir / "run").mkdir(mode=0o700)
        os.chown(self.dir / "run", 65534, 65534)
        for verb in (["ps"], ["proxy", "list"], ["proxy", "stop", "--all"], ["status"]):
            done = self.call(*verb)
            self.assertEqual(done.returncode, 1, verb)
            self.assert_one_line(done.stderr, "belongs to user 65534")
        os.chown(self.dir / "run", os.geteuid(), os.getegid())

    def test_a_runtime_folder_that_cannot_be_made(self):
        done = self.call("doctor", "--json", TUBE_DIR=str(self.dir / "no" / "run"))
        self.assertEqual(done.returncode, 1)
        mine = [f for f in json.loads(done.stdout)["findings"] if f["subject"] == "runtime folder"]
        self.assertEqual([(f["state"], "cannot be made" in f["detail"]) for f in mine], [("problem", True)])

    def test_a_hook_in_a_folder_with_a_space(self):
        hook = self.dir / "a b" / "libcuda.so.1"
        hook.parent.mkdir()
        shutil.copy(self.env["TUBE_HOOK_LIB"], hook)
        done = self.call("run", "--", "sh", "-c", "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH",
                         TUBE_HOOK_LIB=str(hook))
        self.assertEqual(done.returncode, 0)
        self.assert_one_line(done.stderr, "started proxy")  # and nothing of the loader's
        preload, library = done.stdout.splitlines()
        self.assertEqual(pathlib.Path(preload).resolve(), hook.resolve())
        self.assertEqual(pathlib.Path(library).resolve(), hook.parent.resolve())
        done = self.call("run", "--", "true", TUBE_HOOK_LIB=str(hook), TUBE_DIR=str(self.dir / "r r"))
        self.assertEqual(done.returncode, 125)
        self.assert_one_line(done.stderr, "set TUBE_DIR")

    def test_a_program_of_the_cuda_runtime_where_no_driver_is(self):
        program = self.dir / "program"
        shutil.copy("/bin/true", program)
        for said, code in (("", 0), ("CUDA driver version is insufficient for CUDA runtime version", 1)):
            with program.open("ab") as file:
                file.write(said.encode())
            done = self.call("doctor", "--program", str(program), "--json",
                             TUBE_REAL_DRIVER="/no/such/libcuda.so.1")
            mine = [f["state"] for f in json.loads(done.stdout)["findings"] if f["subject"] == "program"]
            self.assertEqual(mine, [["ok"], ["problem"]][code], done.stdout)

    def test_80_columns(self):
        status = json.loads(self.env["TUBE_FAKE_STATUS"])
        status["functions"][0].update(name="a_function_with_quite_a_long_name" * 2, pid=4194304,
                                      age_s=9 * 86400, errors=123456)
        status["gpus"][0]["name"] = "NVIDIA H200 NVL with a long name"
        status["gpus"][0]["uuid"] = "GPU-7aec2f74-9d3c-11ee-8c90-0242ac120002"
        status["totals"] = {f"sessions_of_kind_{n}": 123456789 for n in range(9)}
        workflow = "w" * 20
        self.call("proxy", "start", "-w", workflow, TUBE_FAKE_STATUS=json.dumps(status),
                  TUBE_FAKE_FAULT="the context is dead " * 9)
        verbs = [["ps"], ["status", "-w", workflow], ["proxy", "list"], ["--help"]]
        verbs += [[verb, "--help"] for verb in ("run", "ps", "status", "doctor", "limit", "ping")]
        verbs += [["proxy", verb, "--help"] for verb in ("start", "stop", "list")]
        for verb in verbs:
            done = self.call(*verb)
            self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [], verb)
            self.assertGreater(len(done.stdout), 80, verb)
        lines = self.call("doctor").stdout.splitlines()  # a path has no place to break it at
        self.assertEqual([l for l in lines if len(l) > 80 and " " in l[25:].strip().removeprefix("-> ")], [])

    def test_not_running(self):
        for verb in ("status", "stat", "copies", "gpu", "mem", "store", "topo"):
            done = self.call(verb)
            self.assertEqual(done.returncode, 3)
            self.assert_one_line(done.stderr, "no proxy runs for workflow `default`")
        self.assertEqual(self.call("proxy", "stop").returncode, 3)
        self.assertEqual(self.call("ps").returncode, 0)

    def test_topo_of_a_preset(self):
        picture = self.dir / "dgx.svg"
        done = self.call("topo", "--topology", "dgx-v100", "--json", "--svg", str(picture))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        gpus = json.loads(done.stdout)["gpus"]
        self.assertEqual(len(gpus), 8)
        self.assertIn({"gpu": 3, "bytes_per_s": 50_000_000_000}, gpus[0]["peers"])
        root = xml.etree.ElementTree.parse(picture).getroot()
        words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual(sum(word.startswith("GPU ") for word in words), 8)
        self.assertIn("50.0", words)
        text = self.call("topo", "--topology", "dgx-v100").stdout
        self.assertRegex(text, r"\n *0 .* 50\.0 .*host")
        self.assertEqual(self.call("topo", "--topology", "nowhere").returncode, 2)

    def test_usage(self):
        for args in ([], ["frob"], ["run"], ["run", "-w", "a/b", "--",
                                             "true"], ["status", "--frob"]):
            done = self.call(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assert_one_line(done.stderr)

    def test_what_is_not_understood_runs_nothing(self):
        """Not even in another workflow than the one that was meant."""
        for args, said in ((["--gpu", "1", "-w", "b"], "did you mean --gpus?"),
                           (["--no-strat"], "did you mean --no-start?"),
                           (["--quota", "1G"], "no option --quota"), (["foo", "bar"], "`foo`"),
                           (["--memory", "1GB"], "'1GB' is no size"),
                           (["--gpus", "0,x"], "'x' is no GPU"), (["--gpus", ""], "no GPU"),
                           (["--backend", "simulated"], "simulated")):
            done = self.call("run", *args, "--", "touch", str(self.dir / "ran"))
            self.assertEqual(done.returncode, 2, args)
            self.assert_one_line(done.stderr, said)
        self.assertEqual(self.call("run", "--no-strat", "true").returncode, 2)
        self.assertEqual(self.call("stat", "-n", "-3").returncode, 2)
        self.assertEqual(self.call("proxy", "start", TUBE_BACKEND="simulated").returncode, 2)
        self.assertFalse((self.dir / "ran").exists())
        self.assertEqual(self.started(), [])
        self.assertEqual(self.call("run", "sh", "-c", "exit 7").returncode, 7)

    def test_a_proxy_with_other_settings_is_not_taken(self):
        self.call("proxy", "start", "--gpus", "0,1")
        for args, said in ((["--gpus", "7"], "--gpus 0,1"), (["--backend", "sim"], "NVIDIA driver"),
                           (["--copy-policy", "arrival"], "--copy-policy deadlines")):
            for verb in (["proxy", "start", *args], ["run", *args, "--", "true"],
                         ["run", "--no-start", *args, "--", "true"]):
                done = self.call(*verb)
                self.assertEqual(done.returncode, 4 if verb[0] == "proxy" else 125, verb)
                self.assert_one_line(done.stderr, said, "tubectl proxy stop -w default")
        self.assertEqual(self.call("run", "--gpus", "0,1", "--", "true").returncode, 0)
        self.assertEqual(self.call("run", "--backend", "driver", "--", "true").returncode, 0)

    def test_a_simulated_gpu_is_announced_unless_asked_for(self):
        self.call("proxy", "start", TUBE_FAKE_BACKEND="sim")
        for words in (["run"], ["run", "--no-start"]):
            done = self.call(*words, "--", "true")
            self.assertEqual(done.returncode, 0)
            self.assert_one_line(done.stderr, "has no GPU and uses the simulated one", "--backend sim")
            self.assertEqual(self.call(*words, "--backend", "sim", "--", "true").stderr, "")
            self.assertEqual(self.call(*words, "--", "true", TUBE_BACKEND="sim").stderr, "")

    def test_tube_off_as_the_library_reads_it(self):
        for off, started in (("yes", 0), ("1", 0), ("0", 1)):
            self.call("run", "--", "true", TUBE_OFF=off)
            self.assertEqual(len(self.started()), started, off)

    def test_socket_path_too_long(self):
        done = self.call("status", TUBE_DIR=str(self.dir / ("d" * 90)))
        self.assertIn(done.returncode, (1, 3))
        (self.dir / ("d" * 90)).mkdir(mode=0o700)
        done = self.call("status", TUBE_DIR=str(self.dir / ("d" * 90)))
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr, "too long", "TUBE_DIR")

    def test_runtime_folder_open_to_others(self):
        (self.dir / "run").mkdir(mode=0o755)
        done = self.call("run", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assert_one_line(done.stderr, "run")
        os.chmod(self.dir / "run", 0o700)

    def test_text_and_json(self):
        self.call("proxy", "start", "-w", "shop")
        self.assertIn("resize", self.call("ps", "-w", "shop").stdout)
        self.assertIn("CUDA 13.0", self.call("status", "-w", "shop").stdout)
        self.assertIn("cuLaunchKernel", self.call("stat", "-w", "shop").stdout)
        self.assertEqual(self.call("proxy", "list", "--names").stdout, "shop\n")
        for args in (["ps"], ["status", "-w",
                              "shop"], ["stat", "-w",
                                        "shop"], ["proxy",
                                                  "list"], ["proxy", "start", "-w", "shop"]):
            self.assertTrue(json.loads(self.call(*args, "--json").stdout)["ok"], args)
        self.assertIn("findings", json.loads(self.call("doctor", "--json").stdout))
        self.assertTrue(json.loads(self.call("proxy", "stop", "-w", "shop", "--json").stdout)["ok"])

    def test_stop_waits_until_the_proxy_is_gone(self):
        self.call("proxy", "start")
        pid = self.started()[0].split()[0]
        self.assertEqual(self.call("proxy", "stop").returncode, 0)
        self.assertFalse(
            pathlib.Path("/proc", pid, "exe").is_symlink() and
            pathlib.Path("/proc", pid, "fd").exists() and os.listdir(f"/proc/{pid}/fd"))

    def test_placement_on_a_preset(self):
        passes = "host:decode:100M,decode:detect:25M"
        done = self.call("placement", "--topology", "dgx-v100", "--pass", passes, "--busy", "0,3",
                         "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = json.loads(done.stdout)
        gpus = [f["gpu"] for f in found["functions"]]
        self.assertFalse({0, 3} & set(gpus))
        rates = [p["bytes_per_s"] for p in found["passes"]]
        self.assertEqual(rates, [12_500_000_000, 50_000_000_000])
        text = self.call("placement", "--topology", "dgx-v100", "--pass", passes).stdout
        self.assertIn("decode -> detect", text)

    def test_placement_from_a_file(self):
        pattern = self.dir / "shop.toml"
        pattern.write_text('passes = ["a:b:1G"]\n[shares]\na = 0.5\nb = 0.5\n')
        done = self.call("placement", "--topology", "hgx-h200", "--pattern", str(pattern), "--json")
        self.assertEqual(json.loads(done.stdout)["time_ns"], 0, "both fit on one GPU")
        pattern.write_text('passes = ["a:b"]')
        done = self.call("placement", "--topology", "hgx-h200", "--pattern", str(pattern))
        self.assertEqual(done.returncode, 2)
        self.assert_one_line(done.stderr, "shop.toml: line 1: a:b")

    def test_placement_that_cannot_be(self):
        for code, words, args in (
                (2, "--topology", ("--pass", "a:b:1M")),
                (2, "no such file", ("--topology", "nowhere", "--pass", "a:b:1M")),
                (2, "--pass or --pattern", ("--topology", "1x")),
                (2, "no GPU of this", ("--topology", "1x", "--pass", "a:host:1", "--busy", "1")),
                (1, "do not have room", ("--topology", "1x", "--pass", "a:b:1M"))):
            done = self.call("placement", *args)
            self.assertEqual(done.returncode, code, args)
            self.assert_one_line(done.stderr, words)


if __name__ == "__main__":
    unittest.main()
