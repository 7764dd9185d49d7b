"""The conformance suite as one item: tests/conformance/run on the driver, its JSON turned into this
report's cases.

Cases whose transcripts were recorded on the same GPU and driver are run through Tube only."""
import json
import subprocess
import sys
import time

import session as sessions

NAME = "conformance"
# tests/conformance/run's words for a case -> this report's.
WORDS = {
    "equal": "equal",
    "differs as listed": "differs as listed",
    "skipped": "skipped",
    "different": "DIFFERENT"
}


def names(session):
    return [NAME] if (sessions.HERE.parent / "conformance" / "run").exists() else []


def as_case(row):
    word, detail = row["result"], row.get("difference") or ""
    if word not in WORDS:
        return {"case": row["case"], "result": "FAILED", "detail": f"{word}: {detail}"}
    return {"case": row["case"], "result": WORDS[word], "detail": detail}


def run_suite(session, chosen, done):
    """Runs all cases when the item is chosen; they have their own processes, proxies and limits."""
    if not chosen(NAME):
        return
    runner = sessions.HERE.parent / "conformance" / "run"
    if not names(session):
        done({"item": NAME, "result": "skipped (no tests/conformance)"})
        return
    file = session.work / "conformance.json"
    command = [
        sys.executable,
        str(runner), "--backend", "driver", "--build",
        str(session.layout.build), "--json",
        str(file), "--recorded-here"
    ]  # what this GPU and driver answered before need not be asked again
    begin = time.monotonic()
    result = {"item": NAME, "result": "FAILED", "cases": []}
    try:
        outcome = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=max(1,
                                             session.limit(300) - begin))
        rows = json.loads(file.read_text())["cases"] if file.exists() else []
        result["cases"] = [as_case(row) for row in rows]
        bad = [c for c in result["cases"] if c["result"] in ("DIFFERENT", "FAILED")]
        result["result"] = "equal" if outcome.returncode == 0 and rows else "skipped (no GPU)" if outcome.returncode == 77 else \
            "DIFFERENT" if bad else "FAILED"
        result["detail"] = "" if result[
            "result"] == "equal" else f"{outcome.stdout[-4000:]}\n{outcome.stderr[-2000:]}"
    except (subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
        result["detail"] = f"{type(error).__name__}: {error}"
    result["seconds_item"] = time.monotonic() - begin
    print(
        f"conformance: {result['result']}, {len(result['cases'])} cases ({result['seconds_item']:.1f} s)",
        flush=True)
    done(result)
