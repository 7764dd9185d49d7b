"""Rows of a result file from what bench/workflows measured: latencies, the split, memory, CPU time,
copies, wrong results."""
import arm_set
import latency
import split
from workflow_arms import held_in, parts
from workflow_turns import closed_rate, latencies

KINDS = {
    ("host", "gpu"): "host to function",
    ("gpu", "gpu"): "function to function",
    ("gpu", "host"): "function to host",
    ("host", "host"): "host to host"
}
PROXY = ("records", "round_trips", "copy_bytes", "record_bytes", "reply_bytes", "errors")
TAIL = 0.95  # slower requests than this share make up the split of the tail


def done(records):
    return [record for record in records if record.error is None and record.ended_ns]


def copies(wf, record):
    """kind -> {"count", "bytes"} of what went from one function to another for a request."""
    found = {}
    for name, stamps in record.stages.items():
        taken = stamps.get("bytes", {}).get("in", {})
        for each in wf.stages[name].inputs:
            size = taken.get(each.name)
            if not size:
                continue
            kind = KINDS[wf.stages[each.stage].kind, wf.stages[name].kind]
            one = found.setdefault(kind, {"count": 0, "bytes": 0})
            one["count"] += 1
            one["bytes"] += size
    return found


def copies_mean(wf, records):
    """The same, mean of several requests."""
    each = [copies(wf, record) for record in records]
    kinds = dict.fromkeys(kind for one in each for kind in one)
    return {kind: latency.mean_of([one.get(kind, {}) for one in each]) for kind in kinds}


def crossings(moved, passing):
    """Bytes of a request that cross the bus, by direction: what lies in host memory between two
    GPU functions crosses it twice."""
    size = {kind: one["bytes"] for kind, one in moved.items()}
    stays = passing.partition("+")[0] in ("ipc", "store")
    between = 0 if stays else size.get("function to function", 0)
    return {
        "to the GPU": size.get("host to function", 0) + between,
        "from the GPU": size.get("function to host", 0) + between
    }


def split_of(wf, records):
    return latency.mean_of([split.of(wf, record) for record in records])


def slowest(records):
    """The requests beyond the share TAIL, at least one."""
    ordered = sorted(records, key=lambda record: record.ended_ns - record.arrived_ns)
    return ordered[min(int(TAIL * len(ordered)), len(ordered) - 1):]


def wrong_results(measured, arm):
    """How many requests have another result than the reference, None when it cannot be told."""
    if not measured.repeats:
        return None
    records = [record for turn in arm.turns for record in done(turn.records)]
    return sum(record.result != measured.want.get(record.variant) for record in records)


def halves(arm):
    """The first rounds against the last ones."""
    turns = arm.of("open")
    rounds = sorted({turn.round for turn in turns})
    if len(rounds) < 2:
        return None
    middle = rounds[len(rounds) // 2]
    early = [ns for turn in turns if turn.round < middle for ns in latencies(turn.records)[0]]
    late = [ns for turn in turns if turn.round >= middle for ns in latencies(turn.records)[0]]
    return latency.halves(early, late)


def counted_per_request(turns, requests):
    """What the proxy counted, by request; None in arms without one."""
    total = {}
    for turn in turns:
        if turn.counted is None:
            return None
        arm_set.add(total, turn.counted)
    each = {key: total[key] / requests for key in PROXY if key in total}
    each["calls"] = {name: count / requests for name, count in total.get("calls", {}).items()
                     if count and "copy" in name.lower()}
    return each


def cost(turns, requests):
    """CPU milliseconds of a request: of the functions, of the arm's server."""
    return {
        "function_cpu_ms": sum(turn.function_cpu_ns for turn in turns) / requests / 1e6,
        "server_cpu_ms": sum(turn.server_cpu_ns for turn in turns) / requests / 1e6
    }


def values(measured, arm):
    """VALUES of an arm; {} when it did not come to an open turn."""
    wf, turns = measured.wf, arm.of("open")
    records = [record for turn in turns for record in turn.records]
    good = done(records)
    if not good:
        return {}
    times, lost = latencies(records)
    alone = [record for turn in arm.of("solo") for record in done(turn.records)]
    moved = copies_mean(wf, good)
    found = latency.summary(times)
    found.update(
        lost=lost, wrong=wrong_results(measured, arm), solo=latency.summary(
            latencies(alone)[0]), closed_per_s=closed_rate(arm), start_s=arm.start_s,
        split_ns=split_of(wf, good), solo_split_ns=split_of(wf, alone),
        tail_split_ns=split_of(wf, slowest(good)),
        slo_share=latency.share_within(times, measured.slo_ns, lost),
        own_slo_share=latency.share_within(times, wf.slo_ms * 1e6, lost) if wf.slo_ms else None,
        copies=moved, crossings=crossings(moved, parts(arm.name)[1]),
        counted=counted_per_request(turns, len(records)), halves=halves(arm),
        curve_ns=latency.curve(times), **cost(turns, len(records)))
    if (memory := held_in(arm.turns, arm.held)) is not None:
        found.update(gpu_bytes_mean=memory[0], gpu_bytes_peak=memory[1], gpu_bytes_end=arm.held)
    if rate := measured.found.get(arm.name):
        found.update(rate_per_s=rate["rate"], rate=rate)
    return found


def problems(measured, all_values):
    """What must not be, in words."""
    found = []
    for name, mine in all_values.items():
        if mine["wrong"]:
            found.append(f"{name}: {mine['wrong']} results differ from the reference")
        if mine["lost"] and measured.plan.measure != "rate":
            found.append(f"{name}: {mine['lost']} requests have no result")
    return found + [f"{name}: does not run: {why}" for name, why in measured.missing.items()]


def restless(all_values):
    """Arms whose two halves say different things."""
    found = []
    for name, mine in all_values.items():
        apart = mine.get("halves")
        if apart and not apart["agree"]:
            found.append(f"{name}: P50 {apart['p50']:.0%}, P99 {apart['p99']:.0%} apart")
    return found


def row(measured, name):
    """The row of a workflow."""
    arms = {arm.name: values(measured, arm) for arm in measured.done}
    arms = {key: mine for key, mine in arms.items() if mine}
    order = [arm for arm in measured.bench.names if arm in arms]
    arms = {key: arms[key] for key in order}
    return {
        "group": measured.wf.name,
        "name": name,
        "rate": measured.rate,
        "rate_words": measured.rate_words,
        "arrivals": measured.arrivals,
        "slo_ns": measured.slo_ns,
        "slo_of": measured.first,
        "own_slo_ns": measured.wf.slo_ms * 1e6 if measured.wf.slo_ms else None,
        "missing": measured.missing,
        "notes": measured.notes,
        "restless": [] if measured.plan.measure == "rate" else restless(arms),
        "wrong": problems(measured, arms),
        "arms": arms
    }
