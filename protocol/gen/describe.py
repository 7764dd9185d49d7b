"""The description language of protocol/calls/*.py, and nothing else: it collects what the files
say.

  chapter("memory")                                   the chapter that the following entries belong
  to
  message(NAME, LANE, field="u32", ..., reply={...})  one of Tube's own messages (calls/internal.py
  explains)
  call(NAME, lane=..., param=annotation, ...)         a call of cuda.h; the header gives its
  parameters
  absent(NAME, ..., why="...")                        calls that cannot be had, and the reason
  opaque(CTYPE, bytes)                                a CUDA struct without pointers and handles
  travels as it is
  enum(NAME, WIDTH, kFirst=0, ...)                    the values that a field of that type may have;
  WIDTH is u8, u16 or u32
  struct(NAME, field="u32", ...)                      an element of blobs: `NAME[]` in a message

What hook and proxy both say has its enum() and struct() here; neither side writes it again. A field
of an enum with another value makes the record invalid.

message() and call() take what the proxy has to know of a record before it looks into it:
  orders="all" | "stream" | "none"                    which held launches go first
  (proxy/session/runs.h): those of all streams (the default); those of the stream that the
  record names and no others; none, since no stream could tell
  completes=word(INDEX, VALUE) | chunk(INDEX, STATE)  fields: what the client waits for when the
  record is executed; when it fails, the proxy writes it instead of the GPU. By default nothing
  needs_gpu=False                                     is executed although the GPU's context has
  died; by default the client is told of the death
  changes=("event",)                                  fields of type event, kernel or exec whose
  object others find changed: while records are kept back (proxy/session/parked_records.h), later
  ones that name it stay behind this one. Every record stays behind those of its stream; of type
  stream it is one that the record makes or ends
  behind="all"                                        stays behind every record that is kept back,
  because it ends or moves something that they may use without naming it; "ends": behind those;
  "tried": is executed at once, and stays behind those where it finds no memory, or behind all where
  its handler says so; by default behind those that it shares a named object with
  marks=True                                          looks at its stream and puts no work there: it
  has no part in the legacy stream's order, and has CUDA_ERROR_NOT_READY for an answer where the
  stream is kept back

call() also takes
  needs="nothing" | "init" | "handle" | "context"     what must be there before the call, else
  CUDA's own error; by default
                                                      "handle" for a call that takes an object (its
                                                      context is known), "context" (a current one)
                                                      for the others
  handler="hand"                                      lane post or reply: the proxy's handler is
  written by hand
  handler="generated"                                 lane hand: only the hook's body is written by
  hand
  alias_of=NAME                                       an older form of the same call; its arguments
  convert by themselves
  zeroes="pptr size"                                  outputs that are zero from the call's start on:
  when it is refused, too, and before cuInit (seen on an H200)
  uses="tubeX tubeY"                                  lane local: Tube's messages it is made of (for
  the coverage page)

A mistake in a description stops the generator with file, line and name.
"""

import sys
from collections import namedtuple
from pathlib import Path

ORDERS = ("all", "stream", "none")
BEHIND = ("named", "tried", "ends", "all")
PROPERTIES = ("orders", "completes", "needs_gpu", "changes", "behind", "marks")
LANES = ("local", "post", "reply", "hand")
NEEDS = ("nothing", "init", "handle", "context")

Message = namedtuple("Message", "name lane fields reply properties chapter where")
CallText = namedtuple(
    "CallText", "name lane needs handler alias_of uses zeroes annotations properties chapter where")
Absent = namedtuple("Absent", "name why chapter where")
EnumText = namedtuple("EnumText", "name width values where")
StructText = namedtuple("StructText", "name fields where")
Completion = namedtuple("Completion", "what index value")


class DescriptionError(Exception):
    def __init__(self, where, name, text):
        super().__init__(f"{where}: {name}: {text}")


class Properties:
    """What the proxy knows of a record by its number."""

    def __init__(self, orders="all", completes=None, needs_gpu=True, changes=(), behind="named",
                 marks=False):
        if orders not in ORDERS:
            raise ValueError(f"orders is `{orders}`, one of {', '.join(ORDERS)} is needed")
        if completes is not None and not isinstance(completes, Completion):
            raise ValueError(f"completes is {completes!r}, word() or chunk() is needed")
        if not isinstance(needs_gpu, bool):
            raise ValueError(f"needs_gpu is {needs_gpu!r}, True or False is needed")
        if behind not in BEHIND:
            raise ValueError(f"behind is `{behind}`, one of {', '.join(BEHIND)} is needed")
        if not isinstance(changes, tuple):
            raise ValueError(f"changes is {changes!r}, a tuple of fields is needed")
        self.orders, self.completes, self.needs_gpu = orders, completes, needs_gpu
        self.changes, self.behind, self.marks = changes, behind, marks
        self.given = False

    @classmethod
    def take(cls, arguments, where, name):
        """The properties among a description's arguments; the others stay."""
        mine = {k: arguments.pop(k) for k in PROPERTIES if k in arguments}
        try:
            properties = cls(**mine)
        except ValueError as error:
            raise DescriptionError(where, name, str(error)) from None
        properties.given = bool(mine)
        return properties


class Annotation:
    """What the header does not say about a parameter. `kind` names a class of params.py, the rest
    is its arguments."""

    def __init__(self, kind, **arguments):
        self.kind, self.arguments = kind, arguments


