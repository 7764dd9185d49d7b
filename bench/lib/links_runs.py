"""Several links beside others: what a plain program gets out of them, copies of several GPUs at
once, and a function on a GPU whose link carries another GPU's copies.

All take a Runner of copy_runs.py and start their own programs in its arms. `arms` of a function:
the arms it runs in, by the names of their columns.
"""
import statistics
import time

import copy_runs
import latency
from copy_runs import GIB, KIB, MIB, size_words
from links_arm import simulated

WAYS = (("up", "to the device"), ("down", "from the device"))


def limits(options):
    """(bytes of a large copy, samples, milliseconds that a function on a lending GPU runs)"""
    return (20 * MIB, 2, 50) if options.tiny else (GIB, 20, 1500)


def plain(runner, options, links, gpus):
    """What the links carry at best: a plain program with pieces over so many links, natively."""
    runner.start_all(1, names=["native"], each=lambda _: simulated(runner.arms, gpus))
    if not runner.clients:
        return
    for size in [20 * MIB] if options.tiny else [GIB, 256 * MIB, 64 * MIB]:
        samples = 2 if options.tiny else copy_runs.samples_for(size, 0.2, 100)
        for way, words in WAYS:
            for count in links:
                runner.row(f"plain program, {count} link{'s' if count > 1 else ''}, {words}",
                           size_words(size), f"relay {way} {size} {samples} {count}", samples)


def start_on_each(runner, arms, count):
    """A program on every one of the first `count` GPUs, in each arm."""
    def each(gpu):
        return {"CUDA_VISIBLE_DEVICES": str(gpu), **simulated(runner.arms, count)}

    runner.start_all(count, names=list(arms.values()), each=each)


def by_column(arms, found, values):
    """values(name of an arm) of those that `found` has, by the names of their columns."""
    return {column: values(name) for column, name in arms.items() if name in found}


def at_once(jobs):
    """Commands that begin together and each end on their own: (their blocks, what was wrong)."""
    deadline = time.monotonic() + copy_runs.BLOCK_LIMIT_S
    workers = [worker for worker, _ in jobs]
    copy_runs.prepare(jobs, deadline)
    for worker in workers:
        worker.send("go")
    blocks = [worker.expect("block", deadline) for worker in workers]
    return blocks, copy_runs.verify(workers, deadline)


class Together:
    """What several programs of one arm showed that copied at once."""

    def __init__(self):
        self.times, self.medians, self.rates = [], [], []

    def add(self, blocks):
        took = max(b["end_ns"] for b in blocks) - min(b["begin_ns"] for b in blocks)
        times = [ns for block in blocks for ns in block["latency_ns"]]
        self.times += times
        self.medians.append(statistics.median(times))
        # What happens between two copies of a program (its source changes) counts too.
        moved = sum(block["bytes"] * len(block["latency_ns"]) for block in blocks)
        self.rates.append(moved / took * 1e9)

    def values(self):
        return dict(latency.summary(self.times), blocks_ns=self.medians,
                    bytes_per_s=statistics.median(self.rates))


def destinations(runner, options, arms, counts):
    """So many GPUs' copies at once, each waited for; the rate of all together."""
    size, samples, _ = limits(options)
    for count in counts:
        if runner.late(f"{count} GPUs at once"):
            return
        start_on_each(runner, arms, count)
        for way, words in WAYS:
            found = {}

            def once(_, arm):
                blocks, wrong = at_once([(worker, f"copy {way} pinned {size} {samples}")
                                         for worker in runner.clients[arm.name]])
                found.setdefault(arm.name, Together()).add(blocks)
                return wrong

            wrong = runner.in_turns(once)
            runner.add_row(f"{count} GPUs at once, {words}", f"{size_words(size)} each",
                           by_column(arms, found, lambda name: found[name].values()), wrong)


# What a function on a lending GPU does (bench/copies/task.h), with the milliseconds filled in.
LENDING = {
    "8 MiB in, every 10 ms": "victim up 8388608 10000 {ms} 20",
    "8 MiB out, every 10 ms": "victim down 8388608 10000 {ms} 20",
    "20 kernels, every 10 ms": "steps 20 64 100 10000 {ms} 20",
}


