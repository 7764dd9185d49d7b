"""What libtube answers to uses of objects that are none, and to those by other threads and behind
streams that are gone: errors of one call, and nothing that stays behind.

uses_test.py --build DIR --program FILE [--backend driver] [UsesTest.test_NAME...]
"""
import pathlib
import subprocess
import sys

import store_test
from store_test import StoreScenes


class UsesTest(StoreScenes):
    """Programs of uses.cc and uses.py."""

    def run_alone(self, scene, **settings):
        proxy = self.proxy(**settings)
        self.assertEqual(self.run_scene(proxy, scene), "equal\n", proxy.log_tail())
        self.wait_empty(proxy)

    def run_python(self, scene, **settings):
        proxy = self.proxy(**settings)
        env = store_test.tubetest.environment(store_test.LAYOUT, "preload",
                                              store_test.OPTIONS.backend, proxy)
        env["TUBE_LIBRARY"] = f"{store_test.OPTIONS.build}/libtube/libtube.so.1"
        program = pathlib.Path(__file__).with_name("uses.py")
        done = subprocess.run([sys.executable, "-B", program, scene], env=env, text=True,
                              capture_output=True, timeout=store_test.TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "equal\n"), done.stderr)
        self.wait_empty(proxy)

    def test_arrays_of_python_die_with_exceptions(self):
        self.run_python("dying")

    def test_python_puts_arrays_where_they_are(self):
        self.run_python("places", gpus="0,1", TUBE_SIM_COUNT="2")

    def test_a_signal_leaves_no_object_without_an_owner(self):
        self.run_python("interrupted")

    def test_python_tells_a_forked_child_why(self):
        self.run_python("forked")

    def test_who_seals_or_releases_twice_is_told_so(self):
        self.run_alone("misuse")

    def test_a_put_has_read_its_bytes(self):
        for lane in ("auto", "always"):
            self.run_alone("put", TUBE_COPY_LANE=lane)

    def test_a_thread_without_a_context_has_them_too(self):
        self.run_alone("threads")

    def test_a_release_there_is_behind_the_default_stream(self):
        for lane in ("auto", "always"):
            self.run_alone("order", TUBE_COPY_LANE=lane)

    def test_an_owner_s_end_is_never_refused(self):
        self.run_alone("drop")

    def test_an_owner_s_end_breaks_no_capture(self):
        self.run_alone("blocking")

    def test_an_owner_s_end_in_a_host_function_is_made_up_for(self):
        self.run_alone("callback")

    def test_an_owner_s_end_stops_no_other_call(self):
        self.run_alone("others")

    def test_an_owner_s_end_is_behind_the_context_of_its_get(self):
        self.run_alone("contexts")

    def test_an_owner_s_end_without_its_stream_waits_for_all_contexts(self):
        self.run_alone("all")

    def test_memory_that_is_given_up_is_written_to_no_more(self):
        self.run_alone("given_up")

    def test_a_put_leaves_nothing_in_a_capture(self):
        self.run_alone("captured")

    def test_without_a_proxy_a_put_copies_from_the_gpu(self):
        env = store_test.tubetest.environment(store_test.LAYOUT, "native", store_test.OPTIONS.backend)
        done = subprocess.run([store_test.OPTIONS.program, "alone"], env=env, text=True,
                              capture_output=True, timeout=store_test.TIMEOUT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "equal\n"), done.stderr)

    def test_a_proxy_that_was_stopped_is_gone(self):
        proxy = self.proxy()
        program = self.started(proxy, "stop")
        proxy.process.terminate()
        proxy.process.wait()
        self.assertEqual(self.finish(proxy, program), "equal\n")


if __name__ == "__main__":
    store_test.main()
