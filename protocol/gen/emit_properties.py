"""properties.gen.h: what the proxy knows of a record by its number, as constexpr tables."""

from emit_wire import NOTICE

_ORDERS = {"all": "kAll", "stream": "kStream", "none": "kNone"}
_COMPLETES = {"word": "kWord", "chunk": "kChunk"}


_NAMED = {"stream": "kStream", "event": "kEvent", "kernel": "kKernel", "exec": "kExec"}
_BEHIND = {"named": "kNamed", "tried": "kTried", "ends": "kEnds", "all": "kAll"}


def _row(call, most_named):
    p = call.properties
    completes = "{Completes::kNothing, 0, 0}"
    if p.completes is not None:
        what, index, value = p.completes
        at = f"offsetof({call.name}, {index}), offsetof({call.name}, {value})"
        completes = f"{{Completes::{_COMPLETES[what]}, {at}}}"
    named = [_named(call, f) for f in call.named]
    named += ["{}"] * (most_named - len(named))
    return (f"    {{Orders::{_ORDERS[p.orders]}, {str(p.needs_gpu).lower()}, "
            f"Behind::{_BEHIND[p.behind]}, {str(p.marks).lower()}, {completes}, {len(call.named)}, "
            f"{{{', '.join(named)}}}}},  // {call.name}")


def _named(call, field):
    changes = field.name in call.properties.changes
    return (f"{{offsetof({call.name}, {field.name}), NamedKind::{_NAMED[field.kind]}, "
            f"{str(changes).lower()}}}")


def properties_header(model):
    by_number = {c.number: c for c in model.wire}
    most_named = max([1] + [len(c.named) for c in model.wire])
    nothing = ("    {Orders::kAll, true, Behind::kAll, false, {Completes::kNothing, 0, 0}, 0, "
               f"{{{', '.join(['{}'] * most_named)}}}}},")
    out = [
        NOTICE, "#pragma once", "", '#include "protocol/wire.gen.h"', "", "namespace tube::wire {",
        "", f"using CallProperties = PropertiesOf<{most_named}>;", "",
        "// By number. Row 0, and every number that is not a call: what is safe for any record.",
        "inline constexpr CallProperties kCallProperties[kCallCount] = {"
    ]
    for n in range(max(by_number) + 1):
        out.append(_row(by_number[n], most_named) if n in by_number else nothing)
    return "\n".join(out + [
        "};", "", "constexpr const CallProperties& properties_of(uint32_t untrusted_call) {",
        "  return kCallProperties[untrusted_call < kCallCount ? untrusted_call : 0];", "}", "",
        "// Where the record's fixed struct holds ids of streams, events, kernels and instances of graphs,",
        "// 8 bytes each: those that the call names, creates or ends.",
        "constexpr std::span<const NamedField> named_fields(uint32_t untrusted_call) {",
        "  return properties_of(untrusted_call).named_fields();", "}", "", "}  // namespace tube::wire",
        ""
    ])
