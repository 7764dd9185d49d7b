"""coverage.md: every exported name and what Tube does with it; fuzz.dict: the call numbers as
libFuzzer tokens."""

from emit_hook import resolve

_TITLES = {
    "local": "answered in the function process (or made of Tube's own messages)",
    "post": "posted: a record, no answer",
    "reply": "a round trip",
    "hand": "a record of its own, hook body by hand",
    "absent": "cannot be had",
    "undescribed": "answers CUDA_ERROR_NOT_SUPPORTED and names itself once",
}


def coverage(model, tested):
    """`tested`: {name: (since, where)}, from tests/conformance/calls.txt."""
    exported = model.exported()
    lanes = {c.name: resolve(model, c).lane for c in exported}
    counts = {lane: sum(1 for l in lanes.values() if l == lane) for lane in _TITLES}
    works = sum(1 for c in exported if implemented(resolve(model, c)))
    out = [
        "# Coverage of the CUDA driver API", "",
        f"{len(exported)} exported names, {works} work, {counts['absent']} cannot, {counts['undescribed']} not yet.",
        "", "| lane | names | meaning |", "|---|---:|---|"
    ]
    out += [f"| {lane} | {counts[lane]} | {title} |" for lane, title in _TITLES.items()]
    chapters = {}
    for c in exported:
        chapters.setdefault(resolve(model, c).chapter or "not described", []).append(c)
    for chapter in sorted(chapters, key=lambda c: (c == "not described", c)):
        out += [
            "", f"## {chapter}", "", "| call | lane | since | tested by | how |",
            "|---|---|---|---|---|"
        ]
        for c in sorted(chapters[chapter], key=lambda c: c.name):
            target = resolve(model, c)
            how = f"as {target.name}" if target is not c else c.why or ", ".join(c.uses)
            since, where = tested.get(c.name, ("", "")) if implemented(target) else ("", "")
            out.append(f"| {c.name} | {lanes[c.name]} | {since} | {where} | {how} |")
    return "\n".join(out + [""])


def implemented(target):
    """Whether a call whose body is `target`'s does what the driver's does."""
    return target.lane not in ("absent", "undescribed")


def read_tested(path):
    """{name: (since, tested by)} of calls.txt; empty without the file."""
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()
           ] if path and path.is_file() else []
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3 and not row[0].startswith("#")}


def fuzz_dictionary(model):
    """One token per call: its number, as the record header holds it."""
    out = []
    for c in model.wire:
        raw = "".join(f"\\x{b:02x}" for b in c.number.to_bytes(4, "little"))
        out.append(f'{c.name}="{raw}"')
    return "\n".join(out + [""])
