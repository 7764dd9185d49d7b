"""The generator on a toolkit of eight functions: its output, byte for byte, and its answer to each
kind of mistake.

golden_test.py GENERATE_PY [--update] expected/ holds the output (as .txt: it is data, not source);
--update writes it anew, and the diff is then for a person to read. bad/ROOM/NAME.calls is a
description with one mistake, bad/ROOM/NAME.error the line that the generator must say about it.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
GENERATE = sys.argv[1]
UPDATE = "--update" in sys.argv


def generate(calls, out, *more):
    return subprocess.run([
        sys.executable, GENERATE, "--cuda",
        str(HERE / "toolkit"), "--calls",
        str(calls), "--lock",
        str(HERE / "numbers.lock"), "--tested",
        str(HERE / "calls.txt"), "--out",
        str(out), *more
    ], capture_output=True, text=True)


class Golden(unittest.TestCase):
    maxDiff = None

    def test_output_is_what_was_read_and_approved(self):
        with tempfile.TemporaryDirectory() as folder:
            result = generate(HERE / "calls", folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            written = {p.name: p.read_text() for p in pathlib.Path(folder).iterdir()}
        if UPDATE:
            for name, text in written.items():
                (HERE / "expected" / f"{name}.txt").write_text(text)
        approved = {
            p.name.removesuffix(".txt"): p.read_text() for p in (HERE / "expected").iterdir()
        }
        self.assertEqual(sorted(written), sorted(approved))
        for name in sorted(written):
            with self.subTest(file=name):
                self.assertEqual(approved[name], written[name])

    def test_a_second_run_rewrites_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            generate(HERE / "calls", folder)
            before = {p.name: p.stat().st_mtime_ns for p in pathlib.Path(folder).iterdir()}
            generate(HERE / "calls", folder)
            self.assertEqual(before,
                             {p.name: p.stat().st_mtime_ns for p in pathlib.Path(folder).iterdir()})


class Mistakes(unittest.TestCase):
    def test_each_is_refused_with_file_line_and_name(self):
        cases = sorted((HERE / "bad").rglob("*.calls"))
        self.assertTrue(cases)
        for case in cases:
            with self.subTest(case=case.stem), tempfile.TemporaryDirectory() as folder:
                calls = pathlib.Path(folder) / "calls"
                calls.mkdir()
                (calls / f"{case.stem}.py").write_text(case.read_text())
                result = generate(calls, pathlib.Path(folder) / "out")
                self.assertEqual(result.stderr, case.with_suffix(".error").read_text())
                self.assertEqual(result.returncode, 1)
                self.assertFalse((pathlib.Path(folder) / "out").exists(),
                                 "nothing is written after a mistake")

    def test_a_missing_toolkit_is_named(self):
        result = subprocess.run([sys.executable, GENERATE, "--cuda", "/nonexistent"],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/include/cuda.h: not found; point at the CUDA toolkit",
                      result.stderr)

    def test_a_number_used_twice_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            lock = pathlib.Path(folder) / "numbers.lock"
            lock.write_text("tubeAsk 1\ntubeHello 1\n")
            result = subprocess.run([
                sys.executable, GENERATE, "--cuda",
                str(HERE / "toolkit"), "--calls",
                str(HERE / "calls"), "--lock",
                str(lock)
            ], capture_output=True, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertIn("numbers.lock:2: tubeHello: number 1 or the name is used twice",
                          result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
