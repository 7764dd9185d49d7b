"""What bench/evaluate rests on: every headline has a row, figures come from results, and the page
is what the kept results say."""
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [
    str(HERE / "lib"),
    str(HERE.parent / "tests" / "gpu"),
    str(HERE.parent / "tests" / "e2e")
]
import evaluation  # noqa: E402
import figures  # noqa: E402
import read_result  # noqa: E402
import workflow_report  # noqa: E402

MS = 1_000_000


class Evaluation(unittest.TestCase):
    def page(self):
        marks = [(evaluation.begin_mark(name), evaluation.end_mark(name))
                 for name in evaluation.tables({})]
        return "".join(f"before\n{begin}\nwhat was\n{end}\nafter\n" for begin, end in marks)

    def test_every_headline_has_a_row(self):
        counts = {paper.MARK: len(paper.HEADLINES) for paper in evaluation.PAPERS}
        self.assertEqual(counts, {"streambox": 16, "faastube": 15, "edas": 12, "fluidfaas": 5})
        keys = [h.key for paper in evaluation.PAPERS for h in paper.HEADLINES]
        self.assertEqual(len(set(keys)), 48)
        for paper in evaluation.PAPERS:
            for cells in evaluation.rows(paper, {}):
                self.assertTrue(all(cells) and not any("|" in cell for cell in cells), cells)

    def test_the_page_is_written_between_its_marks(self):
        page = evaluation.written(self.page(), {})
        self.assertFalse("what was" in page)
        self.assertEqual(len(re.findall("^before$", page, re.M)), 5)
        self.assertEqual(evaluation.written(page, {}), page)
        self.assertRaises(ValueError, evaluation.written, "no marks", {})

    def results(self):
        """A run of bench/workflows in which Tube halves everything."""
        def values(factor):
            split = {part: 10 * MS * factor for part in workflow_report.PARTS}
            moved = {"function to function": {"count": 1, "bytes": 120e6}}
            return {"p50_ns": 60 * MS * factor, "p95_ns": 80 * MS * factor,
                    "p99_ns": 100 * MS * factor, "split_ns": split, "solo_split_ns": split,
                    "tail_split_ns": split, "closed_per_s": 10 / factor, "slo_share": 0.5,
                    "gpu_bytes_mean": 2**32 * factor, "copies": moved}

        arms = {"native+host": values(2), "mps+host": values(2), "tube+host": values(2),
                "tube+store": values(1)}
        row = {"group": "traffic", "name": "bursty, batch 16, 1 GPU", "arms": arms}
        result = {"bench": "workflows", "commit": "c" * 40, "date": "", "backend": "driver",
                  "machine": {}, "rows": [row]}
        return read_result.merge([{"workflows": result}])

    def test_headlines_take_their_figures_from_results(self):
        cells = {row[0]: row[4] for paper in evaluation.PAPERS
                 for row in evaluation.rows(paper, self.results())}
        self.assertIn("-50% against mps+host (traffic 100 for 200 ms)", cells["FT1"])
        self.assertIn("-50%", cells["FT2"])
        self.assertIn("2.00x over mps+host", cells["FT3"])
        self.assertIn("`ccccccc`", cells["FT3"])
        self.assertIn("120 MB", cells["SB15"])
        self.assertEqual(cells["SB2"], "not measured yet")
        self.assertEqual(cells["SB3"], "-")
        hurts = evaluation.hurts(self.results())
        self.assertEqual(hurts.count("| traffic |"), 3)

    def test_figures_are_called_what_the_benches_call_them(self):
        named = {line.figure for paper in evaluation.PAPERS for line in paper.HEADLINES}
        known = {figure[0] for figure in figures.FIGURES}
        self.assertGreater(len(named), 1)
        self.assertLessEqual(named - {""}, known)

    def test_the_page_says_what_the_kept_results_say(self):
        done = subprocess.run([sys.executable, str(HERE / "evaluate"), "--check"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
