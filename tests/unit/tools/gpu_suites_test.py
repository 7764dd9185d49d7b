"""tests/gpu's paired items without a GPU: programs of this test's own stand for the two arms, good,
wrong, crashing and hanging."""
import argparse
import fcntl
import os
import pathlib
import struct
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tests/e2e")]
import conformance  # noqa: E402
import multi  # noqa: E402
import outputs  # noqa: E402
import paired  # noqa: E402
import report  # noqa: E402
import suites  # noqa: E402

# A program of three cases as tests/gpu/frameworks/cases.py runs them; FAKE names what goes wrong in
# this arm.
PROGRAM = """
import os, pathlib, random, signal, struct, sys
sys.path.insert(0, {folder!r})
import cases
trouble = os.environ.get("FAKE", "")
def first(): return {{"value": b"same", "words": "text" + ("!" if trouble == "words" else "")}}
def second():
    if trouble == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    if trouble == "hang": signal.pause()
    if trouble == "fail":
        if os.environ.get("TUBE_LOG") == "debug": print("tube: debug: cuThing -> CUDA_ERROR_OF_SOME_KIND (5)", file=sys.stderr)
        raise RuntimeError("it failed")
    if trouble == "skip": raise cases.Skipped("not on this machine")
    numbers = [1.0, 2.0 + (random.random() if "random" in trouble else 0) + (50 if "wrong" in trouble else 0)]
    return {{"numbers": Floats(numbers)}}
class Floats(list): pass
cases.as_bytes = lambda value: ("f32", struct.pack("<2f", *value)) if isinstance(value, Floats) else \\
    ("txt", value.encode()) if isinstance(value, str) else ("u8", value)
cases.add("first", first); cases.add("second", second); cases.add("third", lambda: {{"value": b"third"}})
cases.main()
"""


class Pairs(unittest.TestCase):
    def pair(self, native="", tube="", case_limit=60, only=(), command=None):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = pathlib.Path(folder.name, "program.py")
        script.write_text(PROGRAM.format(folder=str(ROOT / "tests/gpu/frameworks")))

        def launch(trouble):
            return lambda: (command or [sys.executable, "-B", str(script)],
                            dict(os.environ, FAKE=trouble))

        results, *arms = paired.run_pair(launch(native), launch(tube), folder.name,
                                         time.monotonic() + 120, case_limit, only)
        return {r["case"]: r for r in results}, arms

    def kinds(self, **arguments):
        return {case: r["result"] for case, r in self.pair(**arguments)[0].items()}

    def test_equal(self):
        results, arms = self.pair()
        self.assertEqual({
            c: r["result"] for c, r in results.items()
        }, dict(first="equal", second="equal", third="equal"))
        self.assertEqual([arm.starts for arm in arms], [1, 1])

    def test_a_difference_is_named(self):
        results, _ = self.pair(tube="words")
        self.assertEqual(results["first"]["result"], "DIFFERENT")
        self.assertIn("line 1: native 'text', Tube 'text!'", results["first"]["detail"])
        self.assertIn("natively again: the same bytes", results["first"]["detail"])
        self.assertEqual(results["second"]["result"], "equal")

    def test_numbers_that_differ_natively_may_differ_as_much(self):
        self.assertEqual(
            self.kinds(native="random", tube="random")["second"], "within native's own difference")
        self.assertEqual(self.kinds(native="random", tube="random wrong")["second"], "DIFFERENT")
        self.assertEqual(self.kinds(tube="random")["second"], "DIFFERENT")

    def test_a_crash_costs_its_case_only(self):
        results, arms = self.pair(tube="crash")
        self.assertEqual({
            c: r["result"] for c, r in results.items()
        }, dict(first="equal", second="FAILED", third="equal"))
        self.assertIn("crashed: ended with -11", results["second"]["detail"])
        self.assertEqual(arms[1].starts, 2)

    def test_a_hang_costs_its_case_only(self):
        self.assertEqual(self.kinds(tube="hang", case_limit=15),
                         dict(first="equal", second="FAILED", third="equal"))

    def test_what_fails_natively_is_not_counted_equal(self):
        kinds = self.kinds(native="fail", tube="fail")
        self.assertEqual(kinds, dict(first="equal", second="native fails", third="equal"))
        self.assertEqual(suites.summary([{"result": r} for r in kinds.values()]), "equal")
        self.assertEqual(suites.summary([{"result": "native fails"}]), "native fails")

    def test_a_failure_through_tube_alone(self):
        results, (_, tube) = self.pair(tube="fail")
        self.assertEqual(results["second"]["result"], "FAILED")
        self.assertIn("it failed", results["second"]["detail"])
        self.assertEqual(tube.trace, "1 x tube: debug: cuThing -> CUDA_ERROR_OF_SOME_KIND (5)")

    def test_skips_are_said(self):
        results, _ = self.pair(native="skip", tube="skip")
        self.assertEqual((results["second"]["result"], results["second"]["detail"]),
                         ("skipped", "not on this machine"))

    def test_only_some_cases(self):
        self.assertEqual(self.kinds(only=("third",)), {"third": "equal"})
        self.assertEqual(self.kinds(only=("*ir*",)), {"first": "equal", "third": "equal"})

    def test_a_program_that_does_not_start(self):
        results, (native, tube) = self.pair(
            command=[sys.executable, "-c", "import sys; sys.exit('no library')"])
        self.assertEqual(results, {})
        self.assertIn("no library", native.problem)
        self.assertIn("ended with 1", tube.problem)


