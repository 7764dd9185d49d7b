"""Tests that other projects ship, natively and through Tube: those of numba's CUDA target, some
2,000, which nobody here wrote.

A module of tests is a process; several run at once, all of an arm before the other arm, each arm
within half of the time left. Compared is the outcome of each test, not what it prints: a test that
fails natively, because of what the machine lacks, must fail here, too, and is counted apart.
"""
import concurrent.futures
import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import session as sessions

NAME = "numba_tests"
SCRIPT = sessions.HERE / "items" / "unit_module.py"
MODULE_LIMIT_S = 120
WELL = ("ok", "expected failure")
STANDS = "stands"


def folder():
    """Where numba's CUDA tests lie, or None. Importing them here would initialise CUDA."""
    for package, below in (("numba_cuda", "numba/cuda/tests"), ("numba", "cuda/tests")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (path := pathlib.Path(place, below)).is_dir():
                return path
    return None


def modules():
    root = folder()
    return sorted(".".join(("numba.cuda.tests", *f.relative_to(root).with_suffix("").parts))
                  for f in root.rglob("test_*.py"))


def names(session):
    return [NAME] if folder() is not None else []


def outcomes(text, ending):
    """Test -> outcome, of what unit_module.py printed."""
    found, last = {}, None
    for line in text.splitlines():
        if line.startswith("@@ "):
            _, test, outcome = line.split(" ", 2)
            found[test] = outcome
        elif line.startswith("@> "):
            last = line[3:]
    if ending != 0:
        found[last or "before the first test"] = f"ended with {ending}"
    return found


def run_module(command, env, deadline):
    """None: no time was left for it, so nothing is known of the tests that did not come."""
    left = deadline - time.monotonic()
    if left < 5:
        return None
    try:
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              timeout=min(MODULE_LIMIT_S, left))
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode(errors="replace") if late.stdout else ""
        return outcomes(text, STANDS) if left >= MODULE_LIMIT_S else None
    return outcomes(done.stdout, done.returncode)


def run_arm(make, seconds):
    """Module -> outcomes of its tests. `make(command)` gives command and environment of the arm;
    it is asked here, by one thread, as a session wants it."""
    deadline = time.monotonic() + seconds
    commands = {m: make([sys.executable, str(SCRIPT), m]) for m in modules()}
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = pool.map(lambda pair: run_module(*pair, deadline), commands.values())
        return dict(zip(commands, results))


def compare(native, tube):
    """A case for each test that both arms came to, or whose module ended otherwise in one."""
    cases, late = [], []
    for module, tests in native.items():
        other = tube[module]
        if tests is None or other is None:
            late.append(module)
            continue
        # Behind a test that stands natively no other was run there.
        unknown = {f"ended with {STANDS}", "not run"} if f"ended with {STANDS}" in tests.values() \
            else set()
        for test in sorted({*tests, *other}):
            there, here = tests.get(test, "not run"), other.get(test, "not run")
            alike = ("equal" if there in WELL else
                     "skipped" if there == "skipped" else "native fails")
            cases.append({"case": test.removeprefix("numba.cuda.tests."),
                          "result": alike if there == here or there in unknown else "DIFFERENT",
                          "detail": "" if there == here else f"natively {there}, here {here}"})
    return cases, late


def run_suite(session, chosen, done):
    if not chosen(NAME):
        return
    if not names(session):
        done({"item": NAME, "result": "skipped (no numba)"})
        return
    begin = time.monotonic()
    half = max(10, (session.limit(600) - begin) / 2)
    native = run_arm(session.native, half)
    between = time.monotonic()
    tube = run_arm(lambda command: session.tube(command, NAME), half)
    cases, late = compare(native, tube)
    bad = [c for c in cases if c["result"] == "DIFFERENT"]
    good = sum(c["result"] == "equal" for c in cases)
    result = {
        "item": NAME, "result": "DIFFERENT" if bad else "equal" if good else "native fails",
        "cases": cases, "detail": "\n".join(f"{c['case']}: {c['detail']}" for c in bad),
        "notes": [f"no time for {module}" for module in late],
        "seconds_native": between - begin, "seconds_tube": time.monotonic() - between,
        "seconds_item": time.monotonic() - begin
    }
    session.drop_proxy()
    print(f"{NAME}: {result['result']}, {good} of {len(cases)} tests, {len(bad)} different, the "
          f"others are skipped or fail natively too; {len(late)} modules without time ({result['seconds_item']:.1f} s)", flush=True)
    done(result)
