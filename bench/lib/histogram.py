"""Times as bench/client/common.h counts them: buckets below 128 ns are one nanosecond wide, above
they keep seven digits."""


def middle(bucket):
    """The time in nanoseconds that a bucket stands for."""
    if bucket < 128:
        return float(bucket)
    shift = bucket // 64 - 1
    return ((bucket - 64 * shift) << shift) + (1 << shift) / 2


class Histogram:
    """Samples of any number of blocks added up; all answers are per operation (`per_sample` of them
    make a sample)."""

    def __init__(self, per_sample=1):
        self.counts, self.samples, self.sum_ns, self.max_ns, self.per_sample = {}, 0, 0, 0, per_sample

    def add(self, block):
        """block: what a measured program printed."""
        for bucket, count in block["hist"]:
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.samples += block["samples"]
        self.sum_ns += block["sum_ns"]
        self.max_ns = max(self.max_ns, block["max_ns"])
        return self

    def percentile_ns(self, part):
        rank, seen = part * self.samples, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen > rank:
                return min(middle(bucket), self.max_ns) / self.per_sample
        return self.max_ns / self.per_sample

    def operations(self):
        return self.samples * self.per_sample

    def mean_ns(self):
        return self.sum_ns / max(1, self.operations())
