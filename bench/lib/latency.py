"""What is said of a list of latencies: percentiles, shares within a bound, the curve of a picture,
and whether two halves of a run say the same."""
import math
import statistics

CURVE_POINTS = 100  # of a distribution that a picture draws
P50_WITHIN, P99_WITHIN = 0.05, 0.15  # what two halves of a run may differ by


def percentile(values, share):
    """The smallest value that `share` of all values do not exceed (nearest rank); None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(values):
    """VALUES of result_file.py for a list of nanoseconds; {} of none."""
    if not values:
        return {}
    return {
        "p50_ns": percentile(values, 0.5),
        "p95_ns": percentile(values, 0.95),
        "p99_ns": percentile(values, 0.99),
        "max_ns": max(values),
        "mean_ns": statistics.fmean(values),
        "samples": len(values)
    }


def curve(values):
    """CURVE_POINTS + 1 quantiles from the least to the most, of few values each once."""
    ordered = sorted(values)
    if len(ordered) <= CURVE_POINTS:
        return ordered
    last = len(ordered) - 1
    return [ordered[round(last * point / CURVE_POINTS)] for point in range(CURVE_POINTS + 1)]


def share_within(values, bound, lost=0):
    """Share of the requests that ended within the bound; `lost` requests have no latency."""
    asked = len(values) + lost
    return sum(value <= bound for value in values) / asked if asked else None


def halves(first, second):
    """How far two halves of a run are apart: {"p50": share, "p99": share, "agree": bool}, of the
    smaller one. None where a half has nothing."""
    if not first or not second:
        return None
    apart = {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        a, b = percentile(first, share), percentile(second, share)
        apart[name] = abs(a - b) / max(1, min(a, b))
    apart["agree"] = apart["p50"] <= P50_WITHIN and apart["p99"] <= P99_WITHIN
    return apart


def mean_of(dictionaries):
    """key -> mean over all dictionaries; a missing key counts as 0."""
    keys = dict.fromkeys(key for one in dictionaries for key in one)
    count = max(1, len(dictionaries))
    return {key: sum(one.get(key, 0) for one in dictionaries) / count for key in keys}
