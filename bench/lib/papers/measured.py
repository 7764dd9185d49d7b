"""Our figures for the headlines of the papers, from result files: each function takes the results
(bench -> result, as read_result.merge() gives them) and says the figure in words, or None when no
run has it.

A ratio comes with both of its sides and the commit it was measured at. Where a bench was run for
several workflows the span of the ratios over them is said.
"""
import statistics

from result_file import short
from workflow_summary import PASSING

GIB, MIB = 2**30, 2**20


class Row:
    """A row of a result, whose arms may lack what is asked for."""

    def __init__(self, row):
        self.row, self.name, self.group = row, row["name"], row["group"]
        self.commit = row["commit"][:7]

    def get(self, arm, *keys):
        value = self.row["arms"].get(arm)
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def pair(self, one, other, *keys):
        """(one's, other's), or None unless both are there and not 0."""
        both = self.get(one, *keys), self.get(other, *keys)
        return both if all(both) else None


def rows(results, bench, group=None, name=None):
    result = results.get(bench) or {"rows": []}
    return [Row(row) for row in result["rows"]
            if group in (None, row["group"]) and name in (None, row["name"])]


def one(results, bench, group, name):
    return next(iter(rows(results, bench, group, name)), None)


def at(words, *found):
    """With the commits behind it."""
    commits = ", ".join(dict.fromkeys(f"`{row.commit}`" for row in found))
    return f"{words} ({commits})"


def percent(new, old):
    return f"{100 * (new / old - 1):+.0f}%"


def times(value):
    return f"{short(value)}x"


def span(values, form):
    """`form` of the least and of the most; of one value just that."""
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} .. {high}"


def workflows(results, name="bursty"):
    """The rows of bench/workflows at the default batch, packed on a GPU; `name` begins theirs."""
    return [row for row in rows(results, "workflows") if row.name.startswith(name + ",")
            and "spread" not in row.name]


def change_over(results, base, arm, *keys, name="bursty"):
    """How `arm` changes a value of bench/workflows against `base`: the span over the workflows,
    and those workflows."""
    found = [(row, row.pair(arm, base, *keys)) for row in workflows(results, name)]
    found = [(row, pair) for row, pair in found if pair]
    if not found:
        return None
    words = span([100 * (mine / theirs - 1) for _, (mine, theirs) in found], "{:+.0f}%".format)
    each = ", ".join(f"{row.group} {mine / 1e6:.0f} for {theirs / 1e6:.0f} ms"
                     for row, (mine, theirs) in found)
    return at(f"{words} against {base} ({each})", *[row for row, _ in found])


def passing_ns(row, arm, kind="split_ns"):
    """Host to function, function to function, function to host: what the papers call passing."""
    split = row.get(arm, kind)
    if not split:
        return None
    return sum(split.get(part, 0) for part in PASSING)


def passing_change(results, base, arm, kind="split_ns", only=None):
    found = [(row, passing_ns(row, arm, kind), passing_ns(row, base, kind))
             for row in workflows(results) if only in (None, row.group)]
    found = [entry for entry in found if entry[1] is not None and entry[2]]
    if not found:
        return None
    words = span([100 * (mine / theirs - 1) for _, mine, theirs in found], "{:+.0f}%".format)
    each = ", ".join(f"{row.group} {mine / 1e6:.1f} for {theirs / 1e6:.1f} ms"
                     for row, mine, theirs in found)
    return at(f"{words} against {base} ({each})", *[entry[0] for entry in found])


def best_of(figure, results, base, arms, *rest):
    """The figure of the first of these arms that was measured."""
    found = (figure(results, base, arm, *rest) for arm in arms)
    return next((words for words in found if words), None)


# How a workflow's data passes through Tube: what is measured first counts (best_of).
OURS = ("tube+store", "tube+ipc")
MECHANISMS = {"tube+store-host": "objects on the GPU", "tube+store+host": "host functions' objects",
              "tube:TUBE_POOL=0+store": "the pool", "tube:TUBE_COPY_LANE=never+store": "the lanes",
              "tube:TUBE_STORE_POLICY=off+store": "moves"}


def switched_off(results, arm):
    """P99 with one mechanism of the store off, against all of them."""
    found = []
    for other, what in MECHANISMS.items():
        changed = change_over(results, arm, other, "p99_ns")
        if changed:
            found.append(f"without {what} {changed}")
    return both(*found)


def passing_share(results, arm, kind="solo_split_ns"):
    """Share of the latency that is passing data."""
    found = []
    for row in workflows(results):
        split, passed = row.get(arm, kind), passing_ns(row, arm, kind)
        total = sum(value for key, value in (split or {}).items() if key != "queue")
        if total:
            found.append((row, 100 * passed / total))
    if not found:
        return None
    each = ", ".join(f"{row.group} {value:.0f}%" for row, value in found)
    return at(f"up to {max(v for _, v in found):.0f}% with {arm} ({each})", *[r for r, _ in found])


def rate_over(results, base, arm, key="rate_per_s", name="highest rate: bursty"):
    found = [(row, row.pair(arm, base, key)) for row in workflows(results, name)]
    found = [(row, pair) for row, pair in found if pair]
    if not found:
        return None
    each = ", ".join(f"{row.group} {short(mine)} for {short(theirs)} a second"
                     for row, (mine, theirs) in found)
    words = span([mine / theirs for _, (mine, theirs) in found], times)
    return at(f"{words} over {base} ({each})", *[row for row, _ in found])


