"""Reads the toolkit's headers: every driver-API function with its parameters, ABI versions and
per-thread forms.

load(cuda_home) -> Api. Nothing about a call is written down here: names and signatures come from
cuda.h and cudaProfiler.h, versions from the PFN_ typedefs of cudaTypedefs.h. The headers are read
the way a compiler with __CUDA_API_VERSION_INTERNAL set would: a macro such as `#define cuMemAlloc
cuMemAlloc_v2` renames the declarations that follow it until its #undef, so every ABI ends up under
the name that libcuda.so.1 exports.

exported_names(path) lists the dynamic symbols of an ELF library (the toolkit's stub) without
needing binutils.
"""

import re
import struct
from collections import namedtuple
from pathlib import Path

Param = namedtuple("Param", "ctype name")
# One row of the cuGetProcAddress table: `base` asked at `version` or later gives `symbol`.
ProcRow = namedtuple("ProcRow", "base version per_thread symbol")


class HeaderError(Exception):
    """The toolkit's headers do not look as expected; the message says where."""


class Function:
    """One exported entry point."""

    def __init__(self, name, returns, params):
        self.name, self.returns, self.params = name, returns, params
        m = re.fullmatch(r"(cu\w+?)(?:_v(\d+))?(_ptds|_ptsz)?", name)
        self.base = m.group(1)
        self.abi = int(m.group(2) or 1)
        self.suffix = m.group(3) or ""

    @property
    def per_thread(self):
        return bool(self.suffix)

    @property
    def plain(self):
        """The same ABI without the per-thread default stream."""
        return self.name[: -len(self.suffix)] if self.suffix else self.name

    def stream_params(self):
        return [p.name for p in self.params if p.ctype == "CUstream"]

    def declaration(self, name=None):
        return f"{self.returns} {name or self.name}({declare_params(self.params)})"

    def __repr__(self):
        return self.declaration()


class Api:
    """functions: name -> Function, sorted by name. enums: type names. handles: opaque pointer
    types. proc_rows: the cuGetProcAddress matrix. version: CUDA_VERSION. error_codes: [(name,
    number)]."""

    def __init__(self, functions, enums, handles, proc_rows, version, error_codes):
        self.functions = dict(sorted(functions.items()))
        self.enums, self.handles, self.proc_rows = enums, handles, proc_rows
        self.version, self.error_codes = version, error_codes

    def bases(self):
        return sorted({f.base for f in self.functions.values()})

    def variants(self, base):
        return [f for f in self.functions.values() if f.base == base]


def declare_params(params):
    return ", ".join(f"{p.ctype}{'' if p.ctype.endswith('*') else ' '}{p.name}" for p in params)


def _strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m.group(0).count("\n") or " ", text,
                  flags=re.S)


class _Preprocessor:
    """Enough of cpp for these headers: conditionals on defined(), and macros that rename cu*
    functions."""

    def __init__(self, defined):
        self.defined = set(defined)
        self.renames = {}

    def _true(self, expression):
        text = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", lambda m: str(m.group(1) in self.defined),
                      expression)
        text = text.replace("&&", " and ").replace("||", " or ")
        text = re.sub(r"!(?!=)", " not ", text)
        text = re.sub(r"\b(?!True\b|False\b|and\b|or\b|not\b)([A-Za-z_]\w*)", "0", text)
        text = re.sub(r"\b(\d+)[LU]+\b", r"\1", text)
        return bool(eval(text, {"__builtins__": {}}))  # numbers, True/False and operators only

    def _expand(self, body):
        m = re.fullmatch(r"__CUDA_API_PT(DS|SZ)\((\w+)\)", body)
        return f"{m.group(2)}_pt{m.group(1).lower()}" if m else body

    def run(self, text):
        out, stack = [], []  # stack: [taking this branch, some branch was taken, outer is live]
        for line in _strip_comments(text).replace("\\\n", " ").split("\n"):
            m = re.match(r"\s*#\s*(\w+)\s*(.*?)\s*$", line)
            live = all(s[0] for s in stack)
            if not m:
                if live:
                    out.append(
                        re.sub(r"\bcu[A-Z]\w*", lambda w: self.renames.get(w.group(0), w.group(0)),
                               line))
                continue
            word, rest = m.groups()
            if word in ("if", "ifdef", "ifndef"):
                test = {
                    "if": rest,
                    "ifdef": f"defined({rest})",
                    "ifndef": f"!defined({rest})"
                }[word]
                taken = live and self._true(test)
                stack.append([taken, taken, live])
            elif word in ("elif", "else"):
                top = stack[-1]
                top[0] = top[2] and not top[1] and (word == "else" or self._true(rest))
                top[1] = top[1] or top[0]
            elif word == "endif":
                stack.pop()
            elif live and word == "define":
                name, _, body = rest.partition(" ")
                self.defined.add(re.match(r"\w+", name).group(0))
                if re.fullmatch(r"cu[A-Z]\w*", name):
                    self.renames[name] = self._expand(body.strip())
            elif live and word == "undef":
                self.defined.discard(rest)
                self.renames.pop(rest, None)
        return "\n".join(out)


