"""The hook's side: declarations of all bodies, generated bodies, the 637 exported entry points."""

from cuda_header import declare_params
from emit_wire import NOTICE

HAND, GENERATED = ("local", "hand"), ("post", "reply")
_NEEDS = {"nothing": "kNothing", "init": "kInit", "handle": "kHandle", "context": "kContext"}


def resolve(model, call):
    """The call whose body runs: follows alias_of and per-thread forms."""
    seen = set()
    while call.lane in ("alias", "per_thread"):
        if call.name in seen:
            raise ValueError(f"{call.name}: alias_of goes in a circle")
        seen.add(call.name)
        call = model.calls[call.alias_of]
    return call


def declarations(model):
    """hook_decls.gen.h. The functions under `by hand` are the list of what hook/ must define: the
    link fails otherwise."""
    out = [
        NOTICE, "#pragma once", "", '#include "base/cuda_api.h"', "", "namespace tube::hook {", ""
    ]
    for title, lanes in (("by hand in hook/", HAND), ("generated (hook_calls.gen.cc)", GENERATED)):
        calls = [c for c in model.exported() if c.lane in lanes]
        out.append(f"// {title}: {len(calls)}")
        chapter = None
        for c in sorted(calls, key=lambda c: (c.chapter, c.name)):
            if c.chapter != chapter:
                chapter = c.chapter
                out.append(f"// --- {chapter}")
            out.append(f"[[nodiscard]] {c.function.declaration()};")
        out.append("")
    return "\n".join(out + ["}  // namespace tube::hook", ""])


def _body(call):
    """One generated hook body."""
    params = call.parameters
    out = [f"{call.function.declaration()} {{"]

    def add(lines, indent="  "):
        out.extend(indent + line for line in lines)

    for p in params:
        add(p.check())
    blobs = [f"blob_room({b})" for b in (p.blob_bytes() for p in params) if b]
    counters = [p.name for p in params if type(p).__name__ == "InOut"]
    for p in params:
        if p.name in counters and not p.types.kind(p.target).startswith("opaque"):
            add([
                f"[[maybe_unused]] const {p.target} request_{p.name} = {p.name} != nullptr ? *{p.name} : {p.target}{{}};"
            ])
    waits = call.lane == "reply"
    if waits:
        out.append(f"  wire::{call.name}_reply reply{{}};")
        if call.reply.blobs:
            out.append("  ReplyBlobs blobs;")
    failed = [line for p in params if p.created for line in p.failed()]
    fills = [line for p in params for line in p.fill()]
    out.append("  CUresult result = CUDA_SUCCESS;")
    # creates() makes its id before the request is opened: nothing else may happen while the ring is
    # held
    pre = [line for p in params if p.created for line in p.fill()[:-1]]
    add(pre)
    out.append("  {")
    room = f"({' + '.join(blobs)})" if blobs else ""
    out.append(f"    Request<wire::{call.name}> request{room};")
    add([line for line in fills if line not in pre], "    ")
    send = "request.post()" if not waits else f"request.call(&reply{', &blobs' if call.reply.blobs else ''})"
    out += [f"    result = {send};", "  }"]
    if failed:
        out += ["  if (result != CUDA_SUCCESS) {"] + ["    " + line for line in failed
                                                     ] + ["    return result;", "  }"]
    finish = [line for p in params for line in p.finish()]
    if not finish:
        return out + ["  return result;", "}", ""]
    if not failed:
        out.append("  if (result != CUDA_SUCCESS) return result;")
    add(finish)
    return out + ["  return CUDA_SUCCESS;", "}", ""]


def bodies(model):
    out = [
        NOTICE, "#include <algorithm>", "#include <cstring>", "",
        '#include "hook/objects/support.h"', '#include "protocol/hook_decls.gen.h"',
        '#include "hook/objects/id_list.h"', '#include "protocol/wire.gen.h"', "",
        "namespace tube::hook {", ""
    ]
    out += [
        f"static_assert(sizeof({t}) == {n});" for t, n in sorted(model.descriptions.opaques.items())
    ] + [""]
    for c in model.exported():
        if c.lane in GENERATED:
            out += _body(c)
    return "\n".join(out + ["}  // namespace tube::hook", ""])


def _quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _entry(model, index, call):
    f = call.function
    target = resolve(model, call)
    head = f"TUBE_EXPORT CUresult {f.name}({declare_params(f.params)}) {{"
    mark = f"  tube::hook::mark_called({index});"
    if target.lane in ("absent", "undescribed"):
        head = f"TUBE_EXPORT CUresult {f.name}({', '.join(p.ctype for p in f.params)}) {{"
        return [
            head, mark,
            f"  return tube::hook::unsupported({_quote(f.name)}, {_quote(target.why)});", "}"
        ]
    cleared = [
        f"  if ({p} != nullptr) *{p} = {{}};" for p in (call.zeroes or (
            target.zeroes if call.lane == "per_thread" else []))
    ]
    lines = [
        head, mark, *cleared,
        f"  if (CUresult r = tube::hook::guard(tube::hook::Needs::{_NEEDS[target.needs]})) return answered({_quote(f.name)}, r);"
    ]
    arguments = [p.name for p in f.params]
    if f.per_thread and call.lane == "per_thread":  # described as an alias it takes stream 0 as its plain form does
        streams = f.stream_params()
        if streams:
            arguments = [f"per_thread({a})" if a in streams else a for a in arguments]
        else:
            lines.append("  tube::hook::PerThreadDefault scope;")
    return lines + [
        f"  return answered({_quote(f.name)}, tube::hook::{target.name}({', '.join(arguments)}));",
        "}"
    ]


def entries(model):
    out = [
        NOTICE, '#include "hook/process/coverage.h"', '#include "hook/objects/support.h"',
        '#include "protocol/hook_decls.gen.h"', "",
        '#define TUBE_EXPORT __attribute__((visibility("default")))', "", "namespace {", "",
        "using tube::hook::answered;", "", "// What stream 0 means in a _ptds / _ptsz entry point.",
        "CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }",
        "", "}  // namespace", "", 'extern "C" {', ""
    ]
    for index, c in enumerate(model.exported()):
        out += _entry(model, index, c)
    return "\n".join(out + ["", '}  // extern "C"', ""])


def version_script(model):
    """Exports exactly the driver's names."""
    return "{\n  global:\n" + "".join(
        f"    {c.name};\n" for c in model.exported()) + "  local: *;\n};\n"


def proc_table(model):
    """The rows of cuGetProcAddress, sorted by name, then default before per-thread, then
    version."""
    rows = sorted(model.api.proc_rows)
    out = [
        NOTICE, '#include "base/cuda_api.h"', '#include "protocol/proc_lookup.h"', "",
        "namespace tube::hook {", "", f"const uint32_t kProcRowCount = {len(rows)};",
        f"const int kHeaderCudaVersion = {model.api.version};", "const ProcRow kProcRows[] = {"
    ]
    out += [
        f'    {{"{r.base}", {r.version}, {str(r.per_thread).lower()}, reinterpret_cast<void*>(&::{r.symbol})}},'
        for r in rows
    ]
    return "\n".join(out + ["};", "", "}  // namespace tube::hook", ""])
