"""What a start costs in messages, files and images, on the simulated GPU: counts, which hold on any
machine, no times.

counts_test.py --build FOLDER [unittest arguments].
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
import tubetest  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--build")
options, rest = parser.parse_known_args()
LAYOUT = tubetest.Layout(options.build)
FOLDER = LAYOUT.build / "bench" / "coldstart"
# One for the module and one for its kernel, three for memory; copies, launch and synchronisation
# need no answer.
MOST_ROUND_TRIPS = 5


class Counts(unittest.TestCase):
    def setUp(self):
        self.proxy = tubetest.Proxy(LAYOUT, "sim")
        self.proxy.__enter__()
        self.addCleanup(self.proxy.__exit__, None, None, None)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trace = pathlib.Path(folder.name, "trace")

    def start(self, copies=1):
        """Starts the program; returns what Tube's library noted in each copy."""
        self.trace.unlink(missing_ok=True)
        env = dict(tubetest.environment(LAYOUT, "preload", "sim", self.proxy),
                   TUBE_TRACE_START=str(self.trace))
        command = [
            FOLDER / "launch",
            str(copies), "100", FOLDER / "driver_start", FOLDER / "kernel.fatbin"
        ]
        out = subprocess.run([str(word) for word in command], env=env, capture_output=True,
                             text=True, timeout=150)
        self.assertEqual(out.returncode, 0, out.stderr)
        samples = json.loads(out.stdout)
        self.assertEqual([sample["code"] for sample in samples], [0] * copies,
                         out.stderr + self.proxy.log_tail())
        notes = {note["pid"]: note for note in map(json.loads, self.trace.read_text().splitlines())}
        self.proxy.wait_empty()
        return [notes[sample["pid"]] for sample in samples]

    def test_one_start(self):
        note, = self.start()
        self.assertEqual((note["images"], note["lookups"], note.get("files", 0)), (1, 1, 0))
        self.assertLessEqual(note["round_trips"], MOST_ROUND_TRIPS)
        order = [
            "loaded", "init", "connected", "reserved", "greeted", "attached", "ready", "load",
            "load_end", "kernel", "kernel_end", "launch"
        ]
        times = [note[name] for name in order]
        self.assertEqual(times, sorted(times))

    def test_second_start(self):
        """What the first one loaded serves the second: no image goes to the driver again, and its
        kernel needs no answer."""
        self.start()
        first = self.proxy.status()["totals"]
        note, = self.start()
        totals = self.proxy.status()["totals"]
        self.assertEqual((first["images_loaded"], first["images_shared"]), (1, 0))
        self.assertEqual((totals["images_loaded"], totals["images_shared"]), (1, 1))
        self.assertEqual((note["images"], note.get("lookups", 0), note["known"]), (1, 0, 1))
        self.assertLessEqual(note["round_trips"], MOST_ROUND_TRIPS - 1)

    def test_who_needs_a_second_driver(self):
        """A program of the driver API alone does not start the real driver beside it; one with code
        from nvcc does."""
        env = dict(tubetest.environment(LAYOUT, "preload", "sim", self.proxy),
                   TUBE_TRACE_START=str(self.trace), TUBE_PREINIT="1")
        subprocess.run([FOLDER / "driver_start", FOLDER / "kernel.fatbin"], env=env, check=True,
                       capture_output=True, timeout=100)
        subprocess.run([FOLDER / "runtime_start"], env=env, capture_output=True,
                       timeout=100)  # fails: there is no driver for it here
        driver_api, runtime = map(json.loads, self.trace.read_text().splitlines())
        self.assertNotIn("driver_thread", driver_api)
        self.assertIn("driver_asked", runtime)

    def test_several_starts_at_once(self):
        for note in self.start(6):
            self.assertLessEqual(note["round_trips"], MOST_ROUND_TRIPS)
        totals = self.proxy.status()["totals"]
        self.assertEqual((totals["images_loaded"], totals["images_shared"]), (1, 5))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest])
