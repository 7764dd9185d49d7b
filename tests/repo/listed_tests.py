"""Where a meson.build names the methods that it runs, one test each, no method is forgotten; nor is
a file of unit tests, which tests/unit/meson.build names.

listed_tests.py ROOT: of every folder below tests/e2e whose meson.build says `.test_' + name`.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
missing = []
methods = 0
for build in sorted((root / "tests/e2e").glob("*/meson.build")):
    text = build.read_text()
    if ".test_' + name" not in text:
        continue
    for script in sorted(build.parent.glob("*_test.py")):
        for method in re.findall(r"^    def test_(\w+)\(", script.read_text(), re.M):
            methods += 1
            if f"'{method}'" not in text:
                missing.append(
                    f"{build.relative_to(root)}: {script.name}'s test_{method} is never run")
listed = (root / "tests/unit/meson.build").read_text()
for source in sorted((root / "tests/unit").glob("*/*_test.cc")):
    name = source.relative_to(root / "tests/unit")
    if f"'{name}'" not in listed:
        missing.append(f"tests/unit/meson.build: {name} is never compiled")
if methods == 0:
    missing.append("no method was looked at: the way in which the tests are named has changed")
print("\n".join(missing) or f"{methods} methods are all run")
sys.exit(1 if missing else 0)
