"""The toolkit's header and the descriptions brought together: every exported name with what happens
to it."""

import hashlib

import params
from describe import DescriptionError
from layout import Enum, Field, KindError, Struct
from params import KINDS


NAMED = ("stream", "event", "kernel", "exec")


class Call:
    """One name. lane: local, post, reply, hand (hook body by hand), message (Tube's own), absent,
    undescribed, alias."""

    def __init__(self, name, lane, chapter="", where="", why=""):
        self.name, self.lane, self.chapter, self.where, self.why = name, lane, chapter, where, why
        self.needs, self.handler, self.alias_of, self.uses = "context", "hand", None, []
        self.zeroes = []  # names of outputs
        self.function, self.parameters = None, []
        self.request = self.reply = None
        self.number = None
        self.waits = False  # a message or call that has an answer
        self.properties = None  # describe.Properties of what travels

    @property
    def on_wire(self):
        return self.request is not None

    @property
    def streams(self):
        """The request's fields that name a stream."""
        return [f for f in self.request.fields if f.kind == "stream"]

    @property
    def named(self):
        """The request's fields that name an object on whose order others depend."""
        return [f for f in self.request.fields if f.kind in NAMED]

    # --- what params.py asks while a call is planned ---
    def need(self, parameter):
        self.ctype(parameter)

    def ctype(self, parameter):
        for p in self.function.params:
            if p.name == parameter:
                return p.ctype
        raise params.ParameterError(f"refers to `{parameter}`, which {self.name} does not have")

    def parent(self):
        """C++ for the id of the object whose end takes a new one along: the graph, or the graph of
        a node."""
        for ctype, text in (("CUgraph", "call->{}"),
                            ("CUgraphNode", "owner_of(session, wire::Kind::kGraphNode, call->{})")):
            for p in self.function.params:
                if p.ctype == ctype:
                    return text.format(p.name)
        return "0"


