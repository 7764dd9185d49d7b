"""A part includes only what stands to its right in docs/architecture.md; hook and proxy never
include each other."""
import pathlib
import re
import subprocess
import sys

ALLOWED = {
    "base": {"base"},
    "policies": {"policies", "base"},
    "sharedmem": {"sharedmem", "policies", "base"},
    "protocol": {"protocol", "sharedmem", "base"},
    "hook": {"hook", "protocol", "sharedmem", "base"},
    "image": {"image", "base"},
    "proxy": {"proxy", "policies", "image", "protocol", "sharedmem", "base"},
    "sim": {"sim", "image", "protocol", "base"},
    "tools": {"tools", "proxy", "policies", "image", "protocol", "sharedmem", "base"},
}
PARTS = set(ALLOWED) | {"tests", "bench", "examples"}
# policies/ decides over plain values: it has no GPU, descriptor, thread or clock of its own.
POLICY_FORBIDDEN = re.compile(
    r"<(cuda|cuda_runtime|unistd|pthread|time|poll|fcntl|sys/.*)\.h>|<(thread|mutex|chrono|atomic|fstream|iostream)>"
)
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<][^">]+[">])', re.M)


def problems(root):
    files = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                           capture_output=True, text=True, check=True).stdout.split()
    for name in files:
        part = name.split("/")[0]
        if part not in ALLOWED or not name.endswith((".h", ".cc")) or not (root / name).exists():
            continue
        for include in INCLUDE.findall((root / name).read_text()):
            target = include[1:-1].split("/")[0]
            if include[0] == '"' and target in PARTS and target not in ALLOWED[part]:
                yield f"{name} includes {include}: {part} may include {', '.join(sorted(ALLOWED[part]))}"
            if include[0] == '"' and "/" not in include:
                yield f"{name} includes {include}: paths are written from the repository's root"
            if part == "policies" and POLICY_FORBIDDEN.search(include):
                yield f"{name} includes {include}: policies have no CUDA, descriptor, thread or clock of their own"
            if include == "<cuda.h>" and name != "base/cuda_api.h":
                yield f"{name} includes <cuda.h>: include base/cuda_api.h, which shows every version under its own name"


found = list(problems(pathlib.Path(sys.argv[1])))
print("\n".join(found) or "every include goes in the allowed direction")
sys.exit(bool(found))
