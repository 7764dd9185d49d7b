"""What a program does to itself must not break it, its proxy or the other programs: clones,
limits, loaders, kills (its descriptors: descriptors_test.py).

life_test.py --build FOLDER [unittest arguments]. The program is life.cc, one scene a test. Where
the scene is ordinary CUDA, its output must equal the run on the simulated GPU without Tube.
"""
import ctypes
import os
import pathlib
import resource
import select
import signal
import socket
import subprocess
import time

from scenes import HOOK, LAYOUT, PROGRAM, TIMEOUT_S, Scenes, main

import tubetest  # in the folder above, which scenes names

# For work that never ends: the proxy gives it up soon.
SOON = {"TUBE_TEARDOWN_MS": "1000"}

FOUR_GPUS = """device count=1 name=Small sm=80 memory=1G sms=40 pcie=25e9 switch=0 numa=0
device count=2 name=Big sm=90 memory=1G sms=100 pcie=25e9 switch=0 numa=0
device count=1 name=Middle sm=86 memory=1G sms=60 pcie=25e9 switch=0 numa=0
"""


class Life(Scenes):
    # ---- limits
    # -------------------------------------------------------------------------------------------------------

    def test_address_space_limit(self):
        proxy = self.proxy()
        done = self.run_scene(
            "preload", proxy, "compute",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
        self.assertEqual(done.returncode, 1)
        hook = [line for line in done.stderr.splitlines() if line.startswith("tube:")]
        self.assertEqual(len(hook), 1, done.stderr)
        self.assertIn("ulimit -v", hook[0])
        self.assert_equal_to_native(proxy, "compute")

    # ---- children
    # ---------------------------------------------------------------------------------------------------

    def test_clone_without_handlers(self):
        proxy = self.proxy()
        out = self.assert_equal_to_tube(proxy, "raw_clone")
        self.assertEqual(out,
                         "parent computes 22 22\nclone was refused: yes\nparent computes 22 22\n")

    def assert_equal_to_tube(self, proxy, *words):
        done = self.run_scene("preload", proxy, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_clone_that_outlives_its_parent_holds_nothing(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        start = proxy.counts_at_rest()
        read_end, write_end = os.pipe()
        program = self.start_scene(proxy, "clone_survives", stdin=read_end)
        os.close(read_end)
        self.assertEqual(program.wait(TIMEOUT_S), 0)
        self.assert_nothing_left(proxy, start)  # although the clone still has a copy of the socket
        os.close(write_end)

    def test_first_thread_ends_before_the_others(self):
        proxy = self.proxy()
        self.assert_equal_to_native(proxy, "first_thread_ends")
        out = self.assert_equal_to_native(proxy, "first_thread_ends_at_once")
        self.assertEqual(out.count("CUDA_SUCCESS"), 6, out)

    # ---- ends
    # -------------------------------------------------------------------------------------------------------

    def test_killed_while_streams_wait_for_values(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        start = proxy.counts_at_rest()
        killed = proxy.status()["totals"]["sessions_killed"]
        program = self.start_scene(proxy, "wait_for_values")
        for line in ["CUDA_ERROR_NOT_READY\n"] * 6 + ["waiting\n"]:
            self.assertEqual(program.stdout.readline(), line)
        program.kill()
        program.wait()
        self.assert_nothing_left(proxy, start)
        self.assertNotIn("does not end", proxy.log_tail(100))
        self.assertEqual(proxy.status()["totals"]["sessions_killed"], killed + 1)

    def start_stuck(self, proxy, what):
        program = self.start_scene(proxy, "stuck_in_a_call", what)
        self.assertEqual(program.stdout.readline(), "waiting\n")
        inside = "GetGlobal" if what == "gpu_value" else "Load"
        while not any(inside in call for call in proxy.function(program.pid)["calls"]):
            select.select([], [], [], 0.005)
        return program

    def test_killed_inside_a_call_that_waits(self):
        """The session is in the driver, which waits for the program's stream, which waits for the
        program: others must get on."""
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        start = proxy.counts_at_rest()
        for what in ("host_function", "value", "gpu_value"):
            program = self.start_stuck(proxy, what)
            program.kill()
            program.wait()
            self.assertEqual(self.run_scene("preload", proxy, "compute").returncode, 0)
            self.assert_nothing_left(proxy, start)

    def test_stop_while_a_program_is_inside_a_call_that_waits(self):
        proxy = self.proxy()
        self.start_stuck(proxy, "value")
        proxy.process.terminate()
        self.assertEqual(proxy.wait_end(), 0)

    def test_killed_while_a_stream_waits_for_semaphores(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        start = proxy.counts_at_rest()
        program = self.start_scene(proxy, "wait_for_semaphores")
        self.assertEqual(program.stdout.readline(), "CUDA_ERROR_NOT_READY\n")
        program.kill()
        program.wait()
        self.assert_nothing_left(proxy, start)
        self.assertNotIn("does not end", proxy.log_tail(100))

    def test_silent_control_connections_keep_nobody_waiting(self):
        """All places of the control socket are taken by who asks nothing: the oldest makes room."""
        proxy = self.proxy()
        path = next(proxy.dir.glob("*.ctl"))
        silent = []
        for _ in range(16):
            silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self.addCleanup(silent[-1].close)
            silent[-1].settimeout(TIMEOUT_S)
            silent[-1].connect(str(path))
        silent[0].sendall(b"{")  # no request
        for connection in silent[
                1:]:  # sixteen fill the places and stay, as long as nobody else comes
            connection.sendall(b'{"verb": "ping"}\n')
            self.assertIn(b'"ok":true', connection.recv(4096))
        for _ in range(3):
            self.assertTrue(proxy.request("ping")["ok"])
        self.assertEqual(silent[0].recv(1), b"")
        silent[-1].sendall(b'{"verb": "ping"}\n')
        self.assertIn(b'"ok":true', silent[-1].recv(4096))

    def assert_starts_anew_without(self, proxy, program):
        """A program that comes at once waits for the next proxy instead of standing in this one."""
        program.kill()
        program.wait()
        done = self.run_scene("preload", proxy, "compute")
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                         done.stderr + proxy.log_tail())
        self.wait_restarted(proxy, 1, TIMEOUT_S)

    def test_proxy_starts_anew_after_work_that_does_not_end(self):
        proxy = self.proxy(extra_env=SOON)
        program = self.start_scene(proxy, "wait_for_no_value")
        self.assertEqual(program.stdout.readline(), "CUDA_ERROR_NOT_READY\n")
        self.assert_starts_anew_without(proxy, program)
        self.assertIn("does not end", proxy.log_tail(100))

    def test_killed_while_launching_is_counted(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        totals = proxy.status()["totals"]
        self.assertEqual(totals["sessions_killed"], 0)  # an ordinary end is none
        start = proxy.counts_at_rest()
        program = self.start_scene(proxy, "launch_for_ever")
        self.assertEqual(program.stdout.readline(), "waiting\n")
        while proxy.function(program.pid)["records"] < 200:
            select.select([], [], [], 0.005)
        program.kill()
        program.wait()
        self.assert_nothing_left(proxy, start)
        self.assertEqual(proxy.status()["totals"]["sessions_killed"], 1)

    def wait_status(self, proxy, true_of, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while not true_of(status := proxy.status()):
            self.assertLess(time.monotonic(), deadline,
                            f"{status['places']} {status['janitor']}\n{proxy.log_tail()}")
            select.select([], [], [], 0.01)
        return status

    def test_work_that_never_ends_stops_nobody(self):
        """The proxy cannot give back anything any more, for want of a quiet moment; it answers,
        functions come and go, and it ends."""
        proxy = self.proxy(extra_env={**SOON, "TUBE_PINNED": "0"})  # nobody uses it again
        there = self.start_scene(proxy, "stay",
                                 stdin=subprocess.PIPE)  # or the proxy would start anew
        self.addCleanup(there.stdin.close)
        self.assertEqual(there.stdout.readline(), "here\n")
        program = self.start_scene(proxy, "wait_for_ever")
        self.assertEqual(program.stdout.readline(), "first computes 22 22\n")
        self.assertEqual(program.stdout.readline(), "CUDA_ERROR_NOT_READY\n")
        program.kill()
        self.wait_status(proxy, lambda status: status["places"]["lost"] == 1)
        self.assertIn("does not end", proxy.log_tail())
        for _ in range(3):  # together more than is kept for others
            done = self.run_scene("preload", proxy, "pinned", "100")
            self.assertEqual(done.returncode, 0, done.stderr)
        status = self.wait_status(proxy, lambda status: status["janitor"] == "held back")
        self.assertGreater(status["places"]["pinned"], 0)
        for _ in range(3):
            self.assertTrue(proxy.request("ping")["ok"])
            done = self.run_scene("preload", proxy, "compute")
            self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                             done.stderr + proxy.log_tail())
        self.assertEqual(proxy.status()["janitor"], "held back")
        self.assertEqual(proxy.stop(), 0)
        self.assertEqual(
            sorted(f.name for f in proxy.dir.iterdir() if f.suffix in (".sock", ".ctl")), [])

    def test_a_waiting_function_holds_up_no_other(self):
        """What functions left is given back when no stream waits for its program any more; until
        then others come and go."""
        proxy = self.proxy(extra_env={"TUBE_PINNED": "0"})  # what is left serves no other
        waiting = self.start_scene(proxy, "wait_for_values")
        for _ in range(7):
            waiting.stdout.readline()
        for _ in range(2):
            self.assertEqual(self.run_scene("preload", proxy, "pinned", "192").returncode,
                             0)  # together more than is kept
        self.wait_status(
            proxy,
            lambda status: status["janitor"] == "held back" and status["places"]["pinned"] == 2)
        there = self.start_scene(proxy, "stay", stdin=subprocess.PIPE)
        self.addCleanup(there.stdin.close)
        self.assertEqual(there.stdout.readline(), "here\n")
        status = proxy.status()
        self.assertEqual((status["janitor"], status["places"]["pinned"]), ("held back", 2))
        waiting.kill()
        left = {"free": 125, "functions": 1, "pinned": 2, "lost": 0}
        self.wait_status(proxy,
                         lambda status: status["janitor"] == "idle" and status["places"] == left)

    def standing_behind(self, proxy, function):
        """The one call that stands for a stream of `function`, as soon as there is one."""
        status = self.wait_status(
            proxy, lambda status: any(one["behind_pid"] == function.pid and one["call"]
                                      for one in status["gate"]))
        return next(one for one in status["gate"] if one["behind_pid"] == function.pid)

    def test_a_stopped_function_stops_nobody(self):
        """While a stream of it waits for its value another one's load of code stands, which status
        and log tell; after a while it is ended, and the load goes on."""
        proxy = self.proxy(extra_env={"TUBE_STOPPED_S": "3"})
        waiting = self.start_scene(proxy, "wait_for_values")
        for _ in range(7):
            waiting.stdout.readline()
        waiting.send_signal(signal.SIGSTOP)
        other = self.start_scene(proxy, "compute")
        one = self.standing_behind(proxy, waiting)
        self.assertEqual((one["pid"], one["stopped"], one["in_driver"]), (other.pid, True, False))
        out, _ = other.communicate()
        self.assertEqual((other.returncode, out), (0, "main computes 22 22\n"),
                         proxy.log_tail())
        self.assertEqual(waiting.wait(), -signal.SIGKILL)
        self.assertIn(f"(pid {waiting.pid}) was stopped by a signal for 3 s", proxy.log_tail())
        self.assertIn(f"(pid {other.pid}) has stood at the context gate", proxy.log_tail())

    def test_a_function_that_runs_is_never_ended_for_its_waits(self):
        """Another one's call stands for it at the gate and then in the driver, and says so."""
        proxy = self.proxy(extra_env={"TUBE_STOPPED_S": "1"})
        waiting = self.start_scene(proxy, "wait_for_values")
        for _ in range(7):
            waiting.stdout.readline()
        other = self.start_scene(proxy, "compute")
        one = self.standing_behind(proxy, waiting)
        self.assertFalse(one["stopped"])
        self.wait_status(
            proxy, lambda status: any(one["in_driver"] and one["behind_pid"] == waiting.pid
                                      for one in status["gate"]))
        self.assertIn("goes into the driver", proxy.log_tail())
        self.assertIsNone(waiting.poll())
        waiting.kill()
        self.assertEqual(other.communicate()[0], "main computes 22 22\n")

    def test_places_of_functions_that_left_are_given_back(self):
        """Functions that left pinned memory keep their places taken, but only until others want
        them."""
        proxy = self.proxy(extra_env={"TUBE_PINNED": "0"})  # what is left serves no other
        first = self.start_scene(
            proxy, "stay", stdin=subprocess.PIPE)  # so that there is no moment without functions
        self.addCleanup(first.stdin.close)
        self.assertEqual(first.stdout.readline(), "here\n")
        while (places := proxy.status()["places"])["pinned"] < 95:
            for program in [
                    self.start_scene(proxy, "pinned", "2")
                    for _ in range(min(8, 95 - places["pinned"]))
            ]:
                self.assertEqual(program.wait(TIMEOUT_S), 0)
            self.wait_status(proxy, lambda status: status["places"]["functions"] == 1)
        self.assertEqual(places["free"], 32)
        many = [
            self.start_scene(proxy, "stay", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(40)
        ]
        for program in many:
            self.addCleanup(program.stderr.close)
            self.addCleanup(program.stdin.close)
        for program in many:
            self.assertEqual(program.stdout.readline(), "here\n", proxy.log_tail())
        places = proxy.status()["places"]
        self.assertEqual(places["functions"], 41)
        self.assertEqual(sum(places.values()), 128)

    def test_proxy_keeps_out_of_the_way(self):
        """No library lies where ordinary processes have theirs, whose addresses functions register
        here: all mappings are laid out alike."""
        proxy = self.proxy()
        layout = 0x0200000  # ADDR_COMPAT_LAYOUT
        asked = ctypes.CDLL(None).personality
        process = pathlib.Path("/proc", str(proxy.process.pid))
        if int((process / "personality").read_text(), 16) & layout == 0:
            self.assertEqual(asked(asked(0xffffffff) | layout), -1, "the kernel would have let it")
            return
        third = (1 << 47) // 3
        for line in (process / "maps").read_text().splitlines():
            begin = int(line.split("-")[0], 16)
            if ".so" in line:
                self.assertTrue(third - 4096 <= begin < third + (2 << 40), line)

    def test_who_finds_no_place_waits_for_one(self):
        """Beside a stream that waits for its program no place comes free: who comes then is not
        turned away while one may."""
        proxy = self.proxy(extra_env={"TUBE_PINNED": "0"})  # what is left serves no other
        waiting = self.start_scene(proxy, "wait_for_values")
        for _ in range(7):
            waiting.stdout.readline()
        while (free := proxy.status()["places"]["free"]) > 0:
            for program in [self.start_scene(proxy, "pinned", "1") for _ in range(min(8, free))]:
                self.assertEqual(program.wait(TIMEOUT_S), 0)
            self.wait_status(proxy, lambda status: status["places"]["functions"] == 1)
        status = proxy.status()
        self.assertEqual((status["janitor"], status["places"]["pinned"]), ("held back", 127))
        new = self.start_scene(proxy, "stay", stdin=subprocess.PIPE)
        self.addCleanup(new.stdin.close)
        self.wait_status(proxy, lambda _: "waits for a place" in proxy.log_tail())
        waiting.kill()
        self.assertEqual(new.stdout.readline(), "here\n", proxy.log_tail())

    def test_who_finds_no_free_place_takes_a_ready_one(self):
        """Beside a stream that waits for its program no place comes free, but what functions left
        serves the next one without that."""
        proxy = self.proxy(extra_env={"TUBE_PINNED": str(64 << 20)})
        waiting = self.start_scene(proxy, "wait_for_values")
        for _ in range(7):
            waiting.stdout.readline()
        many = [
            self.start_scene(proxy, "stay_pinned", stdin=subprocess.PIPE) for _ in range(127)
        ]
        for program in many:
            self.addCleanup(program.stdin.close)
        for program in many:
            self.assertEqual(program.stdout.readline(), "here\n", proxy.log_tail())
        for program in many:
            program.stdin.close()
        status = self.wait_status(
            proxy, lambda status: status["places"]["functions"] == 1 and status["pinned"][
                "ready_places"] != 0 and status["janitor"] == "held back")
        self.assertEqual(status["places"]["free"], 0)
        new = self.start_scene(proxy, "stay", stdin=subprocess.PIPE)
        self.addCleanup(new.stdin.close)
        self.assertEqual(new.stdout.readline(), "here\n", proxy.log_tail())
        self.assertNotIn("waits for a place", proxy.log_tail(1000))
        self.assertIsNone(waiting.poll())

    def test_contexts_come_and_go(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        start = proxy.counts_at_rest()
        self.assert_equal_to_native(proxy, "reset_loop")
        self.assert_nothing_left(proxy, start)

    # ---- faults
    # -----------------------------------------------------------------------------------------------------

    def wait_restarted(self, proxy, times, timeout_s=30):
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if proxy.status()["totals"]["restarts"] == times:
                    return
            except OSError:  # between the two, the control socket's connection ends
                pass
            except ValueError:
                pass
            self.assertLess(time.monotonic(), deadline, proxy.log_tail())
            select.select([], [], [], 0.01)

    def test_proxy_starts_anew_after_a_fault(self):
        proxy = self.proxy()
        pid = proxy.process.pid
        fds = None
        for times in (1, 2, 3):
            done = self.run_scene("preload", proxy, "fault")
            self.assertEqual(done.stdout, "CUDA_ERROR_ILLEGAL_ADDRESS\n", done.stderr)
            # Who comes at once waits for the new proxy, whichever is the moment.
            done = self.run_scene("preload", proxy, "compute")
            self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                             done.stderr + proxy.log_tail())
            self.wait_restarted(proxy, times)
            self.assertTrue(proxy.alive())
            self.assertEqual(proxy.status()["pid"], pid)
            proxy.wait_unmapped("tube-segment")
            fds = fds or proxy.counts_at_rest()["fds"]
            self.assertEqual(proxy.counts_at_rest()["fds"],
                             fds)  # nothing of the old one is left open
        self.assertEqual(proxy.stop(), 0)

    def test_fault_that_nobody_saw(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "fault_unseen")
        self.wait_restarted(proxy, 1)
        done = self.run_scene("preload", proxy, "compute")
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"), done.stderr)

    def test_fault_while_others_are_there(self):
        proxy = self.proxy()
        other = self.start_scene(proxy, "answer", stdin=subprocess.PIPE)
        self.addCleanup(other.stdin.close)
        self.assertEqual([other.stdout.readline() for _ in range(2)],
                         ["main computes 22 22\n", "ready\n"])
        self.run_scene("preload", proxy, "fault")
        done = self.run_scene("preload", proxy,
                              "compute")  # the context is still there, with somebody in it
        self.assertEqual(done.returncode, 1, done.stdout + proxy.log_tail())
        self.assertIn("starts anew", done.stderr)
        other.stdin.write("\n")
        other.stdin.flush()
        self.assertEqual(other.stdout.readline(), "CUDA_ERROR_ILLEGAL_ADDRESS\n")
        other.kill()
        other.wait()
        self.wait_restarted(proxy, 1)
        done = self.run_scene("preload", proxy, "compute")
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"), done.stderr)

    def test_stop_of_a_proxy_that_started_anew(self):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "fault")
        self.wait_restarted(proxy, 1)
        self.assertEqual(proxy.stop(), 0)
        self.assertEqual(
            sorted(f.name for f in proxy.dir.iterdir() if f.suffix in (".sock", ".ctl")), [])

    # ---- the environment
    # --------------------------------------------------------------------------------------------

    def test_visible_devices_of_several_kinds(self):
        proxy = self.proxy(extra_env={"TUBE_SIM_TOPOLOGY": str(self.topology())}, gpus="")
        for order in (None, "PCI_BUS_ID", "FASTEST_FIRST"):
            for visible in (None, "0", "1", "3,1", "2,0,9,1", "3,2,1,0", "0,0", "", "-1", "MIG-0",
                            "9", " 2 , 1"):
                extra = {"TUBE_SIM_TOPOLOGY": str(self.topology())}
                extra.update({"CUDA_DEVICE_ORDER": order} if order else {})
                extra.update({"CUDA_VISIBLE_DEVICES": visible} if visible is not None else {})
                self.assert_equal_to_native(proxy, "list_devices", extra=extra, arms=("preload",))

    def topology(self):
        path = LAYOUT.build / "tests/e2e/life/four_gpus"
        path.write_text(FOUR_GPUS)
        return path

    def test_start_with_an_almost_empty_environment(self):
        proxy = self.proxy()
        env = {"LD_PRELOAD": HOOK, "TUBE_DIR": str(proxy.dir), "TUBE_WORKFLOW": proxy.workflow}
        done = subprocess.run([PROGRAM, "compute"], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"), done.stderr)

    def test_start_without_standard_descriptors(self):
        proxy = self.proxy()
        env = tubetest.environment(LAYOUT, "preload", "sim", proxy)
        done = subprocess.run(["sh", "-c", '"$1" compute <&- >&- 2>&-', "sh", PROGRAM], env=env,
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0)

    # ---- the loader
    # -------------------------------------------------------------------------------------------------

    def test_library_by_its_names(self):
        proxy = self.proxy()
        for name in ("libcuda.so.1", "libcuda.so", HOOK):
            done = self.run_scene("library-path", proxy, "load", name)
            self.assertEqual((done.returncode, done.stdout),
                             (0, "loaded, same as linked: yes, read 1234\n"), done.stderr)
        done = self.run_scene("preload", proxy, "load", "libcuda.so.1")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "loaded, same as linked: yes, read 1234\n"), done.stderr)

    def test_library_in_a_namespace_of_its_own(self):
        proxy = self.proxy()
        start = proxy.counts_at_rest()
        done = self.run_scene("library-path", proxy, "load_apart", HOOK)
        wanted = "linked computes 22 22\nloaded, same as linked: no, read 1234\nlinked computes 22 22\n"
        self.assertEqual((done.returncode, done.stdout), (0, wanted), done.stderr)
        self.assertEqual(proxy.status()["totals"]["sessions_started"], 2)
        self.assert_nothing_left(proxy, dict(start, fds=proxy.counts_at_rest()["fds"]))


if __name__ == "__main__":
    main()
