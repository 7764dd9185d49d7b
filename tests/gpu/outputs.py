"""Comparing what two processes wrote: files `CASE.OUTPUT.TYPE` of bytes, and how far apart numbers
are when bytes differ.

Equal means equal bytes. Where they are not, the library may be one that differs from itself: then
the case is run natively again, and the greatest difference between native runs is what the arm
through Tube may differ by (DOUBLE: few native runs see less than the whole spread). Standard
library only; numbers are read with `array` and `struct`.
"""
import array
import math
import pathlib
import struct

DOUBLE = 2.0
CODES = {"f32": "f", "f64": "d", "i32": "i", "i64": "q", "u8": "B"}


def files(folder, case):
    """name of output -> path, of one case."""
    return {
        path.name[len(case) + 1:]: path
        for path in pathlib.Path(folder).glob(f"{case}.*")
        if path.is_file()
    }


def numbers(path):
    """The elements of an output as floats, or None for text."""
    data, kind = path.read_bytes(), path.name.rsplit(".", 1)[-1]
    if kind in CODES:
        out = array.array(CODES[kind])
        out.frombytes(data[:len(data) - len(data) % out.itemsize])
        return out
    if kind == "f16":
        return struct.unpack(f"<{len(data) // 2}e", data[:len(data) // 2 * 2])
    if kind == "bf16":
        halves = array.array("H")
        halves.frombytes(data[:len(data) // 2 * 2])
        return struct.unpack(f"<{len(halves)}f",
                             b"".join(b"\0\0" + value.to_bytes(2, "little") for value in halves))
    return None


def distance(left, right):
    """The greatest difference between two outputs' elements; infinite for other sizes, text, or
    where one is not a number."""
    a, b = numbers(left), numbers(right)
    if a is None or b is None or len(a) != len(b):
        return math.inf
    greatest = 0.0
    for x, y in zip(a, b):
        if x != y and not (x != x and y != y):
            apart = abs(float(x) - float(y))
            if apart != apart:
                return math.inf
            greatest = max(greatest, apart)
    return greatest


def text_difference(left, right):
    for number, (x, y) in enumerate(zip(left.splitlines() + [b""], right.splitlines() + [b""]), 1):
        if x != y:
            return f"line {number}: native {x[:160].decode(errors='replace')!r}, Tube {y[:160].decode(errors='replace')!r}"
    return f"{len(left)} bytes natively, {len(right)} through Tube"


def describe(left, right):
    """Where two outputs differ, in words; empty when they do not."""
    a, b = left.read_bytes(), right.read_bytes()
    if a == b:
        return ""
    if left.name.endswith(".txt"):
        return text_difference(a, b)
    if len(a) != len(b):
        return f"{len(a)} bytes natively, {len(b)} through Tube"
    differing = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
    return f"{len(differing)} of {len(a)} bytes differ, the first at {differing[0]}; greatest difference {distance(left, right):g}"


def differences(native, tube, case):
    """output -> words, of the outputs that are not the same bytes in both folders."""
    a, b = files(native, case), files(tube, case)
    found = {}
    for name in sorted(set(a) | set(b)):
        if name not in a or name not in b:
            found[name] = f"missing {'natively' if name not in a else 'through Tube'}"
        elif describe(a[name], b[name]):
            found[name] = describe(a[name], b[name])
    return found


def within_native_spread(natives, tube, case, names):
    """True when each of the named outputs differs between native runs, and through Tube not by more
    than DOUBLE of that."""
    for name in names:
        paths = [files(folder, case).get(name) for folder in natives]
        mine = files(tube, case).get(name)
        if mine is None or None in paths or len(paths) < 2:
            return False
        spread = max(distance(a, b) for i, a in enumerate(paths) for b in paths[:i])
        if not 0 < spread < math.inf or min(
                distance(path, mine) for path in paths) > DOUBLE * spread:
            return False
    return True
