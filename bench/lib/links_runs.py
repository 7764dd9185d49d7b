"""Several links beside others: copies of several GPUs at once, and a function on a GPU whose link
carries another GPU's copies."""
import statistics
import time

import copy_runs
import latency
from copy_runs import GIB, KIB, MIB, size_words


def limits(options):
    """(bytes of a large copy, samples, milliseconds that a function on a lending GPU runs)"""
    return (20 * MIB, 2, 50) if options.tiny else (GIB, 20, 1500)


def environment(options, gpus):
    """Of a program in any arm: as many simulated GPUs as the bench counts on."""
    if options.backend != "sim":
        return {}
    return {"TUBE_SIM_TOPOLOGY": "hgx-h200", "TUBE_SIM_COUNT": str(gpus)}


def plain(runner, options, links, gpus):
    """What the links carry at best: a plain program with pieces over so many links, natively. Where
    it cannot run (GPUs without peer access), that is said."""
    native = runner.arms.arms.get("native")
    if native is None:
        return
    try:
        worker = native.spawn([str(copy_runs.client_path(runner.arms.layout))],
                              environment(options, gpus))
        worker.ready(time.monotonic() + copy_runs.START_LIMIT_S)
        plain_rows(runner, options, links, worker)
        worker.send("finish")
        worker.expect("done", time.monotonic() + copy_runs.START_LIMIT_S)
    except copy_runs.WorkerError as error:
        runner.note(f"no plain program over several links: {error}")


def plain_rows(runner, options, links, worker):
    for size in [20 * MIB] if options.tiny else [GIB, 256 * MIB, 64 * MIB]:
        samples = 2 if options.tiny else copy_runs.samples_for(size, 0.2, 100)
        for way, words in (("up", "to the device"), ("down", "from the device")):
            for count in [n for n in links if n > 0]:
                tally, wrong = copy_runs.Tally(), []
                for _ in range(options.rounds):
                    blocks, _, said, _ = copy_runs.measure(
                        [(worker, f"relay {way} {size} {samples} {count}")], [])
                    tally.add(blocks[0], 0)
                    wrong += said
                runner.add_row(f"plain program, {count} link{'s' if count > 1 else ''}, {words}",
                               size_words(size), {"native": tally.values(False)}, wrong)


def at_once(jobs, limit_s=120):
    """Commands that begin together and each end on their own: (their blocks, what was wrong)."""
    deadline = time.monotonic() + limit_s
    workers = [worker for worker, _ in jobs]
    copy_runs.prepare(jobs, deadline)
    for worker in workers:
        worker.send("go")
    blocks = [worker.expect("block", deadline) for worker in workers]
    return blocks, copy_runs.verify(workers, deadline)


class OnEachGpu:
    """In each arm a program on every one of the first `count` GPUs; `arms`:
    name of a column -> arm."""

    def __init__(self, runner, arms, count):
        self.runner, self.count, self.clients = runner, count, {}
        for name, arm in ((name, runner.arms.arms.get(mine)) for name, mine in arms.items()):
            if arm is None:
                continue
            meeting = dict(runner.barrier(f"{name}-{count}-gpus"),
                           **environment(runner.options, max(count, 2)))
            command = [str(copy_runs.client_path(runner.arms.layout))]
            try:
                self.clients[name] = [
                    arm.spawn(command, dict(meeting, CUDA_VISIBLE_DEVICES=str(gpu)))
                    for gpu in range(count)
                ]
                for worker in self.clients[name]:
                    worker.ready(time.monotonic() + copy_runs.START_LIMIT_S)
            except copy_runs.WorkerError as error:
                self.clients.pop(name, None)
                runner.note(f"{name}: no program on each of {count} GPUs: {error}")

    def rounds(self, once):
        """once(name, workers) for each arm in turns; what was wrong."""
        wrong = []
        for _ in range(self.runner.options.rounds):
            for name in list(self.clients):
                try:
                    wrong += [f"{name}: {words}" for words in once(name, self.clients[name])]
                except copy_runs.WorkerError as error:
                    wrong.append(f"{name}: {error}")
                    self.clients.pop(name)
        return wrong

    def close(self):
        for workers in self.clients.values():
            for worker in workers:
                worker.send("finish")
                worker.expect("done", time.monotonic() + copy_runs.START_LIMIT_S)


