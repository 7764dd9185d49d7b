"""Wire structs: fields in order, natural alignment, every gap an explicit `reserved` field, size a
multiple of 8. Wire enums: a width and the values that are valid.

A kind is how a field looks on the wire; what it means (an id, a device address) only changes how it
is printed and who checks it. `opaque:N` is a CUDA struct of N bytes that travels as it is,
8-aligned. In descriptions a kind may also be the name of an enum() or of an opaque(), and `T[]`: a
blob of whole elements, T a number, a struct() or an opaque().
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
    # Ids of one kind: generated tables know these fields.
    "stream": ("uint64_t", 8, 8),
    "event": ("uint64_t", 8, 8),
    "kernel": ("uint64_t", 8, 8),
    "exec": ("uint64_t", 8, 8),
    "dptr": ("uint64_t", 8, 8),
    "device": ("int32_t", 4, 4),
    "blob": ("BlobRef", 8, 4),
    "name": ("BlobRef", 8, 4),
}


class KindError(Exception):
    pass


class Enum:
    """An `enum class` of a fixed width; only its own values are valid."""

    def __init__(self, name, width, values):
        if width not in ("u8", "u16", "u32"):
            raise KindError(f"the width is `{width}`, one of u8, u16, u32 is needed")
        self.name, self.width, self.values = name, width, values
        self.base, self.size, self.align = _SCALARS[width]
        if not values:
            raise KindError("an enum has at least one value")
        for value, number in values.items():
            if not isinstance(number, int) or not 0 <= number < 1 << 8 * self.size:
                raise KindError(f"`{value}` is {number!r}, which {width} does not hold")
        if len(set(values.values())) != len(values):
            raise KindError("two values are the same number")

    def fingerprint(self):
        return f"enum {self.name}:{self.width}" + repr(sorted(self.values.items()))


class Field:
    """element_bytes: of an array blob, so that only whole elements are accepted; max_bytes: its
    limit, 0 = the record. `types` are the described names: Enum, Struct, or the bytes of an
    opaque()."""

    def __init__(self, name, kind, element_bytes=1, max_bytes=0, reserved=False, types=None):
        self.name, self.text, self.reserved = name, kind, reserved
        self.element_bytes, self.max_bytes = element_bytes, max_bytes
        self.count, self.enum = 0, None
        m = re.fullmatch(r"(\w+?)(?:\[(\d*)\]|:(\d+))?", kind)
        word, extent, opaque_bytes = m.groups() if m else ("", None, None)
        described = (types or {}).get(word)
        if extent == "":
            self._blob_of(word, described)
        elif word == "opaque" and opaque_bytes or isinstance(described, int) and extent is None:
            self._opaque(int(opaque_bytes or described))
        elif isinstance(described, Enum) and extent is None:
            self.kind, self.enum, self.ctype = "enum", described, described.name
            self.size, self.align = described.size, described.align
        elif isinstance(described, Struct):
            raise KindError(f"field `{name}`: `{word}` is a struct, which travels as `{word}[]`")
        elif word in _SCALARS and opaque_bytes is None:
            self.kind, self.count = word, int(extent or 0)
            self.ctype, unit, self.align = _SCALARS[word]
            self.size = unit * max(self.count, 1)
        else:
            raise KindError(f"field `{name}`: unknown type `{kind}`")

    def _blob_of(self, word, described):
        if isinstance(described, Struct):
            self.element_bytes = described.size
        elif isinstance(described, int):
            self.element_bytes = described
        elif word in _SCALARS and word not in ("blob", "name"):
            self.element_bytes = _SCALARS[word][1]
        else:
            raise KindError(f"field `{self.name}`: unknown type `{self.text}`")
        self.kind = "blob"
        self.ctype, self.size, self.align = _SCALARS["blob"]

    def _opaque(self, size):
        self.kind, self.ctype = "opaque", "unsigned char"
        self.size, self.align, self.opaque_bytes = size, 8, size

    @property
    def is_blob(self):
        return self.kind in ("blob", "name")

    def declaration(self):
        if self.kind == "opaque":
            return f"alignas(8) unsigned char {self.name}[{self.opaque_bytes}];"
        return f"{self.ctype} {self.name}{f'[{self.count}]' if self.count else ''};"


class Struct:
    """`plain`: an element of blobs, which has no blobs itself."""

    def __init__(self, name, fields, plain=False):
        self.name = name
        for field in fields:
            if plain and field.is_blob:
                raise KindError(f"field `{field.name}`: `{field.text}` belongs into a message")
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

    def offset(self, name):
        return next(o for f, o in zip(self.fields, self.offsets) if f.name == name)

    def fingerprint(self):
        """What the protocol hash covers."""
        return f"{self.name}{{" + ";".join(
            f"{f.name}:{f.text}:{f.element_bytes}:{f.max_bytes}@{o}"
            for f, o in zip(self.fields, self.offsets)) + f"}}{self.size}"
