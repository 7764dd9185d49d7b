"""Wire structs: fields in order, natural alignment, every gap an explicit `reserved` field, size a
multiple of 8.

A kind is how a field looks on the wire; what it means (an id, a device address) only changes how it
is printed and who checks it. `opaque:N` is a CUDA struct of N bytes that travels as it is,
8-aligned.
"""

import re

# kind -> (C++ type, bytes, alignment)
_SCALARS = {
    "u8": ("uint8_t", 1, 1),
    "u16": ("uint16_t", 2, 2),
    "u32": ("uint32_t", 4, 4),
    "i32": ("int32_t", 4, 4),
    "u64": ("uint64_t", 8, 8),
    "i64": ("int64_t", 8, 8),
    "f32": ("float", 4, 4),
    "f64": ("double", 8, 8),
    "id": ("uint64_t", 8, 8),
    "dptr": ("uint64_t", 8, 8),
    "device": ("int32_t", 4, 4),
    "blob": ("BlobRef", 8, 4),
    "name": ("BlobRef", 8, 4),
}


class KindError(Exception):
    pass


class Field:
    """element_bytes: of an array blob, so that only whole elements are accepted; max_bytes: its
    limit, 0 = the record."""

    def __init__(self, name, kind, element_bytes=1, max_bytes=0, reserved=False):
        self.name, self.text, self.reserved = name, kind, reserved
        self.element_bytes, self.max_bytes = element_bytes, max_bytes
        m = re.fullmatch(r"(\w+)(?:\[(\d+)\]|:(\d+))?", kind)
        if not m or (m.group(1) != "opaque" and
                     m.group(1) not in _SCALARS) or (m.group(1) == "opaque") != bool(m.group(3)):
            raise KindError(f"field `{name}`: unknown type `{kind}`")
        self.kind = m.group(1)
        self.count = int(m.group(2) or 0)
        if self.kind == "opaque":
            self.ctype, self.size, self.align, self.opaque_bytes = "unsigned char", int(
                m.group(3)), 8, int(m.group(3))
        else:
            self.ctype, unit, self.align = _SCALARS[self.kind]
            self.size = unit * max(self.count, 1)

    @property
    def is_blob(self):
        return self.kind in ("blob", "name")

    def declaration(self):
        if self.kind == "opaque":
            return f"alignas(8) unsigned char {self.name}[{self.opaque_bytes}];"
        return f"{self.ctype} {self.name}{f'[{self.count}]' if self.count else ''};"


class Struct:
    def __init__(self, name, fields):
        self.name = name
        self.fields, self.offsets, at, gap = [], [], 0, 0

        def add(field, at):
            self.fields.append(field)
            self.offsets.append(at)
            return at + field.size

        def pad(at, align, gap):
            while at % align:
                kind = "u32" if at % 4 == 0 else "u8"
                at = add(Field(f"reserved{gap}", kind, reserved=True), at)
                gap += 1
            return at, gap

        for field in fields:
            at, gap = pad(at, field.align, gap)
            at = add(field, at)
        at, gap = pad(at, 8, gap)
        self.size = at

    @property
    def blobs(self):
        return [f for f in self.fields if f.is_blob]

    @property
    def reserved(self):
        return [f for f in self.fields if f.reserved]

    @property
    def data(self):
        return [f for f in self.fields if not f.reserved]

    def fingerprint(self):
        """What the protocol hash covers."""
        return f"{self.name}{{" + ";".join(
            f"{f.name}:{f.text}:{f.element_bytes}:{f.max_bytes}@{o}"
            for f, o in zip(self.fields, self.offsets)) + f"}}{self.size}"
