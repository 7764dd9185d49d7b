#!/usr/bin/env python3
"""Turns cuda.h and calls/*.py into everything that Meson compiles. Standard library only; the
output is never committed.

  generate.py --cuda DIR --out DIR      writes all files (only those that changed, so that nothing
  is rebuilt in vain)
  generate.py --cuda DIR --number       appends the names that have no number yet to numbers.lock
  generate.py --cuda DIR --coverage     prints the coverage page
"""

import argparse
import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import cuda_header  # noqa: E402
import describe  # noqa: E402
import emit_docs  # noqa: E402
import emit_hook  # noqa: E402
import emit_properties  # noqa: E402
import emit_proxy  # noqa: E402
import emit_wire  # noqa: E402
import model as model_module  # noqa: E402

PROTOCOL = Path(__file__).resolve().parent.parent

OUTPUTS = {
    "wire.gen.h": emit_wire.wire_header,
    "visit.gen.h": emit_wire.visit_header,
    "properties.gen.h": emit_properties.properties_header,
    "names.gen.cc": emit_wire.names_source,
    "hook_decls.gen.h": emit_hook.declarations,
    "hook_calls.gen.cc": emit_hook.bodies,
    "hook_entries.gen.cc": emit_hook.entries,
    "hook_exports.gen.map": emit_hook.version_script,
    "proc_table.gen.cc": emit_hook.proc_table,
    "driver_table.gen.h": emit_proxy.driver_header,
    "driver_table.gen.cc": emit_proxy.driver_source,
    "driver_calls.gen.h": emit_proxy.driver_calls,
    "proxy_decls.gen.h": emit_proxy.handler_header,
    "handlers.gen.cc": emit_proxy.handlers,
    "dispatch.gen.cc": emit_proxy.dispatch,
    "fuzz.dict": emit_docs.fuzz_dictionary,
}


def write_if_changed(path, text):
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def append_numbers(model, lock, path):
    numbers = dict(lock)
    new = [c.name for c in model.wire if c.name not in numbers]
    number = max(numbers.values(), default=0)
    with path.open("a", encoding="utf-8") as file:
        for name in new:
            number += 1
            file.write(f"{name} {number}\n")
    print(f"{path.name}: {len(new)} names appended")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", default=os.environ.get("CUDA_HOME", "/usr/local/cuda"),
                        help="the CUDA toolkit's folder")
    parser.add_argument("--calls", default=PROTOCOL / "calls", type=Path, help="the descriptions")
    parser.add_argument("--lock", default=PROTOCOL / "numbers.lock", type=Path,
                        help="the call numbers")
    parser.add_argument("--tested", default=PROTOCOL.parent / "tests" / "conformance" / "calls.txt",
                        type=Path, help="which test calls what")
    parser.add_argument("--out", type=Path, help="folder of the generated files")
    parser.add_argument("--number", action="store_true")
    parser.add_argument("--coverage", action="store_true")
    options = parser.parse_args(arguments)
    try:
        model = model_module.Model(cuda_header.load(options.cuda), describe.load(options.calls))
        lock = model_module.read_lock(options.lock)
        if options.number:
            append_numbers(model, lock, options.lock)
            return 0
        model.number(lock)
        tested = emit_docs.read_tested(options.tested)
        if options.coverage:
            print(emit_docs.coverage(model, tested), end="")
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            for name, emit in OUTPUTS.items():
                write_if_changed(options.out / name, emit(model))
            write_if_changed(options.out / "coverage.md", emit_docs.coverage(model, tested))
    except (describe.DescriptionError, cuda_header.HeaderError) as error:
        print(f"protocol: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
