"""An MPS daemon of one's own: pipe and log folder apart from the machine's, compute mode untouched,
ended with the context."""
import os
import pathlib
import shutil
import subprocess
import tempfile

FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin", "/usr/local/bin")


def find_control():
    for folder in [*os.environ.get("PATH", "").split(":"), *FOLDERS]:
        path = pathlib.Path(folder) / "nvidia-cuda-mps-control"
        if folder and path.exists():
            return path
    return None


class Mps:
    """`env` is what a client needs. Entering starts the daemon; its server comes with the first
    client."""

    def __init__(self, control):
        self.control = control
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tube-mps-"))
        self.env = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")
        }
        self.started = False

    def __enter__(self):
        for path in self.env.values():
            os.makedirs(path, exist_ok=True)
        out = subprocess.run([str(self.control), "-d"], env=dict(os.environ, **self.env),
                             capture_output=True, text=True, timeout=30)
        self.started = out.returncode == 0
        if not self.started:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise RuntimeError(f"MPS does not start: {out.stdout}{out.stderr}")
        return self

    def __exit__(self, *_):
        if self.started:
            try:
                subprocess.run([str(self.control)], env=dict(os.environ, **self.env),
                               input="quit\n", text=True, capture_output=True, timeout=60)
            except subprocess.TimeoutExpired:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)