def over_alone(beside, alone):
    """VALUES of the blocks of a function beside others, against those alone."""
    mine, free = latency.summary(sum(beside, [])), latency.summary(sum(alone, []))
    return dict(mine, blocks_ns=[statistics.median(block) for block in beside],
                p50_over_alone=mine["p50_ns"] / free["p50_ns"],
                p99_over_alone=mine["p99_ns"] / free["p99_ns"])


def lend(runner, arms, row, line, bulk):
    """One row of lending(): the second GPU's program does `line`, the first one's `bulk`."""
    alone, beside = {}, {}

    def once(_, arm):
        first, second = runner.clients[arm.name]
        wrong = []
        for found, jobs in (alone, [(second, line)]), (beside, [(second, line), (first, bulk)]):
            blocks, _, said, _ = copy_runs.measure(jobs, [])
            wrong += said
            found.setdefault(arm.name, []).append(blocks[0]["latency_ns"])
        return wrong

    wrong = runner.in_turns(once)
    values = by_column(arms, beside, lambda name: over_alone(beside[name], alone[name]))
    runner.add_row(*row, values, wrong)


def lending(runner, options, arms):
    """A function on the second GPU, alone and while the first GPU's copies go over its link."""
    size, _, ms = limits(options)
    start_on_each(runner, arms, 2)
    for words, command in LENDING.items():
        if options.tiny:
            command = command.replace(str(8 * MIB), str(256 * KIB))
        for way in ("up", "down"):
            if not runner.late(f"on a lending GPU: {words}"):
                lend(runner, arms, (f"on a lending GPU while the first copies {way}", words),
                     command.format(ms=ms), f"bulk {way} {size} 1")


def best_rate(rows, group, name, arm):
    return max((row["arms"][arm]["bytes_per_s"] for row in rows
                if group(row["group"]) and row["name"] == name and arm in row["arms"]), default=None)


def summary(rows, paying):
    """Rows of what all links together come to, from those measured (`paying`: how a group of the
    links that pay begins): `of_plain`, against the plain program over as many links as is best for
    it; `of_fewer`, the size at which a copy loses most against fewer links; and the function on a
    lending GPU whose p99 grows most over its own alone."""
    made, fewer = [], []
    most = max((int(row["group"].split()[0]) for row in rows if row["group"][0].isdigit() and
                "links, pinned" in row["group"]), default=1)
    for words in ("to the device", "from the device"):
        group = f"{paying}, pinned {words}"
        for row in [row for row in rows if row["group"] == group and "tube" in row["arms"]]:
            mine = row["arms"]["tube"]
            plain_rate = best_rate(rows, lambda g: g.startswith("plain") and g.endswith(words),
                              row["name"], "native")
            if row["name"] == "1 GiB" and plain_rate:
                made.append({"group": "all links", "name": f"1 GiB {words}", "wrong": [], "arms": {
                    "native": {"bytes_per_s": plain_rate},
                    "tube": dict(mine, of_plain=mine["bytes_per_s"] / plain_rate)}})
            other = best_rate(rows, lambda g: g.endswith(f"pinned {words}") and g != group and
                         not g.startswith(f"{most} links"), row["name"], "tube")
            if other:
                fewer.append(dict(mine, of_fewer=mine["bytes_per_s"] / other,
                                  of=f"{row['name']} {words}"))
    if fewer:
        worst = min(fewer, key=lambda values: values["of_fewer"])
        made.append({"group": "all links", "name": "against fewer, every size", "wrong": [],
                     "arms": {"tube": worst}})
    lent = [row for row in rows if row["group"].startswith("on a lending") and "tube" in row["arms"]]
    if lent:
        worst = max(lent, key=lambda row: row["arms"]["tube"]["p99_over_alone"])
        made.append({"group": "all links", "name": "functions on lending GPUs", "wrong": [],
                     "arms": worst["arms"]})
    return made
