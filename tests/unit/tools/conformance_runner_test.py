"""Parts of the conformance runner: recorded transcripts in the place of native runs, how many cases
at once, the time of a chapter."""
import pathlib
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "conformance"), str(ROOT / "tests" / "e2e")]
sys.dont_write_bytecode = True
import runner  # noqa: E402
import transcripts  # noqa: E402
import tubetest  # noqa: E402


class Recorded(unittest.TestCase):
    def test_is_what_was_written(self):
        for code in (0, 3, -11, 1):
            for out in ("", "one\n", "one\n\ntwo\n"):
                outcome = tubetest.Outcome(code, out, "", 0)
                text = transcripts.normal(transcripts.text_of(outcome))
                read = transcripts.Recorded(text)
                self.assertEqual(read.code, code)
                self.assertEqual(transcripts.normal(transcripts.text_of(read)), text)

    def test_an_arrow_of_the_case_is_no_end(self):
        read = transcripts.Recorded("call -> CODE\n=> something")
        self.assertEqual((read.code, read.out), (0, "call -> CODE\n=> something"))

    def test_identity(self):
        known = {
            transcripts.identity_of(p)
            for p in (ROOT / "tests" / "conformance" / "expected").glob("*.txt")
        }
        self.assertNotIn(None, known)
        self.assertIsNone(transcripts.identity_of(ROOT / "no such file"))


class Jobs(unittest.TestCase):
    def arms(self, backend, jobs):
        return runner.Arms(None, backend, None, "preload", jobs, 60)

    def cases(self):
        return [
            runner.Case("a", "ordinary", "one", None, True),
            runner.Case("b", "ordinary", "two", None)
        ]

    def test_cases_that_hold_streams_run_by_themselves_on_a_driver(self):
        holds, free = self.cases()
        self.assertEqual(
            self.arms("driver", 12)._by_jobs([holds, free]), [([free], 12),
                                                              ([holds], runner.HOLDING_JOBS)])
        self.assertEqual(
            self.arms("driver", 12)._by_jobs([holds]), [([holds], runner.HOLDING_JOBS)])

    def test_not_so_where_there_are_few_or_no_queues_to_share(self):
        cases = self.cases()
        self.assertEqual(self.arms("sim", 12)._by_jobs(cases), [(cases, 12)])
        self.assertEqual(self.arms("driver", 2)._by_jobs(cases), [(cases, 2)])


class Deadline(unittest.TestCase):
    def run_case(self, deadline):
        arms = runner.Arms(None, "sim", None, "preload", 1, 60)
        arms.deadline = deadline
        return arms._run(runner.Case("a", "ordinary", "x", "/bin/echo"), {})

    def test_a_case_is_not_begun_behind_it(self):
        outcome = self.run_case(time.monotonic() - 1)
        self.assertIsNone(outcome.code)
        self.assertIn("not begun", outcome.err)

    def test_before_it_and_without_one_cases_run(self):
        for deadline in (None, time.monotonic() + 60):
            self.assertEqual((self.run_case(deadline).code, self.run_case(deadline).out),
                             (0, "x\n"))


if __name__ == "__main__":
    unittest.main()
