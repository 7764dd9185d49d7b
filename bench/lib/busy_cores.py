"""A job on every core of this process's that never sleeps: `batch`, of the lowest priority
(SCHED_IDLE), as on a node that gives its spare time away, which any other thread takes the core
from at once unless it offers it; or `normal`, of everybody's priority."""
import contextlib
import os
import subprocess
import sys

KINDS = ("batch", "normal")
JOB = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[2])})
if sys.argv[1] == "batch":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:
    for _ in range(100000):
        pass
"""


@contextlib.contextmanager
def running(kind):
    """While the block runs; nothing for ''."""
    jobs = []
    try:
        for cpu in sorted(os.sched_getaffinity(0)) if kind else ():
            jobs.append(subprocess.Popen([sys.executable, "-c", JOB, kind, str(cpu)],
                                         stdout=subprocess.PIPE))
        for job in jobs:
            if not job.stdout.readline():
                raise RuntimeError(f"a {kind} job did not begin")
        yield
    finally:
        for job in jobs:
            job.kill()
        for job in jobs:
            job.wait()
            job.stdout.close()
