"""Programs that copy (bench/copies/) in the arms of a bench: started, placed, measured in turns,
their bytes checked.

VALUES of these benches (result_file.py) have further: bytes_per_s (of one copy of median length),
client_cpu_s_per_gb, server_cpu_s_per_gb.
"""
import os
import statistics
import sys
import time

import arm_set
import latency
import turns
from arms import WorkerError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
START_LIMIT_S = 120
BLOCK_LIMIT_S = 120
LINK_BYTES_PER_S = 50e9  # what a block's number of samples is reckoned with


def client_path(layout):
    return layout.build / "bench" / "copies" / "copies_client"


def size_words(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def samples_for(size, seconds, most, bytes_per_s=LINK_BYTES_PER_S, least=3):
    """So many copies take about so long."""
    return max(least, min(most, int(seconds / (1e-5 + size / bytes_per_s))))


class Tally:
    """What one arm showed in all rounds of one row."""

    def __init__(self):
        self.times, self.medians, self.bytes, self.free = [], [], 0, []
        self.client_cpu_ns, self.server_cpu_ns = 0, 0

    def add(self, block, server_cpu_ns):
        self.times += block["latency_ns"]
        self.medians.append(statistics.median(block["latency_ns"]))
        self.free += block["free_ns"]
        self.bytes = block["bytes"]
        self.client_cpu_ns += block["cpu_ns"]
        self.server_cpu_ns += server_cpu_ns

    def values(self, has_server):
        out = latency.summary(self.times)
        out["p50_ns"] = statistics.median(self.times)
        out.update(p50_low_ns=min(self.medians), p50_high_ns=max(self.medians),
                   blocks_ns=self.medians, bytes_per_s=self.bytes / max(1, out["p50_ns"]) * 1e9)
        if self.free:
            out["free_p50_ns"] = statistics.median(self.free)
        gigabytes = self.bytes * len(self.times) / 1e9
        out["client_cpu_s_per_gb"] = self.client_cpu_ns / 1e9 / gigabytes
        if has_server:
            out["server_cpu_s_per_gb"] = self.server_cpu_ns / 1e9 / gigabytes
        return out


def prepare(jobs, deadline, apart=()):
    """All programs have their memory and wait for `go`; several meet in their barrier then, but
    those of `apart`."""
    meet = len(jobs) - sum(worker in apart for worker, _ in jobs)
    for worker, command in jobs:
        if meet > 1 and worker not in apart:
            worker.send(f"together {meet}")
        worker.send(command)
    for worker, _ in jobs:
        worker.expect("prepared", deadline)


def go(workers, starved_s, deadline):
    """(their blocks, whether the first was starved): its end stops the others, or that it has not
    ended in `starved_s`."""
    first, *others = workers
    for worker in workers:
        worker.send("go")
    block = None
    try:
        block = first.expect("block", time.monotonic() + starved_s)
    except WorkerError:
        if not others or first.process.poll() is not None:
            raise
    for worker in others:
        worker.send("stop")
    starved = block is None
    block = block or first.expect("block", deadline)
    return [block, *(worker.expect("block", deadline) for worker in others)], starved


def verify(workers, deadline):
    """What is wrong with what they did."""
    for worker in workers:
        worker.send("verify")
    wrong = [worker.expect("verified", deadline)["wrong"] for worker in workers]
    return [words for words in wrong if words]


def measure(jobs, servers, starved_s=BLOCK_LIMIT_S, apart=()):
    """jobs: (worker, command) of programs that begin together, the measured one first; those of
    `apart` begin when they are told to. Returns (blocks, CPU time of the servers, what was wrong, whether the first was starved)."""
    deadline = time.monotonic() + BLOCK_LIMIT_S
    workers = [worker for worker, _ in jobs]
    prepare(jobs, deadline, apart)
    cpu = sum(map(arm_set.cpu_ns, servers))
    blocks, starved = go(workers, starved_s, deadline)
    cpu = sum(map(arm_set.cpu_ns, servers)) - cpu
    return blocks, cpu, verify(workers, deadline), starved


class Runner:
    """One bench's programs: `clients` holds those of each arm, the measured one first."""

    def __init__(self, arms, options, result, keep=lambda: None):
        """`keep`: called behind each row: what was measured is there, whatever ends the run."""
        self.arms, self.options, self.result, self.keep = arms, options, result, keep
        self.begin = time.monotonic()
        self.deadline = self.begin + options.budget
        self.cpus = os.sched_getaffinity(0)
        self.clients, self.meetings = {}, {}

    def note(self, words):
        self.result.setdefault("notes", []).append(words)
        print(f"bench/{self.result['bench']}: {words}", file=sys.stderr, flush=True)

    def late(self, what):
        """True when the budget is spent; said for each part that is left out."""
        if time.monotonic() < self.deadline:
            return False
        self.note(f"no time left for {what}")
        return True

    def barrier(self, name):
        """A file for the programs of one arm to meet in."""
        path = self.arms.work / f"barrier-{name.replace(':', '-')}"
        path.write_bytes(bytes(4096))
        return {"BENCH_BARRIER": str(path)}

    def start(self, arm, count, meeting, keep=0, each=lambda number: {}):
        """`count` programs that are ready, each with more of an environment by its number; raises
        WorkerError or MpsError."""
        command = [str(client_path(self.arms.layout))]
        workers = [arm.spawn(command, dict(meeting, **each(n))) for n in range(count)]
        for worker in workers:
            worker.ready(time.monotonic() + START_LIMIT_S)
            worker.send(f"keep {keep}")
        arm.confirm(count)
        return workers

    def start_all(self, count, keep=0, names=None, **more):
        """`count` programs in each arm, or in those of `names`; an arm that cannot start them is
        dropped. `more`: of start()."""
        self.arms.close_workers()
        self.clients = {}
        for arm in list(self.arms.arms.values()):
            if names is not None and arm.name not in names:
                continue
            try:
                self.meetings[arm.name] = self.barrier(arm.name)
                self.clients[arm.name] = self.start(arm, count, self.meetings[arm.name], keep,
                                                    **more)
            except (WorkerError, arm_set.mps.MpsError) as error:
                self.lost(arm, str(error))

    def lost(self, arm, why):
        tail = next((w.stderr_tail(6) for w in self.arms.workers if w.process.poll()), "")
        self.clients.pop(arm.name, None)
        self.arms.drop(arm.name, f"{why}\n{tail}")

    def tell(self, line):
        for workers in self.clients.values():
            for worker in workers:
                worker.send(line)

    def place(self, number, workers):
        """The measured program gets the same CPUs in every arm, others in the next round, and the
        programs beside it the rest; on few CPUs all run where they like."""
        mine = turns.cpus_of(number, self.cpus)
        if mine is None:
            return
        turns.move(workers[0].pid, mine)
        for worker in workers[1:]:
            turns.move(worker.pid, self.cpus - mine)

    def in_turns(self, once):
        """once(number, arm) in every round for every arm that has programs; no further round once
        the budget is spent. Returns what was wrong."""
        wrong = []
        for number in range(self.options.rounds):
            if number and self.late(f"round {number + 1} of {self.options.rounds}"):
                break
            for arm in self.arms.in_turns(number):
                if arm.name not in self.clients:
                    continue
                try:
                    wrong += [f"{arm.name}: {words}" for words in once(number, arm)]
                except WorkerError as error:
                    wrong.append(f"{arm.name}: {error}")
                    self.lost(arm, str(error))
        return wrong

    def tallies(self, command, samples, placed=False):
        """One client's command in all arms: ({arm: Tally}, what was wrong)."""
        found = {}

        def once(number, arm):
            workers = self.clients[arm.name]
            if placed:
                self.place(number, workers)
            blocks, cpu, wrong, _ = measure([(workers[0], command)], arm.servers())
            found.setdefault(arm.name, Tally()).add(blocks[0], cpu)
            if len(blocks[0]["latency_ns"]) != samples:
                wrong.append(f"{len(blocks[0]['latency_ns'])} samples, not {samples}")
            return wrong

        return found, self.in_turns(once)

    def values(self, tallies):
        return {
            name: tallies[name].values(bool(arm.servers()))
            for name, arm in self.arms.arms.items() if name in tallies
        }

    def row(self, group, name, command, samples, placed=False):
        tallies, wrong = self.tallies(command, samples, placed)
        return self.add_row(group, name, self.values(tallies), wrong)

    def add_row(self, group, name, values, wrong=()):
        row = {"group": group, "name": name, "arms": values, "wrong": list(wrong)}
        self.result["rows"].append(row)
        self.keep()
        print(f"bench/{self.result['bench']}: {group}: {name}: measured "
              f"{time.monotonic() - self.begin:.0f} s after the start", file=sys.stderr, flush=True)
        return row


def slowest(rows, arm):
    """Of rows with two arms the one where `arm` is slowest against native, with its name in
    `of`."""
    both = [row for row in rows if {"native", arm} <= set(row["arms"])]
    if not both:
        return None
    return max(both, key=lambda row: turns.ratio(row["arms"]["native"]["blocks_ns"],
                                                 row["arms"][arm]["blocks_ns"]) or 0)
