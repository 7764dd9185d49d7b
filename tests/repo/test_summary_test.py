"""tools/dev/test_summary.py: the counts of several passes add up, and a pass that did not run is
not green."""
import json
import pathlib
import subprocess
import sys
import tempfile

script = pathlib.Path(sys.argv[1], "tools/dev/test_summary.py")


def report(*passes, again=None):
    """again: (status, results) of a second try of what failed in the last pass; None stays out of
    its log."""
    with tempfile.TemporaryDirectory() as folder:
        summary = pathlib.Path(folder, "summary.json")
        for number, (status, results) in enumerate(passes):
            logs = pathlib.Path(folder, f"build{number}", "meson-logs")
            logs.mkdir(parents=True)
            lines = [
                json.dumps({
                    "name": f"tube:unit / t{i}",
                    "result": r,
                    "stdout": f"{i}: a long story\n" * 100 + "no GPU\n",
                    "stderr": ""
                }) for i, r in enumerate(results)
            ]
            (logs / "testlog.json").write_text("\n".join(lines))
            subprocess.run(
                [sys.executable, script, "collect",
                 str(logs.parent), summary,
                 str(status)], check=True)
        if again is not None:
            names = subprocess.run([sys.executable, script, "failed", summary], check=True,
                                   capture_output=True, text=True).stdout.split()
            lines = [
                json.dumps({
                    "name": f"tube:unit / {n}",
                    "result": r,
                    "stdout": "",
                    "stderr": ""
                }) for n, r in zip(names, again[1])
            ]
            (logs / "testlog.json").write_text("\n".join(lines))
            subprocess.run(
                [sys.executable, script, "again",
                 str(logs.parent), summary,
                 str(again[0])], check=True)
        done = subprocess.run([sys.executable, script, "report", summary], capture_output=True,
                              text=True)
        return done.returncode, done.stdout.splitlines()[-1], done.stdout


def expect(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


code, last, _ = report((0, ["OK", "SKIP"]), (0, ["OK"]))
expect((code, last) == (0, "2 passed, 0 failed, 1 skipped"), last)
code, last, text = report((1, ["OK", "FAIL", "TIMEOUT"]))
expect((code, last) == (1, "1 passed, 2 failed, 0 skipped"), last)
expect("  | 1: a long story" in text and "  | no GPU" in text and "  | 0:" not in text,
       "a failed test's last words are shown, a passed one's are not")
expect(len(text.splitlines()) < 80, "only the end of what a failed test printed")
code, last, text = report((0, ["OK"]), (2, []))
expect((code, last) == (1, "1 passed, 1 failed, 0 skipped"), last)
code, last, text = report((0, ["OK", "SKIP"]))
expect("no GPU" in text, "the reason of a skipped test is shown")
code, last, _ = report((0, []))
expect(code == 1, "no test at all is a failure")
code, last, text = report((1, ["OK", "FAIL", "TIMEOUT"]), again=(0, ["OK", "OK"]))
expect((code, last) == (0, "3 passed, 0 failed, 0 skipped"), last)
expect(
    "second try: tube:unit / t1" in text and "second try: tube:unit / t2" in text and
    "  | 1: a long story" in text, "who needs a second try is named with its first one")
code, last, text = report((1, ["OK", "FAIL", "FAIL"]), again=(1, ["OK", "FAIL"]))
expect((code, last) == (1, "2 passed, 1 failed, 0 skipped"), last)
code, last, text = report((1, ["OK", "FAIL"]), again=(1, []))
expect((code, last) == (1, "1 passed, 1 failed, 0 skipped"),
       "a second try that ran nothing mends nothing: " + last)
code, last, text = report((2, ["OK"]), again=(0, []))
expect(code == 1, "a pass that ended badly without a failed test has no second try: " + last)
