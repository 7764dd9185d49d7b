"""Each header compiles when it is included first: headers.py ROOT BUILD COMPILER INCLUDE_FLAG..."""
import concurrent.futures
import pathlib
import subprocess
import sys

PARTS = ("base", "sharedmem", "protocol", "hook", "policies", "proxy", "sim", "tools")
root, build, compiler, flags = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]


def compile_alone(name):
    command = [
        compiler, "-std=c++20", "-fsyntax-only", "-D_GNU_SOURCE", "-DFMT_HEADER_ONLY=1",
        '-DTUBE_VERSION="0"', f"-I{root}", f"-I{build}", *flags, "-x", "c++", "-"
    ]
    # Twice, so that a missing include guard shows too.
    text = f'#include "{name}"\n#include "{name}"\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    return f"{name}: {errors[0] if errors else done.stderr[:200]}" if done.returncode else None


names = subprocess.run(["git", "-C", root, "ls-files", *[f"{p}/*.h" for p in PARTS]],
                       capture_output=True, text=True, check=True).stdout.split()
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    found = [p for p in pool.map(compile_alone, names) if p]
print("\n".join(found) or f"{len(names)} headers compile alone")
sys.exit(bool(found))
