"""The figures to reach, looked up in results: what must be, what is aimed at, what was measured."""
import workflow_summary
from result_file import layout_table, ratio, short

# words, bench, group, row, kind, must, aim; an aim of another kind is a pair (kind, bound).
FIGURES = (
    ("launch, caller's time", "calls", "one client", "launch", "ratio", 0.25, 0.05),
    ("1,000 launches and synchronise", "calls", "one client", "launch_1000_sync", "ratio", 1.02,
     0.6),
    ("launch and synchronise", "calls", "one client", "launch_sync", "ratio", 1.15, 0.95),
    ("launch, and sleep until a host function has run", "calls", "one client", "launch_host_func",
     "ratio", 1.0, 0.5),
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
       "ResNet-50 functions", name, "memory", must, aim)
      for name, must, aim in (("1", None, None), ("8", 0.35, 0.25), ("20", 0.25, 0.15),
                              ("48", 0.22, 0.10))),
    *((f"GPU memory of {name} when idle functions leave (TUBE_EVICT_IDLE_MS)", "footprint",
       "ResNet-50 functions", name, "memory, idle away", must, aim)
      for name, must, aim in (("8", 0.35, 0.25), ("20", 0.25, 0.15), ("48", 0.22, 0.10))),
    ("GPU memory left: first answer of each of 48, p99", "footprint", "ResNet-50 functions", "48",
     "first p99, idle away", None, None),
    ("48 ResNet-50 functions within 8 GiB: part of the requests that were answered, right",
     "footprint", "ResNet-50 functions within 8 GiB", "48", "answered", 1.0, None),
    ("8 MiB upload beside 4 that copy without pause, p99 against alone", "isolate",
     "victim 8 MiB up", "4 up", "p99 alone", 1.8, 1.5),
    ("all bytes meanwhile, against the bulk alone", "isolate", "victim 8 MiB up", "4 up", "kept",
     0.9, 0.95),
    ("51 KiB upload beside the same, p99", "isolate", "victim 51 KiB up", "4 up", "p99 us", 150,
     50),
    ("8 MiB upload beside 4 pageable, p99 against alone", "isolate", "victim 8 MiB up",
     "4 pageable", "p99 alone", 2.5, 1.5),
    ("8 MiB upload beside 4 with graphs of copies, p99 against alone", "isolate",
     "victim 8 MiB up", "4 graph", "p99 alone", 2.5, 1.5),
    ("8 MiB upload beside 4 from the device, p99 against alone", "isolate", "victim 8 MiB up",
     "4 down", "p99 alone", 2.5, 1.5),
    ("8 MiB upload beside 4 in another proxy, p99 against alone", "isolate", "victim 8 MiB up",
     "4 up in another proxy", "p99 alone", 5.5, 2),
    ("bystander beside the attacks, worst p99 against alone (simulated GPU)", "attacks",
     "a small function beside attacks", "worst of all", "p99 alone", 2, None),
    ("latency-critical function beside 4 that load, p99 over native", "isolate",
     "latency-critical function", "4 load", "p99", 0.68, 0.2),
    ("step of short kernels beside 4 functions with kernels of 20 ms, p99 over native",
     "neighbours", "light function, a step every 10 ms", "4 heavy", "p99", 1.9, 1.5),
    ("these functions' kernels meanwhile, over MPS", "neighbours",
     "light function, a step every 10 ms", "4 heavy", "others over MPS", 0.95, 1.0),
    ("ResNet-50 step beside 4 functions with kernels of 20 ms, p99 over native", "neighbours",
     "ResNet-50, a step every 10 ms", "4 heavy", "p99", 1.9, None),
    ("the heavy functions' kernels meanwhile, over MPS", "neighbours",
     "ResNet-50, a step every 10 ms", "4 heavy", "others over MPS", 0.95, 1.0),
    ("ResNet-50 step beside 4 launch-bound functions, p99 over native", "neighbours",
     "ResNet-50, a step every 10 ms", "4 launch-bound", "p99", 1.0, 0.5),
    ("the same step beside 4 launch-bound functions, p99 over native", "neighbours",
     "light function, a step every 10 ms", "4 launch-bound", "p99", 1.0, 0.5),
    ("the same with a deadline, by a slice that makes itself, p99 over alone", "neighbours",
     "ResNet-50, a step every 10 ms", "4 heavy", "p99 alone, deadline", None, 1.5),
    ("step of short kernels with a deadline, by a slice that makes itself, p99 over alone",
     "neighbours", "light function, a step every 10 ms", "4 heavy", "p99 alone, deadline", None,
     1.5),
    *((f"first result of a ResNet-50 function that starts beside 4 {kind} functions", "neighbours",
       "a function that starts", f"4 {kind}", "ratio", 1.0, 0.3) for kind in ("heavy", "light")),
    *((f"the {kind} neighbours' p99 meanwhile, against before", "neighbours",
       "a function that starts", f"4 {kind}", "over before", 2, 1.2)
      for kind in ("heavy", "light")),
    ("ten functions of equal weight, use of the GPU over 1 s: largest against smallest",
     "neighbours", "10 functions with long kernels", "a second", "spread", 1.3, 1.1),
    *((f"47 functions' p99 beside {name}", "neighbours", "47 functions with short steps", name,
       "p99 alone", 1.5, 1.1) for name in ("one that holds 20 streams", "one with 8 long blocks")),
    ("deadlines kept at 80% load, six models, over native and MPS", "neighbours",
     "six models with deadlines", "80% load", "steps kept over others", 1.0,
     ("steps kept", 0.99)),
    ("a workflow with 1 against one with 10 heavy functions, off its half", "neighbours",
     "two workflows with long kernels", "1 against 10", "off half", 0.1, 0.02),
    ("partition: ResNet-50 in half of the GPU, against MPS at 50%", "partition",
     "ResNet-50, a step every 10 ms", "alone", "half over MPS", 1.03, 1.0),
    ("step in an eighth of the GPU beside 4 functions with kernels of 20 ms, p99 over alone there",
     "partition", "light function, a step every 10 ms", "4 heavy", "p99 alone, eighth", 1.3, 1.1),
    ("ResNet-50 in an eighth of the GPU beside the same, p99 over alone there", "partition",
     "ResNet-50, a step every 10 ms", "4 heavy", "p99 alone, eighth", 1.3, 1.1),
    ("pinned copies alone, slowest size of 4 KiB to 1 GiB", "pinned_copies", "slowest size",
     "all sizes but 16 to 64 MiB", "speed", 0.98, 1.0),
    ("pinned copies alone, slowest size of 16 to 64 MiB", "pinned_copies", "slowest size",
     "16 to 64 MiB", "speed", 0.95, 1.0),
    ("256 MiB in both directions at once, over native's one", "pinned_copies",
     "both directions at once", "256 MiB", "over one", 1.8, ("GB/s", 101)),
    ("256 MiB to the device, CPU seconds per GB", "pinned_copies", "to the device", "256 MiB",
     "cpu", None, None),
    *((f"{size} of pageable memory {way}", "pageable", f"{way}, pages there", size, "speed", must,
       ("GB/s", 45))
      for way, must in (("to the device", 3), ("from the device", 1.5))
      for size in ("100 MiB", "1 GiB")),
    ("PyTorch model.cuda() of 531 MB", "pageable", "PyTorch", "model.cuda(), 531 MB", "speed", 2.5,
     4),
    ("PyTorch .cpu() of 256 MiB", "pageable", "PyTorch", ".cpu(), 256 MiB", "speed", 2, 4),
    ("cuMemHostAlloc 100 MiB, pool warm", "pinned", "cuMemHostAlloc, warm", "100 MiB", "ratio",
     0.02, ("us", 100)),
    ("cuMemHostAlloc 100 MiB, made ahead", "pinned", "cuMemHostAlloc, ahead", "100 MiB", "ratio",
     0.02, ("us", 100)),
    ("cuMemAlloc 2 MiB, pool warm", "pool", "cuMemAlloc", "2 MiB", "ratio", 0.05, ("us", 0.3)),
    ("cuMemAlloc 1 GiB, pool warm", "pool", "cuMemAlloc", "1 GiB", "ratio", 0.05, ("us", 0.3)),
    *((f"{words} with lazy backing, pool and eviction, over without", "steps", "steps", item,
       "over bare", 1.02, None)
      for words, item in (("ResNet-50 batch 1", "resnet50_b1"), ("BERT", "bert"),
                          ("GPT-2 decode step", "gpt2_decode"))),
    *((f"allocate, first memset, synchronise {size}, pool warm", "pool",
       "allocate, first memset, synchronise", size, "ratio", 0.6, 0.35)
      for size in ("2 MiB", "1 GiB")),
    ("1 GiB to one GPU over 2 links", "multipath", "2 links, pinned to the device", "1 GiB",
     "speed", 1.85, ("GB/s", 102.8)),
    ("1 GiB from one GPU over 2 links", "multipath", "2 links, pinned from the device", "1 GiB",
     "speed", 1.85, ("GB/s", 101.8)),
    *((f"{way} over four links, of what the hardware gives", "multipath", "all links", name,
       "of plain", 0.97, None) for way, name in (("host to GPU", "1 GiB to the device"),
                                                 ("GPU to host", "1 GiB from the device"))),
    ("never slower than fewer paths at any size", "multipath", "all links",
     "against fewer, every size", "of fewer", 1.0, None),
    ("the lending functions' p99, against alone", "multipath", "all links",
     "functions on lending GPUs", "p99 alone", 1.5, None),
    ("simulated DGX-V100: pairs with half bandwidth against the direct way", "paths",
     "simulated dgx-v100: pairs with half bandwidth", "rates", "speed", 1.9, ("of bound", 1.0)),
    ("simulated DGX-V100: pairs without NVLink against the direct way", "paths",
     "simulated dgx-v100: pairs without NVLink", "rates", "speed", 5, ("of bound", 1.0)),
    ("path choice for 8 GPUs", "paths", "path choice for 8 GPUs", "beside 8", "us", 10, 2),
    ("pool by `demand`: bytes held over bytes live, average over a bursty trace", "pool_trace",
     "pool over a bursty trace", "demand", "held over live", 1.25, 1.05),
    *((f"six PyTorch models: what lazy backing and eager recycling save of the peak{more}",
       "models_memory", f"six models, {allocator}", "bursty", "saved", None, aim)
      for more, allocator, aim in (("", "each tensor an allocation", 0.3),
                                   (", with PyTorch's own cache", "PyTorch's cache", None))),
    ("a certified program that makes twenty allocations of 1 GiB and touches one holds",
     "by_address", "twenty allocations", "one of them used", "GiB by address", 1.05, None),
    ("evict and restore 1 GiB, of the pinned link's rate", "evict",
     "one function leaves and comes back", "1 GiB in 16", "of link", 0.9, 0.97),
    ("evict and restore 1 GiB, of the pinned link's rate, with two links", "evict",
     "two links: one function leaves and comes back", "1 GiB in 16", "of one link", 1.8, None),
    ("two functions change places, of half of what the link carries both ways at once", "evict",
     "two functions of 70%", "1 GiB in 16", "of both", None, 0.97),
    ("reload stalls at twice the memory, queue-aware against LRU, p99", "evict",
     "four functions of 50%", "1 GiB in 8", "p99 over LRU", 0.85, 0.7),
    ("a neighbour's steady p99 while 10 GiB are evicted and restored, against alone", "evict",
     "a neighbour's steps", "while they take turns", "p99 alone", 1.1, 1.02),
    ("125 MB from function to function on one GPU, reserve and seal", "pass", "125 MB", "store",
     "us", 50, 5),
    ("put + get of a small object, same GPU", "pass", "4 KiB", "put", "us", 10, 2),
    ("index operations per second, 16 processes", "store", "16 processes", "get_release", "per s",
     500, 2000),
    ("125 MB to another GPU, first use", "pass", "125 MB", "store-peer", "GB/s", 356, 384),
    ("host function to GPU function, 100 MB, against pageable copy natively", "pass", "100 MB",
     "store-host", "speed", 3, None),
    *((words, "workflows", workflow_summary.GROUP, workflow_summary.NAME, kind, must, aim)
      for words, kind, must, aim in (
          ("data passing in the six workflows against native by host memory", "passing over", 0.07,
           0.02),
          ("P99 of the six workflows against native by host memory, bursty", "p99 over", 0.35, None),
          ("the same, the functions' own work apart", "p99 apart", 0.1, None),
          ("rate at P99 of 1.5x solo, against native by host memory", "rate over", 2.4, 6),
          ("the same against MPS", "rate over MPS", 1.5, 3))),
    ("queue-aware against LRU with a store of 1 GB, tail", "store", "store of half the objects",
     "queue against lru", "p99", 0.86, 0.6),
    ("memory pressure: filler holds 90%, passing against none", "store", "others hold 90%",
     "against none", "ratio", 1.5, 1.1),
)


