"""`meson install` into an empty folder is complete: what is there can run a program.

install.py BUILD CLIENT: installs below a temporary folder, as a package does, and runs
tests/e2e/errors/client.py through it on the simulated GPU.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

build, client = sys.argv[1:]
WANTED = ["bin/tubectl", "bin/tubed", "lib/tube/hook/libcuda.so.1", "lib/tube/hook/libcuda.so",
          "lib/tube/sim/libcuda.so.1", "share/bash-completion/completions/tubectl",
          "share/zsh/site-functions/_tubectl", "share/doc/tube/LICENSE"]
with tempfile.TemporaryDirectory(prefix="tube-install-") as folder:
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder],
                   check=True, stdout=subprocess.DEVNULL)
    tubectl = next(pathlib.Path(folder).rglob("bin/tubectl"))
    prefix = tubectl.parent.parent
    missing = [name for name in WANTED if not (prefix / name).exists()]
    missing += [] if list(prefix.rglob("libtube.so.1")) else ["libtube.so.1"]
    if list(pathlib.Path(build, "tools/man").glob("*.1")):  # where scdoc is
        missing += [page for page in ("tubectl.1", "tubed.8", "tube.7") if not list(prefix.rglob(page))]
    if missing:
        sys.exit("not installed: " + ", ".join(missing))
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("TUBE_") and name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env["TUBE_DIR"] = folder + "/run"
    try:
        done = subprocess.run([tubectl, "run", "--backend", "sim", "--", sys.executable, client, "init",
                               "alloc:1024", "sync"], env=env, capture_output=True, text=True,
                              check=False)
    finally:
        subprocess.run([tubectl, "proxy", "stop", "--all"], env=env, check=True,
                       stdout=subprocess.DEVNULL)
    if done.stdout != "init 0\nalloc:1024 0\nsync 0\n":
        sys.exit(f"what was installed does not run a program: {done.returncode}\n{done.stdout}{done.stderr}")
print("complete")
