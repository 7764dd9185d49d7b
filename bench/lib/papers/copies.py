"""Figures for headlines about copies and pinned memory, from bench/isolate, bench/pinned,
bench/pinned_copies and bench/pageable."""
from . import measured as m

GB = 1e9


def rate_words(row, arm):
    return f"{m.short(row.get(arm, 'bytes_per_s') / GB)}"


def block_sizes(results):
    """GB/s of single pinned copies to the GPU by their size, natively and through Tube."""
    found = [row for row in m.rows(results, "pinned_copies", "to the device")
             if row.pair("tube", "native", "bytes_per_s")]
    each = [f"{row.name} {rate_words(row, 'tube')} (native {rate_words(row, 'native')})"
            for row in found]
    return m.at(f"{', '.join(each)} GB/s", *found) if found else None


def pinned_ms(results):
    """cuMemHostAlloc of 100 MiB: without and with a pool that knows the function."""
    cold = m.one(results, "pinned", "cuMemHostAlloc, cold", "100 MiB")
    warm = m.one(results, "pinned", "cuMemHostAlloc, warm", "100 MiB")
    if not (cold and warm and cold.pair("tube", "native", "p50_ns")):
        return None
    native, tube = (cold.get(arm, "p50_ns") / 1e6 for arm in ("native", "tube"))
    return m.at(f"100 MiB: native {native:.0f} ms, tube {tube:.0f} ms at first, "
                f"{warm.get('tube', 'p50_ns') / 1e3:.0f} us from its pool", cold, warm)


def host_memory(results):
    """GB/s of 100 MiB to the GPU from pageable memory, from pinned memory, and from pinned memory
    that is allocated for it."""
    group = "100 MiB to the device, pages there"
    pageable = m.one(results, "pageable", "to the device, pages there", "100 MiB")
    needed = m.one(results, "pinned", group, "pinned memory allocated for it")
    pinned = m.one(results, "pinned_copies", "to the device", "256 MiB")
    found = [row for row in (pageable, pinned, needed)
             if row and row.pair("tube", "native", "bytes_per_s")]
    if len(found) < 3:
        return None
    each = [f"{words} {rate_words(row, 'tube')} (native {rate_words(row, 'native')})"
            for words, row in zip(("pageable", "pinned", "pinned when needed"), found)]
    return m.at(f"{', '.join(each)} GB/s", *found)


def interference(results):
    """P99 of a function that loads and computes beside four that load, against its own alone."""
    row = m.one(results, "isolate", "latency-critical function", "4 load")
    pair = row and row.pair("tube", "native", "p99_over_alone")
    if not pair:
        return None
    return m.at(f"P99 against alone: native {m.times(pair[1])}, tube {m.times(pair[0])}", row)