def rate_over_mps(row):
    """Operations per second."""
    tube, mps = row["arms"].get("tube"), row["arms"].get("mps")
    return tube["per_s"] / mps["per_s"] if tube and mps else None


def others_over_mps(row):
    tube, mps = (row["arms"].get(arm, {}).get("others_per_s") for arm in ("tube", "mps"))
    return tube / mps if tube is not None and mps else None


def of_arm(arm, key):
    def found(row):
        return row["arms"].get(arm, {}).get(key)

    return found


def of_first_arm(prefix, key):
    def found(row):
        return next((values.get(key) for arm, values in row["arms"].items()
                     if arm.startswith(prefix)), None)

    return found


def off_half(row):
    share = of_tube("share")(row)
    return abs(share - 0.5) if share is not None else None


def kept_over_others(row):
    """More than one: more deadlines than in the better of the other arms."""
    kept = {arm: row["arms"].get(arm, {}).get("kept") for arm in ("native", "mps", "tube")}
    others = max(kept["native"] or 0, kept["mps"] or 0)
    return kept["tube"] / others if kept["tube"] is not None and others else None


def half_over_mps(row):
    """In half of the GPU, median over median."""
    tube = row["arms"].get("tube:TUBE_SLICES=1:1.TUBE_SM_PERCENT=50", {}).get("p50_ns")
    half = row["arms"].get("mps:1.CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", {}).get("p50_ns")
    return tube / half if tube and half else None


