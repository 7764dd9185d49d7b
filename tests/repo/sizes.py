"""Files stop at 600 lines, functions at 60.

A C++ function is found by its layout: it starts with an unindented line and ends with an unindented
brace, which clang-format guarantees for everything outside a class body. Python functions are found
with ast.
"""
import ast
import pathlib
import re
import subprocess
import sys

FILE_LINES = 600
FUNCTION_LINES = 60
SOURCES = (".cc", ".h", ".cu", ".py", ".sh", "meson.build")
# Tables, not logic: their length is that of the thing they list.
LONG_BY_NATURE = {"protocol/numbers.lock", "LICENSE"}
# Straight-line client programs: one call after the other, each printed. Cutting them up would hide
# their order.
STRAIGHT_LINE = ("tests/programs/", "tests/conformance/")
NOT_A_FUNCTION = re.compile(
    r"^(namespace|struct|class|enum|union|extern|typedef|using|constexpr .*=|const .*=|static .*=|inline constexpr|#|//|template <)"
)


def cpp_functions(lines):
    start = None
    for number, line in enumerate(lines, 1):
        if line[:1].strip(
        ) and line[0] not in "}/#)" and not NOT_A_FUNCTION.match(line) and "(" in line:
            start = number
        elif line.startswith(("namespace", "struct", "class", "enum", "union")):
            start = None
        if line.rstrip() == "}" and start is not None:
            yield lines[start - 1].strip(), number - start + 1
            start = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def problems(root):
    files = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                           capture_output=True, text=True, check=True).stdout.split()
    for name in files:
        path = root / name
        if name in LONG_BY_NATURE or not path.exists():
            continue
        script = "." not in path.name and path.read_bytes()[:2] == b"#!"
        if not name.endswith(SOURCES) and not script:
            continue
        text = path.read_text()
        lines = text.splitlines()
        if len(lines) > FILE_LINES:
            yield f"{name}: {len(lines)} lines, more than {FILE_LINES}"
        functions = []
        if name.startswith(STRAIGHT_LINE):
            continue
        if name.endswith((".cc", ".h", ".cu")):
            functions = cpp_functions(lines)
        elif name.endswith(".py") or (script and "python" in lines[0]):
            functions = python_functions(text)
        for function, length in functions:
            if length > FUNCTION_LINES:
                yield f"{name}: {function} has {length} lines, more than {FUNCTION_LINES}"


found = list(problems(pathlib.Path(sys.argv[1])))
print("\n".join(found) or "no file and no function is too long")
sys.exit(bool(found))
