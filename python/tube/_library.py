"""libtube.so by ctypes: the structs and functions of libtube/tube.h, and its errors as exceptions."""
import ctypes
import os
import pathlib

DIMS = 8
HOST, GPU, ANY = 0, 1, 2
NOW, DEFAULT = ctypes.c_void_p(-1), ctypes.c_void_p(0)
NOT_FOUND = 2


class Error(Exception):
    """Something the store could not do; the text says what happened and what to do."""


class Exists(Error):
    """The name is taken."""


class NotFound(Error, KeyError):
    """No sealed object has that name, or not in that time."""

    __str__ = Exception.__str__


class TooMany(Error):
    """More objects than one program, or all together, may have."""


class NoMemory(Error, MemoryError):
    """No memory, or a limit is in the way."""


class Invalid(Error, ValueError):
    """The arguments make no sense."""


class NoGpu(Error):
    """GPU memory without a proxy or without a CUDA context."""


class Gone(Error):
    """The proxy has ended."""


ERRORS = {1: Exists, 2: NotFound, 3: TooMany, 4: NoMemory, 5: Invalid, 6: NoGpu, 7: Gone}


class Spec(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("group", ctypes.c_char_p), ("bytes", ctypes.c_uint64),
                ("place", ctypes.c_int), ("device", ctypes.c_int32), ("dtype", ctypes.c_uint32),
                ("ndim", ctypes.c_uint32), ("consumers", ctypes.c_uint32),
                ("ttl_ms", ctypes.c_uint64), ("shape", ctypes.c_int64 * DIMS),
                ("strides", ctypes.c_int64 * DIMS)]


class Shown(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("place", ctypes.c_int),
                ("device", ctypes.c_int32), ("dtype", ctypes.c_uint32), ("ndim", ctypes.c_uint32),
                ("shape", ctypes.c_int64 * DIMS), ("strides", ctypes.c_int64 * DIMS),
                ("name", ctypes.c_char * 96), ("group", ctypes.c_char * 64),
                ("age_ns", ctypes.c_uint64), ("id", ctypes.c_uint64 * 2),
                ("sealed", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Shown))


def _load():
    here = pathlib.Path(__file__).resolve().parent
    places = [os.environ.get("TUBE_LIBRARY"), here / "libtube.so.1",
              here.parents[1] / "build/libtube/libtube.so.1",
              here.parents[1] / "lib/tube/libtube.so.1"]
    for place in places:
        if place and pathlib.Path(place).exists():
            return ctypes.CDLL(str(place))
    return ctypes.CDLL("libtube.so.1")


def _declare(library):
    text, stream = ctypes.c_char_p, ctypes.c_void_p
    spec, shown = ctypes.POINTER(Spec), ctypes.POINTER(Shown)
    number = ctypes.c_uint64
    for name, arguments in {
            "connected": [], "unique_id": [text, ctypes.c_size_t], "reserve": [spec, shown],
            "seal": [shown, stream], "put": [spec, ctypes.c_void_p, stream],
            "wait": [text, ctypes.c_int, stream, number, shown], "peek": [text, shown],
            "release": [shown, stream], "drop": [shown, stream], "delete": [text],
            "delete_group": [text, ctypes.POINTER(ctypes.c_uint32)],
            "list": [VISIT, ctypes.c_void_p],
            "export_fd": [shown, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(number),
                          ctypes.POINTER(number)],
            "queue": [ctypes.POINTER(text), ctypes.c_size_t]}.items():
        function = getattr(library, "tube_" + name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    library.tube_error.restype = text
    library.tube_drop.restype = None
    return library


library = _declare(_load())


def must(result):
    """Raises what a function of the library answered, unless it went well."""
    if result != 0:
        raise ERRORS.get(result, Error)(library.tube_error().decode())


def stream_handle(stream):
    """An int, an object with such a `cuda_stream`, `ptr` or `handle` (torch, CuPy, numba), or None:
    the host has done, or waits for, what there is."""
    if stream is None:
        return NOW
    if stream == 0:
        return DEFAULT
    for attribute in ("cuda_stream", "ptr", "handle"):
        stream = getattr(stream, attribute, stream)
    return ctypes.c_void_p(int(getattr(stream, "value", stream) or 0))
