"""What a program does to its descriptors must not break it, its proxy or the other programs.

descriptors_test.py --build FOLDER [unittest arguments]. The program is life.cc, one scene a test.
Where the scene is ordinary CUDA, its output must equal the run on the simulated GPU without Tube.
"""
import os
import resource
import signal
import subprocess

from scenes import TIMEOUT_S, Scenes, main


class Descriptors(Scenes):
    def descriptors(self, scene):
        proxy = self.proxy()
        self.run_scene("preload", proxy, "compute")
        start = proxy.counts_at_rest()
        out = self.assert_equal_to_native(proxy, scene)
        self.assertIn("child: good\nafter that computes 22 22\n", out)
        self.assert_nothing_left(proxy, start)

    def test_program_closes_all_descriptors(self):
        self.descriptors("close_all")

    def test_program_closes_all_and_opens_others(self):
        self.descriptors("close_and_reuse")

    def test_program_puts_files_over_sockets(self):
        self.descriptors("dup2_over_sockets")

    def out_of_sight(self, proxy, *suffixes):
        for suffix in suffixes:
            path = proxy.dir / f"{proxy.workflow}{suffix}"
            path.rename(proxy.dir / f"elsewhere{suffix}")

    def test_program_without_descriptors_sees_the_data_socket_alone(self):
        proxy = self.proxy()
        self.out_of_sight(proxy, ".ctl")
        self.assert_equal_to_native(proxy, "close_all")
        self.assertNotIn("before it said", proxy.log_tail(100))

    def test_program_without_descriptors_sees_no_socket(self):
        proxy = self.proxy()
        program = self.stopped_without_descriptors(proxy)
        self.out_of_sight(proxy, ".ctl", ".sock")
        program.send_signal(signal.SIGCONT)
        out, err = program.communicate(timeout=TIMEOUT_S)
        self.assertEqual(program.returncode, 0, err)
        self.assertIn("child: good\nafter that computes 22 22\n", out)

    def stopped_without_descriptors(self, proxy):
        """A program that has used the GPU, has closed all of them and stands there."""
        program = self.start_scene(proxy, "close_all", "stops", stderr=subprocess.PIPE)
        self.addCleanup(program.stderr.close)
        _, status = os.waitpid(program.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status), status)
        return program

    def assert_learns_of_the_death(self, *hidden):
        """Of a proxy that dies out of sight: these files of it are elsewhere by then."""
        proxy = self.proxy()
        program = self.stopped_without_descriptors(proxy)
        self.out_of_sight(proxy, *hidden)
        proxy.process.kill()
        program.send_signal(signal.SIGCONT)
        out, err = program.communicate(timeout=TIMEOUT_S)
        self.assertEqual(program.returncode, 1, out)
        self.assertIn("died", err)

    def test_proxy_dies_under_a_program_without_descriptors(self):
        self.assert_learns_of_the_death()
        self.assert_learns_of_the_death(".ctl")
        self.assert_learns_of_the_death(".ctl", ".sock")

    def test_few_descriptors(self):
        proxy = self.proxy()
        for limit in (16, 32):
            done = self.run_scene(
                "preload", proxy, "compute",
                preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE,
                                                                  (limit, limit)))
            self.assertEqual((done.returncode, done.stdout), (0, "main computes 22 22\n"),
                             done.stderr)
        # Three standard ones and one more: too few for a connection and its files, and that is
        # said.
        done = self.run_scene("preload", proxy, "compute",
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5)))
        self.assertEqual(done.returncode, 1)
        hook = [line for line in done.stderr.splitlines() if line.startswith("tube:")]
        self.assertEqual(len(hook), 1, done.stderr)
        self.assertRegex(hook[0], "descriptor|Too many open files")
        self.assert_equal_to_native(proxy, "compute")


if __name__ == "__main__":
    main()
