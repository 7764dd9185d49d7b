"""Arrays of other libraries on their way into the store, and objects of the store as arrays:
DLPack, the array interfaces of NumPy and CUDA, buffers. Nothing is imported for it."""
import contextlib
import ctypes
import functools
from typing import NamedTuple

from ._library import library

CPU, CUDA, CUDA_HOST = 1, 2, 3
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
KINDS = {code: kind for kind, code in CODES.items()}


class Array(NamedTuple):
    """Memory of somebody's: who has it in hand keeps `owner` alive."""
    address: int
    gpu: bool
    dtype: int
    shape: tuple
    strides: tuple  # in elements
    owner: object
    stream: object = None
    device: object = None  # CUDA's ordinal of its GPU; None: not known


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    pass


_Delete = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Delete)]

_api = ctypes.pythonapi
_End = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _End]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_keep = _api.Py_IncRef
_keep.restype, _keep.argtypes = None, [ctypes.py_object]

# Their ends are C functions of the library: they come while exceptions are on their way, too, and
# after this module. What they call stays for good.
_calls = (ctypes.c_void_p * 8)(*(ctypes.cast(call, ctypes.c_void_p).value for call in (
    _api.Py_IsInitialized, _api.PyGILState_Ensure, _api.PyGILState_Release, _api.PyErr_Fetch,
    _api.PyErr_Restore, _api.Py_DecRef, _api.PyCapsule_IsValid, _api.PyCapsule_GetPointer)))
_keep(_calls)
library.tube_python_calls.restype, library.tube_python_calls.argtypes = None, [ctypes.c_void_p]
library.tube_python_calls(_calls)
_delete = _Delete(ctypes.cast(library.tube_python_delete, ctypes.c_void_p).value)
_end = _End(ctypes.cast(library.tube_python_capsule_ends, ctypes.c_void_p).value)


@functools.lru_cache(None)
def item_bytes(dtype):
    """Of one element, lanes included."""
    return ((dtype >> 8 & 0xff) * (dtype >> 16) + 7) // 8


@functools.lru_cache(None)
def dtype_of(typestr):
    """DLPack's number for NumPy's type string."""
    if typestr[0] == ">":
        raise ValueError("big-endian arrays cannot be put")
    kind, size = typestr[1], int(typestr[2:])
    if kind not in CODES:
        raise ValueError(f"arrays of type {typestr} cannot be put")
    return CODES[kind] | size * 8 << 8 | 1 << 16


@functools.lru_cache(None)
def typestr_of(dtype):
    """NumPy's type string, or None where it has none (bfloat16)."""
    kind = KINDS.get(dtype & 0xff)
    return None if kind is None else ("|" if item_bytes(dtype) == 1 else "<") + kind + \
        str(item_bytes(dtype))


@functools.lru_cache(1024)
def packed(shape):
    """Strides, in elements, of an array without gaps."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _device_of(address):
    """The GPU of memory there, by the libcuda.so.1 that the process has; None: nobody knows."""
    ordinal = ctypes.c_int(-1)
    try:
        asked = ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(
            ctypes.byref(ordinal), 9, ctypes.c_uint64(address))  # ..._DEVICE_ORDINAL
    except (OSError, AttributeError):
        return None
    return ordinal.value if asked == 0 and ordinal.value >= 0 else None


def _from_interface(owner, gpu):
    described = owner.__cuda_array_interface__ if gpu else owner.__array_interface__
    dtype, shape = dtype_of(described["typestr"]), tuple(described["shape"])
    strides = described.get("strides")
    size = item_bytes(dtype)
    return Array(described["data"][0], gpu, dtype, shape,
                 packed(shape) if strides is None else tuple(s // size for s in strides), owner,
                 described.get("stream") if gpu else None,
                 _device_of(described["data"][0]) if gpu else None)


@contextlib.contextmanager
def _from_dlpack(owner, stream):
    kind, device = owner.__dlpack_device__()
    gpu = kind == CUDA
    capsule = owner.__dlpack__(stream=stream if stream else 1) if gpu else owner.__dlpack__()
    managed = ctypes.cast(_pointer(capsule, b"dltensor"), ctypes.POINTER(_Managed))
    _rename(capsule, b"used_dltensor")
    t = managed.contents.tensor
    try:
        shape = tuple(t.shape[i] for i in range(t.ndim))
        strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else packed(shape)
        yield Array((t.data or 0) + t.byte_offset, gpu, t.code | t.bits << 8 | t.lanes << 16,
                    shape, strides, owner, None, int(device) if gpu else None)
    finally:
        if managed.contents.deleter:
            managed.contents.deleter(managed)


def numpy_array(owner):
    """The same as array_of() for what stays without being held; None: it is nothing like that."""
    return _from_interface(owner, False) if hasattr(owner, "__array_interface__") else None


@contextlib.contextmanager
def array_of(owner, stream):
    """What is in `owner`'s memory, which stays as it is until the end. `stream`: a number, on which
    the caller is about to read it."""
    # NumPy gives no read-only array by DLPack.
    if (array := numpy_array(owner)) is not None:
        yield array
    elif hasattr(owner, "__dlpack__"):  # before CUDA's interface, which has no bfloat16
        with _from_dlpack(owner, stream) as array:
            yield array
    elif hasattr(owner, "__cuda_array_interface__"):
        yield _from_interface(owner, True)
    else:
        view = memoryview(owner).cast("B")
        bytes_ = bytes(view) if view.readonly else view
        where = ctypes.cast(ctypes.c_char_p(bytes_), ctypes.c_void_p).value if view.readonly else \
            ctypes.addressof(ctypes.c_char.from_buffer(bytes_))
        yield Array(where or 0, False, 1 | 8 << 8 | 1 << 16, (len(view),), (1,), bytes_)


def capsule_of(shown, owner):
    """A DLPack capsule of an object in the store, which keeps `owner`."""
    managed = _Managed()
    shape = (ctypes.c_int64 * max(1, shown.ndim))(*shown.shape[:shown.ndim])
    strides = (ctypes.c_int64 * max(1, shown.ndim))(*shown.strides[:shown.ndim])
    managed.tensor = _Tensor(shown.data, CPU if shown.device < 0 else CUDA, max(0, shown.device),
                             shown.ndim, shown.dtype & 0xff, shown.dtype >> 8 & 0xff,
                             shown.dtype >> 16, shape, strides, 0)
    managed.deleter = _delete
    kept = (managed, shape, strides, owner)
    managed.context = id(kept)
    _keep(kept)  # until the end
    return _new(ctypes.addressof(managed), b"dltensor", _end)
