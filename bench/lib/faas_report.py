"""The text of a run of bench/faas12."""
import arm_set
from result_file import layout_table, short

MIB = 2**20


def words(name):
    kind = name.removesuffix("-kept")
    return arm_set.words(kind) + (", no process is ended" if kind != name else "")


def ms(value):
    return "-" if value is None else short(value / 1e6)


def share(value):
    return "-" if value is None else f"{100 * value:.1f}%"


def latency_table(rows):
    """Mean and P99 of each function in each arm."""
    arms = list(dict.fromkeys(arm for row in rows for arm in row["arms"]))
    head = ["ms", *[f"{arm} mean" for arm in arms], *[f"{arm} P50" for arm in arms],
            *[f"{arm} P99" for arm in arms], *[f"{arm} cold" for arm in arms], "requests"]
    table = [head]
    for row in rows:
        mine = [row["arms"].get(arm, {}) for arm in arms]
        counts = {str(one["samples"]) for one in mine if one}
        table.append([row["name"], *[ms(one.get("mean_ns")) for one in mine],
                      *[ms(one.get("p50_ns")) for one in mine],
                      *[ms(one.get("p99_ns")) for one in mine],
                      *[share(one.get("cold_share")) for one in mine], "/".join(sorted(counts))])
    return layout_table(table)


def phase_table(rows, arm):
    head = [f"{arm}: ms", "start", "load", "queue", "input", "compute", "result", "processes",
            "of the compute bound", "closed loop /s"]
    table = [head]
    for row in rows:
        mine = row["arms"].get(arm)
        if mine:
            keys = ("start_ns", "load_ns", "queue_ns", "input_ns", "compute_ns", "output_ns")
            table.append([row["name"], *[ms(mine.get(key)) for key in keys],
                          str(mine["processes"]), share(mine["compute_bound_share"]),
                          short(mine["closed_per_s"])])
    return layout_table(table)


def memory_lines(rows):
    everything = next((row for row in rows if row["name"] == "all"), {"arms": {}})
    return [f"{arm}: GPU memory mean {mine['gpu_bytes_mean'] / MIB:.0f} MiB, peak "
            f"{mine['gpu_bytes_peak'] / MIB:.0f} MiB"
            for arm, mine in everything["arms"].items() if "gpu_bytes_mean" in mine]


def text(result):
    m, chosen = result["machine"], result["options"]
    lines = [
        f"faas12: commit {result['commit']}, {result['date']}",
        f"{m['gpu']}, driver {m['driver']}, {m['cpu']}, {m['cores']} cores, Linux {m['kernel']}",
        *[f"  {name}: {what}" for name, what in result["arms"].items()],
        f"{chosen['seconds']:.0f} s of arrivals at {chosen['speedup']:g} times the trace's speed, "
        f"seed {chosen['seed']}; processes kept for {30 / chosen['speedup']:g} s, at most "
        f"{chosen['most']} a function", *[f"  {name}: {what}"
                                         for name, what in result["arrivals"].items()], ""
    ]
    rows = result["rows"]
    if rows:
        lines += [*latency_table(rows), ""]
        for arm in result["arms"]:
            lines += [*phase_table(rows, arm), ""]
        lines += memory_lines(rows)
    lines += [f"WRONG: {words.splitlines()[0]}" for words in result["problems"]]
    return "\n".join(lines) + "\n"
