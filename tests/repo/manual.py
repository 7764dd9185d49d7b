"""Manual pages, completion files and help know the same verbs and options.

manual.py ROOT TUBECTL: reads `tubectl VERB --help` for every verb and looks for each option in
tubectl.1 and in both completion files. The environment section of tube.7 needs no test: it is
generated from base/env.cc.
"""
import pathlib
import re
import subprocess
import sys

root, tubectl = pathlib.Path(sys.argv[1]), sys.argv[2]


def help_text(*verb):
    return subprocess.run([tubectl, *verb, "--help"], capture_output=True, text=True,
                          check=True).stdout


def verbs_of(text):
    block = text.split("Subcommands:\n")[1].split("\n\n")[0] if "Subcommands:" in text else ""
    return re.findall(r"^  (\w+)", block, re.M)


def leaves():
    for verb in verbs_of(help_text()):
        subs = verbs_of(help_text(verb))
        yield from ((verb, sub) for sub in subs) if subs else [(verb,)]


found = []
texts = {
    "tubectl.1": (root / "tools/man/tubectl.1.scd").read_text().replace("\\", ""),
    "bash": (root / "tools/completion/tubectl.bash").read_text(),
    "zsh": (root / "tools/completion/_tubectl").read_text()
}
for leaf in leaves():
    text = help_text(*leaf)
    if "Examples:" not in text:
        found.append(f"tubectl {' '.join(leaf)} --help shows no example")
    for where, content in texts.items():
        for word in [
                *leaf, *re.findall(r"(--[a-z][a-z-]+)",
                                   text.split("Options:")[1].split("\n\n")[0])
        ]:
            if word not in content:
                found.append(f"{where}: {word} of `tubectl {' '.join(leaf)}` is missing")
print("\n".join(dict.fromkeys(found)) or "help, manual and completion agree")
sys.exit(bool(found))
