"""Functions that hold more GPU memory together than their workflow may, in turns.

Rows have further, in each arm that is Tube: away_bytes_per_s and back_bytes_per_s (as the proxy
moved memory, the median of its moves), of_link (the slower of the two, against what the pinned link
carries that way in the same arm), stalls_ns (of each turn's first call), moved_bytes.
"""
import statistics
import time

import copy_runs
import latency
import neighbour_runs
import result_file
from copy_runs import size_words
from result_file import us

BLOCK_LIMIT_S = 60
LINK = "the pinned link"


def moves(arm):
    return arm.proxy.request("mem")


def rates(history, size):
    """Median bytes per second of the moves of about so many bytes, away and back."""
    out = {}
    for where, name in (("host", "away_bytes_per_s"), ("gpu", "back_bytes_per_s")):
        found = [m["bytes"] / m["ms"] * 1e3 for m in history
                 if m["to"] == where and m["bytes"] >= size // 2 and m["ms"] > 0]
        if found:
            out[name] = statistics.median(found)
    return out


class Evictions:
    def __init__(self, runner, size, turns):
        self.runner, self.size, self.turns = runner, size, turns

    def tube_arms(self):
        return [arm for arm in self.runner.arms.arms.values() if hasattr(arm, "proxy")]

    def fresh(self, arm, count, limit):
        """Programs with a workflow that may hold so much."""
        runner = self.runner
        for worker in runner.clients.pop(arm.name, []):
            worker.process.stdin.close()
            worker.process.wait(30)
        while moves(arm)["functions"]:
            time.sleep(0.01)
        arm.proxy.request("limit", memory_bytes=limit)
        runner.clients[arm.name] = runner.start(arm, count, runner.barrier(arm.name))
        return runner.clients[arm.name]

    def turn(self, worker, size, blocks):
        """(the stall in ns, what was wrong)."""
        found, _, wrong, _ = copy_runs.measure([(worker, f"turn {size} {blocks}")], [])
        return found[0]["latency_ns"][0], wrong

    def in_circle(self, arm, workers, size, blocks, turns):
        stalls, wrong = [], []
        for number in range(turns):
            for worker in workers:
                stall, bad = self.turn(worker, size, blocks)
                wrong += bad
                if number:  # the first one makes the memory, and host memory for it
                    stalls.append(stall)
        return stalls, wrong

    def of_link(self, arm, rates_now):
        """The slower way, as a part of what the link carries alone."""
        link = {row["name"].split()[0]: row["arms"].get(arm.name, {}).get("bytes_per_s")
                for row in self.runner.result["rows"] if row["group"] == LINK}
        parts = [rates_now[key] / link[way] for key, way in (("away_bytes_per_s", "down"),
                                                             ("back_bytes_per_s", "up"))
                 if key in rates_now and link.get(way)]
        return {"of_link": min(parts)} if len(parts) == 2 else {}

    def values(self, arm, stalls, size):
        status = moves(arm)
        out = latency.summary(stalls)
        now = rates(status["moves"], size)
        out.update(stalls_ns=stalls, moved_bytes=status["evicted"]["evicted_bytes"], **now,
                   **self.of_link(arm, now))
        return out

    def moved(self, arm):
        return [] if moves(arm)["evicted"]["evicted_bytes"] else ["no memory moved"]

    def row(self, group, name, once):
        """once(arm) -> (values, wrong) in every Tube arm."""
        found, wrong = {}, []
        for arm in self.tube_arms():
            found[arm.name], bad = once(arm)
            wrong += [f"{arm.name}: {words}" for words in bad]
        self.runner.add_row(group, name, found, wrong)

    def two_take_turns(self, blocks):
        """Each holds 70% of what the workflow may have."""
        size = self.size // blocks * blocks

        def once(arm):
            workers = self.fresh(arm, 2, self.size * 10 // 7 + self.size // 8)
            stalls, wrong = self.in_circle(arm, workers, size, blocks, self.turns)
            return self.values(arm, stalls, size), wrong + self.moved(arm)

        self.row("two functions of 70%", f"{size_words(size)} in {blocks}", once)

    def circle(self, blocks):
        """Twice the memory: four functions of half of it."""
        def once(arm):
            workers = self.fresh(arm, 4, 2 * self.size + self.size // 8)
            stalls, wrong = self.in_circle(arm, workers, self.size, blocks, self.turns)
            return self.values(arm, stalls, self.size), wrong + self.moved(arm)

        self.row("four functions of 50%", f"{size_words(self.size)} in {blocks}", once)

    def beside_a_neighbour(self, turns):
        """Steps of short kernels every 10 ms, alone and while the others take turns."""
        tiny = self.runner.options.tiny
        shape = neighbour_runs.TINY if tiny else neighbour_runs.WHOLE
        run_ms = 100 if tiny else 1500
        alone_ns = {}
        for name, busy in (("alone", False), ("while they take turns", True)):
            def once(arm, busy=busy):
                workers = self.fresh(arm, 3, self.size * 10 // 7 + self.size // 8)
                light, *others = workers
                stalls, wrong = self.in_circle(arm, others, self.size, 4, 2)
                words = (f"steps {shape.step} {shape.light[0]} {shape.light[1]} "
                         f"{shape.period_us} {run_ms} 0")
                deadline = time.monotonic() + BLOCK_LIMIT_S
                before = moves(arm)["evicted"]["evicted_bytes"]
                copy_runs.prepare([(light, words)], deadline)
                light.send("go")
                end = time.monotonic() + run_ms / 1e3
                while busy and time.monotonic() < end:
                    _, bad = self.in_circle(arm, others, self.size, 4, 1)
                    wrong += bad
                block = light.expect("block", deadline)
                light.send("verify")
                wrong += [w for w in [light.expect("verified", deadline)["wrong"]] if w]
                out = latency.summary(block["latency_ns"])
                out["moved_bytes"] = moves(arm)["evicted"]["evicted_bytes"] - before
                if not busy:
                    alone_ns[arm.name] = out["p99_ns"]
                elif arm.name in alone_ns:
                    out["p99_over_alone"] = out["p99_ns"] / alone_ns[arm.name]
                return out, wrong

            self.row("a neighbour's steps", name, once)


def gigabytes(values, key):
    return f"{values[key] / 1e9:.1f}" if key in values else "-"


def text(result):
    arms = list(result["arms"])
    table = [["", *[f"{a} {what}" for what in ("p50 us", "p99 us", "away GB/s", "back GB/s")
                    for a in arms]]]
    for row in result["rows"]:
        values = [row["arms"].get(a) or {} for a in arms]
        table.append([f"{row['group']}: {row['name']}", *[us(v, "p50_ns") for v in values],
                      *[us(v, "p99_ns") for v in values],
                      *[gigabytes(v, "away_bytes_per_s" if "away_bytes_per_s" in v else
                                  "bytes_per_s") for v in values],
                      *[gigabytes(v, "back_bytes_per_s") for v in values]])
    lines = [
        *result_file.head(result),
        "Stalls are what a turn's first call waits for; away and back: how fast the proxy moves a",
        "function's memory; of the pinned link, the copy's own rate.", "",
        *result_file.layout_table(table), ""
    ]
    return "\n".join(lines + result_file.tail(result)) + "\n"
