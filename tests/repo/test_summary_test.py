"""tools/dev/test_summary.py: the counts of several passes add up, and a pass that did not run is not green."""
import json
import pathlib
import subprocess
import sys
import tempfile

script = pathlib.Path(sys.argv[1], "tools/dev/test_summary.py")


def report(*passes):
    with tempfile.TemporaryDirectory() as folder:
        summary = pathlib.Path(folder, "summary.json")
        for number, (status, results) in enumerate(passes):
            logs = pathlib.Path(folder, f"build{number}", "meson-logs")
            logs.mkdir(parents=True)
            lines = [json.dumps({"name": f"t{i}", "result": r, "stdout": "no GPU\n", "stderr": ""}) for i, r in enumerate(results)]
            (logs / "testlog.json").write_text("\n".join(lines))
            subprocess.run([sys.executable, script, "collect", str(logs.parent), summary, str(status)], check=True)
        done = subprocess.run([sys.executable, script, "report", summary], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1], done.stdout


def expect(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


code, last, _ = report((0, ["OK", "SKIP"]), (0, ["OK"]))
expect((code, last) == (0, "2 passed, 0 failed, 1 skipped"), last)
code, last, text = report((1, ["OK", "FAIL", "TIMEOUT"]))
expect((code, last) == (1, "1 passed, 2 failed, 0 skipped"), last)
code, last, text = report((0, ["OK"]), (2, []))
expect((code, last) == (1, "1 passed, 1 failed, 0 skipped"), last)
code, last, text = report((0, ["OK", "SKIP"]))
expect("no GPU" in text, "the reason of a skipped test is shown")
code, last, _ = report((0, []))
expect(code == 1, "no test at all is a failure")
