"""FaaSTube: passing data between GPU functions of a workflow."""
from . import Headline, copies, measured as m, nothing

MARK = "faastube"
WORKFLOWS = "bench/workflows"
HOST_BASE, BEST = "mps+host", "tube+store"


def ft1(results):
    return m.best_of(m.change_over, results, HOST_BASE, m.OURS, "p99_ns")


def ft2(results):
    return m.best_of(m.passing_change, results, HOST_BASE, m.OURS, "tail_split_ns")


def ft3(results):
    return m.best_of(m.closed_over, results, HOST_BASE, m.OURS)


def ft4(results):
    return m.passing_share(results, HOST_BASE)


def ft5(results):
    """What of it an arm exists for: the way between functions."""
    way = m.best_of(m.change_over, results, "tube+host", m.OURS, "p99_ns")
    off = m.switched_off(results, BEST)
    return m.both(way and f"the GPU's way between functions alone: P99 {way}", off)


def ft11(results):
    row = m.one(results, "store", "store of half the objects", "queue against lru")
    pair = row and row.pair("tube", "native", "p99_ns")
    if not pair:
        return None
    mine, lru = pair
    return m.at(f"tail of a taking {m.percent(mine, lru)}: {mine / 1e3:.0f} us for {lru / 1e3:.0f} "
                f"with LRU, {row.get('tube', 'fetched')} fetches for "
                f"{row.get('native', 'fetched')}", row)


def ft6(results):
    found = [row for row in m.rows(results, "isolate") if row.pair("tube", "native", "p99_ns")]
    each = [f"{row.group}, {row.name}: {row.get('tube', 'p99_ns') / 1e6:.2f} for native "
            f"{row.get('native', 'p99_ns') / 1e6:.2f} ms" for row in found]
    return m.at("; ".join(each), *found) if found else None


HEADLINES = (
    Headline("FT1", "P99 -86 to -90% against INFless+, -62 to -79% against DeepPlan+, -43 to "
             "-63% against FaaSTube*", "six workflows, bursty Azure load", WORKFLOWS, ft1,
             "parallel PCIe on one GPU's machine"),
    Headline("FT2", "passing -93 to -98%, -90 to -94%, -70 to -88%, queueing left out",
             "the same, of the slowest requests", WORKFLOWS, ft2, "the same"),
    Headline("FT3", "throughput 2.4 to 12x, 1.7 to 3.9x, 1.3 to 2.7x", "the same",
             "bench/workflows --measure rate", ft3, "the same"),
    Headline("FT4", "passing is up to 92% of the latency: 29 host to function, 63 between "
             "functions", "INFless+ alone", WORKFLOWS, ft4, "-"),
    Headline("FT5", "V100: interface 2.5, PCIe 20, NVLink 23, store 19% of P99; A100: 3.2, 30, 0, "
             "39%", "switched on one by one", WORKFLOWS, ft5,
             "NVLink and several links"),
    Headline("FT6", "contended: -32% latency; uncontended no loss",
             "Driving beside Video, bursty", "bench/isolate", ft6,
             "two workflows beside each other; here single copies beside bulk"),
    Headline("FT7", "interference 5x", "functions that load beside each other", "bench/isolate",
             copies.interference, "-"),
    Headline("FT8", "pageable 3, pinned 12, pinned when needed 1 GB/s; 70 ms per 100 MB", "",
             "bench/pinned", copies.host_memory, "-"),
    Headline("FT9", "throughput +13 to +18% over MAPA by several NVLink paths; a path is chosen "
             "in < 10 us", "eight V100", "-", nothing,
             "a mesh without a switch; with an NVSwitch at most no loss can be shown"),
    Headline("FT10", "28% of pairs have half the rate, 42% no NVLink (7.9 GB/s)", "eight V100",
             "-", nothing, "not comparable: every pair here has the same NVLink"),
    Headline("FT11", "pool -19% mean, migration that knows the queue -14% tail",
             "store of 1 GB, bursty", "bench/store", ft11,
             "here objects in a queue, not the six workflows",
             "queue-aware against LRU with a store of 1 GB, tail"),
    Headline("FT12", "PyTorch's pool holds 4x what is used; emptying it by hand raises the tail "
             "4x; GMLake adds 45 ms of IPC", "the same", "-", nothing,
             "pool and its bench"),
    Headline("FT13", "between nodes -85, -63, -39%", "four nodes", "-", nothing,
             "passing between nodes"),
    Headline("FT14", "without NVLink -90, -90, -75%", "four A10", WORKFLOWS, nothing,
             "a way between GPUs with NVLink off"),
    Headline("FT15", "chunks of 2 MB in batches of 5, pool of at least 300 MB, store of 1 GB",
             "their settings", "-", nothing,
             "settings to sweep once the copy engine is there"),
)