def speed(row):
    over = ratio(row, "tube")
    return 1 / over if over else None


def over_native(key, arm="tube"):
    def found(row):
        native, tube = row["arms"].get("native", {}).get(key), row["arms"].get(arm, {}).get(key)
        return tube / native if native and tube is not None else None

    return found


BARE = "tube:TUBE_LAZY_BACKING=0:TUBE_POOL=0:TUBE_EVICT_HOST=0"


# Six models' memory: all of it held, and what functions can say of theirs (bench/models_memory).
HOLDS = "tube:TUBE_LAZY_BACKING=0:TUBE_POOL_POLICY=static"
SAYS = "tube:TUBE_MEMORY_MODE=lazy:TUBE_POOL_POLICY=demand"


# Memory of functions that are idle for a second leaves the GPU (bench/footprint).
IDLE_AWAY = "tube:TUBE_EVICT_IDLE_MS=1000"


def first_answer_ms(row, arm):
    first = row["arms"].get(arm, {}).get("first")
    return first["p99_ns"] / 1e6 if first else None


def over_bare(row):
    """Against Tube without what moves and lends memory, block by block."""
    bare = row["arms"].get(BARE)
    return ratio({"arms": {"native": bare, "tube": row["arms"].get("tube")}}, "tube") if bare else None


