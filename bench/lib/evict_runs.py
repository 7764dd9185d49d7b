"""Functions that hold more GPU memory together than their workflow may, in turns.

Rows have further, in each arm that is Tube: away_bytes_per_s and back_bytes_per_s (as the proxy
moved memory of these programs, the median of its moves of half of what a turn brings, or more),
of_link (the slower of the two, against what the pinned link carries that way in the same arm),
of_one_link (the same against what it carries natively, which is one link's, in runs on two GPUs),
of_both (the same against half of what it carries in both directions at once),
overlap (the part of the ways back during which somebody else's memory was on its way out),
stalls_ns (of each turn's first call), first_turn_ns (of the first turn in which memory moved, which
makes host memory; p50_ns and the like are of those behind it; of four functions, behind the round
from which the order of turns is learnt),
moved_bytes, host_ms (until the host memory that is made ahead was there; nothing: it was not waited
for), made_on_request_bytes (host memory that a move had to wait for) and what the proxy registered
meanwhile (registered.py).
"""
import statistics
import time

import copy_runs
import latency
import neighbour_runs
import registered
import result_file
from copy_runs import size_words
from result_file import us

BLOCK_LIMIT_S = 60
SETTLE_S = 5  # for host memory of which the machine has too little
LOOKS_S = 0.3  # for three looks of the proxy's at what host memory is wanted
LINK = "the pinned link"
ALONE = "one function leaves and comes back"
PAIR = "two functions of 70%"
TWO_LINKS = "two links: "  # before the groups of a run on two GPUs
ONE_LINK = "tube:TUBE_COPY_PATHS=1"  # its arm without the other GPU's link
WAYS = ("down", "up", "both")


def moves(arm):
    return arm.proxy.request("mem")


def rates(history):
    """Median bytes per second of the larger moves, away and back."""
    out = {}
    for where, name in (("host", "away_bytes_per_s"), ("gpu", "back_bytes_per_s")):
        moves_there = [m for m in history if m["to"] == where and m["ms"] > 0]
        least = max([m["bytes"] for m in moves_there], default=0) // 2
        found = [m["bytes"] / m["ms"] * 1e3 for m in moves_there if m["bytes"] >= least]
        if found:
            out[name] = statistics.median(found)
    return out


def overlap(history):
    """The part of all time on the way back in which memory also left; None: nothing came back."""
    def times(where):
        return [(-m["ago_s"] - m["ms"] / 1e3, -m["ago_s"]) for m in history if m["to"] == where]

    out, back = sorted(times("host")), times("gpu")
    whole = sum(end - begin for begin, end in back)
    both = 0.0
    for begin, end in back:
        at = begin
        for left, gone in out:
            at = max(at, left)
            both += max(0.0, min(end, gone) - at)
            at = max(at, min(end, gone))
    return both / whole if whole > 0 else None


