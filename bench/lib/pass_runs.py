"""What bench/pass and bench/store share: the arms, pairs of programs with a mailbox, the result."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import arm_set
import result_file
import tubetest

TIMEOUT_S = 120


def options(made):
    made.add_argument("--build", help="build folder or bundle")
    made.add_argument("--backend", choices=["driver", "sim"], default="driver")
    made.add_argument("--tiny", action="store_true", help="small, few; no times to be believed")
    made.add_argument("--quick", action="store_true", help="fewer sizes or processes")
    made.add_argument("--out", default="", help="folder for the result as JSON and text")


class Bench:
    """The arms native and tube, and more. `status`: what the script exits with."""

    def __init__(self, name, options, gpus=(0,), more_arms=()):
        self.name, self.options, self.status, self.lines = name, options, 0, []
        self.gpus, self.names = gpus, ["native", "tube", *more_arms]
        self.driver, reason = arm_set.find_backend(options.backend)
        if reason:
            print(f"SKIPPED: {reason}")
            sys.exit(tubetest.SKIP)
        self.layout = tubetest.Layout(options.build)
        self.layout.require()
        self.client = self.layout.build / "bench/passing/pass_client"

    def __enter__(self):
        self.arms = arm_set.ArmSet(self.layout, self.options.backend, self.driver,
                                   self.names, gpus=self.gpus).__enter__()
        chosen = {k: v for k, v in vars(self.options).items() if k not in ("build", "out")}
        self.result = result_file.header(self.name, self.layout, self.options.backend, self.driver,
                                         self.arms, chosen, arm_set.words)
        self.result["rows"] = []
        return self

    def __exit__(self, kind, *rest):
        self.arms.__exit__(kind, *rest)
        if kind is None:
            if not self.result["rows"]:
                self.wrong("nothing was measured")
            text = "\n".join(self.lines) + "\n"
            written = result_file.write(self.options.out, self.result, text)
            if self.options.out:
                print(written.splitlines()[-1])

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def row(self, values):
        self.result["rows"].append(values)

    def wrong(self, words):
        print(f"WRONG: {words}", file=sys.stderr, flush=True)
        self.status = 1

    def together(self, arm, commands, bytes_):
        """Runs the programs; their last lines as values, None when one failed."""
        one = self.arms.arms[arm]
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.NamedTemporaryFile(dir=folder) as box:
            box.truncate(4096 + bytes_)
            programs = []
            for n, command in enumerate(commands):
                words = [str(self.client)] + [box.name if w is None else str(w) for w in command]
                programs.append(subprocess.Popen(
                    one.started_by(words, f"{self.name}-{n}"), env=one.env(f"{self.name}-{n}"),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            values = []
            for program, command in zip(programs, commands):
                try:
                    out, err = program.communicate(timeout=TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    out, err = "", "it did not end"
                if program.returncode != 0:
                    self.wrong(f"{arm} {command}: {err.strip()[-300:]}")
                    for other in programs:
                        other.kill()
                    return None
                values.append(json.loads(out.splitlines()[-1]) if out else None)
            return values

    def pair(self, arm, kind, size, count):
        """The taker's values."""
        values = self.together(arm, [("make", kind, None, size, count),
                                     ("take", kind, None, size, count)], size)
        if values is None:
            return None
        if values[1]["wrong"] != 0:
            self.wrong(f"{arm} {kind}, {size} bytes: {values[1]['wrong']} words are wrong")
            return None
        return values[1]

    def queue(self, arm, count, bytes_, filler):
        """Nanoseconds of each reservation and of each taking, and what the proxy counted meanwhile;
        None when it failed."""
        proxy = self.arms.arms[arm].proxy
        before = proxy.request("store")["counts"]
        values = self.together(arm, [("queue", None, count, bytes_, filler)], 0)
        if values is None:
            return None
        if values[0]["wrong"] != 0:
            self.wrong(f"{arm}, {count} objects of {bytes_} bytes: {values[0]['wrong']} words")
            return None
        after = proxy.request("store")["counts"]
        counted = {key: after[key] - before[key] for key in ("left", "returned", "fetched")}
        return dict(values[0], counted=counted)

    def ask(self, count, seconds):
        """Operations a second of all programs, by kind."""
        values = self.together("tube", [("ask", None, count, seconds)] * count, 0)
        if values is None:
            return None
        return {part: sum(v[part][0] / v[part][1] * 1e9 for v in values) for part in values[0]}