def over_arm(other, key):
    def found(row):
        mine, its = (row["arms"].get(arm, {}).get(key) for arm in ("tube", other))
        return mine / its if mine is not None and its else None

    return found


def of_tube(key, scale=1.0):
    def found(row):
        value = row["arms"].get("tube", {}).get(key)
        return value / scale if value is not None else None

    return found


def held_gib(row, arm):
    held = of_arm(arm, "held_bytes")(row)
    return held / (1 << 30) if held is not None else None


def cpu_per_gb(values):
    """CPU seconds of program and server, of one arm; None where they were not measured."""
    if "client_cpu_s_per_gb" not in (values or {}):
        return None
    return values["client_cpu_s_per_gb"] + values.get("server_cpu_s_per_gb", 0)


# kind -> (its value of a row, or None when the row has not what it needs; unit; whether more is
# better).
KINDS = {
    "ratio": (lambda row: ratio(row, "tube"), "x", False),  # Tube's median over native's
    "rate": (rate_over_mps, "x", True),
    "ms": (of_tube("p50_ns", 1e6), " ms", False),
    "us": (of_tube("p50_ns", 1e3), " us", False),
    "share": (of_tube("server_share"), "", False),  # of one core that the proxy uses
    "memory": (over_native("gpu_bytes"), "x", False),
    "memory, idle away": (over_native("gpu_bytes", IDLE_AWAY), "x", False),
    "first p99, idle away": (lambda row: first_answer_ms(row, IDLE_AWAY), " ms", False),
    "passing over": (of_tube("passing_over"), "x", False),
    "p99 over": (of_tube("p99_over"), "x", False),
    "p99 apart": (of_tube("p99_apart_over"), "x", False),
    "rate over": (of_tube("rate_over"), "x", True),
    "rate over MPS": (of_tube("rate_over_mps"), "x", True),
    "answered": (lambda row: None if row["wrong"] else of_tube("answered")(row), "", True),
    "over bare": (over_bare, "x", False),
    "held over live": (of_tube("held_over_live"), "x", False),
    "p99 over LRU": (over_arm("tube:TUBE_EVICT_POLICY=lru", "p99_ns"), "x", False),
    "GiB by address": (lambda row: held_gib(row, "tube by address"), " GiB", False),
    "saved": (lambda row: None if row["wrong"] else of_arm(SAYS, "saved_of_peak")(row), "", True),
    "of link": (of_tube("of_link"), "x", True),  # the slower of both ways
    "of one link": (of_tube("of_one_link"), "x", True),
    "of both": (of_tube("of_both"), "x", True),
    "p99 alone": (of_tube("p99_over_alone"), "x", False),  # of the same arm's p99 alone
    "p99 us": (of_tube("p99_ns", 1e3), " us", False),
    "p99": (over_native("p99_ns"), "x", False),
    "kept": (of_tube("kept"), "x", True),
    "others over MPS": (others_over_mps, "x", True),  # what neighbours got done
    "speed": (speed, "x", True),  # native's median over Tube's
    "over one": (of_tube("over_one"), "x", True),
    "GB/s": (of_tube("bytes_per_s", 1e9), " GB/s", True),
    "per s": (of_tube("per_s", 1e3), " k/s", True),
    "of plain": (of_tube("of_plain"), "x", True),
    "of fewer": (of_tube("of_fewer"), "x", True),
    "of bound": (of_tube("of_bound"), " of the maximum flow", True),
    "p99 alone, deadline": (of_first_arm("tube:1.TUBE_SLO_MS=", "p99_over_alone"), "x", False),
    "p99 alone, eighth": (of_arm("tube:TUBE_SLICES=1:1.TUBE_SM_PERCENT=12", "p99_over_alone"), "x",
                          False),
    "over before": (of_tube("neighbours_over_before"), "x", False),
    "spread": (of_tube("spread"), "x", False),  # of what functions got, largest over smallest
    "steps kept": (of_tube("kept"), "", True),
    "steps kept over others": (kept_over_others, "x", True),
    "off half": (off_half, "", False),
    "half over MPS": (half_over_mps, "x", False),
    "cpu": (lambda row: cpu_per_gb(row["arms"].get("tube")), " s", False),
}
# What both sides of a figure are, where it is not the medians: key, scale, unit.
SIDES = {
    "of link": ("back_bytes_per_s", 1e9, "GB/s"),
    "of one link": ("back_bytes_per_s", 1e9, "GB/s"),
    "passing over": ("passing_over", 1, "x"),
    "p99 over": ("p99_over", 1, "x"),
    "p99 apart": ("p99_apart_over", 1, "x"),
    "rate over": ("rate_over", 1, "x"),
    "rate over MPS": ("rate_over_mps", 1, "x"),
    "answered": ("p99_ns", 1e6, "ms"),
    "held over live": ("held_over_live", 1, "x"),
    "of both": ("back_bytes_per_s", 1e9, "GB/s"),
    "p99 alone": ("p99_ns", 1e3, "us"),
    "p99 us": ("p99_ns", 1e3, "us"),
    "p99": ("p99_ns", 1e3, "us"),
    "kept": ("all_per_s", 1e9, "GB/s"),
    "over before": ("neighbours_over_before", 1, "x"),
    "spread": ("spread", 1, "x"),
    "steps kept": ("kept", 1, ""),
    "steps kept over others": ("kept", 1, ""),
    "off half": ("share", 1, ""),
    "others over MPS": ("others_per_s", 1, "kernels/s"),
    "speed": ("bytes_per_s", 1e9, "GB/s"),
    "over one": ("bytes_per_s", 1e9, "GB/s"),
    "of plain": ("bytes_per_s", 1e9, "GB/s"),
    "of fewer": ("bytes_per_s", 1e9, "GB/s"),
    "GB/s": ("bytes_per_s", 1e9, "GB/s"),
    "per s": ("per_s", 1e3, "k/s"),
}


