"""What the benches write: one JSON form for all of them, and its table.

  {"bench": "calls", "commit": ..., "date": ..., "backend": "driver" | "sim", "machine": {"gpu",
  "driver", "cpu", "cores", "kernel"},
   "arms": {"native": "words", ...}, "missing": {"mps": "why"}, "options": {...}, "unit": "us",
   "rows": [{"group": "one client", "name": "launch", "arms": {"native": VALUES, "tube": VALUES},
   "wrong": [...]}]}

VALUES: p50_ns, p99_ns, max_ns; p50_low_ns, p50_high_ns (of the rounds); samples; blocks_ns (the
median of each block, where the arms ran blocks in turns); and where they mean something per_s
(operations per second of all clients together), client_cpu_s and server_cpu_s (CPU seconds per
million operations), server_share (of one core, clients idle), gpu_bytes (in use on the
GPU for so many programs and their server together), per_call (what Tube's proxy counted,
divided by the operations: records, round_trips, calls by name). The benches of copies have further ones: copy_runs.py,
isolate_runs.py. Ratios to native are not stored: see ratio().
"""
import datetime
import json
import os
import pathlib
import platform

import probe
import turns


def machine(driver):
    """What the figures depend on; `driver` None: the simulated GPU."""
    cpu = "unknown"
    try:
        with open("/proc/cpuinfo") as file:
            cpu = next(
                (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")),
                cpu)
    except OSError:
        pass
    found = probe.Nvml(driver).describe() if driver is not None else {
        "gpu": "simulated",
        "driver": "simulated"
    }
    return dict(found, cpu=cpu, cores=len(os.sched_getaffinity(0)), kernel=platform.release())


def header(bench, layout, backend, driver, arm_set, options, words):
    return {
        "bench": bench,
        "commit": layout.commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "backend": backend,
        "machine": machine(driver),
        "arms": {
            name: words(name) for name in arm_set.arms
        },
        "missing": arm_set.missing,
        "options": options,
        "unit": "us",
        "rows": []
    }


def ratio(row, arm):
    """p50 over native's, of blocks in turns the median of their ratios; or None."""
    native, mine = row["arms"].get("native"), row["arms"].get(arm)
    if not native or not mine or not native.get("p50_ns"):
        return None
    if "blocks_ns" in native and "blocks_ns" in mine:
        return turns.ratio(native["blocks_ns"], mine["blocks_ns"])
    return mine["p50_ns"] / native["p50_ns"]


def short(value):
    """Three digits that matter."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if value >= 1_000_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def layout_table(rows, left=1):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]


def us(values, key):
    return short(values[key] / 1e3) if values and key in values else "-"


def group_table(rows, arms):
    """One group: p50 of each arm, their ratios to native, p99, max."""
    others = [a for a in arms if a != "native"]
    head = [
        "us", *[f"{a} p50" for a in arms], *[f"{a}/native" for a in others],
        *[f"{a} p99" for a in arms], *[f"{a} max" for a in arms]
    ]
    table = [head]
    for row in rows:
        values = [row["arms"].get(a) for a in arms]
        table.append([
            row["name"], *[us(v, "p50_ns") for v in values],
            *[short(ratio(row, a)) for a in others], *[us(v, "p99_ns") for v in values],
            *[us(v, "max_ns") for v in values]
        ])
    return layout_table(table)


def rate_table(rows, arms):
    """Operations per second and CPU seconds per million operations."""
    head = [
        "", *[f"{a} k/s" for a in arms], *[f"{a} client cpu" for a in arms],
        *[f"{a} server cpu" for a in arms], "records", "trips"
    ]
    table = [head]
    for row in rows:
        values = [row["arms"].get(a) or {} for a in arms]
        counted = next((v["per_call"] for v in values if "per_call" in v), None)
        table.append([
            row["name"], *[short(v["per_s"] / 1e3) if v.get("per_s") else "-" for v in values],
            *[short(v.get("client_cpu_s")) for v in values],
            *[short(v.get("server_cpu_s")) for v in values], *[
                "-" if counted is None else short(counted.get(key, 0))
                for key in ("records", "round_trips")
            ]
        ])
    return layout_table(table)


def memory_table(rows, arms):
    """What many programs take of the GPU, in GiB, and one more of them beside the row above, in
    MiB; p50 and p99 of their answers afterwards."""
    head = ["GiB", *arms, *[f"{a}/native" for a in arms if a != "native"],
            *[f"{a} MiB each more" for a in arms], *[f"{a} first ms" for a in arms],
            *[f"{a} again ms" for a in arms]]
    table, above = [head], None
    for row in rows:
        used = [row["arms"].get(a, {}).get("gpu_bytes") for a in arms]
        native = row["arms"].get("native", {}).get("gpu_bytes")
        cells = [short(u / 2**30) if u is not None else "-" for u in used]
        cells += [short(u / native) if u is not None and native else "-"
                  for u, a in zip(used, arms) if a != "native"]
        for arm, mine in zip(arms, used):
            before = above["arms"].get(arm, {}).get("gpu_bytes") if above else None
            more = int(row["name"]) - int(above["name"]) if above else 0
            cells.append(short((mine - before) / more / 2**20)
                         if mine is not None and before is not None else "-")
        answers = [row["arms"].get(arm, {}).get(name) for name in ("first", "again") for arm in arms]
        cells += [f"{short(a['p50_ns'] / 1e6)}, {short(a['p99_ns'] / 1e6)}" if a else "-"
                  for a in answers]
        table.append([row["name"], *cells])
        above = row
    return layout_table(table)


def head(result):
    """What the figures depend on, and which arms there are."""
    m = result["machine"]
    return [
        f"{result['bench']}: commit {result['commit']}, {result['date']}",
        f"{m['gpu']}, driver {m['driver']}, {m['cpu']}, {m['cores']} cores, Linux {m['kernel']}",
        *[f"  {name}: {words}" for name, words in result["arms"].items()], *[
            f"  {name}: not measured: {why.splitlines()[0]}"
            for name, why in result["missing"].items()
        ]
    ]


def tail(result):
    """The figures to reach, what was wrong, what is to be known."""
    return [
        *result.get("figures", []), "", *[
            f"WRONG: {row['group']}/{row['name']}: {words}" for row in result["rows"]
            for words in row.get("wrong", [])
        ], *[f"note: {note}" for note in result.get("notes", [])]
    ]


def text(result):
    arms = list(result["arms"])
    lines = [
        *head(result),
        "p50, p99 and max of single operations in microseconds, arms in turns; ratios of p50, for steps the median of what neighbouring "
        "blocks say; k/s: thousand operations a second of all clients together;",
        "cpu: CPU seconds per million operations; records and round trips per operation as Tube's proxy counted them.",
        ""
    ]
    for row in (r for r in result["rows"] if r["group"] == "idle functions"):
        lines += [
            f"{row['name']} idle functions: the server of {arm} uses {v['server_share']:.2%} of one core"
            for arm, v in row["arms"].items()
        ] + [""]
    memory = [row for row in result["rows"] if any("gpu_bytes" in v for v in row["arms"].values())]
    for group in dict.fromkeys(row["group"] for row in memory):
        rows = [row for row in memory if row["group"] == group]
        lines += [f"== GPU memory: {group}", *memory_table(rows, arms), ""]
    for group in dict.fromkeys(row["group"] for row in result["rows"]
                               if row["group"] != "idle functions" and row not in memory):
        rows = [row for row in result["rows"] if row["group"] == group]
        lines += [f"== {group}", *group_table(rows, arms), ""]
        if any("per_s" in v or "per_call" in v for row in rows for v in row["arms"].values()):
            lines += [*rate_table(rows, arms), ""]
    lines += [*result.get("stages", []), *result.get("trips", []), ""]
    lines += tail(result)
    return "\n".join(lines) + "\n"


def write(folder, result, words=None):
    """BENCH.json and BENCH.txt; returns the text: `words`, or the tables of text()."""
    words = text(result) if words is None else words
    if folder:
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{result['bench']}.json").write_text(json.dumps(result, indent=1) + "\n")
        (folder / f"{result['bench']}.txt").write_text(words)
    return words
