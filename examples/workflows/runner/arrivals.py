"""When requests arrive: counts per minute of a trace, spread over each minute by a seeded Poisson
process, time divided by a speed-up.

A trace has no finer time than its minute (StreamBox: its step). Given a minute's count, a Poisson
process puts each arrival anywhere in the minute, independently and uniformly: that is what is
drawn. A window of M minutes then takes M x 60 / S seconds. Without a rate the counts stay as they
are; with one they are scaled, minute by minute with the remainder carried, so that the window's
mean is that rate and its shape remains.

Standard library only; bench/traces/README.md says where the data comes from.
"""
import csv
import pathlib
import random

TRACES = pathlib.Path(__file__).resolve().parents[3] / "bench" / "traces"
# What a shape's plain name means.
SHAPES = {"bursty": "streambox:bursty", "periodic": "azure:7", "sporadic": "azure:2"}
MINUTES = 10  # of a window that nobody chose


def times(shape, seconds, rate=None, speedup=None, window=None, seed=1, folder=TRACES):
    """(arrival times in seconds from the start, ascending and below `seconds`; what they are, in
    words to print).

    shape: bursty, periodic, sporadic, azure:ROW (1 to 16), streambox:NAME, or poisson (needs
    `rate`). rate: mean requests per second. speedup: how much faster than the trace time runs;
    without it the window fills `seconds`. window: (first minute, minutes); without it the ten
    minutes that have most requests."""
    chosen = random.Random(f"{shape} {seed}")
    if shape == "poisson":
        return poisson(seconds, rate, seed, chosen)
    counts, origin = trace(shape, pathlib.Path(folder))
    first, minutes = window or busiest(counts, MINUTES)
    counts = counts[first:first + minutes]
    if not counts:
        raise ValueError(f"{origin} has no minute {first}")
    speedup = speedup or len(counts) * 60 / seconds
    minute_s = 60 / speedup
    words = (f"{origin}, M = {len(counts)} minutes from minute {first}, S = {speedup:.4g}, "
             f"seed {seed}")
    if rate is not None:
        wanted = rate * len(counts) * minute_s
        words += f", counts x {wanted / max(1, sum(counts)):.3g} for {rate:g} a second"
        counts = scaled(counts, wanted)
    found = spread(counts, minute_s, chosen)
    return [at for at in found if at < seconds], words


def poisson(seconds, rate, seed, chosen):
    """A plain Poisson process."""
    if not rate:
        raise ValueError("poisson arrivals need a rate")
    found, at = [], chosen.expovariate(rate)
    while at < seconds:
        found.append(at)
        at += chosen.expovariate(rate)
    return found, f"Poisson, {rate:g} a second, seed {seed}"


def trace(shape, folder):
    """(counts per minute, where they come from)."""
    kind, _, name = SHAPES.get(shape, shape).partition(":")
    if kind == "streambox":
        path = folder / f"streambox_{name}-load.txt"
        return [int(word) for word in path.read_text().split()], f"StreamBox {name}"
    if kind != "azure":
        raise ValueError(f"no arrivals '{shape}': there are {', '.join(SHAPES)}, azure:ROW, "
                         "streambox:NAME and poisson")
    with open(folder / "azure2019_selected.csv", newline="") as file:
        rows = list(csv.reader(file))
    begin, row = rows[0].index("minute_1"), rows[int(name)]
    return [int(float(word)) for word in row[begin:]], f"Azure 2019 row {name} ({row[0]})"


def busiest(counts, minutes):
    """(first minute, minutes) of the window that has most requests; the earliest of equals."""
    minutes = min(minutes, len(counts))
    total = best = sum(counts[:minutes])
    first = 0
    for begin in range(1, len(counts) - minutes + 1):
        total += counts[begin + minutes - 1] - counts[begin - 1]
        if total > best:
            best, first = total, begin
    return first, minutes


def scaled(counts, wanted):
    """Counts of the same shape whose sum is `wanted`, rounded."""
    factor, exact, given, found = wanted / max(1, sum(counts)), 0.0, 0, []
    for count in counts:
        exact += count * factor
        found.append(max(0, round(exact) - given))
        given += found[-1]
    return found


def spread(counts, minute_s, chosen):
    """Arrival times: each minute's count anywhere in its minute."""
    found = []
    for minute, count in enumerate(counts):
        found += sorted((minute + chosen.random()) * minute_s for _ in range(count))
    return found
