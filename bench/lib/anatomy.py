"""Operations taken apart: where the time between a call and the end of its work goes.

The program says when a call began, returned, and when its work was complete; the proxy
(TUBE_TRACE_RECORDS, proxy/session/record_trace.h) when it saw each record and had executed it, by
the same clock. Stages follow the critical path of a sample and add up to its length:

  natively      call, wait
  through Tube  for each record: `on the way to CALL` (written, noticed, or still queued), `CALL`
  (checked and given to the driver);
                then `until complete`: the GPU works, and its word or the answer is seen

Of each operation the samples between the quartiles count (by their whole length), as means, so that
the stages' sum is the whole.
"""
import bisect
import collections


def read_trace(path, pid):
    """[(call, seen, done)] of one process, in order."""
    records = []
    with open(path) as file:
        for line in file:
            words = line.split()
            if len(words) == 4 and int(words[0]) == pid:
                records.append((words[1], int(words[2]), int(words[3])))
    return records


def between(records, sample):
    """Those of a long list (in order of time) that were seen within a sample."""
    first = bisect.bisect_left(records, sample[0], key=lambda r: r[1])
    last = bisect.bisect_right(records, sample[2], key=lambda r: r[1])
    return records[first:last]


def native_stages(sample):
    before, returned, complete = sample
    return [("call", returned - before), ("wait", complete - returned)]


def tube_stages(sample, records):
    """The records that were seen within the sample, as stages of its time."""
    before, _, complete = sample
    stages, at = [], before
    for call, seen, done in records:
        if before <= seen <= complete:
            done = min(done, complete)
            stages += [(f"on the way to {call}", max(0, seen - at)), (call, done - max(seen, at))]
            at = done
    return stages + [("until complete", complete - at)] if stages else [("call", complete - before)]


def merged(stages):
    """Stages of the same name as one: a hundred launches are one stage, in the place of the
    first."""
    total = {}
    for name, ns in stages:
        total[name] = total.get(name, 0) + ns
    return list(total.items())


def values(samples, stages_of):
    """p50, p99, and of the middle half the means: when the call returned, and the stages."""
    lengths = sorted(s[2] - s[0] for s in samples)
    low, high = lengths[len(lengths) // 4], lengths[(len(lengths) * 3) // 4]
    chosen = [s for s in samples if low <= s[2] - s[0] <= high]
    middle = [merged(stages_of(s)) for s in chosen]
    shape = collections.Counter(
        tuple(name for name, _ in stages) for stages in middle).most_common(1)[0][0]
    alike = [stages for stages in middle if tuple(name for name, _ in stages) == shape]
    return {
        "p50_ns": lengths[len(lengths) // 2],
        "p99_ns": lengths[int(0.99 * len(lengths))],
        "max_ns": lengths[-1],
        "samples": len(samples),
        "returned_ns": sum(s[1] - s[0] for s in chosen) / len(chosen),
        "stages": [[name, sum(s[i][1] for s in alike) / len(alike)] for i, name in enumerate(shape)]
    }


def table(rows):
    """Lines for people: each arm's stages in microseconds."""
    lines = []
    for row in rows:
        for arm, mine in row["arms"].items():
            parts = " | ".join(f"{name} {ns / 1e3:.2f}" for name, ns in mine["stages"])
            lines.append(
                f"{row['name']}, {arm}: {mine['p50_ns'] / 1e3:.2f} us, returned after {mine['returned_ns'] / 1e3:.2f}: {parts}"
            )
    return lines
