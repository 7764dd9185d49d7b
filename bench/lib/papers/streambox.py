"""StreamBox (ATC 2024): functions as streams of one runtime."""
from . import Headline, copies, measured as m, nothing

MARK = "streambox"
WORKFLOWS = "bench/workflows"
MPS_HOST, STORE = "mps+host", "tube+store"
STATIC_POOL, NO_LANES = "tube:TUBE_POOL_POLICY=static+store", "tube:TUBE_COPY_LANE=never+store"


def sb1(results):
    traces = m.best_of(m.workflow_memory, results, MPS_HOST, m.OURS)
    return m.both(m.functions_memory(results), traces and f"mean over the trace {traces}")


def sb2(results):
    return m.workflow_memory(results, STATIC_POOL, STORE)


def sb7(results):
    return m.change_over(results, NO_LANES, STORE, "p99_ns")


def sb4(results):
    return m.best_of(m.closed_over, results, MPS_HOST, m.OURS)


def sb6(results):
    p99 = m.best_of(m.change_over, results, MPS_HOST, m.OURS, "p99_ns")
    return m.both(m.start(results), p99 and f"P99 of warm workflows {p99}")


def sb8(results):
    passing = m.best_of(m.passing_change, results, MPS_HOST, m.OURS)
    return m.both(passing, pressure(results))


def pressure(results):
    """Passing while others hold most of the memory, against nobody."""
    row = m.one(results, "store", "others hold 90%", "against none")
    pair = row and row.pair("tube", "native", "p50_ns")
    return pair and m.at(f"with 90% of the memory held a taking is {m.times(pair[0] / pair[1])} of "
                         f"{pair[1] / 1e3:.1f} us", row)


def sb15(results):
    return m.passed_bytes(results)


HEADLINES = (
    Headline("SB1", "GPU memory -82% (-79 to -82% in the mean) against INFless and Astraea",
             "three workflows, a day of Azure, 16 GB full of warm functions",
             "bench/footprint; bench/workflows", sb1,
             "the paper keeps its baselines' functions warm until the GPU is full"),
    Headline("SB2", "GPU memory -71% against streams alone", "the same",
             "bench/workflows --arms store", sb2,
             "streams alone keep what they once had: here a pool that gives nothing back"),
    Headline("SB3", "pool memory -91% against a static pool, -67% of it by resizing; time -34%",
             "the same, without contexts", "-", nothing, "memory pool and its bench"),
    Headline("SB4", "throughput 6.7x INFless, 5.3x Astraea, 1.46x streams alone",
             "sporadic, periodic and bursty load", "bench/workflows --measure rate", sb4,
             "cold starts of the baselines: ours stay warm in all arms"),
    Headline("SB5", "20 functions at once where INFless has 8", "PyTorch, 16 GB",
             "bench/density", m.density, "-"),
    Headline("SB6", "end to end up to -98%; start 5.8 s to 5 ms", "Traffic",
             "bench/coldstart/run; bench/workflows", sb6,
             "starts inside of the trace; the import of PyTorch stays in ours"),
    Headline("SB7", "end to end -49% against streams alone", "Traffic",
             "bench/workflows --arms store", sb7,
             "streams alone: here the same with copies on the functions' own streams"),
    Headline("SB8", "passing -94% against the host's way, -73% against streams alone; awareness "
             "of pressure -55%, moves between GPUs -72%", "beside a load that fills idle compute",
             "bench/workflows; bench/store", sb8, "moves between GPUs; here without filler",
             "memory pressure: filler holds 90%, passing against none"),
    Headline("SB9", "loading in a pipeline: -91% against streams alone, -80% against MPS",
             "two models loaded at once", "-", nothing, "loading layer by layer"),
    Headline("SB10", "blocks of 16 KB reach 4 of 12 GB/s, from 2 MB on near the peak", "PCIe 3",
             "bench/pinned_copies", copies.block_sizes, "-"),
    Headline("SB11", "200 MB of pinned memory take 200 ms, reserving device memory > 30 ms", "",
             "bench/pinned", copies.pinned_ms, "reserving device memory"),
    Headline("SB12", "forwarding a call costs 1 to 3 us, 3 to 5 us with 48 clients", "",
             "bench/calls", m.launch, "-"),
    Headline("SB13", "kernels cut for partitions cost 3%", "ResNet beside an MPS partition",
             "-", nothing,
             "not comparable: closed libraries' kernels cannot be cut; reserved SMs instead"),
    Headline("SB14", "profiling 36 s, transforming 4 s before a model can be served", "", "-",
             lambda results: "0 s: nothing is profiled or transformed", "-"),
    Headline("SB15", "125 MB passed at batch 16; the runtime is up to 95% of 1.5 GB; more than "
             "60% of compute idle", "Traffic", WORKFLOWS, sb15, "-"),
    Headline("SB16", "three tenants share a GPU well, six do not", "a runtime per tenant",
             "-", nothing, "bench of several proxies on a GPU"),
)