class Evictions:
    def __init__(self, runner, size, turns, kind=""):
        """`kind`: before the names of all groups."""
        self.runner, self.size, self.turns, self.kind = runner, size, turns, kind

    def links(self, samples):
        """What the pinned link carries, each way and both."""
        for way in WAYS:
            self.runner.row(self.kind + LINK, f"{way} {size_words(self.size)}",
                            f"copy {way} pinned {self.size} {samples}", samples)

    def tube_arms(self):
        return [arm for arm in self.runner.arms.arms.values() if hasattr(arm, "proxy")]

    def fresh(self, arm, count, limit):
        """Programs with a workflow that may hold so much."""
        runner = self.runner
        for worker in runner.clients.pop(arm.name, []):
            worker.end()
        while moves(arm)["functions"]:
            time.sleep(0.01)
        arm.proxy.request("limit", memory_bytes=limit)
        runner.clients[arm.name] = runner.start(arm, count, runner.barrier(arm.name))
        return runner.clients[arm.name]

    def turn(self, worker, size, blocks):
        """(the stall in ns, what was wrong)."""
        found, _, wrong, _ = copy_runs.measure([(worker, f"turn {size} {blocks}")], [])
        return found[0]["latency_ns"][0], wrong

    def settle(self, arm):
        """Until the host memory that the proxy makes ahead is there, and stays so for LOOKS_S: ms."""
        begin = there = time.monotonic()
        looks_s = 0 if self.runner.options.tiny else LOOKS_S
        while time.monotonic() - begin < BLOCK_LIMIT_S:
            evicted, now = moves(arm)["evicted"], time.monotonic()
            done = evicted.get("settled", True) and (
                evicted.get("wanted_bytes", 0) <= evicted["pinned_bytes"]
                or now - begin > SETTLE_S)
            if not done:
                there = now
            elif now - there >= looks_s:
                break
            time.sleep(0.01)
        return (there - begin) * 1e3

    def in_circle(self, arm, workers, size, blocks, turns, settled=None):
        """`settled`: a list for how long host memory was waited for behind the first round."""
        stalls, wrong = [], []
        for number in range(turns):
            if number == 1 and settled is not None:
                settled.append(self.settle(arm))
            for worker in workers:
                stall, bad = self.turn(worker, size, blocks)
                wrong += bad
                if number:  # the first one makes the memory
                    stalls.append(stall)
        return stalls, wrong

    def of_link(self, arm, rates_now):
        """The slower way, as a part of what the link carries alone, and with both ways at once."""
        ways = {"down": rates_now.get("away_bytes_per_s"), "up": rates_now.get("back_bytes_per_s")}
        if None in ways.values():
            return {}
        found = {}
        link, native = self.link_rates(arm.name), self.link_rates("native")
        if all(link.get(way) for way in WAYS):
            found = {"of_link": min(ways[way] / link[way] for way in ways),
                     "of_both": min(ways.values()) / (link["both"] / 2)}
        if self.kind == TWO_LINKS and all(native.get(way) for way in ways):
            found["of_one_link"] = min(ways[way] / native[way] for way in ways)
        return found

    def link_rates(self, arm):
        return {row["name"].split()[0]: row["arms"].get(arm, {}).get("bytes_per_s")
                for row in self.runner.result["rows"] if row["group"] == self.kind + LINK}

    def begin(self, arm):
        """What values() takes off."""
        return moves(arm)["evicted"], registered.counts(arm)

    def values(self, arm, stalls, workers, before, left_out=1):
        """`left_out`: of the turns, the first ones that p50 and the like do not count."""
        status = moves(arm)
        pids = {worker.process.pid for worker in workers}
        history = [move for move in status["moves"] if move["pid"] in pids]
        evicted, counts = before
        out = latency.summary(stalls[left_out:] or stalls)
        now = rates(history)
        both = overlap(history)
        if both is not None:
            now["overlap"] = both
        for key in ("evicted_bytes", "made_on_request_bytes"):
            name = {"evicted_bytes": "moved_bytes"}.get(key, key)
            now[name] = status["evicted"].get(key, 0) - evicted.get(key, 0)
        out.update(stalls_ns=stalls, first_turn_ns=stalls[0], **now, **self.of_link(arm, now),
                   **registered.since(counts, registered.counts(arm)))
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

    def one_leaves(self, blocks):
        """Its memory leaves for a function that allocates as much, and comes back when that one has
        ended: each way alone on the link."""
        size = self.size // blocks * blocks

        def once(arm):
            first = self.fresh(arm, 1, size + self.size // 8)[0]
            _, wrong = self.turn(first, size, blocks)
            before, stalls = self.begin(arm), []
            for number in range(self.turns):
                other = self.runner.start(arm, 1, {})[0]
                _, bad = self.turn(other, size, blocks)
                wrong += bad
                other.end()
                if number == 0:
                    self.settle(arm)
                stall, bad = self.turn(first, size, blocks)
                wrong += bad
                stalls.append(stall)
            return self.values(arm, stalls, [first], before), wrong + self.moved(arm)

        self.row(self.kind + ALONE, f"{size_words(size)} in {blocks}", once)

    def two_take_turns(self, blocks):
        """Each holds 70% of what the workflow may have."""
        size = self.size // blocks * blocks

        def once(arm):
            workers = self.fresh(arm, 2, self.size * 10 // 7 + self.size // 8)
            before, settled = self.begin(arm), []
            stalls, wrong = self.in_circle(arm, workers, size, blocks, self.turns, settled)
            values = self.values(arm, stalls, workers, before)
            values["host_ms"] = settled[0] if settled else 0
            return values, wrong + self.moved(arm)

        self.row(self.kind + PAIR, f"{size_words(size)} in {blocks}", once)

    def circle(self, blocks):
        """Twice the memory: four functions of half of it, when host memory for them has been made."""
        def once(arm):
            workers = self.fresh(arm, 4, 2 * self.size + self.size // 8)
            before = self.begin(arm)
            stalls, wrong = self.in_circle(arm, workers, self.size, blocks, self.turns, [])
            return (self.values(arm, stalls, workers, before, len(workers)),
                    wrong + self.moved(arm))

        self.row("four functions of 50%", f"{size_words(self.size)} in {blocks}", once)

    def beside_a_neighbour(self, turns):
        """Steps of short kernels every 10 ms, alone and while the others take turns."""
        tiny = self.runner.options.tiny
        shape = neighbour_runs.TINY if tiny else neighbour_runs.WHOLE
        run_ms, lead_ms = (100, 20) if tiny else (1500, 150)  # the first steps are learnt from
        alone_ns = {}
        for name, busy in (("alone", False), ("while they take turns", True)):
            def once(arm, busy=busy):
                workers = self.fresh(arm, 3, self.size * 10 // 7 + self.size // 8)
                light, *others = workers
                stalls, wrong = self.in_circle(arm, others, self.size, 4, 2)
                words = (f"steps {shape.step} {shape.light[0]} {shape.light[1]} "
                         f"{shape.period_us} {run_ms} {lead_ms}")
                deadline = time.monotonic() + BLOCK_LIMIT_S
                before = moves(arm)["evicted"]["evicted_bytes"]
                copy_runs.prepare([(light, words)], deadline)
                light.send("go")
                end = time.monotonic() + (lead_ms + run_ms) / 1e3
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
    columns = ("p50 us", "p99 us", "away GB/s", "back GB/s", "of one link", "of both", "overlap",
               "first turn us", "registering ms")
    table = [["", *[f"{a} {what}" for what in columns for a in arms]]]
    for row in result["rows"]:
        values = [row["arms"].get(a) or {} for a in arms]
        table.append([f"{row['group']}: {row['name']}", *[us(v, "p50_ns") for v in values],
                      *[us(v, "p99_ns") for v in values],
                      *[gigabytes(v, "away_bytes_per_s" if "away_bytes_per_s" in v else
                                  "bytes_per_s") for v in values],
                      *[gigabytes(v, "back_bytes_per_s") for v in values],
                      *[f"{v['of_one_link']:.2f}" if "of_one_link" in v else "-" for v in values],
                      *[f"{v['of_both']:.2f}" if "of_both" in v else "-" for v in values],
                      *[f"{v['overlap']:.2f}" if "overlap" in v else "-" for v in values],
                      *[us(v, "first_turn_ns") for v in values],
                      *[f"{v['registered_longest_ms']:.2f}" if "registered_longest_ms" in v else "-"
                        for v in values]])
    lines = [
        *result_file.head(result),
        "Stalls are what a turn's first call waits for; the first turn, which makes host memory, has a",
        "column of its own. Away and back: how fast the proxy moves a function's memory; of the pinned",
        "link, the copy's own rate; of one link: the slower way against the link natively, in runs on",
        "two GPUs; of both: the same against half of what the link carries in both directions at once.",
        "Overlap: the part of the ways back in which others' memory left; registering: the longest",
        "piece so far.", "",
        *result_file.layout_table(table), ""
    ]
    return "\n".join(lines + result_file.tail(result)) + "\n"
