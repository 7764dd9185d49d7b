"""Transcripts of cases: as text, in files, compared.

A transcript is what a case wrote to standard output and, when it is not 0, how it ended.
expected/CHAPTER.txt holds one block per case:

  [case_name]
      a line that it printed
      => signal 11
"""
import difflib
import re

FAILURES = ("different", "broken", "not as on a real GPU", "listed but equal", "timed out")
INDENT = "    "


def text_of(outcome):
    """stdout, then how it ended."""
    out = outcome.out if outcome.out == "" or outcome.out.endswith("\n") else outcome.out + "\n"
    if outcome.code is None:
        return out + "=> killed after the time limit\n"
    if outcome.code < 0:
        return out + f"=> signal {-outcome.code}\n"
    return out if outcome.code == 0 else out + f"=> exit {outcome.code}\n"


class Recorded:
    """A recorded transcript in the place of a native run."""

    def __init__(self, text):
        self.err = ""
        out, _, last = text.rpartition("\n")
        ended = re.fullmatch(r"=> (?:(signal)|exit) (\d+)", last)
        self.code = 0 if ended is None else -int(ended[2]) if ended[1] else int(ended[2])
        self.out = text if ended is None else out


def identity_of(path):
    """What a file was recorded on, as record() wrote it; None when there is none."""
    head = re.match(r"# Recorded natively on (.*)\.\n", path.read_text()) if path.exists() else None
    return head[1] if head else None


def dump(texts, identity):
    """The text of an expected/ file; texts: {case name: text}."""
    blocks = [f"# Recorded natively on {identity}.\n"]
    for name, text in texts.items():
        blocks.append(f"[{name}]\n" +
                      "".join(f"{INDENT}{line}".rstrip() + "\n" for line in text.splitlines()))
    return "\n".join(blocks)


def load(path):
    """{case name: text} of an expected/ file; empty when there is none."""
    found, name = {}, None
    for line in path.read_text().splitlines() if path.exists() else []:
        head = re.fullmatch(r"\[(\w+)\]", line)
        if head:
            name = head[1]
            found[name] = []
        elif name and not line.startswith("#"):
            found[name].append(line[len(INDENT):] if line.startswith(INDENT) else line)
    return {name: normal("\n".join(lines)) for name, lines in found.items()}


def normal(text):
    """Without trailing blanks, which the files do not keep."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip("\n")


def load_list(path):
    """{chapter.case: (backend or 'both', reason)} of a list of differences; # begins a comment."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        words = line.split("#")[0].split(None, 1)
        if len(words) == 2:
            backend, _, reason = words[1].partition(":")
            found[words[0]] = (backend.strip(), reason.strip()) if backend.strip() in (
                "sim", "driver") else ("both", words[1].strip())
    return found


def difference(left, right, left_name, right_name):
    lines = list(
        difflib.unified_diff(left.splitlines(), right.splitlines(), left_name, right_name,
                             lineterm="", n=2))
    return "\n".join(lines[:60] +
                     ([f"... {len(lines) - 60} more lines"] if len(lines) > 60 else []))


class Judge:
    """Says of each case whether it holds: against the recorded transcript (on the simulated GPU),
    against the native run (through Tube)."""

    def __init__(self, folder, backend):
        self.folder, self.backend = folder, backend
        self.expected = {}
        self.sim_differs = load_list(folder / "sim_differs.txt")
        self.tube_differs = load_list(folder / "tube_differs.txt")

    def recorded(self, case):
        if case.chapter not in self.expected:
            self.expected[case.chapter] = load(self.folder / "expected" / f"{case.chapter}.txt")
        return self.expected[case.chapter].get(case.name)

    def case(self, case, native, tube):
        """(result, text)."""
        for arm, outcome in (("natively", native), ("through Tube", tube)):
            if outcome is not None and outcome.code is None:
                return "timed out", f"{arm}; until then:\n{normal(outcome.out)}\nstderr: {outcome.err[-1500:]}"
        if native.code == 77:
            return "skipped", normal(native.out)
        if self.backend == "sim" and tube is not None and tube.code == 77:  # held against a recorded run
            return "skipped", normal(tube.out)
        if native.code == 1:
            return "broken", f"natively it ends with 1: {normal(native.out)}\nstderr: {native.err[-1500:]}"
        result = self.against_recorded(case, normal(text_of(native)))
        return self.against_native(
            case, native, tube) if result is None and tube is not None else result or ("equal", "")

    def against_recorded(self, case, native):
        """None when there is nothing to say against the native run."""
        recorded = self.recorded(case) if self.backend == "sim" else None
        if recorded is None:
            return None
        listed = case.label in self.sim_differs
        if native == recorded:
            return ("listed but equal",
                    "sim_differs.txt names it, but it equals the real GPU's transcript"
                   ) if listed else None
        return None if listed else ("not as on a real GPU",
                                    difference(recorded, native, "real GPU", "simulated GPU"))

    def against_native(self, case, native, tube):
        left, right = normal(text_of(native)), normal(text_of(tube))
        backend, reason = self.tube_differs.get(case.label, (None, ""))
        listed = backend in ("both", self.backend)
        equal = left == right
        if not equal and self.backend == "sim" and case.label in self.sim_differs:
            equal = right == self.recorded(
                case)  # Where the simulated GPU is wrong Tube may answer as the driver does.
        if equal:
            return ("listed but equal",
                    "tube_differs.txt names it, but it is equal") if listed else ("equal", "")
        if listed:
            return "differs as listed", reason
        text = difference(left, right, "native", "Tube")
        return "different", text + (f"\nstderr: {tube.err[-1500:]}" if tube.err else "")
