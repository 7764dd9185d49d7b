"""GPU memory in use, sampled by a thread while something runs.

`read` returns bytes in use now, or None when that cannot be told; the mean is over time, so a late
sample counts for as long as it stood. Standard library only.
"""
import threading
import time


class Sampler:
    """Use as a context manager, or start() and stop()."""

    def __init__(self, read, interval_s=0.01):
        self.read, self.interval_s = read, interval_s
        self.samples, self.wanted = [], threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def sample(self):
        while True:
            self.samples.append((time.monotonic(), self.read()))
            if self.wanted.wait(self.interval_s):
                return

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        """{"mean", "peak", "samples"} of the time between start and now; None without a reading."""
        self.wanted.set()
        self.thread.join()
        self.samples.append((time.monotonic(), self.samples[-1][1]))
        return summary(self.samples)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if not self.wanted.is_set():
            self.stop()


def summary(samples):
    """Mean over time and peak of [(seconds, bytes or None)]."""
    known = [(at, value) for at, value in samples if value is not None]
    if not known:
        return None
    held = sum(value * (later - at) for (at, value), (later, _) in zip(known, known[1:]))
    seconds = known[-1][0] - known[0][0]
    return {"mean": held / seconds if seconds > 0 else known[0][1],
            "peak": max(value for _, value in known), "samples": len(known)}
