"""How one parameter of a generated call travels: a class per annotation, each knowing its wire
fields and its C++.

Order in the generated hook body:    check (before any ring space is held), blob_bytes, fill,
[send], finish (copy out)
Order in the generated proxy body:   prepare, argument, [driver call], result (only after success)

The C++ that is emitted uses hook/objects/support.h and proxy/common/support.h; README.md lists what
it needs of them.
"""

from layout import Field

# Opaque CUDA handles that exist as objects with ids (protocol/handle_id.h).
KINDS = {
    "CUstream": "kStream",
    "CUevent": "kEvent",
    "CUlibrary": "kLibrary",
    "CUmodule": "kModule",
    "CUfunction": "kKernel",
    "CUkernel": "kKernel",
    "CUgraph": "kGraph",
    "CUgraphNode": "kGraphNode",
    "CUgraphExec": "kGraphExec",
    "CUmemGenericAllocationHandle": "kMemHandle",
    "CUmemoryPool": "kMemPool",
    "CUlinkState": "kLink",
    "CUarray": "kArray",
    "CUmipmappedArray": "kMipmappedArray",
    "CUuserObject": "kUserObject",
    "CUgreenCtx": "kGreenContext",
    "CUtexref": "kTexRef",
    "CUexternalMemory": "kExternalMemory",
    "CUexternalSemaphore": "kExternalSemaphore",
}
_NUMBERS = {
    "int": "i32",
    "unsigned int": "u32",
    "size_t": "u64",
    "unsigned long long": "u64",
    "cuuint64_t": "u64",
    "cuuint32_t": "u32",
    "float": "f32",
    "unsigned char": "u8",
    "unsigned short": "u16",
    "CUdeviceptr": "dptr",
    "CUdevice": "device",
    "CUtexObject": "u64",
    "CUsurfObject": "u64",
    "CUgraphConditionalHandle": "u64",
}
_BYTES = {"u8": 1, "u16": 2, "u32": 4, "i32": 4, "f32": 4, "device": 4}
MAX_NAME = 4096


class ParameterError(Exception):
    pass


class Types:
    """Answers what a C type is on the wire."""

    def __init__(self, api, opaques):
        self.enums, self.opaques = api.enums, opaques

    def kind(self, ctype):
        """Wire kind of a value of this type, or None when it cannot travel by itself."""
        if ctype in KINDS:
            return "id"
        if ctype in _NUMBERS:
            return _NUMBERS[ctype]
        if ctype in self.enums:
            return "i32"
        if ctype in self.opaques:
            return f"opaque:{self.opaques[ctype]}"
        return None

    def pointee(self, ctype):
        text = ctype.replace("const ", "").strip()
        if not text.endswith("*"):
            raise ParameterError(f"is `{ctype}`, a value; the annotation is for a pointer")
        return text[:-1].strip()

    def element_bytes(self, ctype):
        kind = self.kind(ctype)
        if kind is None:
            raise ParameterError(f"points to `{ctype}`, which has no wire form")
        return int(kind.split(":")[1]) if kind.startswith("opaque") else _BYTES.get(kind, 8)


class Parameter:
    """Base: travels nowhere. `call` is the model.Call it belongs to."""

    created = freed = None
    output = False

    def __init__(self, call, param, types, arguments):
        self.call, self.name, self.ctype, self.types = call, param.name, param.ctype, types
        self.nullable = arguments.pop("nullable", False)
        self.proxy_check = arguments.pop("check", None)
        self.take(arguments)
        if arguments:
            raise ParameterError(f"the annotation does not know `{', '.join(arguments)}`")

    def take(self, arguments): pass
    def request(self): return []
    def reply(self): return []
    def check(self): return []
    def blob_bytes(self): return None
    def fill(self): return []
    def finish(self): return []
    def prepare(self): return []
    def argument(self): return self.name
    def result(self): return []

    def check_lines(self):
        """check="f": the proxy calls f(session, call.fixed, value) of handler_glue.h before the
        driver sees the value."""
        return [
            f"if (CUresult r = {self.proxy_check}(session, call.fixed, {self.name})) return r;"
        ] if self.proxy_check else []

    def null_check(self):
        return [] if self.nullable else [
            f"if ({self.name} == nullptr) return CUDA_ERROR_INVALID_VALUE;"
        ]


class Value(Parameter):
    """A number, an enum, a device address, a device ordinal or a struct by value."""

    def take(self, arguments):
        self.kind = self.types.kind(self.ctype)
        if self.kind is None:
            what = "a pointer: say its direction and extent" if "*" in self.ctype else "has no wire form"
            raise ParameterError(f"is `{self.ctype}`, {what}")

    def request(self): return [Field(self.name, self.kind)]

    def check(self):
        if self.kind != "device":
            return []
        return [
            f"int32_t {self.name}_number = 0;",
            f"if (CUresult r = hook::device_number({self.name}, &{self.name}_number)) return r;"
        ]

    def fill(self):
        if self.kind.startswith("opaque"):
            return [f"std::memcpy(request->{self.name}, &{self.name}, sizeof {self.name});"]
        value = f"{self.name}_number" if self.kind == "device" else self.name
        return [f"request->{self.name} = static_cast<decltype(request->{self.name})>({value});"]

    def prepare(self):
        if self.kind.startswith("opaque"):
            return [
                f"{self.ctype} {self.name};",
                f"std::memcpy(&{self.name}, call->{self.name}, sizeof {self.name});"
            ]
        if self.kind == "device":
            return [f"CUdevice {self.name} = 0;",
                    f"if (CUresult r = session.device(call->{self.name}, &{self.name})) return r;"]
        return []

    def argument(self):
        if self.kind.startswith("opaque") or self.kind == "device":
            return self.name
        return f"static_cast<{self.ctype}>(call->{self.name})"