class Model:
    """calls: all 637 names and Tube's messages by name. wire: those with a number, by number."""

    def __init__(self, api, descriptions):
        self.api, self.descriptions = api, descriptions
        self.types = params.Types(api, descriptions.opaques)
        self.enums = [_enum(text) for text in descriptions.enums.values()]
        self.described = dict(descriptions.opaques) | {e.name: e for e in self.enums}
        self.structs = [self._struct(text) for text in descriptions.structs.values()]
        self.described |= {s.name: s for s in self.structs}
        self.calls = {}
        for message in descriptions.messages.values():
            self.calls[message.name] = self._message(message)
        for function in api.functions.values():
            self.calls[function.name] = self._call(function)
        for name, text in {**descriptions.calls, **descriptions.absents}.items():
            if name not in api.functions:
                raise DescriptionError(text.where, name, "cuda.h has no such function")
        self.wire = [c for c in self.calls.values() if c.on_wire]

    def exported(self):
        return [c for c in self.calls.values() if c.function is not None]

    def _message(self, text):
        call = Call(text.name, "message", text.chapter, text.where)
        call.waits = text.lane == "reply"
        try:
            call.request = Struct(text.name,
                                  [self._field(n, k) for n, k in text.fields.items()] or
                                  [Field("reserved0", "u64", reserved=True)])
            call.reply = Struct(text.name + "_reply",
                                [self._field(n, k) for n, k in text.reply.items()])
        except KindError as error:
            raise DescriptionError(text.where, text.name, str(error)) from None
        _give_properties(call, text)
        return call

    def _struct(self, text):
        try:
            return Struct(text.name, [self._field(n, k) for n, k in text.fields.items()],
                          plain=True)
        except KindError as error:
            raise DescriptionError(text.where, text.name, str(error)) from None

    def _field(self, name, kind):
        return Field(name, kind, max_bytes=params.MAX_NAME if kind == "name" else 0,
                     types=self.described)

    def _call(self, function):
        known = self.descriptions
        name = function.name
        plain = function.plain
        if name in known.absents:
            text = known.absents[name]
            call = Call(name, "absent", text.chapter, text.where, text.why)
        elif function.per_thread and name not in known.calls:
            call = Call(name, "per_thread")  # follows its plain form, whatever that is
            call.alias_of = plain
        elif name in known.calls:
            text = known.calls[name]
            call = Call(name, text.lane or "alias", text.chapter, text.where)
            call.needs = text.needs or self._default_needs(function)
            call.alias_of, call.uses, call.zeroes = text.alias_of, text.uses, text.zeroes
        else:
            call = Call(name, "undescribed", why="not described yet")
        call.function = function
        if name in known.calls:
            self._plan(call, known.calls[name])
        return call

    @staticmethod
    def _default_needs(function):
        """An object knows its context: a call that takes one works without a current context (seen
        on an H200)."""
        return "handle" if any(p.ctype in KINDS for p in function.params) else "context"

    def _plan(self, call, text):
        def fail(what):
            raise DescriptionError(text.where, call.name, what)

        names = [p.name for p in call.function.params]
        for parameter in (*text.annotations, *text.zeroes):
            if parameter not in names:
                fail(
                    f"there is no parameter `{parameter}`; cuda.h has {', '.join(names) or 'none'}")
        if call.alias_of is not None:
            target = self.api.functions.get(call.alias_of)
            if target is None:
                fail(f"alias_of names `{call.alias_of}`, which cuda.h does not have")
            if len(target.params) != len(call.function.params):
                fail(
                    f"alias_of {call.alias_of}: it has {len(target.params)} parameters, not {len(names)}"
                )
        if call.lane not in ("post", "reply", "hand"):
            if text.properties.given:
                fail("orders, completes and needs_gpu are for calls that travel")
            return
        for p in call.function.params:
            try:
                call.parameters.append(
                    params.plan(call, p, text.annotations.get(p.name), self.types))
            except params.ParameterError as error:
                fail(f"parameter `{p.name}` {error}")
            except KeyError as error:
                fail(f"parameter `{p.name}`: the annotation lacks its extent `{error.args[0]}`")
        call.waits = call.lane != "post" and (call.lane == "reply" or
                                              any(p.reply() for p in call.parameters))
        if call.lane == "post":
            for p in call.parameters:
                if p.output:
                    fail(f"lane post has no answer, but parameter `{p.name}` is an output")
        default = "hand" if call.lane == "hand" else "generated"
        call.handler = text.handler or default
        try:
            fields = [f for p in call.parameters for f in p.request()]
            call.request = Struct(call.name, fields or [Field("reserved0", "u64", reserved=True)])
            call.reply = Struct(call.name + "_reply",
                                [f for p in call.parameters for f in p.reply()])
        except KindError as error:
            fail(str(error))
        _give_properties(call, text)

    def number(self, lock):
        """Numbers come from numbers.lock; a name without one is an error that says how to append
        it."""
        missing = [c.name for c in self.wire if c.name not in lock]
        if missing:
            raise DescriptionError(
                "protocol/numbers.lock", missing[0],
                f"{len(missing)} names have no number; run `python3 protocol/gen/generate.py --number`"
            )
        for call in self.wire:
            call.number = lock[call.name]
        self.wire.sort(key=lambda c: c.number)

    def hash(self):
        """Both sides compare it at the handshake: every struct, enum, number and lane."""
        lines = [t.fingerprint() for t in self.enums + self.structs]
        lines += [
            f"{c.number} {c.lane} {int(c.waits)} {c.request.fingerprint()} {c.reply.fingerprint()}"
            for c in self.wire
        ]
        return int.from_bytes(hashlib.sha256("\n".join(lines).encode()).digest()[:8], "little")


def _enum(text):
    try:
        return Enum(text.name, text.width, text.values)
    except KindError as error:
        raise DescriptionError(text.where, text.name, str(error)) from None


def _give_properties(call, text):
    """Only what the record's struct bears out is accepted."""
    properties = call.properties = text.properties

    def fail(what):
        raise DescriptionError(text.where, call.name, what)

    if properties.orders == "stream" and len(call.streams) != 1:
        fail(f"orders is `stream`, but the record names {len(call.streams)} streams")
    named = {f.name for f in call.named}
    for name in properties.changes:
        if name not in named:
            fail(f"changes names `{name}`, which is no stream, event, kernel or exec of the record")
    if properties.completes is None:
        return
    fields = {f.name: f for f in call.request.data}
    what, index, value = properties.completes
    for name, size in ((index, 4), (value, {"word": 8, "chunk": 4}[what])):
        if name not in fields:
            fail(f"completes names `{name}`, which is no field of the record")
        if fields[name].size != size or fields[name].count:
            fail(f"completes: `{name}` is `{fields[name].text}`, a number of {size} bytes is needed")


def read_lock(path):
    numbers, used = {}, {}
    for line_number, line in enumerate(path.read_text().splitlines() if path.is_file() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, number = line.split()
        number = int(number)
        if number in used or name in numbers or number == 0:
            raise DescriptionError(f"protocol/numbers.lock:{line_number}", name,
                                   f"number {number} or the name is used twice")
        numbers[name], used[number] = number, name
    return numbers
