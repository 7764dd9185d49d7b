"""A part includes only what stands to its right in docs/architecture.md; hook and proxy never
include each other. Inside a part a room includes its own files and those of rooms before it. No
folder of sources holds more than 45 files."""
import collections
import pathlib
import re
import subprocess
import sys

ALLOWED = {
    "base": {"base"},
    "policies": {"policies", "base"},
    "sharedmem": {"sharedmem", "policies", "base"},
    "protocol": {"protocol", "sharedmem", "base"},
    "nvml": {"nvml", "base"},
    "hook": {"hook", "protocol", "sharedmem", "policies", "base"},
    "image": {"image", "base"},
    "proxy": {"proxy", "policies", "image", "protocol", "sharedmem", "base"},
    "libtube": {"libtube", "protocol", "base"},
    "sim": {"sim", "image", "protocol", "base"},
    "tools": {"tools", "proxy", "policies", "image", "protocol", "sharedmem", "base"},
}
# Files that a part may include besides: a machine's description is no simulated GPU.
ALSO = {"tools": {'"sim/machine/topology.h"'}}
# The rooms of a part, lowest first. Files that stand in none (main.cc) may include all of them.
ROOMS = {
    "proxy": ["common", "gpu", "memory", "code", "copy", "store", "evict", "launch", "waits", "session",
              "calls", "server"],
    "hook": ["process", "objects", "memory", "store", "code", "graphs", "calls"],
    "sim": ["ptx", "machine", "graphs", "calls"],
}
FOLDER_FILES = 45
# One file a chapter or a program: a list, whose length is that of what it lists.
LISTS = {"tests/conformance", "tests/conformance/expected"}
PARTS = set(ALLOWED) | {"tests", "bench", "examples"}
# policies/ decides over plain values: it has no GPU, descriptor, thread or clock of its own.
POLICY_FORBIDDEN = re.compile(
    r"<(cuda|cuda_runtime|unistd|pthread|time|poll|fcntl|sys/.*)\.h>|<(thread|mutex|chrono|atomic|fstream|iostream)>"
)
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<][^">]+[">])', re.M)


def room_of(path, part):
    """The index of the room that a path lies in; rooms that do not exist come behind all others."""
    folders = path.split("/")[1:-1]
    rooms = ROOMS[part]
    return rooms.index(folders[0]) if folders and folders[0] in rooms else len(rooms)


def include_problems(name, include):
    part, target = name.split("/")[0], include[1:-1].split("/")[0]
    if include[0] == '"' and target in PARTS and target not in ALLOWED[part] \
            and include not in ALSO.get(part, ()):
        yield f"{part} may include {', '.join(sorted(ALLOWED[part]))}"
    if include[0] == '"' and "/" not in include:
        yield "paths are written from the repository's root"
    if part == "policies" and POLICY_FORBIDDEN.search(include):
        yield "policies have no CUDA, descriptor, thread or clock of their own"
    if include == "<cuda.h>" and name != "base/cuda_api.h":
        yield "include base/cuda_api.h, which shows every version under its own name"
    if part in ROOMS and target == part and not include.endswith('.gen.h"'):
        if room_of(include[1:-1], part) > room_of(name, part):
            yield f"the rooms of {part} are, lowest first, {', '.join(ROOMS[part])}"


def crowded(files):
    counts = collections.Counter(str(pathlib.PurePath(f).parent) for f in files)
    for folder, count in sorted(counts.items()):
        results = folder.startswith("bench/results")
        if count > FOLDER_FILES and folder not in LISTS and not results:
            yield f"{folder} holds {count} files, more than {FOLDER_FILES}: it wants rooms"


def problems(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in listed if (root / name).exists()]
    for name in files:
        if name.split("/")[0] not in ALLOWED or not name.endswith((".h", ".cc")):
            continue
        for include in INCLUDE.findall((root / name).read_text()):
            for problem in include_problems(name, include):
                yield f"{name} includes {include}: {problem}"
    yield from crowded(files)


found = list(problems(pathlib.Path(sys.argv[1])))
print("\n".join(found) or "every include goes in the allowed direction")
sys.exit(bool(found))
