"""Which case or program calls which entry point of the driver: marked by the hook (TUBE_COVERAGE),
kept in calls.txt.

Every conformance case, every program of tests/programs and the Python clients of tests/e2e/python
run through Tube, each with a file of its own. A call is credited to the case that calls the fewest
different ones: the one that is about it. A row of the file stays as long as its case still calls
its name, so that the file changes only where something changed. SINCE is the version that first had
the call.
"""
import concurrent.futures
import itertools
import os
import pathlib
import re
import sys
import tempfile

import runner
import tubetest

SIZE = 4096  # hook/process/coverage.h
HEADER = "# Which case or program calls which entry point: NAME SINCE TESTED-BY. Written by tests/conformance/run --record-calls.\n"
FAULTING_PROGRAMS = {"fault"}


def exported_names(layout):
    """In the order of the hook's bytes."""
    text = (layout.build / "protocol" / "hook_exports.gen.map").read_text()
    return re.findall(r"^    (\w+);", text, re.M)


class Marks:
    """The files that the processes mark, one per label."""

    def __init__(self, folder, names):
        self.folder, self.names, self.paths = pathlib.Path(folder), names, {}

    def environment(self, label):
        path = self.folder / label
        path.write_bytes(bytes(SIZE))
        self.paths[label] = path
        return {"TUBE_COVERAGE": str(path)}

    def called(self):
        """{label: set of names}."""
        return {
            label: set(itertools.compress(self.names,
                                          path.read_bytes()[1:])
                      ) for label, path in self.paths.items()
        }


def python_for(layout):
    local = layout.build / "venv" / "bin" / "python"
    return os.environ.get("TUBE_PYTHON") or (str(local) if local.exists() else sys.executable)


def programs(layout):
    """[(label, command)] of what is no conformance case."""
    folder = layout.build / "tests" / "programs"
    found = [(f"programs/{p.name}", [str(p)])
             for p in sorted(folder.iterdir())
             if p.is_file() and not p.suffix and os.access(p, os.X_OK)]
    found = [(label, command + (["20"] if label == "programs/steady_loop" else []))
             for label, command in found]
    scripts = sorted((tubetest.ROOT / "tests" / "e2e" / "python").glob("*.py"))
    return found + [(f"python/{p.name}", [python_for(layout), str(p)]) for p in scripts]


def run_programs(layout, marks, jobs):
    def run(proxy, label, command):
        env = dict(
            tubetest.environment(layout, "preload", "sim", proxy, command[0].rpartition("/")[2]),
            **marks.environment(label.replace("/", "_")))
        tubetest.run_program(command, env, 60)

    chosen = programs(layout)
    with tubetest.Proxy(layout,
                        "sim") as proxy, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(
            pool.map(lambda row: run(proxy, *row),
                     [c for c in chosen if c[0].rpartition("/")[2] not in FAULTING_PROGRAMS]))
    for label, command in chosen:
        if label.rpartition("/")[2] in FAULTING_PROGRAMS:
            with tubetest.Proxy(layout, "sim") as proxy:
                run(proxy, label, command)
    return {label.replace("/", "_"): label for label, _ in chosen}


def read_rows(path):
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3 and not row[0].startswith("#")}


def best(name, called, labels):
    """The case that is about the call: of those that call it, the one that calls the fewest
    different ones; cases before programs."""
    candidates = [
        (label in labels, len(names), label) for label, names in called.items() if name in names
    ]
    return min(candidates)[2] if candidates else None


def record(layout, cases, jobs, path, since):
    """Runs everything and writes calls.txt."""
    names = exported_names(layout)
    with tempfile.TemporaryDirectory(prefix="tube-calls-") as folder:
        marks = Marks(folder, names)
        arms = runner.Arms(layout, "sim", None, "preload", jobs, 20,
                           extra_env=lambda case: marks.environment(case.label))
        _, trouble = arms.tube(cases)
        labels = run_programs(layout, marks, jobs)
        called = marks.called()
    old, rows = read_rows(path), {}
    for name in names:
        where = next((l for l in called
                      if labels.get(l, l) == old.get(name, ("", ""))[1] and name in called[l]),
                     None)
        where = where or best(name, called, labels)
        if where is not None:
            rows[name] = (old.get(name, (since,))[0], labels.get(where, where))
    path.write_text(HEADER + "".join(
        f"{name} {first} {where}\n" for name, (first, where) in sorted(rows.items())))
    print(f"{len(rows)} of {len(names)} entry points are called ({len(called)} cases and programs)")
    for line in trouble:
        print(line)
    return 1 if trouble else 0
