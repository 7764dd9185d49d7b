"""Writes versions.gen.h: plain names mean the newest ABI version again, and NAME_v1 the first one.

With every version visible, cuda.h leaves cuMemAlloc the oldest of its kind. This header takes the
renaming that an ordinary program gets from the same cuda.h. Usage: versions.py CUDA_H OUTPUT
"""
import pathlib
import re
import sys

RENAME = re.compile(r"^#define (cu\w+)\s+(?:__CUDA_API_PT(?:DS|SZ)\()?(cu\w+)\)?\s*$")


def main():
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8", errors="replace")
    head, _, rest = text.partition("#define CUDA_VERSION")
    names = {m[1]: m[2] for m in map(RENAME.match, head.splitlines()) if m and m[1] != m[2]}
    out = ["// Written by versions.py from cuda.h.", "#pragma once", ""]
    for name in names:
        if re.search(rf"CUDAAPI {name}\(", rest) and not re.search(rf"\b{name}_v1\(", rest):
            out.append(f"inline constexpr auto* {name}_v1 = &::{name};")
    out += [""] + [f"#define {name} {target}" for name, target in names.items()]
    pathlib.Path(sys.argv[2]).write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
