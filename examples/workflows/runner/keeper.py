"""Ends and removes what a runner leaves behind that was killed. Reads lines until its input ends:

    pid NUMBER   a process to end (SIGTERM, then SIGKILL)
    folder PATH  a folder to remove
    calm         the runner has ended everything itself

It runs in a session of its own, so that a signal to the runner's does not end it first. A pid is
remembered with its start time: one that was given anew to another process is left alone. Standard
library only.
"""
import os
import pathlib
import shutil
import signal
import sys
import time

PATIENCE_S = 3


def started(pid):
    """Start time of a living process; None when there is none."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def living(processes):
    return [pid for pid, begin in processes if begin is not None and started(pid) == begin]


def end(processes):
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in living(processes):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + PATIENCE_S
        while living(processes) and time.monotonic() < deadline:
            time.sleep(0.02)


def main():
    told = {"pid": [], "folder": [], "calm": []}
    for line in sys.stdin:
        kind, _, value = line.rstrip("\n").partition(" ")
        told[kind].append(value)
        if kind == "pid":
            told["pid"][-1] = (int(value), started(int(value)))
    if not told["calm"]:
        end(told["pid"])
        for folder in told["folder"]:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
