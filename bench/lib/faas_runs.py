"""One arm of bench/faas12: all functions on the arrivals of Azure's, processes started when they
are needed and kept for a while, then without pause for what they could do at most."""
import statistics
import sys
import time

import arrivals
import faas_functions
import keep_alive
import latency

ALONE_S = 0.7  # each function without pause, alone
DRAIN_S = 30
PHASES = (("input_ns", "start", "inputs"), ("compute_ns", "inputs", "computed"),
          ("output_ns", "computed", "outputs"))


def requests(names, seconds, speedup, seed):
    """([(seconds, function)] of all functions in order, what they are in words)."""
    found, words, rates = [], {}, faas_functions.rates(names, seed)
    for index, name in enumerate(names):
        trace = faas_functions.TRACES[(index + seed) % len(faas_functions.TRACES)]
        times, words[name] = arrivals.times(trace, seconds, rate=rates[name] / 60 * speedup,
                                            speedup=speedup, seed=seed + index)
        found += [(at, name) for at in times]
    return sorted(found), words


def command(name, standin):
    """What starts a function on GPU 0; a stand-in is the workflows' own."""
    folder = faas_functions.FOLDER
    program = folder.parents[1] / "examples/workflows/standin/gpu.py" if standin else (
        folder / f"{name}.py")
    return [sys.executable, str(program), "--device", "0"]


def request(handle, standin):
    params = {"standin": {"output": {"dtype": "float32", "shape": [1, 64]}}} if standin else {}
    return {"inputs": {"input": handle}, "params": params, "outputs": {}}


def bound_share(records):
    """Share of the time that a function without pause computes: what it reaches of the rate that
    its computation alone would allow."""
    good = [record for record in records if not record.error]
    if len(good) < 2:
        return None
    spent = max(r.ended_ns for r in good) - min(r.arrived_ns for r in good)
    compute = sum(r.stamps["computed"] - r.stamps["inputs"] for r in good)
    return compute / spent


def rate(records, names=None):
    """Requests a second of records that came without pause."""
    good = [r for r in records if not r.error and (names is None or r.function in names)]
    if len(good) < 2:
        return None
    spent = max(r.ended_ns for r in records) - min(r.arrived_ns for r in records)
    return len(good) / spent * 1e9


def mean_of(values):
    values = [value for value in values if value is not None]
    return statistics.fmean(values) if values else None


def wrong(records, want):
    """Requests with another result than the first arm's; `want` learns what is new to it."""
    count = 0
    for record in records:
        if not record.error:
            count += record.result != want.setdefault(record.function, record.result)
    return count


def values(records, starts, alone, everything):
    """VALUES of one function in one arm, or of all of them together."""
    good = [record for record in records if not record.error]
    found = latency.summary([r.ended_ns - r.arrived_ns for r in good])
    if not good:
        return {}
    found.update(
        lost=len(records) - len(good), cold=sum(r.cold for r in good),
        cold_share=sum(r.cold for r in good) / len(good), processes=len(starts),
        start_ns=mean_of([whole - load for whole, load in starts]),
        load_ns=mean_of([load for _, load in starts]),
        queue_ns=mean_of([r.stamps["start"] - r.arrived_ns for r in good]),
        compute_bound_share=alone, closed_per_s=everything)
    for name, begin, end in PHASES:
        found[name] = mean_of([r.stamps[end] - r.stamps[begin] for r in good])
    return found


def run(platform, names, arrivals_of, limit_s, closed_s):
    """What an arm does, its processes warm: (records of the trace, of each function alone, of all
    without pause for `closed_s`)."""
    records = platform.replay(arrivals_of, time.monotonic() + limit_s + DRAIN_S)
    platform.keep_s = keep_alive.FOREVER
    platform.warm(1, time.monotonic() + DRAIN_S * 2)
    alone = {name: platform.closed([name], ALONE_S) for name in names}
    together = platform.closed(names, closed_s)
    return records, alone, together


def rows(names, measured, copies=1):
    """measured: arm -> {"records", "starts", "alone", "together", "memory"}; the rows of a result
    file, a function each and one of all."""
    found, some = [], "functions" if copies == 1 else f"functions, {copies} of each"
    for name in names:
        arms = {}
        for arm, mine in measured.items():
            own = [record for record in mine["records"] if record.function == name]
            arms[arm] = values(own, mine["starts"][name], bound_share(mine["alone"][name]),
                               rate(mine["together"], [name]))
        found.append({"group": some, "name": name, "wrong": [],
                      "arms": {arm: value for arm, value in arms.items() if value}})
    arms = {}
    for arm, mine in measured.items():
        starts = [each for name in names for each in mine["starts"][name]]
        shares = mean_of([bound_share(mine["alone"][name]) for name in names])
        arms[arm] = values(mine["records"], starts, shares, rate(mine["together"]))
        if arms[arm] and mine["memory"]:
            arms[arm].update(gpu_bytes_mean=mine["memory"][0], gpu_bytes_peak=mine["memory"][1])
    found.append({"group": f"all {some}", "name": "all", "wrong": [],
                  "arms": {arm: value for arm, value in arms.items() if value}})
    return found
