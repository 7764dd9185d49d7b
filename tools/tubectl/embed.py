"""Writes a header that holds text files as string constants: embed.py OUT NAME=FILE..."""
import pathlib
import sys

out, pairs = sys.argv[1], [a.split("=", 1) for a in sys.argv[2:]]
parts = ["#pragma once\n\nnamespace tube::ctl {\n"]
for name, file in pairs:
    parts.append(
        f'inline constexpr const char* {name} = R"__tube__({pathlib.Path(file).read_text()})__tube__";\n'
    )
pathlib.Path(out).write_text("".join(parts + ["}  // namespace tube::ctl\n"]))
