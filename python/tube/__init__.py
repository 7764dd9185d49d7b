"""Tube's store: named, immutable arrays that all functions of a workflow share, without a copy.

    import tube, torch

    tube.put("frames/17", tensor)                  # one step: a copy inside the GPU
    with tube.reserve("scores/17", (1000,), "<f4") as out:
        torch.from_dlpack(out).copy_(scores)       # two steps: written in place, sealed at the end

    frame = tube.get("frames/17", timeout=5)       # the same memory, whoever put it
    tensor = torch.from_dlpack(frame)              # or cupy.asarray, jax.dlpack, numpy.asarray

An object is held as long as the Object lives, and arrays made of it keep that alive. Without a proxy
(`connected()` is False) the store is this process's own, in host memory.

Streams: a number (a cudaStream_t), a stream of torch, CuPy or numba, or None: the host waits until
the bytes are there, and what it puts is complete when the work on the default stream is.
"""
import ctypes
import math
import time

from . import _arrays
from ._library import (ANY, DEFAULT, GPU, HOST, NOT_FOUND, VISIT, Error, Exists, Gone, Invalid,
                       NoGpu, NoMemory, NotFound, Shown, Spec, TooMany, library, must, stream_handle)

__all__ = ["ANY", "Error", "Exists", "GPU", "Gone", "HOST", "Invalid", "NoGpu", "NoMemory",
           "NotFound", "Object", "Reserved", "TooMany", "connected", "delete", "delete_group",
           "exists", "fetch", "get", "objects", "peek", "put", "queue", "reserve", "store",
           "unique_id"]

PIECE = 0.1  # seconds of a wait


def connected() -> bool:
    """Whether this is the workflow's store; else it is this process's own."""
    return bool(library.tube_connected())


def unique_id() -> str:
    """A name that no other object of the workflow ever had."""
    name = ctypes.create_string_buffer(96)
    must(library.tube_unique_id(name, len(name)))
    return name.value.decode()


class _Described:
    """What is known of an object, and its memory as other libraries want to see it."""

    def __init__(self, shown):
        self._shown = shown

    name = property(lambda self: self._shown.name.decode())
    group = property(lambda self: self._shown.group.decode())
    nbytes = property(lambda self: self._shown.bytes)
    place = property(lambda self: self._shown.place)
    shape = property(lambda self: tuple(self._shown.shape[:self._shown.ndim]))
    typestr = property(lambda self: _arrays.typestr_of(self._shown.dtype))

    def _interface(self, read_only):
        size = _arrays.item_bytes(self._shown.dtype)
        strides = tuple(s * size for s in self._shown.strides[:self._shown.ndim])
        return {"version": 3, "shape": self.shape, "typestr": self.typestr,
                "data": (self._shown.data, read_only), "strides": strides}

    def __repr__(self):
        place = "gpu" if self.place == GPU else "host"
        return f"<tube.{type(self).__name__} '{self.name}' {self.shape} {self.typestr} on {place}>"


class _Memory(_Described):
    _read_only = True

    @property
    def data(self) -> int:
        """The address, in GPU memory or in this process's."""
        self._check()
        return self._shown.data

    def __dlpack_device__(self):
        gpu = self.place == GPU
        return (_arrays.CUDA if gpu else _arrays.CPU, max(0, self._shown.device))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        del stream, max_version  # ordered by get()
        self._check()
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"'{self.name}' is given as it is and where it is: copy the array, or "
                              "get() the object in another place")
        return _arrays.capsule_of(self._shown, self)

    def __getattr__(self, name):
        if name == "__cuda_array_interface__" and self.place == GPU:
            self._check()
            return self._interface(self._read_only)
        if name == "__array_interface__" and self.place == HOST:
            self._check()
            return self._interface(self._read_only)
        raise AttributeError(name)

    def _check(self):
        if self._shown.data is None:
            raise Invalid(f"'{self.name}' is not held any more")