def measured(kind, row):
    """The figure, or None when the row has not what it needs."""
    return KINDS[kind][0](row)


def absolutes(kind, row):
    """Both sides of it, in words."""
    if kind == "rate":
        return f"{row['arms']['mps']['per_s'] / 1e3:.0f} -> {row['arms']['tube']['per_s'] / 1e3:.0f} k/s"
    if kind == "share":
        return f"{row['arms']['tube']['server_share']:.2%}"
    if kind == "first p99, idle away":
        return " -> ".join(short(first_answer_ms(row, arm)) for arm in ("native", IDLE_AWAY)) + " ms"
    if kind in ("memory", "memory, idle away"):
        used = [short(row["arms"][arm]["gpu_bytes"] / 2**30) if arm in row["arms"] else "-"
                for arm in ("native", "mps", "tube" if kind == "memory" else IDLE_AWAY)]
        return f"{used[0]} ({used[1]}) -> {used[2]} GiB"
    if kind == "GiB by address":
        return " -> ".join(short(held_gib(row, arm)) for arm in ("native", "tube by address")) + " GiB"
    if kind == "saved":
        peaks = [of_arm(arm, "held_peak_bytes")(row) for arm in (HOLDS, SAYS)]
        return " -> ".join(short(peak / (1 << 30)) for peak in peaks) + " GiB"
    if kind == "cpu":
        return " -> ".join(short(cpu_per_gb(row["arms"].get(a))) for a in ("native", "tube")) + " s"
    if kind in SIDES:
        key, scale, unit = SIDES[kind]
        values = [row["arms"].get(arm, {}).get(key) for arm in ("native", "mps", "tube")]
        shown = [short(v / scale) if v is not None else None for v in values]
        mps = f" ({shown[1]})" if shown[1] else ""
        return f"{shown[0] or '-'}{mps} -> {shown[2]} {unit}"
    values = [row["arms"][arm]["p50_ns"] for arm in ("native", "tube") if arm in row["arms"]]
    unit, scale = ("ms", 1e6) if max(values) >= 1e7 else ("us", 1e3)
    return " -> ".join(short(v / scale) for v in values) + f" {unit}"


