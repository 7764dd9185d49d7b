"""The proxy's side: the driver's function table, handler declarations, generated handlers, the
dispatch switch."""

from cuda_header import declare_params
from emit_wire import NOTICE


def driver_header(model):
    out = [
        NOTICE, "#pragma once", "", "#include <string>", "", '#include "base/cuda_api.h"', "",
        "namespace tube::proxy {", "",
        "// Every entry point of the backend, under the name it exports.", "struct Driver {"
    ]
    out += [
        f"  CUresult (*{c.name})({declare_params(c.function.params)}) = nullptr;"
        for c in model.exported()
    ]
    return "\n".join(out + [
        "",
        "  // Loads the backend and fills in every name. A missing name is an error unless a newer toolkit added it: then the",
        "  // member answers CUDA_ERROR_NOT_SUPPORTED. false: *why says what is wrong. The library stays loaded for good.",
        "  bool load(const char* path, std::string* why);", "",
        "  // The number of names that the loaded backend lacks.", "  unsigned missing = 0;", "};",
        "", "}  // namespace tube::proxy", ""
    ])


def driver_calls(model):
    out = [
        NOTICE, "#pragma once", "", '#include "protocol/driver_table.gen.h"', "",
        "namespace tube::proxy {", "",
        "// visit.operator()<I>(name, member) for every member of the table, I counting them.",
        "template <class Visit>", "void each_driver_call(Driver& table, Visit&& visit) {"
    ]
    out += [
        f'  visit.template operator()<{number}>("{c.name}", table.{c.name});'
        for number, c in enumerate(model.exported())
    ]
    return "\n".join(out + ["}", "", "}  // namespace tube::proxy", ""])


def driver_source(model):
    out = [
        NOTICE, '#include "protocol/driver_table.gen.h"', "", "#include <dlfcn.h>", "",
        "namespace tube::proxy {", "namespace {", "",
        "// Stands in for a name that an older driver does not have.",
        "template <class... Arguments>", "CUresult not_there(Arguments...) {",
        "  return CUDA_ERROR_NOT_SUPPORTED;", "}", "", "template <class... Arguments>",
        "void find(void* library, const char* name, CUresult (**member)(Arguments...), unsigned* missing) {",
        "  void* symbol = dlsym(library, name);", "  if (symbol == nullptr) ++*missing;",
        "  *member = symbol != nullptr ? reinterpret_cast<CUresult (*)(Arguments...)>(symbol) : &not_there<Arguments...>;",
        "}", "", "}  // namespace", "", "bool Driver::load(const char* path, std::string* why) {",
        "  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);",
        "  if (library == nullptr) {", "    *why = dlerror();", "    return false;", "  }",
        "  missing = 0;"
    ]
    out += [f'  find(library, "{c.name}", &{c.name}, &missing);' for c in model.exported()]
    return "\n".join(out + [
        '  if (dlsym(library, "cuInit") == nullptr) {',
        '    *why = std::string(path) + " is not a CUDA driver: it has no cuInit";',
        "    return false;", "  }", "  return true;", "}", "", "}  // namespace tube::proxy", ""
    ])


def _signature(call):
    return (
        f"CUresult handle(Session& session, const Decoded<wire::{call.name}>& call, Reply<wire::{call.name}>& reply)"
    )


def handler_header(model):
    """proxy_decls.gen.h. The functions under `by hand` are the list of what proxy/ must define."""
    out = [
        NOTICE, "#pragma once", "", "#include <cstddef>", "#include <span>", "",
        '#include "proxy/common/support.h"', '#include "sharedmem/abi.h"', "",
        "namespace tube::proxy {", "",
        "// Copies the fixed struct, validates it and runs the call's handler. `untrusted_payload` is the session's own copy",
        "// of the record. A bad number or payload poisons the session.",
        "CUresult dispatch(Session& session, const abi::RecordHeader& header, std::span<const std::byte> untrusted_payload,",
        "                  ReplyBuffer& buffer);", ""
    ]
    for title, kind in (("by hand in proxy/calls/", "hand"), ("generated (handlers.gen.cc)",
                                                                   "generated")):
        calls = [c for c in model.wire if c.handler == kind]
        out.append(f"// {title}: {len(calls)}")
        chapter = None
        for c in sorted(calls, key=lambda c: (c.chapter, c.number)):
            if c.chapter != chapter:
                chapter = c.chapter
                out.append(f"// --- {chapter}")
            out.append(_signature(c) + ";")
        out.append("")
    return "\n".join(out + ["}  // namespace tube::proxy", ""])


