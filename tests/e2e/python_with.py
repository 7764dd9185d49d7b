"""The Python that has the pinned packages (TUBE_PYTHON, or the build folder's venv)."""
import importlib.util
import os
import pathlib
import sys

from tubetest import ROOT, SKIP


def with_packages(build=None):
    """Path of that Python; this one where there is no such."""
    build = pathlib.Path(build or os.environ.get("TUBE_BUILD") or ROOT / "build")
    local = build / "venv/bin/python"
    return os.environ.get("TUBE_PYTHON") or (str(local) if local.exists() else sys.executable)


def run_again(module, build=None):
    """Runs this program again under it when this Python lacks a module; the program ends with 77
    when that one lacks it, too."""
    if importlib.util.find_spec(module):
        return
    python = with_packages(build)
    if os.environ.get("TUBE_RUN_AGAIN") or not os.path.exists(python) or python == sys.executable:
        print(f"SKIPPED: {module} is not installed in {python}")
        sys.exit(SKIP)
    os.execve(python, [python, *sys.argv], dict(os.environ, TUBE_RUN_AGAIN="1"))