class Address(Value):
    """A device address, or a void* that is one. With an extent the proxy checks that the client
    owns those bytes, and may write them when the call does (`written`)."""

    def take(self, arguments):
        self.bytes = arguments.pop("bytes", None)
        self.written = arguments.pop("written", False)
        self.kind = "dptr"
        if self.ctype not in ("CUdeviceptr", "void *"):
            raise ParameterError(f"is `{self.ctype}`, not an address")

    def fill(self):
        value = self.name if self.ctype == "CUdeviceptr" else f"reinterpret_cast<uint64_t>({self.name})"
        return [f"request->{self.name} = {value};"]

    def prepare(self):
        if self.bytes is None:
            return []
        check = "check_target_range" if self.written else "check_device_range"
        return [f"if (CUresult r = session.{check}(call->{self.name}, {self.bytes})) return r;"]

    def argument(self):
        if self.ctype == "CUdeviceptr":
            return f"static_cast<CUdeviceptr>(call->{self.name})"
        return f"reinterpret_cast<void*>(call->{self.name})"


class Handle(Parameter):
    """A handle by value. Streams are ordered against the client's legacy stream for the duration of
    the call."""

    def take(self, arguments):
        self.object = KINDS[self.ctype]

    def request(self):
        kinds = {"kStream": "stream", "kEvent": "event", "kGraphExec": "exec"}
        return [Field(self.name, kinds.get(self.object, "id"))]

    def check(self):
        find = (
            f"if (CUresult r = id_of(wire::Kind::{self.object}, reinterpret_cast<const void*>({self.name}), "
            f"&{self.name}_id)) return r;")
        if self.nullable:
            find = f"if ({self.name}) {{ {find} }}"
        return [f"uint64_t {self.name}_id = 0;", find]

    def fill(self): return [f"request->{self.name} = {self.name}_id;"]

    def prepare(self):
        if self.object == "kStream":
            return [f"auto {self.name} = session.stream_op(call->{self.name});",
                    f"if ({self.name}.error != CUDA_SUCCESS) return {self.name}.error;"]
        if self.nullable:
            return [
                f"{self.ctype} {self.name}{{}};", f"if (call->{self.name} != 0) {{",
                f"  auto found = session.resolve<{self.ctype}>(wire::Kind::{self.object}, call->{self.name});",
                "  if (found.error != CUDA_SUCCESS) return found.error;",
                f"  {self.name} = found.handle;", "}"
            ]
        return [
            f"auto {self.name} = session.resolve<{self.ctype}>(wire::Kind::{self.object}, call->{self.name});",
            f"if ({self.name}.error != CUDA_SUCCESS) return {self.name}.error;"
        ]

    def argument(self):
        if self.object == "kStream":
            return f"{self.name}.stream"
        return self.name if self.nullable else f"{self.name}.handle"


class AttributedStream(Handle):
    """A stream that this call gives attributes: from then on its launches are not plain ones
    (proxy/session/runs.h)."""

    def take(self, arguments):
        if self.ctype != "CUstream":
            raise ParameterError(f"is `{self.ctype}`, not a stream")
        super().take(arguments)

    def prepare(self):
        return super().prepare() + [f"{self.name}.state->attributes = true;"]


class Frees(Handle):
    """The object ends with this call. part=True: it is part of another one (a graph's node), so the
    driver call itself ends it; else the session does, with all that hangs on it
    (Session::destroy_object)."""

    def take(self, arguments):
        what, self.part = arguments.pop("what", None), arguments.pop("part", False)
        if self.ctype not in KINDS:
            raise ParameterError(f"frees({what!r}) needs a handle, `{self.ctype}` is none")
        super().take(arguments)
        self.freed = None if self.part else self.object

    def result(self):
        return [f"session.objects().erase(wire::Kind::{self.object}, call->{self.name});"
               ] if self.part else []

    def finish(self): return [f"drop(wire::Kind::{self.object}, {self.name}_id);"]