def _handler(call):
    out = [
        f"CUresult handle(Session& session, [[maybe_unused]] const Decoded<wire::{call.name}>& call,",
        f"                [[maybe_unused]] Reply<wire::{call.name}>& reply) {{"
    ]
    ends = [p for p in call.parameters if p.freed]
    if ends:  # the session knows what goes with an object and in which order
        return out + [
            f"  return session.destroy_object(wire::Kind::{ends[0].freed}, call->{ends[0].name});",
            "}", ""
        ]
    for p in call.parameters:
        out += ["  " + line for line in p.prepare()]
    arguments = ", ".join(p.argument() for p in call.parameters)
    results = ["  " + line for p in call.parameters for line in p.result()]
    driver_call = f"session.driver().{call.name}({arguments})"
    if not results:
        return out + [f"  return {driver_call};", "}", ""]
    return out + [f"  if (CUresult r = {driver_call}) return r;"
                 ] + results + ["  return CUDA_SUCCESS;", "}", ""]


def handlers(model):
    out = [
        NOTICE, "#include <algorithm>", "#include <cstring>", "#include <string>",
        "#include <type_traits>", "#include <vector>", "", '#include "protocol/driver_table.gen.h"',
        '#include "proxy/calls/handler_glue.h"', '#include "protocol/proxy_decls.gen.h"',
        '#include "proxy/session/session.h"', "", "namespace tube::proxy {", ""
    ]
    out += [
        f"static_assert(sizeof({t}) == {n});" for t, n in sorted(model.descriptions.opaques.items())
    ] + [""]
    for c in model.wire:
        if c.handler == "generated":
            out += _handler(c)
    return "\n".join(out + ["}  // namespace tube::proxy", ""])


def dispatch(model):
    out = [
        NOTICE, "#include <cstring>", "", '#include "protocol/proxy_decls.gen.h"',
        '#include "proxy/session/session.h"', "", "namespace tube::proxy {", "namespace {", "",
        "template <class X>",
        "CUresult run(Session& session, std::span<const std::byte> untrusted_payload, ReplyBuffer& buffer) {",
        "  Decoded<X> call;", "  if (untrusted_payload.size() < sizeof(X)) {",
        '    session.poison(abi::PoisonReason::kBadRecord, "record too short for its call");',
        "    return CUDA_ERROR_INVALID_VALUE;", "  }",
        "  std::memcpy(&call.fixed, untrusted_payload.data(), sizeof(X));",
        "  if (!validate(untrusted_payload, call.fixed)) {",
        '    session.poison(abi::PoisonReason::kBadRecord, "a field of the record is out of range");',
        "    return CUDA_ERROR_INVALID_VALUE;", "  }", "  call.payload = untrusted_payload;",
        "  Reply<X> reply(buffer);", "  return handle(session, call, reply);", "}", "",
        "}  // namespace", "",
        "CUresult dispatch(Session& session, const abi::RecordHeader& header, std::span<const std::byte> untrusted_payload,",
        "                  ReplyBuffer& buffer) {",
        "  switch (static_cast<wire::Call>(header.call)) {", "    case wire::Call::kNone: break;"
    ]
    out += [
        f"    case wire::Call::{c.name}: return run<wire::{c.name}>(session, untrusted_payload, buffer);"
        for c in model.wire
    ]
    return "\n".join(out + [
        "  }", '  session.poison(abi::PoisonReason::kBadRecord, "unknown call number");',
        "  return CUDA_ERROR_INVALID_VALUE;", "}", "", "}  // namespace tube::proxy", ""
    ])
