"""GPU memory of many copies of one program in one arm: started in steps, each checked, then idle.

An arm is measured alone, against what the GPU had in use before the arm's servers were started, so
that the proxy's context counts for Tube and the server's for MPS. The copies of a smaller count
stay and are joined by more. After each step all copies have run, at once, and wait for input; what
is in use then counts. A proxy holds freed memory ready for ten seconds that nobody wants it: it is
waited for, as the functions are idle, and what it had come to is told apart.

Then each answers a request in turn, and at once another one: what the first costs more is what
waking up takes, where memory of idle functions leaves the GPU (figures.IDLE_AWAY) its way back as
well.

values: gpu_bytes, grow_s, first and again (latencies of these answers); in Tube's arms ready_bytes
(idle memory when the copies had just run) and parts (bytes that the proxy counts as its context's,
code's, functions' and idle ones' afterwards).
"""
import time

import figures
import latency
from arms import WorkerError
from mps import MpsError

STEPS = 4  # that all copies run at once before the GPU's memory is read
POLL_S = 0.25
ALIKE = 4  # readings in a row
SETTLE_S = 20
SLACK_BYTES = 32 << 20
IDLE_S = 15  # for memory that is held ready to go back
AT_ONCE = 8  # that start within less memory: their imports take seconds each


def settled(read, base=None):
    """Bytes in use once they stand still, and are back at `base` where one is given; the last
    reading when that does not come in time."""
    deadline, readings = time.monotonic() + SETTLE_S, []
    while True:
        readings.append(read())
        still = len(readings) >= ALIKE and len(set(readings[-ALIKE:])) == 1
        back = base is None or readings[-1] is None or readings[-1] <= base + SLACK_BYTES
        if (still and back) or time.monotonic() > deadline:
            return readings[-1]
        time.sleep(POLL_S)


def grow(arm, workers, command, count, deadline, environment):
    """Starts what is missing to `count` copies, all at once; all have run when it returns."""
    new = [arm.spawn(command, environment) for _ in range(count - len(workers))]
    workers += new
    for worker in new:
        worker.ready(deadline)
    arm.confirm(count)
    for worker in workers:
        worker.send(f"run {STEPS}")
    for worker in workers:
        worker.expect("block", deadline)


def of_functions(mem):
    """Of what `tubectl mem --json` says, on all GPUs: bytes behind allocations, and idle."""
    places = [place for function in mem["functions"] for place in function["gpus"]]
    return {"functions": sum(place["backed_bytes"] for place in places),
            "idle": sum(place["pool_bytes"] for place in places)}


def parts_of(mem):
    """The same with the context's bytes and the code's."""
    return {"context": sum(gpu["context_bytes"] or 0 for gpu in mem["gpus"]),
            "code": sum(gpu["code_bytes"] for gpu in mem["gpus"]), **of_functions(mem)}


def idle(arm):
    """Waits until a Tube arm's proxy holds no memory ready any more, and functions hold none on the
    GPU where it leaves when they are idle, IDLE_S at most; what a row has of it."""
    if not hasattr(arm, "proxy"):
        return {}
    deadline, ready = time.monotonic() + IDLE_S, None
    while True:
        parts = parts_of(arm.proxy.request("mem"))
        ready = parts["idle"] if ready is None else ready
        there = parts["idle"] + (parts["functions"] if arm.name == figures.IDLE_AWAY else 0)
        if not there or time.monotonic() > deadline:
            return {"ready_bytes": ready, "parts": parts}
        time.sleep(POLL_S)


def answers(workers, deadline):
    """Latencies of a first request to each, one after the other, and of another one behind it."""
    times = [(worker.run(1, deadline)[0], worker.run(1, deadline)[0]) for worker in workers]
    return {name: latency.summary(list(mine)) for name, mine in zip(("first", "again"), zip(*times))}


def measure(arm, base, read, command, counts, limit_s, environment=None):
    """[values per count that was reached], [output hashes of each copy], [what went wrong]."""
    values, wrong, workers, hashes = {}, [], [], []
    deadline = time.monotonic() + limit_s
    try:
        for count in counts:
            begin = time.monotonic()
            grow(arm, workers, command, count, deadline, environment)
            seconds = time.monotonic() - begin
            held = idle(arm)
            values[count] = {"gpu_bytes": settled(read) - base, "grow_s": round(seconds, 1), **held}
            values[count].update(answers(workers, deadline))
        hashes = [worker.finish(deadline) for worker in workers]
    except (WorkerError, MpsError) as error:
        tails = " | ".join(f"{w.name}: {w.stderr_tail(2)}" for w in workers
                           if w.process.poll() not in (None, 0))
        wrong.append(f"{arm.name}, {len(workers)} copies: {error} {tails[:2000]}")
    return values, hashes, wrong


def in_turn(arm, command, count, limit_bytes, rounds, limit_s, environment=None):
    """`count` copies in a workflow that may hold so much GPU memory, less than they want: each
    answers a request when its turn comes. (values, [output hashes of each copy], [what went
    wrong])."""
    arm.proxy.request("limit", memory_bytes=limit_bytes)
    workers, wrong, hashes, times = [], [], [], []
    deadline = time.monotonic() + limit_s
    try:
        for first in range(0, count, AT_ONCE):  # they may have to send others' memory away
            workers += [arm.spawn(command, environment) for _ in range(min(AT_ONCE, count - first))]
            for worker in workers[first:]:
                worker.ready(deadline)
        arm.confirm(count)
        for _ in range(rounds):
            for worker in workers:
                begin = time.monotonic_ns()
                worker.run(1, deadline)
                times.append(time.monotonic_ns() - begin)
        hashes = [worker.finish(deadline) for worker in workers]
    except WorkerError as error:
        wrong.append(f"{arm.name}, {len(workers)} of {count} copies within {limit_bytes} bytes: {error}")
    values = latency.summary(times) if times else {}
    values["answered"] = len(times) / (count * rounds)
    return values, hashes, wrong


def differing(hashes, want):
    """Which copies' outputs are not `want`'s bytes, in words; [] when all are."""
    if not want:
        return ["no outputs"]
    return [
        f"copy {number}: {name} differs" for number, mine in enumerate(hashes, 1)
        for name in sorted(set(mine) | set(want)) if mine.get(name) != want.get(name)
    ]


def rows(group, counts, values):
    """values: arm -> count -> what was measured; the rows of a result file."""
    return [{
        "group": group,
        "name": str(count),
        "arms": {
            arm: mine[count] for arm, mine in values.items() if count in mine
        },
        "wrong": []
    } for count in counts]
