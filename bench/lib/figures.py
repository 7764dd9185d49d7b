"""The figures to reach, looked up in results: what must be, what is aimed at, what was measured."""
from result_file import layout_table, ratio, short

# words, bench, group, row, kind, must, aim. Kinds: `ratio` Tube's median over native's
# (result_file.ratio), at most; `rate` Tube's operations per second over MPS's, at least; `ms`
# Tube's median in milliseconds, at most; `share` of one core that the proxy uses, at most; `memory`
# of the GPU over native's, at most.
FIGURES = (
    ("launch, caller's time", "calls", "one client", "launch", "ratio", 0.25, 0.05),
    ("1,000 launches and synchronise", "calls", "one client", "launch_1000_sync", "ratio", 1.02,
     0.6),
    ("launch and synchronise", "calls", "one client", "launch_sync", "ratio", 1.15, 0.95),
    ("event query", "calls", "one client", "event_query", "ratio", 0.5, 0.1),
    ("stream query", "calls", "one client", "stream_query", "ratio", 0.5, 0.1),
    ("4 KiB pageable copy to the device", "calls", "one client", "h2d_4k_pageable", "ratio", 1.0,
     0.3),
    ("ResNet-50 batch 1", "steps", "steps", "resnet50_b1", "ratio", 1.02, 0.9),
    ("BERT", "steps", "steps", "bert", "ratio", 1.02, 0.9),
    ("GPT-2 decode step", "steps", "steps", "gpt2_decode", "ratio", 1.02, 0.9),
    ("launch-bound toy step", "steps", "steps", "toy", "ratio", 0.8, 0.25),
    ("8 clients, kernels per second over MPS", "calls", "client processes at once: launch_flood",
     "8", "rate", 1.0, 1.5),
    ("48 clients, kernels per second over MPS", "calls", "client processes at once: launch_flood",
     "48", "rate", 1.0, 1.5),
    ("48 idle functions, share of a core", "calls", "idle functions", "48", "share", 0.01, None),
    ("driver-API program, exec to first checked result", "coldstart", "driver, 1 at once", "total",
     "ms", 10, 3),
    ("32 driver-API programs at once, slowest", "coldstart", "driver, 32 at once", "slowest",
     "ratio", 0.3, None),
    ("static-cudart program, exec to first checked result", "coldstart", "runtime, 1 at once",
     "total", "ratio", 0.6, None),
    ("PyTorch, first CUDA result after the import", "coldstart", "torch, 1 at once", "total",
     "ratio", 0.3, None),
    ("32 PyTorch at once, slowest", "coldstart", "torch, 32 at once", "slowest", "ratio", 0.3,
     None),
    *((f"GPU memory of {name} ResNet-50 function{'' if name == '1' else 's'}", "footprint",
       "ResNet-50 functions", name, "memory", None, None) for name in ("1", "8", "20", "48")),
)


def measured(kind, row):
    """The figure, or None when the row has not what it needs."""
    if kind == "ratio":
        return ratio(row, "tube")
    tube, mps = row["arms"].get("tube"), row["arms"].get("mps")
    if kind == "ms":
        return tube["p50_ns"] / 1e6 if tube else None
    if kind == "share":
        return tube["server_share"] if tube else None
    if kind == "memory":
        native = row["arms"].get("native")
        base = native["gpu_bytes"] if native else 0
        return tube["gpu_bytes"] / base if tube and base else None
    return tube["per_s"] / mps["per_s"] if tube and mps else None


def absolutes(kind, row):
    """Both sides of it, in words."""
    if kind == "rate":
        return f"{row['arms']['mps']['per_s'] / 1e3:.0f} -> {row['arms']['tube']['per_s'] / 1e3:.0f} k/s"
    if kind == "share":
        return f"{row['arms']['tube']['server_share']:.2%}"
    if kind == "memory":
        used = [short(row["arms"][arm]["gpu_bytes"] / 2**30) if arm in row["arms"] else "-"
                for arm in ("native", "mps", "tube")]
        return f"{used[0]} ({used[1]}) -> {used[2]} GiB"
    values = [row["arms"][arm]["p50_ns"] for arm in ("native", "tube") if arm in row["arms"]]
    unit, scale = ("ms", 1e6) if max(values) >= 1e7 else ("us", 1e3)
    return " -> ".join(short(v / scale) for v in values) + f" {unit}"


def tail(row):
    """Tube's p99 over native's."""
    p99 = [row["arms"].get(arm, {}).get("p99_ns") for arm in ("native", "tube")]
    return f"{p99[1] / p99[0]:.2f}" if all(p99) else "-"


def verdict(kind, value, must, aim):
    def reached(bound):
        return bound is not None and (value >= bound if kind == "rate" else value <= bound)

    if must is None:
        return "-"
    return "aim reached" if reached(aim) else "reached" if reached(must) else "NOT reached"


def rows(results):
    """results: bench name -> result. [figure, must, aim, measured, absolutes, p99 ratio, verdict],
    all text; those that were measured."""
    found = []
    for words, bench, group, name, kind, must, aim in FIGURES:
        row = next((r for r in results.get(bench, {}).get("rows", [])
                    if (r["group"], r["name"]) == (group, name)), None)
        value = measured(kind, row) if row is not None else None
        if value is None:
            continue
        sign = ">=" if kind == "rate" else "<="
        unit = {"ms": " ms", "share": ""}.get(kind, "x")
        found.append([
            words, f"{sign} {must}{unit}" if must is not None else "-", f"{sign} {aim}{unit}" if aim is not None else "-",
            f"{value:.3f}{unit}",
            absolutes(kind, row),
            tail(row),
            verdict(kind, value, must, aim)
        ])
    return found


HEAD = ["figure", "must", "aim", "measured", "native (MPS) -> Tube", "p99 ratio", ""]


def text(results):
    found = rows(results)
    return layout_table([HEAD, *found]) if found else []


def markdown(results):
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows(results))])
