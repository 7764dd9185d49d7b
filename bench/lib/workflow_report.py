"""The text of a run of bench/workflows, and the parts of a workflow that take most of its time."""
from result_file import layout_table, short

MIB = 2**20
PARTS = ("host_to_function", "function_to_function", "function_to_host", "compute", "host", "queue")
PART_WORDS = {
    "host_to_function": "host to function",
    "function_to_function": "function to function",
    "function_to_host": "function to host",
    "compute": "compute",
    "host": "host functions",
    "queue": "queue"
}
# What should make a part smaller.
MECHANISMS = {
    "host_to_function": "copy engine: pinned lanes, several links",
    "function_to_function": "store: data stays on the GPU, in memory that is there already",
    "function_to_host": "copy engine: a lane for the way back",
    "compute": "time: whose kernels run beside whose",
    "queue": "time: whose turn it is; starts, where more copies of a function would help",
    "host": "none: the host functions' own work"
}
SHARES_HEAD = ["workflow", "part", "tube+store", "native+host", "mps+host", "should be removed by"]
SHOWN_ARMS = SHARES_HEAD[2:-1]


def ms(ns):
    return "-" if ns is None else short(ns / 1e6)


def share(value):
    return "-" if value is None else f"{100 * value:.0f}%"


def latency_table(row):
    head = ["ms", "solo P50", "solo P99", "P50", "P95", "P99", "samples", "in SLO", "in own SLO",
            "closed /s", "wrong", "lost"]
    table = [head]
    for arm, mine in row["arms"].items():
        solo = mine["solo"]
        table.append([
            arm, ms(solo.get("p50_ns")), ms(solo.get("p99_ns")),
            *[ms(mine[key]) for key in ("p50_ns", "p95_ns", "p99_ns")], str(mine["samples"]),
            share(mine["slo_share"]), share(mine["own_slo_share"]), short(mine["closed_per_s"]),
            "?" if mine["wrong"] is None else str(mine["wrong"]), str(mine["lost"])
        ])
    return layout_table(table)


def split_table(row, key):
    table = [["ms", *[PART_WORDS[part] for part in PARTS], "sum"]]
    for arm, mine in row["arms"].items():
        parts = mine[key]
        table.append([arm, *[ms(parts.get(part, 0)) for part in PARTS], ms(sum(parts.values()))])
    return layout_table(table)


def cost_table(row):
    head = ["", "GPU MiB mean", "peak", "cpu ms functions", "server", "MB host->fn", "fn->fn",
            "fn->host", "bus to GPU", "from GPU", "records", "trips", "copied MB", "start s"]
    table = [head]
    for arm, mine in row["arms"].items():
        memory = [mine.get(key) for key in ("gpu_bytes_mean", "gpu_bytes_peak")]
        moved = [mine["copies"].get(kind, {}).get("bytes")
                 for kind in ("host to function", "function to function", "function to host")]
        bus = [mine["crossings"][way] for way in ("to the GPU", "from the GPU")]
        counted = mine["counted"] or {}
        copied = counted.get("copy_bytes")
        table.append([
            arm, *["-" if value is None else f"{value / MIB:.0f}" for value in memory],
            short(mine["function_cpu_ms"]), short(mine["server_cpu_ms"]),
            *["-" if value is None else short(value / 1e6) for value in moved + bus],
            *[short(counted.get(key)) for key in ("records", "round_trips")],
            "-" if copied is None else short(copied / 1e6), short(mine["start_s"])
        ])
    return layout_table(table)


def rate_table(row):
    """The highest rate of each arm, and P99 at every rate that was asked."""
    table = [["", "solo P50 ms", "bar ms", "highest rate /s", "a higher one failed"]]
    asked = []
    for arm, mine in row["arms"].items():
        found = mine.get("rate")
        if found:
            table.append([arm, ms(mine["solo"].get("p50_ns")), ms(found["bound_ns"]),
                          short(found["rate"]), "yes" if found["bounded"] else "no"])
            asked.append(f"  {arm}, P99 in ms at requests a second: " + ", ".join(
                f"{ms(p99)} at {rate:.3g}" for rate, p99, _ in found["asked"]))
    return [*layout_table(table), *asked]


def slo_words(row):
    own = f"; the workflow's own {ms(row['own_slo_ns'])} ms" if row.get("own_slo_ns") else ""
    return f"SLO {ms(row['slo_ns'])} ms, 1.5 x solo P50 of {row['slo_of']}{own}"


def agreement(row):
    halves = [mine["halves"] for mine in row["arms"].values() if mine.get("halves")]
    if not halves:
        return ["no two halves of the run to compare"] if row["arms"] else []
    if row["restless"]:
        return ["THE MACHINE WAS TOO RESTLESS: two halves of the run say different things: "
                + "; ".join(row["restless"])]
    worst = {key: max(half[key] for half in halves) for key in ("p50", "p99")}
    return [f"two halves of the run agree: at most {worst['p50']:.1%} apart in P50, "
            f"{worst['p99']:.1%} in P99"]


def row_text(row):
    lines = [f"== {row['group']}: {row['name']}", slo_words(row) if row["slo_ns"] else "no SLO"]
    rates = any("rate" in mine for mine in row["arms"].values())
    if rates:
        lines += [row["arrivals"], "", *rate_table(row)]
    elif row["arms"]:
        lines.append(f"{row['rate']:.3g} requests a second, {row['rate_words']}; {row['arrivals']}")
        lines += ["", *latency_table(row), "", "split, mean of the requests under load:",
                  *split_table(row, "split_ns"), "", "split of single requests:",
                  *split_table(row, "solo_split_ns"), "", "of a request:", *cost_table(row)]
    lines += ["", *([] if rates else agreement(row)), *[f"note: {note}" for note in row["notes"]],
              *[f"WRONG: {row['group']}: {words.splitlines()[0]}" for words in row["wrong"]], ""]
    return lines


def text(result):
    m = result["machine"]
    lines = [
        f"{result['bench']}: commit {result['commit']}, {result['date']}",
        f"{m['gpu']}, driver {m['driver']}, {m['cpu']}, {m['cores']} cores, Linux {m['kernel']}",
        *[f"  {name}: {words}" for name, words in result["arms"].items()],
        "Arms in turns, the same arrivals for all. Latency from arrival to the result; the split "
        "follows the critical path and sums to it.", ""
    ]
    for row in result["rows"]:
        lines += row_text(row)
    lines += [f"note: {note}" for note in result.get("notes", [])]
    return "\n".join(lines) + "\n"


def part_words(mine, part):
    """Milliseconds and share of one part in an arm."""
    if not mine:
        return "-"
    total = sum(mine["split_ns"].values())
    ns = mine["split_ns"].get(part, 0)
    return f"{ms(ns)} ms ({share(ns / total if total else None)})"


def largest_shares(rows, count=3):
    """[cells] of the parts that take most of a workflow's time under Tube."""
    lines = []
    for row in rows:
        tube = row["arms"].get(SHOWN_ARMS[0])
        if not tube or "spread" in row["name"]:
            continue
        split = tube["split_ns"]
        for part in sorted(split, key=split.get, reverse=True)[:count]:
            shown = [part_words(row["arms"].get(arm), part) for arm in SHOWN_ARMS]
            lines.append([row["group"], PART_WORDS[part], *shown, MECHANISMS[part]])
    return lines