def tail(row):
    """Tube's p99 over native's."""
    p99 = [row["arms"].get(arm, {}).get("p99_ns") for arm in ("native", "tube")]
    return f"{p99[1] / p99[0]:.2f}" if all(p99) else "-"


def bound(kind, limit):
    """(kind, number) of a must or an aim."""
    return limit if isinstance(limit, tuple) else (kind, limit)


def bound_words(kind, limit):
    kind, number = bound(kind, limit)
    if number is None:
        return "-"
    _, unit, more = KINDS[kind]
    return f"{'>=' if more else '<='} {number}{unit}"


def reached(kind, value, limit):
    """Whether `value`, of the kind of the limit, is as good."""
    if limit is None or value is None:
        return False
    return value >= limit if KINDS[kind][2] else value <= limit


def verdict(kind, value, must, aim, row=None):
    """`row`: where an aim of another kind is looked up."""
    if must is None:
        return "-"
    aim_kind, aim = bound(kind, aim)
    if reached(aim_kind, value if aim_kind == kind else measured(aim_kind, row), aim):
        return "aim reached"
    return "reached" if reached(kind, value, must) else "NOT reached"


def rows(results):
    """results: bench name -> result. [figure, must, aim, measured, absolutes, p99 ratio, verdict],
    all text; those that were measured."""
    found, results = [], workflow_summary.with_summary(results)
    for words, bench, group, name, kind, must, aim in FIGURES:
        row = next((r for r in results.get(bench, {}).get("rows", [])
                    if (r["group"], r["name"]) == (group, name)), None)
        value = measured(kind, row) if row is not None else None
        if value is None:
            continue
        found.append([
            words,
            bound_words(kind, must),
            bound_words(kind, aim),
            f"{value:.3f}{KINDS[kind][1]}",
            absolutes(kind, row),
            tail(row),
            verdict(kind, value, must, aim, row)
        ])
    return found


HEAD = ["figure", "must", "aim", "measured", "native (MPS) -> Tube", "p99 ratio", ""]


def text(results):
    found = rows(results)
    return layout_table([HEAD, *found]) if found else []


def markdown(results):
    lines = ["| " + " | ".join(HEAD) + " |", "|---|---|---|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows(results))])
