"""`.ci/run` with a `./dev` that only writes down how it was called: the parts and their order, what
is left out and why, what fails it."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1])

# FAIL names the parts that fail; NO_CLANG lets the installation of clang fail.
DEV = r"""#!/usr/bin/env bash
echo "$*" >>calls
part=${3:-plain}
if [[ $1 == setup ]]; then [[ -z ${NO_CLANG:-} ]]; exit; fi
result=OK status=0
if [[ " ${FAIL:-} " == *" $part "* ]]; then result=FAIL status=1; fi
mkdir -p build
if [[ $part == lint ]]; then exit $status; fi  # counts no tests
printf '[{"build": "build-%s", "status": %s, "tests": [{"name": "t", "result": "%s", "note": ""}]}]' "$part" $status $result >build/dev-test.json
exit $status
"""


def run(**environment):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name in (".ci/run", "tools/dev/test_summary.py"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, root / name)
        (root / "dev").write_text(DEV)
        (root / "dev").chmod(0o755)
        clean = {k: v for k, v in os.environ.items() if k != "CI_MINUTES"}
        done = subprocess.run([root / ".ci/run"], env=clean | environment, capture_output=True,
                              text=True)
        calls = (root / "calls").read_text().splitlines()
        return done.returncode, [c.split()[-1] for c in calls if c.startswith("test")
                                ], done.stdout + done.stderr


def expect(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


code, parts, text = run()
expect(code == 0 and parts == ["test", "asan", "headers", "clang", "tsan", "lint"], text)
expect(text.splitlines()[-1] == "5 passed, 0 failed, 0 skipped", text)

code, parts, text = run(FAIL="asan")
expect(code == 1 and parts[-1] == "lint",
       "a failed part fails CI, the parts behind it run all the same: " + text)
expect("ci: asan     FAILED" in text and text.splitlines()[-1] == "4 passed, 1 failed, 0 skipped",
       text)

code, parts, text = run(FAIL="lint")
expect(code == 1 and "ci: lint     FAILED" in text and parts[-1] == "lint", text)

code, parts, text = run(FAIL="plain")
expect(code == 1 and "ci: plain    FAILED" in text, text)

code, parts, text = run(NO_CLANG="1")
expect(code == 0 and parts == ["test", "asan", "headers"], text)
for part in ("clang", "lint", "tsan"):
    expect(f"ci: {part:<8} left out: its packages" in text, text)

code, parts, text = run(CI_MINUTES="0")
expect(code == 0 and parts == ["test"] and text.count("left out: may take") == 5, text)

# Too short for what takes longest, long enough for the shortest, which comes behind it.
code, parts, text = run(CI_MINUTES="6")
expect(code == 0 and parts == ["test", "headers"] and "asan     left out: may take" in text, text)
