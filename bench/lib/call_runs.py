"""The three groups of bench/calls: one client, threads of one client, many client processes; arms
in turns everywhere."""
import os
import statistics
import sys
import time

import anatomy
import arm_set
import histogram
from arms import WorkerError

THREAD_OPERATIONS = ("launch", "launch_flood", "launch_sync")
PROCESS_OPERATIONS = ("launch_flood", "launch_sync")
BLOCK_LIMIT_S = 60
START_LIMIT_S = 120
IDLE_S = 2


def client_path(layout):
    return layout.build / "bench" / "client" / "calls_client"


class Tally:
    """What one arm showed in all rounds of one row."""

    def __init__(self):
        self.times, self.p50, self.rates = None, [], []
        self.client_cpu_ns, self.server_cpu_ns, self.counted = 0, 0, None

    def add(self, blocks, server_cpu_ns, counted):
        """blocks: what the clients of one round printed."""
        mine = histogram.Histogram(blocks[0]["per_sample"])
        for block in blocks:
            mine.add(block)
        if self.times is None:
            self.times = histogram.Histogram(blocks[0]["per_sample"])
        for block in blocks:
            self.times.add(block)
        self.p50.append(mine.percentile_ns(0.5))
        wall = max(b["end_ns"] for b in blocks) - min(b["begin_ns"] for b in blocks)
        self.rates.append(mine.operations() / max(1, wall) * 1e9)
        self.client_cpu_ns += sum(b["cpu_ns"] for b in blocks)
        self.server_cpu_ns += server_cpu_ns
        if counted is not None:
            self.counted = self.counted or {}
            arm_set.add(self.counted, counted)

    def values(self, has_server):
        operations = self.times.operations()
        out = {
            "p50_ns": statistics.median(self.p50),
            "p99_ns": self.times.percentile_ns(0.99),
            "max_ns": self.times.max_ns / self.times.per_sample,
            "p50_low_ns": min(self.p50),
            "p50_high_ns": max(self.p50),
            "samples": self.times.samples,
            "per_s": statistics.median(self.rates),
            "client_cpu_s": self.client_cpu_ns / operations / 1e3
        }
        if has_server:
            out["server_cpu_s"] = self.server_cpu_ns / operations / 1e3
        if self.counted is not None:
            out["per_call"] = divided(self.counted, operations)
        return out


def divided(counted, by):
    return {
        k: divided(v, by) if isinstance(v, dict) else round(v / by, 6)
        for k, v in counted.items()
        if isinstance(v, dict) or v
    }


def without_fence(counted, clients):
    """Less the one call by which each client makes sure that everything was counted
    (calls_client.cc, fence)."""
    if counted is not None:
        for key in ("records", "round_trips"):
            counted[key] -= clients
        counted["calls"]["tubeMemGetInfo"] -= clients
    return counted