class Object(_Memory):
    """An object that this process holds. Read it, never write to it: others read the same memory."""

    def __init__(self, shown, stream=None):
        super().__init__(shown)
        self._stream = 0 if stream is None else stream
        self._behind = stream_handle(self._stream)

    def release(self, stream=None):
        """Gives it back, behind the work on `stream`: that of its get() unless another one is
        named. Once; arrays made of it end before."""
        if self._shown.data is None:
            return
        behind = self._behind if stream is None else stream_handle(stream)
        # Refused where the stream is gone or captures: it is held on, for another release.
        must(library.tube_release(self._shown, behind))
        self._shown.data = None

    def export_fd(self) -> tuple:
        """(descriptor, size, offset) of the memory behind it, for a program that knows nothing of
        Tube: a POSIX descriptor for cuMemImportFromShareableHandle, of `size` bytes to map, or for
        mmap in host memory. The object begins at `offset`. The descriptor is the caller's to close;
        hold the object until the other program has done."""
        self._check()
        fd, size, offset = ctypes.c_int(-1), ctypes.c_uint64(), ctypes.c_uint64()
        must(library.tube_export_fd(self._shown, ctypes.byref(fd), ctypes.byref(size),
                                    ctypes.byref(offset)))
        return fd.value, size.value, offset.value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    # Bound here, as this module may be gone before the object.
    def __del__(self, drop=library.tube_drop):
        if self._shown.data is not None:
            drop(self._shown, self._behind)


class Reserved(_Memory):
    """A new object's memory: fill it, then seal. As a context manager it is sealed at the end, and
    given up when an exception comes out: that waits for what the program has given the GPU to do,
    which may write to it."""
    _read_only = False

    def seal(self, stream=None):
        """Complete, behind the work on `stream`. The memory is not the caller's any more, unless this
        is refused: the stream is gone or captures."""
        self._check()
        if stream is None and self.place == GPU:
            stream = 0
        must(library.tube_seal(self._shown, stream_handle(stream)))
        self._shown.data = None

    def abort(self, stream=0):
        """Gives it up; the name is free again."""
        if self._shown.data is None:
            return
        library.tube_drop(self._shown, stream_handle(stream))
        self._shown.data = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None and self._shown.data is not None:
                self.seal()
        finally:
            self.abort()

    def __del__(self, drop=library.tube_drop, behind=DEFAULT):
        if self._shown.data is not None:
            drop(self._shown, behind)


def _spec(name, bytes_, dtype, shape, place, group, consumers, ttl, device=None):
    if len(shape) > len(Spec().shape):
        raise Invalid(f"'{name}' has {len(shape)} dimensions, {len(Spec().shape)} are possible")
    return Spec(name.encode(), group.encode(), bytes_, place, 0 if device is None else device + 1,
                dtype, len(shape), consumers, math.ceil((ttl or 0) * 1000), shape,
                _arrays.packed(shape))


def reserve(name, shape, dtype="|u1", *, place=ANY, group="", consumers=0, ttl=None,
            device=None) -> Reserved:
    """Memory for a new object. `dtype`: a type string of NumPy ("<f4"), anything with a `str` of that
    kind, or DLPack's number. `consumers`: it is deleted when so many gets are over. `ttl`: seconds.

    Raises Exists, NoMemory, TooMany, NoGpu."""
    number = dtype if isinstance(dtype, int) else _arrays.dtype_of(getattr(dtype, "str", dtype))
    shape = tuple(int(n) for n in shape)
    bytes_ = math.prod(shape) * _arrays.item_bytes(number)
    spec = _spec(name, bytes_, number, shape, place, group, consumers, ttl, device)
    made = Reserved(Shown())  # first: a signal in between finds an owner
    must(library.tube_reserve(ctypes.byref(spec), made._shown))
    return made


