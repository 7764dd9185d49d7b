"""Processes that run beside what is measured."""
import contextlib
import os
import pathlib
import select
import signal
import subprocess
import time

from arms import WorkerError

BEGIN_S = 60


def cpu_ns(pid):
    """CPU time of a process, of its threads and children that have ended too; 0 when it is gone."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
    return 0


class Beside:
    """Processes that run beside something: begun when the object is made, ended by end()."""

    def __init__(self, commands, env, folder, stopped=False):
        self.processes = []
        try:
            for command in commands:
                with open(folder / "beside.txt", "ab") as errors:
                    self.processes.append(subprocess.Popen(
                        command, env=env, cwd=folder, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=errors))
            deadline = time.monotonic() + BEGIN_S
            for process in self.processes:
                self.await_line(process, deadline)
                if stopped:
                    process.send_signal(signal.SIGSTOP)
        except BaseException:
            self.end()
            raise

    def await_line(self, process, deadline):
        left = max(0, deadline - time.monotonic())
        if not select.select([process.stdout], [], [], left)[0] or not process.stdout.readline():
            raise WorkerError(f"{' '.join(process.args)} did not begin")

    def cpu_ns(self):
        return sum(cpu_ns(process.pid) for process in self.processes)

    def ended(self):
        """In words, those that have ended by themselves."""
        return [f"{pathlib.Path(p.args[0]).name} {p.args[1]} ended with {p.returncode}"
                for p in self.processes if p.poll() is not None]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
