"""The memory map alone holds driver handles of device memory and makes the driver calls on it;
everybody else in the proxy names a block by its id (proxy/memory/memory_map.h)."""
import pathlib
import re
import sys

OWNER = {"proxy/memory/memory_map.h", "proxy/memory/memory_map.cc",
         "proxy/memory/memory_moves.cc"}
HANDLE = re.compile(r"\bCUmemGenericAllocationHandle\b")
CALL = re.compile(r"\b\w*driver\w*(?:\(\))?\s*(?:\.|->)\s*"
                  r"(cuMem(?:Create|Release|Map|MapArrayAsync|Unmap|SetAccess|RetainAllocationHandle"
                  r"|ExportToShareableHandle|ImportFromShareableHandle)\w*)")


def problems(root):
    for path in sorted((root / "proxy").rglob("*.[hc]*")):
        name = str(path.relative_to(root))
        if name in OWNER or path.suffix not in (".h", ".cc"):
            continue
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if HANDLE.search(line):
                yield f"{name}:{number}: a driver handle; name the block by its BlockId"
            for call in CALL.findall(line):
                yield f"{name}:{number}: {call} is the memory map's to call"


root = pathlib.Path(sys.argv[1])
missing = [name for name in OWNER if not (root / name).exists()]
found = [f"{name} is not there" for name in missing] + list(problems(root))
owner = "".join((root / name).read_text() for name in OWNER - set(missing))
if not HANDLE.search(owner) or not CALL.search(owner):
    found.append("the memory map makes none of these calls: this test looks for the wrong ones")
print("\n".join(found) or "only the memory map holds driver handles of device memory")
sys.exit(bool(found))
