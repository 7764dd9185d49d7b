"""FluidFaaS (HPDC 2025, slides): functions as pipelines over slices of GPUs."""
from . import Headline, measured as m, nothing

MARK = "fluidfaas"
WORKFLOWS = "bench/workflows"
MPS_HOST = "mps+host"


def ff1(results):
    return m.best_of(m.slo_share, results, MPS_HOST, m.OURS)


def ff2(results):
    return m.best_of(m.closed_over, results, MPS_HOST, m.OURS)


def ff3(results):
    return m.best_of(m.change_over, results, MPS_HOST, m.OURS, "p95_ns")


def ff5(results):
    found = [(row, row.get("mps+host", "solo_split_ns", "function_to_function"))
             for row in m.workflows(results)]
    found = [(row, ns) for row, ns in found if ns]
    if not found:
        return None
    each = ", ".join(f"{row.group} {ns / 1e6:.0f} ms" for row, ns in found)
    return m.at(f"through host memory between the functions of a request: {each}",
                *[row for row, _ in found])


HEADLINES = (
    Headline("FF1", "requests within the SLO up to +90% against INFless",
             "SLO 1.5x alone, light to heavy load", WORKFLOWS, ff1, "slices"),
    Headline("FF2", "throughput +75% with heavy load, +25% with medium", "against ESG",
             "bench/workflows --measure rate", ff2, "slices"),
    Headline("FF3", "P95 -81% with heavy load, -70% with medium", "against ESG", WORKFLOWS, ff3,
             "slices"),
    Headline("FF4", "utilisation +75% against ESG, GPU time -17% against INFless; 16.1% of slices "
             "active in the mean", "heavy load", "-", nothing, "a meter of the GPU's use"),
    Headline("FF5", "passing between slices through host memory adds 10 to 40 ms", "",
             WORKFLOWS, ff5, "passing between partitions"),
)
