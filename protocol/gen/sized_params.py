"""Parameters whose size the call says: bytes, arrays, texts, values of a type that another
parameter names."""

from fixed_params import Parameter, KINDS, MAX_NAME
from layout import Field


class BytesIn(Parameter):
    def take(self, arguments):
        self.size = arguments.pop("size")
        self.call.need(self.size)

    def request(self): return [Field(self.name, "blob")]

    def check(self):
        return [f"if ({self.name} == nullptr && {self.size} != 0) return CUDA_ERROR_INVALID_VALUE;",
                f"if ({self.size} > wire::kMaxBlobBytes) return CUDA_ERROR_NOT_SUPPORTED;"]

    def blob_bytes(self): return f"{self.size}"

    def fill(self):
        return [
            f"request.put(&wire::{self.call.name}::{self.name}, {self.name}, static_cast<uint32_t>({self.size}));"
        ]
    def prepare(self):
        return [
            f"const auto {self.name} = call.blob(call->{self.name});",
            f"if ({self.name}.size() != static_cast<size_t>(call->{self.size})) return CUDA_ERROR_INVALID_VALUE;"
        ]
    def argument(self): return f"{self.name}.data()"


class BytesOut(Parameter):
    output = True

    def take(self, arguments):
        self.size, self.max = arguments.pop("size"), arguments.pop("max", 8192)
        self.call.need(self.size)

    def reply(self): return [Field(self.name, "blob", max_bytes=self.max)]

    def check(self):
        return self.null_check() + [
            f"if ({self.size} > {self.max}u) return CUDA_ERROR_NOT_SUPPORTED;"
        ]

    def finish(self):
        return [
            f"if (const auto bytes = blobs.get(reply.{self.name}); {self.name} != nullptr && !bytes.empty())",
            f"  std::memcpy({self.name}, bytes.data(), std::min<size_t>(bytes.size(), {self.size}));"
        ]

    def prepare(self):
        return [f"if (call->{self.size} > {self.max}u) return CUDA_ERROR_INVALID_VALUE;",
                f"std::vector<std::byte> {self.name}(static_cast<size_t>(call->{self.size}));"]

    def argument(self): return f"{self.name}.data()"

    def result(self):
        return [f"reply.put(&wire::{self.call.name}_reply::{self.name}, {self.name});"]


class ArrayIn(Parameter):
    """`count` elements, less `less`; handles travel as ids, one by one."""

    def take(self, arguments):
        self.count, self.max, self.less = arguments.pop("count"), arguments.pop(
            "max", 1024), arguments.pop("less", 0)
        self.over = arguments.pop("over", "CUDA_ERROR_NOT_SUPPORTED")
        self.call.need(self.count)
        self.target = self.types.pointee(self.ctype)
        self.bytes = self.types.element_bytes(self.target)
        self.handles = self.target in KINDS

    def extent(self, source=""):
        return f"static_cast<size_t>({source}{self.count}){f' - {self.less}' if self.less else ''}"

    def request(self):
        return [Field(self.name, "blob", element_bytes=self.bytes, max_bytes=self.bytes * self.max)]

    def check(self):
        lines = [f"if ({self.count} < {self.less}u) return CUDA_ERROR_INVALID_VALUE;"
                ] if self.less else []
        lines += [f"if ({self.extent()} > {self.max}u) return {self.over};",
                  f"const size_t {self.name}_count = {self.name} != nullptr ? {self.extent()} : 0;"]
        if not self.nullable:
            lines += [
                f"if ({self.name} == nullptr && {self.extent()} != 0) return CUDA_ERROR_INVALID_VALUE;"
            ]
        if self.handles:
            lines += [
                f"IdList {self.name}_ids;",
                f"if (CUresult r = {self.name}_ids.fill(wire::Kind::{KINDS[self.target]}, {self.name}, {self.name}_count)) return r;"
            ]
        return lines

    def blob_bytes(self): return f"{self.name}_count * {self.bytes}u"

    def fill(self):
        data = f"{self.name}_ids.data()" if self.handles else self.name
        return [
            f"if ({self.name}_count != 0) request.put(&wire::{self.call.name}::{self.name}, {data}, "
            f"static_cast<uint32_t>({self.name}_count * {self.bytes}u));"
        ]

    def prepare(self):
        lines = [f"if (call->{self.count} < {self.less}u) return CUDA_ERROR_INVALID_VALUE;"
                ] if self.less else []
        none = f" && !{self.name}_blob.empty()" if self.nullable else ""
        lines += [
            f"const auto {self.name}_blob = call.blob(call->{self.name});",
            f"if ({self.name}_blob.size() / {self.bytes}u != {self.extent('call->')}{none}) return CUDA_ERROR_INVALID_VALUE;",
            f"std::vector<{self.target}> {self.name}({self.name}_blob.size() / {self.bytes}u);"
        ]
        if self.handles:
            lines += [
                f"for (size_t i = 0; i < {self.name}.size(); ++i) {{",
                f"  auto found = session.resolve<{self.target}>(wire::Kind::{KINDS[self.target]}, "
                f"wire::blob_u64({self.name}_blob, i));",
                "  if (found.error != CUDA_SUCCESS) return found.error;",
                f"  {self.name}[i] = found.handle;", "}"
            ]
        else:
            lines += [
                f"if (!{self.name}.empty()) std::memcpy({self.name}.data(), {self.name}_blob.data(), {self.name}_blob.size());"
            ]
        return lines + self.check_lines()

    def argument(self): return f"{self.name}.empty() ? nullptr : {self.name}.data()"


