"""Generates the simulator's export surface from the toolkit's headers: gen_exports.py TOOLKIT
OUT.cc OUT_weak.cc OUT.map.

OUT.cc and OUT_weak.cc hold
- a weak definition of every exported name, which answers CUDA_ERROR_NOT_SUPPORTED and names itself
once; what sim/*.cc
  defines overrides it at link time;
- every _ptsz/_ptds entry point as a thin wrapper: inside it, stream 0 means the per-thread stream;
- the table behind cuGetProcAddress.
OUT.map is the linker's version script: the driver's names are visible, and those of
sim/machine/control.h.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "protocol" / "gen"))
import cuda_header  # noqa: E402


def weak(name):
    return (
        f'extern "C" __attribute__((weak, visibility("default"))) CUresult {name}() '
        f'{{ static std::atomic<bool> told{{false}}; return tube::sim::unsupported("{name}", told); }}'
    )


def wrapper(function):
    arguments = ", ".join(p.name for p in function.params)
    return (f'extern "C" __attribute__((visibility("default"))) {function.declaration()} {{\n'
            f"  tube::sim::PerThreadDefault scope;\n  return {function.plain}({arguments});\n}}")


def write_source(api, path):
    plain = [f for f in api.functions.values() if not f.suffix]
    wrapped = [f for f in api.functions.values() if f.suffix]
    lines = [
        "// Made by sim/gen_exports.py. The weak definitions take no parameters: the C ABI lets them ignore what came.",
        '#include "sim/calls/entry.h"'
    ]
    lines += [wrapper(f) for f in wrapped]
    lines += ["namespace tube::sim {", "const ProcEntry kProcTable[] = {"]
    rows = sorted(api.proc_rows, key=lambda r: (r.base, r.per_thread, r.version))
    lines += [
        f'  {{"{r.base}", {r.version}, {str(r.per_thread).lower()}, reinterpret_cast<void*>(&{r.symbol})}},'
        for r in rows
    ]
    lines += ["};", f"const size_t kProcTableSize = {len(rows)};", "}  // namespace tube::sim", ""]
    path.with_suffix(".cc").write_text("\n".join(lines))
    weak_lines = [
        "// Made by sim/gen_exports.py.", "#include <atomic>", "using CUresult = int;",
        "namespace tube::sim { CUresult unsupported(const char* name, std::atomic<bool>& told); }"
    ]
    weak_lines += [weak(f.name) for f in plain]
    path.with_name(path.stem + "_weak.cc").write_text("\n".join(weak_lines) + "\n")


def write_map(api, path):
    names = "".join(f"    {name};\n" for name in api.functions)
    path.write_text("{\n  global:\n" + names + "    tube_sim_*;\n  local: *;\n};\n")


def main():
    toolkit, source, weak_source, version_script = sys.argv[1:]
    assert Path(weak_source).stem == Path(source).stem + "_weak"
    api = cuda_header.load(toolkit)
    write_source(api, Path(source))
    write_map(api, Path(version_script))


if __name__ == "__main__":
    main()
