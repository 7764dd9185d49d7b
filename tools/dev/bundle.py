"""Lays out the bundle: one relocatable folder with everything a GPU node needs, and checks what it
depends on.

Layout: bin/{tubectl,tubed}, lib/tube/{hook,sim}/libcuda.so.1 (+ libcuda.so),
lib/tube/hook/libnvidia-ml.so.1, lib/tube/libtube.so.1,
python/tube, share/ (completion files, manual pages), and tests/gpu, tests/programs, tests/e2e,
bench, examples laid out as in the checkout, their built programs beside their scripts. Every ELF file in it is read with objdump: it
may need glibc up to 2.35, the libraries listed in ALLOWED, and what the bundle itself holds; the
programs of PROVIDED_FOR also NVIDIA's libraries, which the node has in its Python's wheels or its
toolkit. The whole is at most 60 MiB. Usage: bundle.py BUILD_FOLDER DESTINATION
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

GLIBC_MAX = (2, 35)
SIZE_MAX_MIB = 60
ALLOWED = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
    "libcuda.so.1"
}
PROVIDED_FOR = "tests/gpu/libraries/"
PROVIDED = re.compile(
    r"lib(cublas|cublasLt|cudnn\w*|cufft|curand|cusolver|cusparse|nvrtc|nvJitLink|nccl)\.so\.\d+$")
# Needs a library that GPU nodes do not have (a build folder without -Dbundle=true has it).
STAYS = ("bench/ring/",)
# Folders whose scripts and built programs travel together.
MIXED = ["tests/programs", "tests/conformance", "tests/gpu", "tests/e2e", "bench", "examples", "python"]
FIXED = {
    "tools/tubectl/tubectl": "bin/tubectl",
    "proxy/tubed": "bin/tubed",
    "hook/lib/libcuda.so.1": "lib/tube/hook/libcuda.so.1",
    "hook/lib/libnvidia-ml.so.1": "lib/tube/hook/libnvidia-ml.so.1",
    "sim/lib/libcuda.so.1": "lib/tube/sim/libcuda.so.1",
    "libtube/libtube.so.1": "lib/tube/libtube.so.1",
}
SKIP_SUFFIXES = (".o", ".a", ".d", ".h", ".cc", ".cu", ".build", ".pyc", ".stamp", ".log")


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def copy_fixed(build, dest):
    for source, target in FIXED.items():
        if not (build / source).exists():
            sys.exit(f"bundle: {build / source} was not built")
        (dest / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / source, dest / target)
        # The proxy keeps its symbols, for the trace of a crash.
        strip = "--strip-debug" if target == "bin/tubed" else "--strip-unneeded"
        subprocess.run(["strip", strip, dest / target], check=True)
    for part in ("hook", "sim"):
        (dest / "lib/tube" / part / "libcuda.so").symlink_to("libcuda.so.1")


def copy_unwinder(dest):
    """What tubed loads for the trace of a crash (proxy/common/crash_trace.cc), where this machine has it."""
    for name in ("libunwind.so.8", "liblzma.so.5"):
        for folder in ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"):
            if (library := pathlib.Path(folder, name)).exists():
                shutil.copy2(library.resolve(), dest / "lib/tube" / name)
                break


def copy_mixed(build, dest):
    tracked = subprocess.run(["git", "ls-files", "-z", *MIXED], capture_output=True,
                             check=True).stdout.decode().split("\0")
    wanted = [(pathlib.Path("."), pathlib.Path(p)) for p in tracked if p]
    for folder in MIXED:
        for base, dirs, files in os.walk(build / folder):
            dirs[:] = [d for d in dirs if not d.endswith(".p")]
            wanted += [(build, pathlib.Path(base, f).relative_to(build)) for f in files]
    for root, path in wanted:
        if path.suffix in SKIP_SUFFIXES or path.name == "meson.build" or "results" in path.parts or str(
                path).startswith(STAYS) or not (root / path).exists():
            continue
        target = dest / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, target)
        if is_elf(target):
            subprocess.run(["strip", "--strip-unneeded", target], check=False,
                           stderr=subprocess.DEVNULL)


def write_identity(build, dest):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True,
                            text=True).stdout.strip()
    (dest / "COMMIT").write_text(commit + "\n")
    for name in ("LICENSE", "README.md"):
        if pathlib.Path(name).exists():
            shutil.copy2(name, dest / name)
    shutil.copytree("tools/completion", dest / "share/completion", dirs_exist_ok=True)
    for page in (build / "tools/man").glob("*.[178]"):
        target = dest / "share/man" / f"man{page.suffix[1:]}" / page.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(page, target)


def check(dest):
    problems, total = [], 0
    files = [p for p in dest.rglob("*") if p.is_file() and not p.is_symlink()]
    own = {p.name for p in dest.rglob("*")}
    for path in files:
        total += path.stat().st_size
        if not is_elf(path):
            continue
        out = subprocess.run(["objdump", "-p", path], capture_output=True, text=True)
        if out.returncode != 0:
            continue  # A cubin: ELF of another machine.
        text = out.stdout
        for need in re.findall(r"NEEDED\s+(\S+)", text):
            provided = str(path.relative_to(dest)).startswith(PROVIDED_FOR) and PROVIDED.match(need)
            if need not in ALLOWED and need not in own and not provided:
                problems.append(f"{path.relative_to(dest)} needs {need}")
        for version in set(re.findall(r"GLIBC_(\d+(?:\.\d+)+)", text)):
            if tuple(int(v) for v in version.split(".")) > GLIBC_MAX:
                problems.append(f"{path.relative_to(dest)} needs GLIBC_{version}")
    if total > SIZE_MAX_MIB << 20:
        biggest = sorted(files, key=lambda p: -p.stat().st_size)[:5]
        problems.append(f"{total / (1 << 20):.1f} MiB, more than {SIZE_MAX_MIB}; biggest: " +
                        ", ".join(f"{p.relative_to(dest)} {p.stat().st_size / (1 << 20):.1f}"
                                  for p in biggest))
    return problems, total, len(files)


def main():
    build, dest = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(dest, ignore_errors=True)
    copy_fixed(build, dest)
    copy_unwinder(dest)
    copy_mixed(build, dest)
    write_identity(build, dest)
    problems, total, count = check(dest)
    for problem in problems:
        print(f"bundle: {problem}", file=sys.stderr)
    print(
        f"bundle: {dest}: {count} files, {total / (1 << 20):.1f} MiB, {'ok' if not problems else 'NOT usable'}"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