_FUNCTION = re.compile(r"\b(CUresult)\s+(?:CUDAAPI\s+)?(cu[A-Z]\w*)\s*\(([^()]*)\)\s*;")


def _parse_param(text, function):
    text = " ".join(text.replace("*", " * ").split())
    m = re.fullmatch(r"(.*[\s*])(\w+)(\s*\[\d*\])?", text)
    if not m:
        raise HeaderError(f"cuda.h: {function}: cannot read parameter `{text}`")
    ctype = m.group(1).strip() + (" *" if m.group(3) else "")
    ctype = re.sub(r"\s*\*\s*", "*", ctype)
    ctype = re.sub(r"(?<![*\s])\*", " *", ctype, count=1).replace("*const", "* const")
    ctype = {"unsigned": "unsigned int", "unsigned *": "unsigned int *"}.get(ctype, ctype)
    return Param(ctype, m.group(2))


def _parse_functions(text):
    functions = {}
    for returns, name, params in _FUNCTION.findall(text):
        params = params.strip()
        parsed = [] if params in ("",
                                  "void") else [_parse_param(p, name) for p in params.split(",")]
        functions[name] = Function(name, returns, parsed)
    return functions


def _parse_versions(text, functions):
    """Versions in ascending order map one to one onto name, name_v2, name_v3 ...
    (docs/facts.md)."""
    versions = {}
    for base, version, suffix in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\s*\)", text):
        versions.setdefault((base, bool(suffix)), set()).add(int(version))
    symbols = {}
    for f in functions.values():
        symbols.setdefault((f.base, f.per_thread), []).append((f.abi, f.name))
    rows = []
    for key, names in sorted(symbols.items()):
        known = sorted(versions.get(key, ()))
        if len(known) != len(names):
            raise HeaderError(
                f"cudaTypedefs.h: {key[0]} has {len(known)} versions but {len(names)} exported ABIs"
            )
        rows += [ProcRow(key[0], v, key[1], name) for v, (_, name) in zip(known, sorted(names))]
    return rows


def load(cuda_home):
    include = Path(cuda_home) / "include"

    def read(name):
        path = include / name
        if not path.is_file():
            raise HeaderError(
                f"{path}: not found; point at the CUDA toolkit with CUDA_HOME=DIR or -Dtoolkit=DIR")
        return path.read_text(encoding="utf-8", errors="replace")

    cpp = _Preprocessor({"__CUDA_API_VERSION_INTERNAL", "__GNUC__", "__LP64__"})
    header, profiler = read("cuda.h"), read("cudaProfiler.h")
    text = cpp.run(header)
    functions = _parse_functions(text) | _parse_functions(_Preprocessor({"__GNUC__"}).run(profiler))
    versions = _strip_comments(read("cudaTypedefs.h") + read("cudaProfilerTypedefs.h"))
    enums = set(re.findall(r"typedef\s+enum\s*\w*\s*\{[^{}]*\}\s*(\w+)\s*;", text))
    aliases = re.findall(r"typedef\s+(\w+)\s+(\w+)\s*;", text)
    for old, new in aliases:
        if old in enums:
            enums.add(new)
    handles = set(re.findall(r"typedef\s+struct\s+\w+\s*\*\s*(\w+)\s*;", text))
    errors = re.search(r"typedef\s+enum\s+cudaError_enum\s*\{(.*?)\}", text, re.S).group(1)
    codes = [(n, int(v)) for n, v in re.findall(r"(CUDA_\w+)\s*=\s*(\d+)", errors)]
    version = int(re.search(r"#\s*define\s+CUDA_VERSION\s+(\d+)", header).group(1))
    return Api(functions, enums, handles, _parse_versions(versions, functions), version, codes)


def exported_names(path):
    """Sorted names of the defined dynamic symbols of a 64-bit little-endian ELF library."""
    data = Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise HeaderError(f"{path}: not a 64-bit little-endian ELF file")
    shoff, = struct.unpack_from("<Q", data, 40)
    shentsize, shnum = struct.unpack_from("<HH", data, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)
    ]
    names = set()
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, entry):
            name, info, other, index = struct.unpack_from("<IBBH", data, at)
            if index and info >> 4 in (1, 2) and name:  # defined, global or weak
                end = data.index(b"\0", strings + name)
                names.add(data[strings + name:end].decode())
    return sorted(names)


if __name__ == "__main__":  # a person's look at what was understood
    import sys
    api = load(sys.argv[1] if len(sys.argv) > 1 else "/usr/local/cuda")
    for f in api.functions.values():
        print(f)
