"""What a comment or a document cites exists.

Looked at: comments of C++, CUDA, Python, shell and meson files, docstrings, documents. Resolved:

  files     with a folder (from the root, or from any folder above the citing file) or bare (then it
            is somewhere in the repository), also x.{h,cc} and x/*.cc; what a build makes is named
            in a meson.build or by the generator
  folders   that begin with one of the repository's, and end with a slash
  links     of markdown, with their anchors
  decisions as docs/decisions/0009, or in a document as a link of that number
  runs      bench/results/... and, in docs/, the commits of measurements
  names     name(), kConstants, g_globals and TUBE_VARIABLES are mentioned by some code

Words that point outside of the repository fail. Usage: citations.py SOURCE_ROOT
"""
import ast
import io
import itertools
import pathlib
import re
import subprocess
import sys
import tokenize

ENDINGS = "h|cc|cu|py|md|scd|build|svg|json|txt"
FILE = re.compile(r"(?<![\w$>.{/-])(?:\.{1,2}/)*((?:[\w.*-]+/)*)"
                  r"([\w*-][\w.*-]*?)\.(\{[\w,]+\}|(?:" + ENDINGS + r"))(?![\w*/]|\.\w)")
FOLDER = re.compile(r"(?<![\w$>.{/<-])((?:[\w.-]+/)+)(?![\w*<{])")
PATH = re.compile(r"(?<![\w$>.{}/<-])((?:[\w-]+/)+[\w.-]*\w)(?![\w/*<{]|\.\w)")
RUN = re.compile(r"(?<![\w/])(?=[a-f]*\d)([0-9a-f]{7})(?!\w)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAME = re.compile(r"(?<![\w.:])((?:\w+::)*~?[A-Za-z_]\w*)\(\)|\b(k[A-Z]\w+|g_\w+|TUBE_\w+)\b")
DECISION = re.compile(r"(?i)\bdecisions?\s+(?:number\s+)?(\d+)")
DECISION_LINK = re.compile(r"(?i)\[decision\s+(\d+)\]\(\S*?(\d{4})[\w-]*\.md\)")
OUTSIDE = re.compile(r"cuda-shim|facts of the (?:H200|project)|architecture facts|\bthe plan\b|"
                     r"\bissue \d+|shared/facts|shared/design")
# Names that stand for whatever file, and files of other people.
PLACEHOLDER = re.compile(r"[A-Z]{3,}|^(?:[A-Z]|\*|x|k|_?test|_weak|name)$|\bX$")
FOREIGN = {
    "cuda.h", "cudaTypedefs.h", "cuda_fp16.h", "nccl.h", "unistd.h", "stdlib.h", "libcuda.so.1",
    # programs of examples, and instructions that look like files
    "infer.py", "classify.py", "program.py", "add.cc", "sub.cc", "mad.cc",
}


def tracked(root):
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True,
                          check=True)
    names = done.stdout.decode().split("\0")
    return [name for name in names if name and (root / name).is_file()]


def c_comments(text):
    """(line, text) of each comment; strings are skipped."""
    pattern = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
    for match in pattern.finditer(text):
        if match[0].startswith("/"):
            yield text.count("\n", 0, match.start()) + 1, match[0]


def python_comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if documented and ast.get_docstring(node):
            yield node.body[0].lineno, node.body[0].value.value


def hash_comments(text):
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*#(?!!)", line):
            yield number, line


def prose(name, text):
    """What people read of a file: (line, text) pairs."""
    first = text.split("\n", 1)[0]
    if name.endswith((".h", ".cc", ".cu")):
        return c_comments(text)
    if name.endswith(".py") or (first.startswith("#!") and "python" in first):
        return python_comments(text)
    if name.endswith((".build", "meson_options.txt")) or first.startswith("#!"):
        return hash_comments(text)
    if name.endswith(".md"):
        return [(1, text)]
    return []


class Repository:
    def __init__(self, root):
        self.root = root
        self.files = tracked(root)
        self.set = set(self.files)
        self.names = {pathlib.PurePath(f).name for f in self.files}
        self.folders = {str(p) for f in self.files for p in pathlib.PurePath(f).parents}
        self.decisions = {int(pathlib.PurePath(f).name[:4]) for f in self.files
                          if re.match(r"docs/decisions/\d{4}-", f)}
        self.tops = {f.split("/", 1)[0] for f in self.files if "/" in f}
        makers = [f for f in self.files if f.endswith(("meson.build", "generate.py", "dev"))]
        self.words = {w for f in self.files for w in self.code_words(f)}
        self.made = "\n".join((root / f).read_text() for f in makers)

    def code_words(self, name):
        """Identifiers of a source, less its comments."""
        if name.startswith("bench/results/") or name.endswith((".md", ".json", ".txt", ".svg")):
            return []
        try:
            text = (self.root / name).read_text()
        except (UnicodeDecodeError, IsADirectoryError):
            return []
        if name.endswith((".h", ".cc", ".cu")):
            text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        else:
            text = re.sub(r"#[^\n]*", "", text)
        return re.findall(r"\w+", text)

    def near(self, citing, path):
        """`path` as seen from the root, or from any folder above the citing file."""
        return [str(folder / path) for folder in pathlib.PurePath(citing).parents]

    def has_file(self, citing, folder, stem, ending):
        name = f"{stem}.{ending}"
        if PLACEHOLDER.search(stem) or name in FOREIGN or folder + name in FOREIGN:
            return True
        if "*" in folder + name:
            return any(pathlib.PurePath(f).match(p) for p in self.near(citing, folder + name)
                       for f in self.files)
        if not folder:
            return name in self.names or bool(re.search(rf"(?<![\w.]){re.escape(name)}", self.made))
        if folder.split("/")[0] not in self.tops and not any(
                p.rstrip("/") in self.folders for p in self.near(citing, folder)):
            return not self.ours(folder)
        if any(p in self.set for p in self.near(citing, folder + name)):
            return True
        return name in self.made or folder.startswith("build")

    def ours(self, folder):
        return folder.split("/")[0] in self.tops

    def has_folder(self, citing, folder):
        return any(p.rstrip("/") in self.folders for p in self.near(citing, folder))


    def has_path(self, citing, path):
        """A file or folder, or a program that is built in its folder."""
        folder, _, name = path.rpartition("/")
        if name in FOREIGN:
            return self.has_folder(citing, folder)
        if PLACEHOLDER.search(name) or re.fullmatch(r"docs/decisions/\d{4}", path):
            return True
        if self.has_folder(citing, path) or any(p in self.set for p in self.near(citing, path)):
            return True
        return any(name in (self.root / p / "meson.build").read_text()
                   for p in self.near(citing, folder) if p + "/meson.build" in self.set)


