"""Every implemented call is called by a test that exists: the descriptions against
tests/conformance/calls.txt.

tested_calls.py ROOT CUDA_HOME. A row names a conformance case (CHAPTER.CASE), a program
(programs/NAME) or a Python client (python/FILE). `tests/conformance/run --record-calls` writes the
rows anew.
"""
import pathlib
import re
import sys

root, cuda = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "protocol" / "gen"))
import cuda_header  # noqa: E402
import describe  # noqa: E402
import emit_docs  # noqa: E402
import emit_hook  # noqa: E402
import model as model_module  # noqa: E402


def exists(where):
    folder, _, name = where.partition("/")
    if folder == "programs":
        return (root / "tests" / "programs" / f"{name}.cc").exists()
    if folder == "python":
        return (root / "tests" / "e2e" / "python" / name).exists()
    chapter, _, case = where.partition(".")
    source = root / "tests" / "conformance" / f"{chapter}.cc"
    return source.exists() and re.search(rf"CASE\({case}\)", source.read_text()) is not None


model = model_module.Model(cuda_header.load(cuda), describe.load(root / "protocol" / "calls"))
implemented = {
    c.name for c in model.exported() if emit_docs.implemented(emit_hook.resolve(model, c))
}
tested = emit_docs.read_tested(root / "tests" / "conformance" / "calls.txt")
found = [
    f"{name} is implemented, and no test is known to call it" for name in sorted(implemented -
                                                                                 set(tested))
]
found += [
    f"{name}: calls.txt says {tested[name][1]}, which does not exist" for name in sorted(tested)
    if not exists(tested[name][1])
]
print("\n".join(found) or f"{len(implemented)} calls, each called by a test")
sys.exit(1 if found else 0)
