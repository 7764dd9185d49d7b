"""coverage.md: every exported name and what Tube does with it; fuzz.dict: the call numbers as libFuzzer tokens."""

from emit_hook import resolve

_TITLES = {
    "local": "answered in the function process (or made of Tube's own messages)",
    "post": "posted: a record, no answer", "reply": "a round trip", "hand": "a record of its own, hook body by hand",
    "absent": "cannot be had", "undescribed": "answers CUDA_ERROR_NOT_SUPPORTED and names itself once",
}


def coverage(model):
    exported = model.exported()
    lanes = {c.name: resolve(model, c).lane for c in exported}
    counts = {lane: sum(1 for l in lanes.values() if l == lane) for lane in _TITLES}
    works = sum(counts[lane] for lane in ("local", "post", "reply", "hand"))
    out = ["# Coverage of the CUDA driver API", "",
           f"{len(exported)} exported names, {works} work, {counts['absent']} cannot, {counts['undescribed']} not yet.", "",
           "| lane | names | meaning |", "|---|---:|---|"]
    out += [f"| {lane} | {counts[lane]} | {title} |" for lane, title in _TITLES.items()]
    chapters = {}
    for c in exported:
        chapters.setdefault(resolve(model, c).chapter or "not described", []).append(c)
    for chapter in sorted(chapters, key=lambda c: (c == "not described", c)):
        out += ["", f"## {chapter}", "", "| call | lane | how |", "|---|---|---|"]
        for c in sorted(chapters[chapter], key=lambda c: c.name):
            target = resolve(model, c)
            how = f"as {target.name}" if target is not c else c.why or ", ".join(c.uses)
            out.append(f"| {c.name} | {lanes[c.name]} | {how} |")
    return "\n".join(out + [""])


def fuzz_dictionary(model):
    """One token per call: its number, as the record header holds it."""
    out = []
    for c in model.wire:
        raw = "".join(f"\\x{b:02x}" for b in c.number.to_bytes(4, "little"))
        out.append(f'{c.name}="{raw}"')
    return "\n".join(out + [""])
