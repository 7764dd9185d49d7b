"""An item of many cases: one program, run natively and through Tube at the same time, its files
compared case by case.

The program (libraries/case.h, frameworks/cases.py) announces each case on its standard output and
writes the results as files. Where it crashes or a case outlasts its time, that case is lost, and
the program is started again with ITEM_SKIP naming what is behind it. So one bad case costs itself,
and one bad item costs no other: each has its own proxy.

run_pair() takes two functions that tell how to start each arm, so that the tests run it with
programs of their own. Threads: one per arm; the caller waits for both.
"""
import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time

import outputs

MAX_STARTS = 6
# What every program's runtime does natively, too: asking for entry points of other systems, and
# calls after the end.
ORDINARY = ("cuGetProcAddress_v2 -> CUDA_ERROR_NOT_FOUND", "CUDA_ERROR_DEINITIALIZED")
TELLING = re.compile(r"Check failed|^[FE]\d{4}|\berror\b|tube: (warn|error)", re.I)
NATIVE_AGAIN = 8
CASE_LIMIT_S = 90  # The first case of several torch programs at once on a cold machine; compiled functions.


class Arm:
    """One arm's runs of an item. `launch()` gives (command, environment) and is asked again for
    each start."""

    def __init__(self, name, launch, folder, deadline, case_limit=CASE_LIMIT_S):
        self.name, self.launch, self.folder = name, launch, str(folder)
        self.deadline, self.case_limit = deadline, case_limit
        self.cases = {
        }  # name -> {"state": done | failed | skipped | crashed | hung, "detail", "seconds"}
        self.running, self.begun, self.problem, self.starts = None, 0.0, "", 0
        self.process, self.buffer, self.stderr_path = None, b"", ""
        self.trace = ""  # What the hook told of failing calls when failed cases ran once more.
        os.makedirs(self.folder, exist_ok=True)

    def run(self, only=()):
        """Until every case had its turn, the time is up, or starting again brings no more cases."""
        while self.starts < MAX_STARTS:
            before = len(self.cases)
            self.starts += 1
            ended_well = self.run_once(only)
            if ended_well or len(self.cases) == before or time.monotonic() >= self.deadline:
                return

    def run_once(self, only):
        command, env = self.launch()
        env = dict(env, ITEM_OUTPUTS=self.folder, ITEM_SKIP=",".join(self.cases),
                   ITEM_ONLY=",".join(only), PYTHONUNBUFFERED="1")
        self.stderr_path = os.path.join(self.folder, f"stderr-{self.starts}.txt")
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=stderr, cwd=self.folder,
                                            start_new_session=True)
        self.begun, self.buffer, self.running = time.monotonic(), b"", None
        try:
            return self.follow()
        finally:
            self.stop()

    def follow(self):
        """Reads the announcements until the end of the program. True when it ended with 0 and no
        case in the middle."""
        while True:
            left = min(self.deadline, self.begun + self.case_limit) - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return self.lost("hung", f"no end after {time.monotonic() - self.begun:.0f} s")
            block = os.read(self.process.stdout.fileno(), 1 << 16)
            if not block:
                break
            self.buffer += block
            while b"\n" in self.buffer:
                line, _, self.buffer = self.buffer.partition(b"\n")
                self.line(line.decode(errors="replace"))
        try:
            code = self.process.wait(
                max(0.1,
                    min(self.deadline,
                        time.monotonic() + self.case_limit) - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self.lost("hung", "does not exit after its work")
        return code == 0 and self.running is None or self.lost("crashed", f"ended with {code}")

    def line(self, text):
        words = text.split(" ", 2)
        kind = words[0]
        if kind == "@begin" and len(words) > 1:
            self.running, self.begun = words[1], time.monotonic()
        elif kind in ("@end", "@failed", "@skipped") and len(words) > 1:
            self.record(words[1], {"@end": "done"}.get(kind, kind[1:]),
                        words[2] if len(words) > 2 else "")

    def record(self, case, state, detail):
        self.cases[case] = {
            "state": state,
            "detail": detail,
            "seconds": time.monotonic() - self.begun
        }
        self.running, self.begun = None, time.monotonic()

    def lost(self, state, detail):
        if self.running is not None:
            self.record(self.running, state,
                        f"{detail}; its stderr ends with:\n{self.stderr_tail()}")
        else:
            self.problem = f"{self.name}: {state} outside the cases: {detail}; its stderr ends with:\n{self.stderr_tail()}"
        return False

    def stop(self):
        """The program and what it started: workers of a DataLoader outlive a killed parent
        otherwise."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.wait()
        self.process.stdout.close()

    def stderr_tail(self, lines=15):
        """The last lines, after earlier ones in which somebody says what is wrong: a stack trace is
        often longer than the tail."""
        try:
            with open(self.stderr_path, errors="replace") as file:
                every = [
                    line[:400]
                    for line in file.read().splitlines()
                    if not any(quiet in line for quiet in ORDINARY)
                ]
        except OSError:
            return ""
        telling = [line for line in every[:-lines] if TELLING.search(line)]
        return "\n".join(telling[-10:] + every[-lines:])


def native_again(launch, folder, deadline, cases):
    """Folders of further native runs of some cases: what natively differs from itself shows
    here."""
    folders = []
    for index in range(NATIVE_AGAIN):
        arm = Arm("native again", launch, f"{folder}/native-again-{index}", deadline)
        arm.run(only=cases)
        folders.append(arm.folder)
    return folders


def traced_again(launch, folder, deadline, cases):
    """Runs cases that failed once more with the hook telling each call that fails; returns those
    lines, repeated ones once."""
    def launch_tracing():
        command, env = launch()
        return command, dict(env, TUBE_LOG="debug")

    arm = Arm("Tube again", launch_tracing, f"{folder}/tube-again", deadline)
    arm.run(only=cases)
    counts = {}
    for path in sorted(pathlib.Path(arm.folder).glob("stderr-*.txt")):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("tube: ") and not any(quiet in line for quiet in ORDINARY):
                counts[line] = counts.get(line, 0) + 1
    return "\n".join(f"{n} x {line}" for line, n in list(counts.items())[:60])


def verdict(case, native, tube):
    """The result of one case from both arms' records; DIFFERENT ones are looked at again by
    run_pair."""
    mine, theirs = tube.cases.get(case), native.cases.get(case)
    result = {
        "case": case,
        "seconds_native": theirs and theirs["seconds"],
        "seconds_tube": mine and mine["seconds"]
    }
    missing = {"state": "missing", "detail": "not reached"}
    mine, theirs = mine or dict(missing, detail=tube.problem or "not reached"), theirs or dict(
        missing, detail=native.problem or "not reached")
    if theirs["state"] == "skipped":
        return dict(result, result="skipped", detail=theirs["detail"])
    if theirs["state"] == "missing" and native.deadline <= time.monotonic():
        return dict(result, result="skipped", detail="no time left natively")
    if theirs["state"] != "done":
        return dict(result, result="native fails",
                    detail=f"natively {theirs['state']}: {theirs['detail']}")
    if mine["state"] != "done":
        return dict(result, result="FAILED",
                    detail=f"through Tube {mine['state']}: {mine['detail']}")
    found = outputs.differences(native.folder, tube.folder, case)
    if not outputs.files(native.folder, case):
        return dict(result, result="FAILED", detail="the case wrote no outputs")
    detail = "\n".join(f"{name}: {words}" for name, words in found.items())
    return dict(result, result="DIFFERENT" if found else "equal", detail=detail,
                differing=list(found))


def run_pair(launch_native, launch_tube, folder, deadline, case_limit=CASE_LIMIT_S, only=()):
    """Runs both arms at once, `only` some cases when it names any; returns (the cases' results in
    the program's order, native arm, arm through Tube)."""
    native = Arm("native", launch_native, f"{folder}/native", deadline, case_limit)
    tube = Arm("Tube", launch_tube, f"{folder}/tube", deadline, case_limit)
    thread = threading.Thread(target=native.run, args=(only,))
    thread.start()
    tube.run(only)
    thread.join()
    order = list(native.cases) + [case for case in tube.cases if case not in native.cases]
    results = [verdict(case, native, tube) for case in order]
    differing = [r["case"] for r in results if r["result"] == "DIFFERENT"]
    if differing and time.monotonic() < deadline:
        natives = [native.folder, *native_again(launch_native, folder, deadline, differing)]
        for r in results:
            if r["result"] == "DIFFERENT" and outputs.within_native_spread(
                    natives, tube.folder, r["case"], r["differing"]):
                r["result"] = "within native's own difference"
            elif r["result"] == "DIFFERENT":
                again = outputs.differences(natives[0], natives[1], r["case"])
                r["detail"] += f"\nnatively again: {'; '.join(f'{k}: {v}' for k, v in again.items()) or 'the same bytes'}"
    failed = [
        r["case"]
        for r in results
        if r["result"] in ("FAILED",
                           "DIFFERENT") and tube.cases.get(r["case"], {}).get("state") != "hung"
    ]
    if failed and time.monotonic() < deadline:
        tube.trace = traced_again(launch_tube, folder, deadline, failed)
    for r in results:
        r.pop("differing", None)
    return results, native, tube