class Choices(unittest.TestCase):
    def chosen(self, only, preset=""):
        return suites.chosen_cases(argparse.Namespace(only=only), "training", preset)

    def test_cases_of_an_item(self):
        self.assertEqual(self.chosen([]), [])
        self.assertEqual(self.chosen([], "a,b"), ["a", "b"])
        self.assertEqual(self.chosen(["training.c", "cublas.d"], "a,b"), ["c"])
        self.assertEqual(self.chosen(["training*", "training.c"]), [])

    def test_every_framework_script_is_there_and_its_preset_cases_exist(self):
        for name, (_, script, extra, _) in suites.FRAMEWORKS.items():
            path = ROOT / "tests/gpu/frameworks" / script
            self.assertTrue(path.exists(), name)
            for case in extra.get("ITEM_ONLY", "").split(","):
                self.assertIn(case.split("_half")[0], path.read_text(), name)

    def test_every_library_has_its_program(self):
        built = (ROOT / "tests/gpu/libraries/meson.build").read_text()
        for name in suites.LIBRARIES:
            self.assertIn(f"'{name}': [", built)


class Groups(unittest.TestCase):
    def test_children_of_a_program_that_hangs_go_with_it(self):
        with tempfile.NamedTemporaryFile() as held:
            code = (
                f"import fcntl, os, signal\nfile = open({held.name!r})\nfcntl.flock(file, fcntl.LOCK_EX)\n"
                "print('held', flush=True)\nos.fork()\nsignal.pause()")
            outcome = multi.run_group([sys.executable, "-c", code], dict(os.environ), 5)
            self.assertEqual((outcome.code, outcome.out), (None, "held\n"))
            fcntl.flock(held, fcntl.LOCK_EX
                       )  # returns once nobody holds it: a child that lived would keep it for ever

    def test_output_and_code(self):
        outcome = multi.run_group([
            sys.executable, "-c", "import sys; print('out'); sys.stderr.write('err'); sys.exit(3)"
        ], dict(os.environ), 60)
        self.assertEqual((outcome.code, outcome.out, outcome.err), (3, "out\n", "err"))


class Outputs(unittest.TestCase):
    def written(self, name, data):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, name)
        path.write_bytes(data)
        return path

    def test_numbers_of_each_type(self):
        for kind, data in (("f16", struct.pack("<2e", 1.5, -2)), ("bf16", b"\xc0\x3f\x00\xc0"),
                           ("f32", struct.pack("<2f", 1.5,
                                               -2)), ("f64", struct.pack("<2d", 1.5, -2))):
            self.assertEqual(list(outputs.numbers(self.written(f"case.out.{kind}", data))),
                             [1.5, -2], kind)

    def test_distance(self):
        a, b = self.written("c.o.f32", struct.pack("<2f", 1,
                                                   2)), self.written("c.o.f32",
                                                                     struct.pack("<2f", 1, 2.5))
        nan = self.written("c.o.f32", struct.pack("<2f", 1, float("nan")))
        self.assertEqual(outputs.distance(a, b), 0.5)
        self.assertEqual(outputs.distance(nan, nan), 0)
        self.assertEqual(outputs.distance(a, nan), float("inf"))
        self.assertEqual(outputs.distance(a, self.written("c.o.f32", b"1234")), float("inf"))


class Reports(unittest.TestCase):
    header = {"commit": "c", "gpu": "g", "driver": "d", "date": "t"}

    def test_cases_are_listed_and_counted(self):
        cases = [{
            "case": "a",
            "result": "equal"
        }, {
            "case": "b",
            "result": "DIFFERENT",
            "detail": "out: 3 bytes"
        }]
        results = [{
            "suite": "libraries",
            "item": "cublas",
            "result": "DIFFERENT",
            "cases": cases,
            "seconds_item": 1.0
        }]
        text = report.text(self.header, results)
        self.assertIn("libraries/cublas.b: DIFFERENT: out: 3 bytes", text)
        self.assertIn("cases: 1 DIFFERENT, 1 equal", text)
        self.assertIn("-- libraries/cublas.b: DIFFERENT\nout: 3 bytes", report.failures(results))
        self.assertFalse(report.is_well(results[0]))

    def test_core_items_have_their_table(self):
        text = report.text(self.header, [{
            "suite": "core",
            "item": "bert",
            "result": "equal",
            "seconds_native": 1.0,
            "seconds_tube": 2.0
        }])
        self.assertIn("bert", text)
        self.assertIn("items: 1 equal", text)

    def test_conformance_rows(self):
        rows = [{
            "case": "memory.x",
            "result": "different",
            "difference": "-a\n+b"
        }, {
            "case": "memory.y",
            "result": "equal",
            "difference": None
        }]
        self.assertEqual([c["result"] for c in map(conformance.as_case, rows)],
                         ["DIFFERENT", "equal"])


if __name__ == "__main__":
    unittest.main()