class Runner:
    def __init__(self, arms, options, result):
        self.arms, self.options, self.result = arms, options, result
        self.deadline = time.monotonic() + options.budget
        self.cores = sorted(os.sched_getaffinity(0))
        self.clients = {}  # arm -> its workers

    def note(self, words):
        self.result.setdefault("notes", []).append(words)
        print(f"bench/calls: {words}", file=sys.stderr, flush=True)

    def late(self, what):
        """True when the budget is spent; said once for each part that is left out."""
        if time.monotonic() < self.deadline:
            return False
        self.note(f"no time left for {what}")
        return True

    def start_clients(self, count, names):
        """`count` ready clients in each arm of `names`; an arm that cannot start them is
        dropped."""
        self.arms.close_workers()
        self.clients = {}
        barrier = self.arms.work / "barrier"
        command = [str(client_path(self.arms.layout))]
        for name in [n for n in names if n in self.arms.arms]:
            arm = self.arms.arms[name]
            path = f"{barrier}-{name}"
            with open(path, "wb") as file:
                file.write(bytes(4096))
            workers = [arm.spawn(command, {"BENCH_BARRIER": path}) for _ in range(count)]
            try:
                deadline = time.monotonic() + START_LIMIT_S
                for worker in workers:
                    worker.ready(deadline)
                arm.confirm(count)
                self.clients[name] = workers
            except (WorkerError, arm_set.mps.MpsError) as error:
                tail = next((w.stderr_tail(6) for w in workers if w.process.poll() is not None), "")
                for worker in workers:
                    worker.close()
                self.arms.drop(name, f"{count} clients did not start: {error}\n{tail}")

    def pin(self, workers):
        """A core for each client where half of the cores stay free for everybody else, else
        none."""
        spread = len(workers) * 2 <= len(self.cores)
        for index, worker in enumerate(workers):
            worker.send(f"pin {self.cores[(index + 1) % len(self.cores)] if spread else -1}")

    def block(self, arm, workers, command):
        """One measurement of all these clients at once; returns (their blocks, server CPU, counted,
        what was wrong)."""
        deadline = time.monotonic() + BLOCK_LIMIT_S
        pids = {w.pid for w in workers}
        for worker in workers:
            worker.send(command)
        for worker in workers:
            worker.expect("prepared", deadline)
        before = arm.counters(pids)
        servers = arm.servers()
        cpu = sum(arm_set.cpu_ns(pid) for pid in servers)
        for worker in workers:
            worker.send("go")
        blocks = [worker.expect("block", deadline) for worker in workers]
        cpu = sum(arm_set.cpu_ns(pid) for pid in servers) - cpu
        counted = without_fence(arm_set.difference(before, arm.counters(pids)), len(workers))
        for worker in workers:
            worker.send("verify")
        wrong = [
            w for w in (worker.expect("verified", deadline)["wrong"] for worker in workers) if w
        ]
        return blocks, cpu, counted, wrong

    def row(self, group, name, command, count=1):
        """Measures one row: rounds, and in each the arms in turns."""
        tallies, wrong = {}, []
        for number in range(self.options.rounds):
            for arm in self.arms.in_turns(number):
                if arm.name not in self.clients:
                    continue
                workers = self.clients[arm.name][:count]
                try:
                    blocks, cpu, counted, bad = self.block(arm, workers, command)
                except WorkerError as error:
                    wrong.append(f"{arm.name}: {error}: {workers[0].stderr_tail(4)}")
                    del self.clients[arm.name]
                    continue
                tallies.setdefault(arm.name, Tally()).add(blocks, cpu, counted)
                wrong += [f"{arm.name}: {words}" for words in bad]
        values = {
            a: tallies[a].values(bool(self.arms.arms[a].servers()))
            for a in self.arms.arms
            if a in tallies
        }
        self.result["rows"].append({"group": group, "name": name, "arms": values, "wrong": wrong})

    def pin_all(self, count):
        for workers in self.clients.values():
            self.pin(workers[:count])

    def one_client(self, names):
        self.start_clients(1, list(self.arms.arms))
        self.pin_all(1)
        for name in names:
            if self.late(f"one client: {name} and what follows"):
                return
            self.row("one client", name, f"run {name} {self.options.samples}")

    def threads(self, names):
        if not names or self.late("threads"):
            return
        self.start_clients(1, [a for a in self.arms.arms if a != "tube-block"])
        for name in names:
            for count in self.options.threads:
                if self.late(f"{count} threads, {name}"):
                    return
                self.row(f"threads of one client: {name}", str(count),
                         f"threads {name} {max(300, self.options.samples // count)} {count}")

    def anatomy(self):
        """Native and Tube taken apart; Tube with a proxy of its own that traces, so that the other
        groups are not traced."""
        if self.late("anatomy"):
            return
        trace, samples = self.arms.work / "trace", max(20, self.options.samples // 50)
        apart, wrong, traced = {}, [], None
        try:
            traced = arm_set.TubeArm("tube", self.arms, {"TUBE_TRACE_RECORDS": str(trace)})
            for arm in [a for a in (self.arms.arms.get("native"), traced) if a is not None]:
                worker = arm.spawn([str(client_path(self.arms.layout))])
                worker.ready(time.monotonic() + START_LIMIT_S)
                self.pin([worker])
                worker.send(f"anatomy {samples}")
                apart[arm.name] = (worker, worker.expect("anatomy",
                                                         time.monotonic() + BLOCK_LIMIT_S))
                worker.send("verify")
                wrong += [
                    f"{arm.name}: {w}"
                    for w in [worker.expect("verified",
                                            time.monotonic() + BLOCK_LIMIT_S)["wrong"]]
                    if w
                ]
            self.arms.close_workers()
            traced.proxy.wait_empty()
            traced.proxy.wait_unmapped("tube-segment")
        except (WorkerError, RuntimeError) as error:
            wrong.append(f"anatomy: {error}")
        finally:
            if traced is not None:
                traced.close()
        if "tube" in apart and not wrong:
            records = anatomy.read_trace(trace, apart["tube"][0].pid)
            self.anatomy_rows(apart, records)
        elif wrong:
            self.result["rows"].append({
                "group": "anatomy",
                "name": "anatomy",
                "arms": {},
                "wrong": wrong
            })

    def anatomy_rows(self, apart, records):
        rows = []
        for name in apart["tube"][1]:
            arms = {}
            for arm, (_, samples) in apart.items():
                stages = anatomy.native_stages if arm == "native" else (
                    lambda s: anatomy.tube_stages(s, anatomy.between(records, s)))
                arms[arm] = anatomy.values(samples[name], stages)
            rows.append({"group": "anatomy", "name": name, "arms": arms, "wrong": []})
        self.result["rows"] += rows
        self.result["stages"] = anatomy.table(rows)

    def idle(self, count):
        """What the servers burn while all their clients do nothing, as a share of one core."""
        row = {"group": "idle functions", "name": str(count), "arms": {}, "wrong": []}
        time.sleep(1)  # whoever spins on for a while has stopped then
        for name in self.clients:
            servers = self.arms.arms[name].servers()
            begin, cpu = time.monotonic_ns(), sum(map(arm_set.cpu_ns, servers))
            time.sleep(IDLE_S)
            cpu, took = sum(map(arm_set.cpu_ns, servers)) - cpu, time.monotonic_ns() - begin
            if servers:
                row["arms"][name] = {"server_share": cpu / took}
        self.result["rows"].append(row)

    def processes(self, names):
        if not names or self.late("processes"):
            return
        most = max(self.options.processes)
        self.start_clients(most, [a for a in self.arms.arms if a != "tube-block"])
        self.idle(most)
        for name in names:
            for count in self.options.processes:
                if self.late(f"{count} processes, {name}"):
                    return
                samples = max(300, 4 * self.options.samples //
                              count) if name == "launch_flood" else max(
                                  300, self.options.samples // count)
                self.pin_all(count)
                self.row(f"client processes at once: {name}", str(count),
                         f"together {name} {samples} {count}", count)