class ArrayOut(Parameter):
    """Up to `count` elements. When the count is an inout() pointer, a null array asks for the
    number only, and the entries past the actual number are set to null, as the driver documents for
    graphs."""

    output = True

    def take(self, arguments):
        self.count, self.max = arguments.pop("count"), arguments.pop("max", 1024)
        self.call.need(self.count)
        self.counter = self.call.ctype(self.count).endswith("*")
        self.target = self.types.pointee(self.ctype)
        self.bytes = self.types.element_bytes(self.target)
        self.handles = self.target in KINDS

    def request(self): return [Field(f"has_{self.name}", "u32")]

    def reply(self):
        return [Field(self.name, "blob", element_bytes=self.bytes, max_bytes=self.bytes * self.max)]

    def check(self):
        count = f"*{self.count}" if self.counter else self.count
        lines = [] if self.nullable else self.null_check()
        condition = f"{self.name} != nullptr && {self.count} != nullptr && " if self.counter else ""
        return lines + [f"if ({condition}{count} > {self.max}u) return CUDA_ERROR_NOT_SUPPORTED;"]

    def fill(self): return [f"request->has_{self.name} = {self.name} != nullptr;"]

    def finish(self):
        capacity = f"static_cast<size_t>(request_{self.count})" if self.counter else f"static_cast<size_t>({self.count})"
        lines = [
            f"if ({self.name} != nullptr) {{",
            f"  const auto bytes = blobs.get(reply.{self.name});",
            f"  const size_t filled = std::min(bytes.size() / {self.bytes}u, {capacity});"
        ]
        if self.handles:
            lines += [
                f"  for (size_t i = 0; i < filled; ++i) {self.name}[i] = "
                f"({self.target})adopt(wire::Kind::{KINDS[self.target]}, wire::blob_u64(bytes, i));"
            ]
        else:
            lines += [
                f"  if (filled != 0) std::memcpy({self.name}, bytes.data(), filled * {self.bytes}u);"
            ]
        if self.counter:
            lines += [
                f"  for (size_t i = filled; i < {capacity}; ++i) {self.name}[i] = {self.target}{{}};"
            ]
        return lines + ["}"]

    def prepare(self):
        return [
            f"if (call->has_{self.name} && call->{self.count} > {self.max}u) return CUDA_ERROR_INVALID_VALUE;",
            f"std::vector<{self.target}> {self.name}(call->has_{self.name} ? static_cast<size_t>(call->{self.count}) : 0);"
        ]

    def argument(
            self):  # an asked-for array of no elements must not look like a question for the number
        return f"call->has_{self.name} ? non_null({self.name}) : nullptr"

    def result(self):
        filled = f"std::min<size_t>({self.name}.size(), static_cast<size_t>({self.count}))" if self.counter else f"{self.name}.size()"
        if not self.handles:
            return [f"reply.put(&wire::{self.call.name}_reply::{self.name}, "
                    f"std::as_bytes(std::span({self.name}).first({filled})));"]
        return [
            f"std::vector<uint64_t> {self.name}_ids({filled});",
            f"for (size_t i = 0; i < {self.name}_ids.size(); ++i) {{",
            f"  if (CUresult r = adopt(session, wire::Kind::{KINDS[self.target]}, {self.name}[i], {self.call.parent()}, "
            f"&{self.name}_ids[i])) return r;", "}",
            f"reply.put(&wire::{self.call.name}_reply::{self.name}, std::as_bytes(std::span({self.name}_ids)));"
        ]


