"""NVIDIA's MPS with a pipe folder of its own: nobody else's programs join it, and it is gone when
the bench is.

The control process runs in the foreground under us, in a process group of its own, and ends when
its parent dies; a server that it started is ended by `quit`, then by signals. Compute mode and
other settings of the GPU stay as they are.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/bin", "/run/nvidia/driver/usr/bin")
PR_SET_PDEATHSIG = 1
PATIENCE_S = 5  # for an end that was asked for, before the next stronger way


class MpsError(Exception):
    pass


def find_control():
    """Path of nvidia-cuda-mps-control, or None."""
    found = shutil.which("nvidia-cuda-mps-control")
    candidates = [found] if found else [
        os.path.join(folder, "nvidia-cuda-mps-control") for folder in FOLDERS
    ]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def running(pid):
    """Whether the process lives (a zombie does not)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


class Mps:
    """Use as a context manager: running when entered, gone when left."""

    def __init__(self, base_env, driver):
        self.binary = find_control()
        if self.binary is None:
            raise MpsError("nvidia-cuda-mps-control not found")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-mps-", dir="/tmp"))
        (self.folder / "log").mkdir()
        folders = [str(driver.parent), *base_env.get("LD_LIBRARY_PATH", "").split(":")]
        self.env = dict(base_env, CUDA_MPS_PIPE_DIRECTORY=str(self.folder),
                        CUDA_MPS_LOG_DIRECTORY=str(self.folder / "log"),
                        PATH=os.path.dirname(self.binary) + ":" + os.environ.get("PATH", ""),
                        LD_LIBRARY_PATH=":".join(f for f in folders if f))
        self.process, self.servers_seen = None, set()

    def client_env(self):
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")
        }

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        with open(self.folder / "control.out", "wb") as out:
            self.process = subprocess.Popen([self.binary, "-f"], env=self.env,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            start_new_session=True, preexec_fn=die_with_parent)
        deadline = time.monotonic() + 20
        while True:
            answer = self.ask("get_default_active_thread_percentage")
            if answer is not None:
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise MpsError(f"the control process does not answer:\n{self.log_tail()}")
            time.sleep(0.05)

    def ask(self, command, timeout_s=10):
        """The control process's answer, or None when there is none."""
        try:
            done = subprocess.run([self.binary], env=self.env, input=command + "\n",
                                  capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        said = (done.stdout + done.stderr).strip()
        return None if done.returncode != 0 or "Cannot find MPS" in said or "cannot connect" in said.lower(
        ) else said

    def servers(self):
        pids = {int(word) for word in (self.ask("get_server_list") or "").split() if word.isdigit()}
        self.servers_seen |= pids
        return sorted(pids)

    def require_clients(self, count):
        """Ends in MpsError unless so many processes are clients now: otherwise an arm would be
        called MPS that is not."""
        known = []
        for server in self.servers():
            words = (self.ask(f"get_client_list {server}") or "").split()
            known += [int(word) for word in words if word.isdigit()]
        if len(set(known)) < count:
            raise MpsError(
                f"{count} programs started under MPS, its clients are {known or 'none'}\n{self.log_tail()}"
            )

    def log_tail(self, lines=12):
        texts = []
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.suffix in (".log", ".out"):
                texts += [
                    f"{path.name}: {line}"
                    for line in path.read_text(errors="replace").splitlines()[-lines:]
                ]
        return "\n".join(texts)

    def __exit__(self, *_):
        if self.process is not None:
            self.servers()
            self.ask("quit -t 3", timeout_s=15)
            self.end(self.process.pid)
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            self.process.wait()
            for pid in self.servers_seen:
                self.end(pid)
            self.process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self, pid):
        """SIGTERM, a moment, SIGKILL; one of our own processes, named by its number."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None and running(pid):
                os.kill(pid, number)
            deadline = time.monotonic() + PATIENCE_S
            while running(pid) and time.monotonic() < deadline:
                if self.process is not None and pid == self.process.pid:
                    self.process.poll()
                time.sleep(0.02)
            if not running(pid):
                return