def _annotations():
    def make(kind, *positional):
        def annotation(*args, **kwargs):
            if len(args) > len(positional):
                raise TypeError(f"{kind}() takes at most {len(positional)} arguments")
            return Annotation(kind, **dict(zip(positional, args)), **kwargs)
        return annotation

    return {
        "out": make("out"),  # *p is written: number, enum, device address, handle, opaque struct
        "inout": make("inout"),  # *p is read and written
        "struct_in": make("struct_in"),  # *p is read: an opaque struct
        "bytes_in": make("bytes_in", "size"),  # `size` bytes at p are read
        "bytes_out": make("bytes_out", "size"),  # `size` bytes at p are written; max= bounds them
        # `count` elements are read; nullable: also when count is not 0. max= bounds them; over= is
        # the code when they are more
        "array_in": make("array_in", "count"),
        "array_out": make("array_out",
                          "count"),  # up to `count` elements are written; `count` may be an inout()
        "text_in": make("text_in"),  # NUL-terminated, at most 4 KiB
        "text_out": make("text_out", "length"),  # a buffer of `length` characters is written
        "creates": make("creates", "what"),  # *p gets a handle that the client makes
        "frees": make("frees", "what"),  # the handle ends with this call
        "gets_attributes": make("gets_attributes"),  # the stream does: its launches are not held
        "value_in": make("value_in", "by",
                         "sizes"),  # void *: its size depends on the enum parameter `by`
        "value_out": make("value_out", "by", "sizes"),
        "address": make(
            "address",
            "bytes"),  # void * or CUdeviceptr; `bytes` of it belong to the client
        "must_be": make("must_be", "value"),  # only this value is supported; it does not travel
        "nullable": lambda inner: Annotation(inner.kind, nullable=True, **inner.arguments),
    }


class Descriptions:
    def __init__(self):
        self.messages, self.calls, self.absents, self.opaques = {}, {}, {}, {}
        self.enums, self.structs = {}, {}
        self._chapter = ""

    def _where(self):
        frame = sys._getframe(2)
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _new(self, where, name):
        for known in (self.messages, self.calls, self.absents):
            if name in known:
                raise DescriptionError(where, name, f"described before, at {known[name].where}")

    def _new_type(self, where, name):
        for known in (self.enums, self.structs):
            if name in known:
                raise DescriptionError(where, name, f"described before, at {known[name].where}")
        if name in self.opaques:
            raise DescriptionError(where, name, "is the name of an opaque()")

    def chapter(self, name):
        self._chapter = name

    def enum(self, name, width, /, **values):
        where = self._where()
        self._new_type(where, name)
        self.enums[name] = EnumText(name, width, values, where)

    def struct(self, name, /, **fields):
        where = self._where()
        self._new_type(where, name)
        if not fields:
            raise DescriptionError(where, name, "a struct has at least one field")
        self.structs[name] = StructText(name, fields, where)

    def message(self, name, lane, /, reply=None, **fields):
        where = self._where()
        self._new(where, name)
        if lane not in ("post", "reply"):
            raise DescriptionError(where, name, f"a message's lane is post or reply, not `{lane}`")
        if lane == "post" and reply:
            raise DescriptionError(where, name,
                                   "lane post has no reply, but reply fields are given")
        properties = Properties.take(fields, where, name)
        self.messages[name] = Message(name, lane, fields, reply or {}, properties, self._chapter,
                                      where)

    def call(self, *names, lane=None, needs=None, handler=None, alias_of=None, uses="",
             zeroes="", **annotations):
        where = self._where()
        properties = Properties.take(annotations, where, names[0] if names else "call")
        for name in names:
            self._new(where, name)
            if alias_of is None and lane not in LANES:
                raise DescriptionError(where, name,
                                       f"lane is `{lane}`, one of {', '.join(LANES)} is needed")
            if needs is not None and needs not in NEEDS:
                raise DescriptionError(where, name,
                                       f"needs is `{needs}`, one of {', '.join(NEEDS)} is needed")
            if handler not in (None, "hand", "generated"):
                raise DescriptionError(where, name,
                                       f"handler is `{handler}`, `hand` or `generated` is needed")
            for parameter, annotation in annotations.items():
                if not isinstance(annotation, Annotation):
                    raise DescriptionError(
                        where, name, f"`{parameter}` is given {annotation!r}, not an annotation")
            self.calls[name] = CallText(name, lane, needs, handler, alias_of, uses.split(),
                                        zeroes.split(), annotations, properties, self._chapter, where)

    def absent(self, *names, why):
        where = self._where()
        for name in names:
            self._new(where, name)
            self.absents[name] = Absent(name, why, self._chapter, where)

    def opaque(self, ctype, size):
        self.opaques[ctype] = size

    def read(self, path, label=None):
        scope = {
            "chapter": self.chapter,
            "message": self.message,
            "call": self.call,
            "absent": self.absent,
            "opaque": self.opaque,
            "enum": self.enum,
            "struct": self.struct,
            "word": lambda index, value: Completion("word", index, value),
            "chunk": lambda index, state: Completion("chunk", index, state),
            **_annotations()
        }
        label = label or str(path)
        try:
            exec(compile(Path(path).read_text(encoding="utf-8"), label, "exec"), scope)
        except DescriptionError:
            raise
        except (SyntaxError, NameError, TypeError) as error:
            line = getattr(error, "lineno", None)
            trace = error.__traceback__
            while line is None and trace:
                if trace.tb_frame.f_code.co_filename == label:
                    line = trace.tb_lineno
                    break
                trace = trace.tb_next
            raise DescriptionError(f"{label}:{line or 0}",
                                   type(error).__name__,
                                   getattr(error, "msg", None) or str(error)) from None


def load(folder):
    """All calls/*.py, in alphabetical order; the order changes nothing but the order of chapters in
    the page."""
    descriptions = Descriptions()
    for path in sorted(Path(folder).glob("*.py")):
        descriptions.read(path, f"protocol/calls/{path.name}")
    return descriptions
