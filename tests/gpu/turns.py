"""What arms that run blocks of steps in turns say about each other.

A machine that others use as well is slow for a second and fast for the next, by half and more, and
slower on some of its CPUs than on others, which a process that finds its CPU free keeps for
seconds. A median over all steps of an arm then says how much of the slow time, and which CPU, that
arm met. So in each round every arm's program gets the same CPUs, others in the next round; two
blocks that ran one after the other are compared, and of all these ratios the median is taken.
"""
import contextlib
import os
import statistics

FEWEST_CPUS = 8  # on fewer, a quarter leaves too little for the program


def ratio(native, other):
    """`native`, `other`: the arms' blocks of one run, each a median or any one number, in the order
    they ran. None without any."""
    pairs = [(a, b) for a, b in zip(native, other) if a]
    return statistics.median(b / a for a, b in pairs) if pairs else None


def cpus_of(number, cpus):
    """Round `number`'s quarter of `cpus`: each round begins one quarter further and, once round,
    one CPU further. None where they are few."""
    ordered = sorted(cpus)
    if len(ordered) < FEWEST_CPUS:
        return None
    size = len(ordered) // 4
    begin = number * size + number // 4
    return {ordered[(begin + i) % len(ordered)] for i in range(size)}


def move(pid, cpus):
    """All threads of a process to these CPUs; what has ended meanwhile is left alone."""
    if cpus is None:
        return
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread), cpus)
