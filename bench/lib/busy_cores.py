"""A job on every core of this process's that never sleeps: `batch`, of the lowest priority
(SCHED_IDLE), as on a node that gives its spare time away, which any other thread takes the core
from at once unless it offers it; or `normal`, of everybody's priority."""
import contextlib
import os
import sys

from beside import Beside

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
def running(kind, folder):
    """While the block runs; nothing for ''. What they say of errors comes into `folder`."""
    cpus = sorted(os.sched_getaffinity(0)) if kind else ()
    jobs = Beside([[sys.executable, "-c", JOB, kind, str(cpu)] for cpu in cpus], dict(os.environ),
                  folder)
    try:
        yield
    finally:
        jobs.end()
