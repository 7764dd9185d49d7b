"""Adds up the results of several `meson test` passes and prints them as one line.

`collect DIR JSON STATUS` reads DIR/meson-logs/testlog.json (one JSON object a line, as Meson writes
it) and appends the pass to JSON; STATUS is meson's own exit status, so that a pass which could not
even start is not taken for a green one. `failed JSON` prints the names of the failed tests of the
last pass, a line each; `again DIR JSON STATUS` reads a second try of these, and one that passed
then counts as passed and is named by the report with the end of what it printed the first time.
`report JSON` prints why each skipped test was skipped, which tests failed with the end of what they
printed (all that some CI services keep of a run is its end), and `N passed, N failed, N skipped`
last. `total JSON...` does the same over several runs that were each reported before, and leaves out
why tests were skipped.
"""
import json
import pathlib
import sys
import textwrap

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
KEPT_LINES = 30  # of a failed test's output


def note(entry):
    """Why a test was skipped, in one line, or the end of what a failed one printed; nothing of one
    that passed."""
    if entry["result"] in PASSED:
        return ""
    lines = [
        l.rstrip()
        for l in ((entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")).splitlines()
        if l.strip()
    ]
    return "\n".join(
        lines[-1 if entry["result"] in SKIPPED else -KEPT_LINES:]).strip() or "nothing printed"


def take_log(build):
    """The tests that meson just ran."""
    log = pathlib.Path(build, "meson-logs", "testlog.json")
    if not log.exists():
        return []
    entries = [json.loads(l) for l in log.read_text().splitlines()]
    log.unlink()  # A later pass that dies before it runs a test must not find these results.
    return [{"name": e["name"], "result": e["result"], "note": note(e)} for e in entries]


def has_failed(test):
    return test["result"] not in PASSED | SKIPPED


def collect(build, summary_path, status):
    path = pathlib.Path(summary_path)
    passes = json.loads(path.read_text()) if path.exists() else []
    path.write_text(
        json.dumps([*passes, {
            "build": build,
            "status": status,
            "tests": take_log(build)
        }], indent=1))


def failed(summary_path):
    last = json.loads(pathlib.Path(summary_path).read_text())[-1]
    # The log has "project:suites / name", `meson test` takes the name.
    print(
        "".join(
            test["name"].split(" / ", 1)[-1] + "\n" for test in last["tests"] if has_failed(test)),
        end="")


def again(build, summary_path, status):
    path = pathlib.Path(summary_path)
    passes = json.loads(path.read_text())
    second = {test["name"]: test for test in take_log(build)}
    mended = [
        test for test in passes[-1]["tests"]
        if has_failed(test) and second.get(test["name"], {}).get("result") in PASSED
    ]
    for test in mended:
        test.update(result=second[test["name"]]["result"], first=test["note"], note="")
    if mended and status == 0 and not any(has_failed(test) for test in passes[-1]["tests"]):
        passes[-1]["status"] = 0
    path.write_text(json.dumps(passes, indent=1))


def report(summary_paths, skips_too):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for one_pass in (
            p for path in summary_paths for p in json.loads(pathlib.Path(path).read_text())):
        failed_before = counts["failed"]
        for test in one_pass["tests"]:
            where = f"{test['name']} in {one_pass['build']}"
            if test["result"] in PASSED:
                counts["passed"] += 1
                if "first" in test:
                    print(
                        f"second try: {where} passed only when it was run once more; the first time:"
                    )
                    print(textwrap.indent(test["first"], "  | "))
            elif test["result"] in SKIPPED:
                counts["skipped"] += 1
                if skips_too:
                    print(f"skipped: {where}: {test['note']}")
            else:
                counts["failed"] += 1
                print(
                    f"failed ({test['result'].lower()}): {where}; log: {one_pass['build']}/meson-logs/testlog.txt"
                )
                print(textwrap.indent(test["note"], "  | "))
        if one_pass["status"] != 0 and counts["failed"] == failed_before:
            counts["failed"] += 1
            print(
                f"failed: meson test in {one_pass['build']} ended with status {one_pass['status']} without a failed test"
            )
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts), flush=True)
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    if sys.argv[1] in ("collect", "again"):
        {
            "collect": collect,
            "again": again
        }[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1] == "failed":
        failed(sys.argv[2])
    else:
        sys.exit(report(sys.argv[2:], skips_too=sys.argv[1] == "report"))
