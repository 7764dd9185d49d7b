"""EDAS (TACO 2025): who loads a function's data, and how long it stays."""
from . import Headline, measured as m, nothing

MARK = "edas"
FAAS = "bench/faas12"


def ed1(results):
    kept = m.faas(results, "mean_ns", "mean latency, all kept", m.times, arm="tube-kept")
    return m.both(m.faas(results, "mean_ns", "mean latency", m.times), kept)


def ed2(results):
    kept = m.faas(results, "p99_ns", "P99, all kept", m.times, arm="tube-kept")
    return m.both(m.faas(results, "p99_ns", "P99", m.times), kept)


def ed3(results):
    return m.faas_all(results, "closed loop, all functions at once: {:.1f} for native {:.1f} a "
                      "second", ("tube", "closed_per_s"), ("native", "closed_per_s"))


def ed5(results):
    return m.faas_all(results, "of the compute bound tube reaches {:.0%}, native {:.0%}",
                      ("tube", "compute_bound_share"), ("native", "compute_bound_share"))


def ed6(results):
    row = m.one(results, "faas12", "functions", "resnet50")
    start = row and row.pair("native", "tube", "start_ns")
    if not start:
        return None
    return m.at(f"resnet50 from nothing: native {start[0] / 1e6:.0f}, tube {start[1] / 1e6:.0f} "
                "ms", row)


def ed7(results):
    return m.faas_all(results, "cold: native {:.1%}, tube {:.1%}, tube with all kept {:.1%}",
                      ("native", "cold_share"), ("tube", "cold_share"),
                      ("tube-kept", "cold_share"))


def ed9(results):
    twice = "functions, 2 of each"
    return m.both(m.faas(results, "mean_ns", "mean latency", m.times, group=twice),
                  m.faas(results, "mean_ns", "all kept", m.times, arm="tube-kept", group=twice))


def ed12(results):
    return m.both(m.before_compute(results), m.before_compute(results, "tube"))


HEADLINES = (
    Headline("ED1", "mean latency 16.2x better than FixedGSL, 31.1x FixedGSL-F, 16.6x DGSF (least "
             "2.16, 3.47, 1.11)", "12 functions, Azure at 20 to 200 a minute, containers warm",
             FAAS, ed1, "loading beside the start, exit in stages; no database here"),
    Headline("ED2", "P99 7.9x, 16.6x, 9.3x", "the same", FAAS, ed2, "the same"),
    Headline("ED3", "throughput 1.91x, 1.55x, 1.29x", "the same", FAAS, ed3, "the same"),
    Headline("ED4", "loading -29.1% by loading beside the context", "closed loop", "-",
             nothing, "loading by the proxy"),
    Headline("ED5", "loading -60.3% at the peak; throughput 64.2% of the compute bound",
             "one function at a time", FAAS, ed5, "the part about loading"),
    Headline("ED6", "438.2 ms cold; 8.9, 95.6, 155.8 ms from exit stages 1, 2, 3 (context 88.4, "
             "host load 138.1, GPU load 10.5, compute 7.1, container 193)", "ResNet-50",
             FAAS, ed6, "exit in stages"),
    Headline("ED7", "91.7% of cold requests are not cold any more", "Azure", FAAS, ed7,
             "exit in stages; ours compares keeping everything with keeping 30 s"),
    Headline("ED8", "contention makes loading 6.1x longer, 4.8x by PCIe alone", "Poisson, peak",
             "-", nothing, "bench beside bulk loads"),
    Headline("ED9", "24 functions 7.4 and 5.3x latency, 1.85 and 1.23x throughput; four nodes "
             "10.5, 9.5 and 1.79, 1.24; local store 8.3, 6.1 and 1.55, 1.14; A100 10.3, 9.8 and "
             "1.73, 1.22", "over FixedGSL and DGSF", "bench/faas12 --copies 2", ed9,
             "nodes"),
    Headline("ED10", "intercepting a call 5 us, a message to the daemon < 10 us", "",
             "bench/calls", m.launch, "-"),
    Headline("ED11", "a context is 254 MB, 120 MB with lower limits; read-only data dominates "
             "(bert 1,282 of 1,343 MB)", "Table 2", "bench/footprint", m.functions_memory,
             "one context for all functions here: what its limits save is not measured"),
    Headline("ED12", "what comes before the computation is 88.7% of the time; computing 48.6 ms",
             "cold, alone", "bench/coldstart/run", ed12, "no container and no database here"),
)
