"""The hook as a file: what it exports, what runs when it is loaded, what it needs.

hook_library.py LIBRARY STUB OBJECT_FOLDER...
- It exports exactly the names of the toolkit's stub libcuda.so: one fewer and a program fails to
start, one more and it may
  shadow a symbol of the program it is preloaded into.
- Its own objects have no constructors and register no destructors: driver calls arrive after C++
statics are gone. The one
  exception is preinit.cc, whose constructor does nothing unless TUBE_PREINIT or TUBE_TRACE_START is
  set.
- SONAME libcuda.so.1, never unloaded (NODELETE), no shared C++ runtime, no call that throws.
"""
import pathlib
import re
import subprocess
import sys

NEEDED = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"
}


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library):
    return {
        line.split()[-1].split("@")[0]
        for line in output("nm", "-D", "--defined-only", library).splitlines()
        if line.strip()
    }


def check_exports(library, stub):
    ours, theirs = exported(library), exported(stub)
    for name in sorted(theirs - ours):
        yield f"not exported: {name}"
    for name in sorted(ours - theirs):
        yield f"exported, but no name of the driver: {name}"


def check_undefined(library):
    for name in re.findall(r" U (_ZN?K?\d*N?4tube\S*)",
                           output("nm", "-D", "--undefined-only", library)):
        yield f"a symbol of ours is missing, so it cannot be loaded: {name}"


def check_dynamic(library):
    dynamic = output("readelf", "-dW", library)
    if "[libcuda.so.1]" not in dynamic:
        yield "its SONAME is not libcuda.so.1"
    if "NODELETE" not in dynamic:
        yield "it can be unloaded: link it with -z nodelete"
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if name not in NEEDED:
            yield f"it needs {name}"


def check_objects(folders):
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*.o")):
            sections = output("readelf", "-SW", str(path))
            if re.search(r" \.(init_array|ctors)", sections) and "preinit.cc" not in path.name:
                yield f"{path.name} has a constructor"
            if re.search(r" \.(fini_array|dtors)", sections):
                yield f"{path.name} has a destructor function"
            for name in re.findall(r" U (\S+)", output("nm", str(path))):
                if name in ("__cxa_atexit", "__cxa_throw", "__dynamic_cast", "__cxa_thread_atexit"):
                    yield f"{path.name} uses {name}"


library, stub, folders = sys.argv[1], sys.argv[2], sys.argv[3:]
found = [
    *check_exports(library, stub), *check_undefined(library), *check_dynamic(library),
    *check_objects(folders)
]
print(
    "\n".join(found) or
    f"the hook exports the driver's {len(exported(library))} names and nothing runs when it is loaded"
)
sys.exit(bool(found))