class Creates(Parameter):
    """*p gets a handle that the client makes, so that nothing needs to come back."""

    def take(self, arguments):
        arguments.pop("what", None)
        self.target = self.types.pointee(self.ctype)
        if self.target not in KINDS:
            raise ParameterError(f"creates() needs a pointer to a handle, `{self.ctype}` is none")
        self.object = self.created = KINDS[self.target]

    def request(self): return [Field(self.name, "id")]
    def check(self): return self.null_check()

    def fill(self):
        return [
            f"void* {self.name}_handle = nullptr;",
            f"const uint64_t {self.name}_id = new_id(wire::Kind::{self.object}, &{self.name}_handle);",
            f"if ({self.name}_handle == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;",
            f"request->{self.name} = {self.name}_id;"
        ]

    def failed(self): return [f"drop(wire::Kind::{self.object}, {self.name}_id);"]
    def finish(self): return [f"*{self.name} = ({self.target}){self.name}_handle;"]

    def prepare(self):
        return [
            f"if (CUresult r = session.objects().admit(wire::Kind::{self.object}, call->{self.name})) return r;",
            f"{self.target} {self.name}{{}};"
        ]

    def argument(self): return f"&{self.name}"
    def result(self):
        return [
            f"if (CUresult r = keep(session, wire::Kind::{self.object}, call->{self.name}, {self.name})) return r;"
        ]


class Out(Parameter):
    """*p is written. A handle is one that the proxy made: the hook adopts its id."""

    output = True

    def take(self, arguments):
        self.target = self.types.pointee(self.ctype)
        self.kind = self.types.kind(self.target)
        if self.kind is None:
            raise ParameterError(f"is `{self.ctype}`; `{self.target}` has no wire form")
        if self.kind == "device":
            raise ParameterError(
                "a device ordinal is answered in the hook, not by a generated call")
        self.opaque = self.kind.startswith("opaque")

    def reply(self): return [Field(self.name, self.kind)]
    def check(self): return self.null_check()

    def finish(self):
        guard = f"if ({self.name} != nullptr) " if self.nullable else ""
        if self.opaque:
            return [f"{guard}std::memcpy({self.name}, reply.{self.name}, sizeof *{self.name});"]
        if self.kind == "id":
            return [
                f"{guard}*{self.name} = ({self.target})adopt(wire::Kind::{KINDS[self.target]}, reply.{self.name});"
            ]
        return [f"{guard}*{self.name} = static_cast<{self.target}>(reply.{self.name});"]

    def prepare(self): return [f"{self.target} {self.name}{{}};"] + self.check_lines()
    def argument(self): return f"&{self.name}"

    def result(self):
        if self.opaque:
            return [f"std::memcpy(reply->{self.name}, &{self.name}, sizeof {self.name});"]
        if self.kind == "id":
            return [
                f"if (CUresult r = adopt(session, wire::Kind::{KINDS[self.target]}, {self.name}, "
                f"{self.call.parent()}, &reply->{self.name})) return r;"
            ]
        return [
            f"reply->{self.name} = static_cast<std::remove_reference_t<decltype(reply->{self.name})>>({self.name});"
        ]


class InOut(Out):
    def take(self, arguments):
        super().take(arguments)
        if self.kind == "id":
            raise ParameterError("inout() of a handle is not a regular call")

    def request(self): return [Field(self.name, self.kind)]

    def fill(self):
        line = (
            f"std::memcpy(request->{self.name}, {self.name}, sizeof *{self.name});"
            if self.opaque else
            f"request->{self.name} = static_cast<decltype(request->{self.name})>(*{self.name});")
        return [f"if ({self.name} != nullptr) {line}" if self.nullable else line]

    def prepare(self):
        if self.opaque:
            return [
                f"{self.target} {self.name};",
                f"std::memcpy(&{self.name}, call->{self.name}, sizeof {self.name});"
            ]
        return [f"{self.target} {self.name} = static_cast<{self.target}>(call->{self.name});"]


class StructIn(Parameter):
    """*p is read and travels inside the fixed struct. A nullable one has a flag `has_p`."""

    def take(self, arguments):
        self.target = self.types.pointee(self.ctype)
        self.kind = self.types.kind(self.target)
        if self.kind is None or self.kind == "id":
            raise ParameterError(
                f"`{self.target}` is not declared opaque(): it holds pointers or handles, or its size is unknown"
            )

    def request(self):
        flag = [Field(f"has_{self.name}", "u32")] if self.nullable else []
        return flag + [Field(self.name, self.kind)]

    def check(self): return self.null_check()

    def fill(self):
        copy = (
            f"std::memcpy(request->{self.name}, {self.name}, sizeof *{self.name});"
            if self.kind.startswith("opaque") else
            f"request->{self.name} = static_cast<decltype(request->{self.name})>(*{self.name});")
        if self.nullable:
            return [
                f"if ({self.name} != nullptr) {{", f"  request->has_{self.name} = 1;", f"  {copy}",
                "}"
            ]
        return [copy]

    def prepare(self):
        if self.kind.startswith("opaque"):
            lines = [
                f"{self.target} {self.name};",
                f"std::memcpy(&{self.name}, call->{self.name}, sizeof {self.name});"
            ]
        else:
            lines = [f"{self.target} {self.name} = static_cast<{self.target}>(call->{self.name});"]
        return lines + self.check_lines()

    def argument(self):
        return f"call->has_{self.name} ? &{self.name} : nullptr" if self.nullable else f"&{self.name}"
