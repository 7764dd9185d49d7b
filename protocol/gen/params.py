"""Which class moves a parameter: one per annotation of protocol/calls."""

from fixed_params import (KINDS, MAX_NAME, Address, AttributedStream, Creates, Frees, Handle, InOut,
                          Out, ParameterError, StructIn, Types, Value)
from sized_params import (ArrayIn, ArrayOut, BytesIn, BytesOut, MustBe, TextIn, TextOut, ValueIn,
                          ValueOut)

__all__ = ["KINDS", "MAX_NAME", "ParameterError", "Types", "plan"]

CLASSES = {
    "out": Out,
    "inout": InOut,
    "struct_in": StructIn,
    "bytes_in": BytesIn,
    "bytes_out": BytesOut,
    "array_in": ArrayIn,
    "array_out": ArrayOut,
    "text_in": TextIn,
    "text_out": TextOut,
    "creates": Creates,
    "frees": Frees,
    "gets_attributes": AttributedStream,
    "value_in": ValueIn,
    "value_out": ValueOut,
    "must_be": MustBe,
    "address": Address,
}


def plan(call, param, annotation, types):
    """The class that moves this parameter."""
    if annotation is None:
        return (Handle if param.ctype in KINDS else Value)(call, param, types, {})
    if annotation.kind == "handle" or (annotation.kind not in CLASSES):
        return Handle(call, param, types, dict(annotation.arguments))
    return CLASSES[annotation.kind](call, param, types, dict(annotation.arguments))