class TextIn(Parameter):
    def request(self): return [Field(self.name, "name", max_bytes=MAX_NAME)]

    def check(self):
        return self.null_check() + [
            f"const size_t {self.name}_length = {self.name} != nullptr ? ::strnlen({self.name}, {MAX_NAME}u + 1) : 0;",
            f"if ({self.name}_length > {MAX_NAME}u) return CUDA_ERROR_INVALID_VALUE;"
        ]

    def blob_bytes(self): return f"{self.name}_length"

    def fill(self):
        return [
            f"request.put(&wire::{self.call.name}::{self.name}, {self.name}, static_cast<uint32_t>({self.name}_length));"
        ]

    def prepare(self):
        return [f"const std::string {self.name} = text(call.blob(call->{self.name}));"]
    def argument(self): return f"{self.name}.c_str()"


class TextOut(BytesOut):
    """A buffer of `length` characters; the text that is in it afterwards ends with NUL."""

    def take(self, arguments):
        self.size, self.max = arguments.pop("length"), arguments.pop("max", 8192)
        self.call.need(self.size)

    def check(self):  # a failed call must not leave an unterminated buffer
        lines = super().check()
        guard = f"{self.name} != nullptr && " if self.nullable else ""
        return lines + [f"if ({guard}{self.size} != 0) {self.name}[0] = '\\0';"]

    def argument(self): return f"reinterpret_cast<char*>({self.name}.data())"


class SizedValue(Parameter):
    """A void* whose size is given by the enum parameter `by`: {enumerator: bytes}. It travels as a
    u64."""

    def take(self, arguments):
        self.by, self.sizes = arguments.pop("by"), arguments.pop("sizes")
        self.call.need(self.by)

    def size_lines(self, value, bad):
        cases = "".join(f"case {name}: {self.name}_bytes = {size}; break; "
                        for name, size in self.sizes.items())
        return [
            f"size_t {self.name}_bytes = 0;",
            f"switch (static_cast<int>({value})) {{ {cases}default: return {bad}; }}"
        ]

    def check(self): return self.null_check() + self.size_lines(self.by, "CUDA_ERROR_INVALID_VALUE")


class ValueIn(SizedValue):
    def request(self): return [Field(self.name, "u64")]
    def fill(self): return [f"std::memcpy(&request->{self.name}, {self.name}, {self.name}_bytes);"]

    def prepare(self):
        lines = self.size_lines(f"call->{self.by}", "CUDA_ERROR_INVALID_VALUE")
        return lines + [f"(void){self.name}_bytes;", f"uint64_t {self.name} = call->{self.name};"]

    def argument(self): return f"&{self.name}"


class ValueOut(SizedValue):
    output = True

    def reply(self): return [Field(self.name, "u64")]
    def finish(self): return [f"std::memcpy({self.name}, &reply.{self.name}, {self.name}_bytes);"]

    def prepare(self):
        lines = self.size_lines(f"call->{self.by}", "CUDA_ERROR_INVALID_VALUE")
        return lines + [f"(void){self.name}_bytes;", f"uint64_t {self.name} = 0;"]

    def argument(self): return f"&{self.name}"
    def result(self): return [f"reply->{self.name} = {self.name};"]


class MustBe(Parameter):
    """Only one value is supported (NULL, mostly)."""

    def take(self, arguments): self.value = arguments.pop("value")
    def check(self): return [f"if ({self.name} != {self.value}) return CUDA_ERROR_NOT_SUPPORTED;"]
    def argument(self): return self.value
