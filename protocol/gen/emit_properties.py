"""properties.gen.h: what the proxy knows of a record by its number, as constexpr tables."""

from emit_wire import NOTICE

_ORDERS = {"all": "kAll", "stream": "kStream", "none": "kNone"}
_COMPLETES = {"word": "kWord", "chunk": "kChunk"}


def _row(call, most_streams):
    p = call.properties
    completes = "{Completes::kNothing, 0, 0}"
    if p.completes is not None:
        what, index, value = p.completes
        at = f"offsetof({call.name}, {index}), offsetof({call.name}, {value})"
        completes = f"{{Completes::{_COMPLETES[what]}, {at}}}"
    streams = [f"offsetof({call.name}, {f.name})" for f in call.streams]
    streams += ["0"] * (most_streams - len(streams))
    return (f"    {{Orders::{_ORDERS[p.orders]}, {str(p.needs_gpu).lower()}, {completes}, "
            f"{len(call.streams)}, {{{', '.join(streams)}}}}},  // {call.name}")


def properties_header(model):
    by_number = {c.number: c for c in model.wire}
    most_streams = max([1] + [len(c.streams) for c in model.wire])
    nothing = ", ".join(["0"] * most_streams)
    out = [
        NOTICE, "#pragma once", "", '#include "protocol/wire.gen.h"', "", "namespace tube::wire {",
        "", f"using CallProperties = PropertiesOf<{most_streams}>;", "",
        "// By number. Row 0, and every number that is not a call: what is safe for any record.",
        "inline constexpr CallProperties kCallProperties[kCallCount] = {"
    ]
    for n in range(max(by_number) + 1):
        out.append(
            _row(by_number[n], most_streams) if n in
            by_number else f"    {{Orders::kAll, true, {{Completes::kNothing, 0, 0}}, 0, {{{nothing}}}}},")
    return "\n".join(out + [
        "};", "", "constexpr const CallProperties& properties_of(uint32_t untrusted_call) {",
        "  return kCallProperties[untrusted_call < kCallCount ? untrusted_call : 0];", "}", "",
        "// Where the record's fixed struct holds ids of streams, 8 bytes each: those that the call names, creates or ends.",
        "constexpr std::span<const uint16_t> stream_fields(uint32_t untrusted_call) {",
        "  return properties_of(untrusted_call).stream_fields();", "}", "", "}  // namespace tube::wire",
        ""
    ])