def put(name, array, *, place=None, group="", consumers=0, ttl=None, stream=None) -> None:
    """An object with the bytes of `array`: anything with DLPack, an array interface or a buffer. It is
    put where the array is, on its GPU, unless `place` says otherwise; without a proxy on the host. An array in
    host memory may be written again afterwards, unless a stream is named: then behind that.

    Raises Exists, NoMemory, TooMany, NoGpu, Invalid (an array with gaps)."""
    given = _arrays.numpy_array(array)
    if given is not None:
        _put(name, given, place, group, consumers, ttl, stream)
        return
    number = None if stream is None else stream_handle(stream).value
    with _arrays.array_of(array, number) as given:
        _put(name, given, place, group, consumers, ttl, stream)


def _put(name, given, place, group, consumers, ttl, stream):
    # Along a dimension of one there is no step: its stride is what the exporter happens to write.
    gaps = any(n > 1 and stride != wanted for n, stride, wanted in zip(
        given.shape, given.strides, _arrays.packed(given.shape)))
    if gaps and 0 not in given.shape:
        raise Invalid(f"'{name}' is to be put from an array with gaps: make it contiguous")
    # Not ANY with a proxy: in a thread without a context that is the host.
    there = GPU if given.gpu and connected() else ANY if given.gpu else HOST
    where = there if place is None else place
    bytes_ = math.prod(given.shape) * _arrays.item_bytes(given.dtype)
    spec = _spec(name, bytes_, given.dtype, given.shape, where, group, consumers, ttl,
                 given.device if where == GPU else None)
    gpu = given.gpu or where != HOST
    if stream is None and given.gpu:
        stream = given.stream or 0
    must(library.tube_put(spec, given.address, stream_handle(stream if gpu else None)))


def get(name, *, timeout=0, place=ANY, stream=None) -> Object:
    """The object of that name, held until the Object ends. `timeout`: seconds to wait for it; None:
    for ever. `place`: HOST or GPU has it there, by a copy that is made once if it is not.

    Raises NotFound, NoGpu, NoMemory, Gone."""
    found = Object(Shown(), stream)  # first: a signal in between finds an owner
    shown, handle, encoded = found._shown, stream_handle(stream), name.encode()
    end = math.inf if timeout is None else time.monotonic() + timeout
    left = math.inf if timeout is None else max(timeout, 0)
    # In pieces: signals are handled in between.
    while (result := library.tube_wait(encoded, place, handle, math.ceil(min(left, PIECE) * 1000),
                                       shown)) == NOT_FOUND and left > PIECE:
        left = max(end - time.monotonic(), 0)
    must(result)
    return found


def peek(name) -> _Described:
    """What there is to know of an object; its memory is not to be used. Raises NotFound."""
    shown = Shown()
    must(library.tube_peek(name.encode(), ctypes.byref(shown)))
    return _Described(shown)


def exists(name) -> bool:
    """Whether a sealed object has that name."""
    try:
        return bool(peek(name)._shown.sealed)
    except NotFound:
        return False


def delete(name) -> None:
    """The name is free at once, the memory when nobody holds the object. Raises NotFound."""
    must(library.tube_delete(name.encode()))


def delete_group(group) -> int:
    """Deletes all objects of a group; how many."""
    count = ctypes.c_uint32()
    must(library.tube_delete_group(group.encode(), ctypes.byref(count)))
    return count.value


def objects() -> list:
    """All objects, sealed or not, of the workflow."""
    found = []

    @VISIT
    def visit(_, shown):
        found.append(_Described(Shown.from_buffer_copy(shown.contents)))
        return 1

    must(library.tube_list(visit, None))
    return found


def queue(names) -> None:
    """The names of objects in the order in which they will be taken, for whoever runs the functions
    to tell; it replaces what was told before. When GPU memory is short the last of them leave the
    GPU first, and they come back before their turn. Names behind the first 4,096, or behind 48 KiB
    of them, have no turn."""
    encoded = [name.encode() for name in names]
    must(library.tube_queue((ctypes.c_char_p * len(encoded))(*encoded), len(encoded)))


def store(name, array, **how) -> None:
    """FaaSTube's name of put()."""
    put(name, array, **how)


def fetch(name, *, timeout=None, **how) -> Object:
    """FaaSTube's name of get(): waits for the object."""
    return get(name, timeout=timeout, **how)
