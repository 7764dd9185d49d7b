"""Adds up the results of several `meson test` passes and prints them as one line.

`collect DIR JSON STATUS` reads DIR/meson-logs/testlog.json (one JSON object a line, as Meson writes it) and appends the
pass to JSON; STATUS is meson's own exit status, so that a pass which could not even start is not taken for a green one.
`report JSON` prints why each skipped test was skipped, which tests failed, and `N passed, N failed, N skipped` last.
"""
import json
import pathlib
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def last_line(entry):
    lines = [l for l in ((entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")).splitlines() if l.strip()]
    return lines[-1].strip() if lines else "no reason printed"


def collect(build, summary_path, status):
    log = pathlib.Path(build, "meson-logs", "testlog.json")
    entries = [json.loads(l) for l in log.read_text().splitlines()] if log.exists() else []
    one_pass = {"build": build, "status": status, "tests": [
        {"name": e["name"], "result": e["result"], "note": last_line(e) if e["result"] in SKIPPED else ""} for e in entries]}
    path = pathlib.Path(summary_path)
    passes = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps(passes + [one_pass], indent=1))
    if log.exists():
        log.unlink()  # A later pass that dies before it runs a test must not find these results.


def report(summary_path):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for one_pass in json.loads(pathlib.Path(summary_path).read_text()):
        failed_before = counts["failed"]
        for test in one_pass["tests"]:
            where = f"{test['name']} in {one_pass['build']}"
            if test["result"] in PASSED:
                counts["passed"] += 1
            elif test["result"] in SKIPPED:
                counts["skipped"] += 1
                print(f"skipped: {where}: {test['note']}")
            else:
                counts["failed"] += 1
                print(f"failed ({test['result'].lower()}): {where}; log: {one_pass['build']}/meson-logs/testlog.txt")
        if one_pass["status"] != 0 and counts["failed"] == failed_before:
            counts["failed"] += 1
            print(f"failed: meson test in {one_pass['build']} ended with status {one_pass['status']} without a failed test")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts), flush=True)
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(report(sys.argv[2]))