def destinations(runner, options, arms, counts):
    """So many GPUs' copies at once, each waited for; the rate of all together."""
    size, samples, _ = limits(options)
    for count in counts:
        if runner.late(f"{count} GPUs at once"):
            return
        programs = OnEachGpu(runner, arms, count)
        for way, words in (("up", "to the device"), ("down", "from the device")):
            found = {}

            def once(name, workers):
                blocks, wrong = at_once([(worker, f"copy {way} pinned {size} {samples}")
                                         for worker in workers])
                shown = found.setdefault(name, {"times": [], "medians": [], "rates": []})
                took = max(b["end_ns"] for b in blocks) - min(b["begin_ns"] for b in blocks)
                times = [ns for block in blocks for ns in block["latency_ns"]]
                shown["times"] += times
                shown["medians"].append(statistics.median(times))
                # What happens between two copies of a program (its source changes) counts too.
                shown["rates"].append(sum(b["bytes"] * samples for b in blocks) / took * 1e9)
                return wrong

            wrong = programs.rounds(once)
            values = {}
            for name, shown in found.items():
                values[name] = dict(latency.summary(shown["times"]), blocks_ns=shown["medians"],
                                    bytes_per_s=statistics.median(shown["rates"]))
            runner.add_row(f"{count} GPUs at once, {words}", f"{size_words(size)} each", values,
                           wrong)
        programs.close()


# What a function on a lending GPU does (bench/copies/task.h), with the milliseconds filled in.
LENDING = {
    "8 MiB in, every 10 ms": "victim up 8388608 10000 {ms} 20",
    "8 MiB out, every 10 ms": "victim down 8388608 10000 {ms} 20",
    "20 kernels, every 10 ms": "steps 20 64 100 10000 {ms} 20",
}


def lending(runner, options, arms):
    """A function on the second GPU, alone and while the first GPU's copies go over its link."""
    size, _, ms = limits(options)
    programs = OnEachGpu(runner, arms, 2)
    for words, command in LENDING.items():
        if options.tiny:
            command = command.replace(str(8 * MIB), str(256 * KIB))
        for way in ("up", "down"):
            alone, beside = {}, {}
            if runner.late(f"on a lending GPU: {words}"):
                break

            def once(name, workers):
                first, second = workers
                line = command.format(ms=ms)
                wrong = []
                for found, jobs in ((alone, [(second, line)]),
                                    (beside, [(second, line), (first, f"bulk {way} {size} 1")])):
                    blocks, _, said, _ = copy_runs.measure(jobs, [])
                    wrong += said
                    found.setdefault(name, []).append(blocks[0]["latency_ns"])
                return wrong

            wrong = programs.rounds(once)
            values = {}
            for name in beside:
                mine = latency.summary(sum(beside[name], []))
                free = latency.summary(sum(alone[name], []))
                values[name] = dict(mine, blocks_ns=[statistics.median(b) for b in beside[name]],
                                    p50_over_alone=mine["p50_ns"] / free["p50_ns"],
                                    p99_over_alone=mine["p99_ns"] / free["p99_ns"])
            runner.add_row(f"on a lending GPU while the first copies {way}", words, values, wrong)
    programs.close()


def best(rows, group, name, arm, key="bytes_per_s"):
    return max((row["arms"][arm][key] for row in rows
                if group(row["group"]) and row["name"] == name and arm in row["arms"]), default=None)


def summary(rows, paying):
    """Rows of what all links together come to, from those measured (`paying`: how a group of the
    links that pay begins): `of_plain`, against the plain program over as many links as is best for it;
    `of_fewer`, the size at which a copy loses most against fewer links; and the function on a
    lending GPU whose p99 grows most over its own alone."""
    made, fewer = [], []
    most = max((int(row["group"].split()[0]) for row in rows if row["group"][0].isdigit() and
                "links, pinned" in row["group"]), default=1)
    for words in ("to the device", "from the device"):
        group = f"{paying}, pinned {words}"
        for row in [row for row in rows if row["group"] == group and "tube" in row["arms"]]:
            mine = row["arms"]["tube"]
            plain_rate = best(rows, lambda g: g.startswith("plain") and g.endswith(words),
                              row["name"], "native")
            if row["name"] == "1 GiB" and plain_rate:
                made.append({"group": "all links", "name": f"1 GiB {words}", "wrong": [], "arms": {
                    "native": {"bytes_per_s": plain_rate},
                    "tube": dict(mine, of_plain=mine["bytes_per_s"] / plain_rate)}})
            other = best(rows, lambda g: g.endswith(f"pinned {words}") and g != group and
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