def anchors(text):
    heads = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in heads}


def wrong_links(repository, name, text):
    for match in LINK.finditer(text):
        target, _, anchor = match[1].partition("#")
        if re.match(r"\w+:", target):
            continue
        path = (repository.root / name).parent / target if target else repository.root / name
        if not path.exists():
            yield match.start(), f"the link {match[1]} leads nowhere"
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text()):
            yield match.start(), f"{target or name} has no heading #{anchor}"


def wrong_decisions(repository, name, text):
    links = {m.start() + 1: m for m in DECISION_LINK.finditer(text)}
    for match in DECISION.finditer(text):
        link = links.get(match.start())
        if int(match[1]) not in repository.decisions:
            yield match.start(), f"there is no decision {match[1]}"
        elif link and int(link[1]) != int(link[2]):
            yield match.start(), f"decision {link[1]} is linked to {link[2]}"
        elif not link and not name.startswith(("bench/results/", "docs/decisions/")):
            yield match.start(), f"{match[0]}: write docs/decisions/{int(match[1]):04}, or a link"
    for match in re.finditer(r"docs/decisions/(\d{4})(?![\w-])", text):
        if int(match[1]) not in repository.decisions:
            yield match.start(), f"{match[0]} is not there"


def wrong_files(repository, name, text):
    for match in FILE.finditer(text):
        folder, stem, ending = match[1], match[2], match[3]
        endings = ending[1:-1].split(",") if ending.startswith("{") else [ending]
        for one in endings:
            if not repository.has_file(name, folder, stem, one):
                yield match.start(), f"{folder}{stem}.{one} is not there"
    for match in PATH.finditer(text):
        if repository.ours(match[1]) and not repository.has_path(name, match[1]):
            yield match.start(), f"{match[1]} is not there"
    for match in FOLDER.finditer(text):
        if repository.ours(match[1]) and not repository.has_folder(name, match[1]):
            yield match.start(), f"the folder {match[1]} is not there"


def wrong_runs(repository, name, text):
    """Commits whose measurements a document cites."""
    for match in RUN.finditer(text if name.startswith("docs/") else ""):
        if not any(match[1] in f for f in repository.folders):
            yield match.start(), f"bench/results has no run at {match[1]}"


def wrong_names(repository, _, text):
    """Functions, constants, globals and variables of the environment that no code mentions."""
    for match in NAME.finditer(text):
        name = next(filter(None, match.groups())).split("::")[-1].lstrip("~")
        if name not in repository.words and not any(w.startswith(name) for w in repository.words):
            yield match.start(), f"no code mentions {name}"


def wrong_words(_, name, text):
    for match in OUTSIDE.finditer(text):
        yield match.start(), f"`{match[0]}` points outside of the repository"


def unwrapped(text):
    """Comment marks go, so that what is cited across two lines is one piece; lines stay."""
    return re.sub(r"(?m)^\s*(?://+|#+(?= )|\*)", "", text)


def findings(repository):
    for name in repository.files:
        path = repository.root / name
        if name.startswith(("tests/golden/", "tests/repo/citations")) or path.is_symlink():
            continue
        if name.startswith("bench/results/") and not name.endswith("README.md"):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        pieces = prose(name, text)
        if not name.endswith(".md"):
            pieces = joined(pieces)
        for line, piece in pieces:
            checks = (wrong_decisions, wrong_files, wrong_words, wrong_names)
            if name.endswith(".md"):
                checks += (wrong_links, wrong_runs)
            for at, what in itertools.chain(*(check(repository, name, piece) for check in checks)):
                yield f"{name}:{line + piece.count(chr(10), 0, at)}: {what}"


def joined(pieces):
    """Comments on lines that follow each other are one text."""
    out = []
    for line, text in pieces:
        text = unwrapped(text)
        if out and line == out[-1][0] + out[-1][1].count("\n") + 1:
            out[-1][1] += "\n" + text
        else:
            out.append([line, text])
    return out


def main():
    found = list(findings(Repository(pathlib.Path(sys.argv[1]))))
    print("\n".join(found) or "every citation resolves")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