def closed_over(results, base, arm):
    """The rate at the SLO where it was searched, otherwise what a closed loop reaches."""
    found = rate_over(results, base, arm)
    if found:
        return found
    found = rate_over(results, base, arm, "closed_per_s", "bursty")
    return found and f"closed loop: {found}"


def slo_share(results, base, arm, name="bursty"):
    found = [row for row in workflows(results, name)
             if None not in (row.get(arm, "slo_share"), row.get(base, "slo_share"))]
    if not found:
        return None
    each = ", ".join(f"{row.group} {row.get(arm, 'slo_share'):.0%} for "
                     f"{row.get(base, 'slo_share'):.0%}" for row in found)
    return at(f"within the SLO, {arm} for {base}: {each}", *found)


def workflow_memory(results, base, arm, key="gpu_bytes_mean"):
    found = [(row, row.pair(arm, base, key)) for row in workflows(results)]
    found = [(row, pair) for row, pair in found if pair]
    if not found:
        return None
    each = ", ".join(f"{row.group} {mine / GIB:.1f} for {theirs / GIB:.1f} GiB"
                     for row, (mine, theirs) in found)
    words = span([100 * (mine / theirs - 1) for _, (mine, theirs) in found], "{:+.0f}%".format)
    return at(f"{words} against {base} ({each})", *[row for row, _ in found])


def functions_memory(results, count="48"):
    row = one(results, "footprint", "ResNet-50 functions", count)
    pair = row and row.pair("tube", "mps", "gpu_bytes")
    if not pair:
        return None
    mine, theirs = pair
    return at(f"{percent(mine, theirs)} with {count} ResNet-50 functions, all loaded and idle: "
              f"{mine / GIB:.1f} GiB for {theirs / GIB:.1f} under MPS", row)


def both(*words):
    """Those of several figures that are there, in one cell."""
    there = [word for word in words if word]
    return "; ".join(there) if there else None


def start(results, program="torch", words="PyTorch, first result after the import"):
    single = one(results, "coldstart", f"{program}, 1 at once", "total")
    many = one(results, "coldstart", f"{program}, 32 at once", "slowest")
    found = []
    for row, how in ((single, words), (many, "the slowest of 32 at once")):
        pair = row and row.pair("tube", "native", "p50_ns")
        if pair:
            found.append(at(f"{how}: {pair[1] / 1e6:.0f} to {pair[0] / 1e6:.1f} ms", row))
    return both(*found)


def launch(results):
    alone = one(results, "calls", "one client", "launch")
    found = []
    if alone and alone.pair("tube", "native", "p50_ns"):
        mine, theirs = alone.pair("tube", "native", "p50_ns")
        found.append(at(f"caller's time of a launch {mine / 1e3:.2f} us, native "
                        f"{theirs / 1e3:.2f}", alone))
    group = "client processes at once: launch_flood"
    many = one(results, "calls", group, "48")
    if many and many.pair("tube", "native", "p50_ns"):
        mine, theirs = many.pair("tube", "native", "p50_ns")
        found.append(f"with 48 clients {mine / 1e3:.2f} us, native {theirs / 1e3:.2f}")
    return both(*found)


def before_compute(results, arm="native"):
    """Share of a PyTorch start that is over before its first kernel."""
    phases = {row.name: row for row in rows(results, "coldstart", "torch, 1 at once")
              if row.name.startswith("phase ")}
    taken = {name: row.get(arm, "p50_ns") for name, row in phases.items()}
    taken = {name: ns for name, ns in taken.items() if ns}
    if not taken or "phase result" not in taken:
        return None
    total, compute = sum(taken.values()), taken["phase result"]
    without = total - taken.get("phase import", 0)
    return at(f"{arm}: {1 - compute / total:.1%} of the start of a PyTorch program, without the "
              f"import {1 - compute / without:.1%}", phases["phase result"])


def density(results):
    found = []
    for row in rows(results, "density"):
        counts = {arm: row.get(arm, "functions") for arm in ("native", "mps", "tube")}
        if counts["tube"] is not None:
            said = ", ".join(f"{arm} {count}" for arm, count in counts.items()
                             if count is not None)
            found.append(at(f"{row.group}, {row.name}: {said}", row))
    return both(*found)


def faas(results, key, words, form, base="native", arm="tube", group="functions"):
    """base / arm of a value, geometric mean over the functions and the least."""
    found = [(row, row.pair(base, arm, key)) for row in rows(results, "faas12")
             if row.group == group]
    found = [(row, pair) for row, pair in found if pair]
    if not found:
        return None
    ratios = [theirs / mine for _, (theirs, mine) in found]
    return at(f"{words}: {form(statistics.geometric_mean(ratios))} over {base} (geometric mean of "
              f"{len(ratios)} functions, least {form(min(ratios))})", found[0][0])


def faas_all(results, form, *wanted):
    """`form` of the (arm, key) wanted, of the row over all functions; None when one is missing."""
    row = one(results, "faas12", "all functions", "all")
    values = [row.get(arm, key) for arm, key in wanted] if row else [None]
    return None if None in values else at(form.format(*values), row)


def passed_bytes(results, arm="native+host"):
    row = next((row for row in workflows(results) if row.group == "traffic"), None)
    moved = row and row.get(arm, "copies", "function to function")
    if not moved:
        return None
    words = f"{moved['bytes'] / 1e6:.0f} MB a request between functions"
    split = row.get(arm, "split_ns")
    if split and sum(split.values()):
        words += f", {1 - split['compute'] / sum(split.values()):.0%} of the latency not compute"
    return at(words, row)
