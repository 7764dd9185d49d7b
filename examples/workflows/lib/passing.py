"""Data from one function to the next. Way by way:

    host     the producer copies into a shared memory segment, the consumer reads or uploads from it;
             host-place: a host function that asks for room() writes there in place
    pinned   the same with every mapping of a GPU stage registered with CUDA, once
    ipc      the producer keeps the tensor on its GPU and hands out a CUDA IPC handle
    files    the same bytes in a file
    store    an object in Tube's store, on the producer's GPU (by_store.py); store-host: the same in
             host memory. A host function that asks for room() writes in place

A handle is what the consumer needs, in plain JSON: {"way", "key", "dtype", "shape", ..}. What its
key names stays as it is until the producer is told to release the key, which its runner does when
every consumer has answered; any number of consumers may take the same handle.

Segments are memory files (memfd): nothing stays behind when a process is killed, and no file system
limits their size. The key names process and descriptor, and consumers open it under /proc. A
producer reuses released segments; consumers keep their mappings: each page is faulted once by each
process, as a server that lives long would have it.

A side is where a function computes: HostSide, or device_torch.Side for torch tensors. Another one
needs the same methods. One thread uses all of this.
"""
import atexit
import mmap
import os
import pathlib
import secrets
import shutil
import tempfile

import numpy

import by_store

WAYS = ("host", "host-place", "pinned", "ipc", "files", "store", "store-host")
SMALLEST = 64 * 1024


_serving = None  # the Passing whose function has a request


def room(name, shape, dtype="uint8"):
    """An array for an output of the request that is being served, to be written in place; the
    function then returns this very array. None: by that way nothing is gained."""
    return None if _serving is None else _serving.room(name, shape, dtype)


def contiguous(array):
    return numpy.ascontiguousarray(array)


def raw(array):
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(numpy.uint8)


def size_of(handle):
    """Bytes of what a handle names."""
    size = numpy.dtype(handle["dtype"]).itemsize
    for length in handle["shape"]:
        size *= length
    return size


def shaped(data, handle):
    """The array of a handle in the bytes that begin with it."""
    return data[:size_of(handle)].view(handle["dtype"]).reshape(handle["shape"])


class HostSide:
    """A host stage: its arrays are numpy's, and what it takes may lie in a segment."""
    device = None
    shares = False  # No CUDA IPC.

    def describe(self, array):
        """(type, shape) of an output, as a handle has it."""
        return array.dtype.name, list(array.shape)

    def upload(self, array):
        """The array as run() gets it; `array` stays as it is until run() has returned."""
        return array

    def download(self, output, array):
        """Copies an output into `array`; it is there after synchronise()."""
        numpy.copyto(array, output)

    def register(self, data):
        """Makes the mapping `data` pinned."""

    def synchronise(self):
        """Returns when all work given to the device is done."""

    def stream(self):
        """What puts and gets of the store are ordered with; None: the host."""

    def stored(self, output):
        """An output as the store takes it: DLPack, an array interface."""
        return contiguous(output)

    def taken(self, held):
        """An object of the store as run() gets it; it is held as long as that lives."""
        return numpy.asarray(held)


class Segment:
    """Shared memory of this process: a descriptor that others open by name."""

    def __init__(self, size, nonce):
        self.fd = os.memfd_create("workflow", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        self.data = mapped(self.fd, size)
        self.key = f"{os.getpid()}.{self.fd}.{nonce}"
        self.pinned = False


def mapped(fd, size):
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return numpy.frombuffer(mmap.mmap(fd, size, flags=flags), numpy.uint8)


def rounded(size):
    """The next size of four in each power of two, so that outputs of changing counts find a
    segment."""
    size = max(size, SMALLEST)
    step = 1 << ((size - 1).bit_length() - 3)
    return -(-size // step) * step


class Pool:
    """The producer's segments. It only grows: to the most that were ever out at once."""

    def __init__(self):
        self.free, self.used, self.nonce = {}, {}, secrets.token_hex(6)

    def get(self, size):
        size = rounded(size)
        free = self.free.setdefault(size, [])
        segment = free.pop() if free else Segment(size, self.nonce)
        self.used[segment.key] = segment
        return segment

    def put(self, key):
        segment = self.used.pop(key, None)
        if segment is not None:
            self.free[len(segment.data)].append(segment)


class Mappings:
    """The consumer's views of other processes' segments, kept by name."""

    def __init__(self):
        self.known, self.pinned = {}, set()

    def get(self, key):
        if key not in self.known:
            pid, fd, _ = key.split(".")
            opened = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            try:
                self.known[key] = mapped(opened, os.fstat(opened).st_size)
            finally:
                os.close(opened)
        return self.known[key]


class Files:
    """Outputs as files in a folder of this process, below WORKFLOW_FILES if that is set."""

    def __init__(self):
        self.folder, self.count = None, 0

    def path(self):
        if self.folder is None:
            above = os.environ.get("WORKFLOW_FILES")
            self.folder = tempfile.mkdtemp(prefix="workflow-", dir=above)
            atexit.register(self.close)
        self.count += 1
        return os.path.join(self.folder, f"{self.count}.bin")

    def close(self):
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class Passing:
    """All ways of one function: take() what others made, give() what it made."""

    def __init__(self, side):
        self.side = side
        self.pool, self.mappings, self.files = Pool(), Mappings(), Files()
        self.shared, self.count, self.known_store = {}, 0, None
        self.ways, self.rooms = {}, {}  # of this request; address of an array: what it lies in

    @property
    def store(self):
        """Made when the first handle of it comes or goes."""
        if self.known_store is None:
            self.known_store = by_store.Store(self.side)
        return self.known_store

    def take(self, handle):
        """The input that a handle names. It is on the device after the side's synchronise()."""
        return getattr(self, f"take_{handle['way'].partition('-')[0]}")(handle)

    def give(self, output, way):
        """A handle of an output. Its bytes are there after the side's synchronise()."""
        if way not in WAYS:
            raise ValueError(f"no way is called {way}: {', '.join(WAYS)}")
        if way == "ipc" and not self.side.shares:
            way = "host"  # The rehearsal on a CPU.
        dtype, shape = self.side.describe(output)
        handle = {"way": way, "dtype": dtype, "shape": shape}
        getattr(self, f"give_{way.partition('-')[0]}")(output, handle)
        return handle

    def begin(self, ways):
        """A request whose outputs go these ways: {name: way}."""
        global _serving
        self.leave_rooms()
        self.ways, _serving = ways, self

    def leave_rooms(self):
        """What was asked for and not returned, by a request that failed, say."""
        for place in self.rooms.values():
            if isinstance(place, Segment):
                self.pool.put(place.key)
            else:
                place.abort()
        self.rooms.clear()

    def room(self, name, shape, dtype):
        """See room() above."""
        way = self.ways.get(name, "")
        if self.side.device is not None or not way.startswith(("store", "host-place")):
            return None
        handle = {"dtype": dtype, "shape": shape}
        if way == "host-place":
            place = self.pool.get(size_of(handle))
            array = shaped(place.data, handle)
        else:
            place = self.store.room(shape, dtype)
            array = numpy.asarray(place)
        self.rooms[array.ctypes.data] = place
        return array

    def place_of(self, output):
        """The room that the output fills, or None."""
        if not isinstance(output, numpy.ndarray):
            return None
        return self.rooms.pop(output.ctypes.data, None)

    def release(self, keys):
        """Takes back what these keys name; keys that are not known are passed over."""
        for key in keys:
            self.pool.put(key)
            self.shared.pop(key, None)
            if self.known_store is not None:
                self.known_store.release(key)
            if self.files.folder and key.startswith(self.files.folder + os.sep):
                pathlib.Path(key).unlink(missing_ok=True)

    def close(self):
        self.leave_rooms()
        self.shared.clear()
        self.files.close()
        if self.known_store is not None:
            self.known_store.close()

    def take_host(self, handle):
        return self.side.upload(shaped(self.mappings.get(handle["key"]), handle))

    def take_pinned(self, handle):
        data = self.mappings.get(handle["key"])
        if handle["key"] not in self.mappings.pinned:
            self.side.register(data)
            self.mappings.pinned.add(handle["key"])
        return self.side.upload(shaped(data, handle))

    def take_ipc(self, handle):
        return self.side.open(handle["handle"])

    def take_files(self, handle):
        return self.side.upload(shaped(numpy.fromfile(handle["key"], numpy.uint8), handle))

    def take_store(self, handle):
        return self.store.take(handle["key"])

    def give_store(self, output, handle):
        if (place := self.place_of(output)) is not None:
            handle["key"] = self.store.seal(place)
            return
        handle["key"] = self.store.give(output, on_host=handle["way"] == "store-host")

    def give_host(self, output, handle, pinned=False):
        if (place := self.place_of(output)) is not None:
            handle["key"] = place.key
            return
        segment = self.pool.get(size_of(handle))
        if pinned and not segment.pinned:
            self.side.register(segment.data)
            segment.pinned = True
        handle["key"] = segment.key
        self.side.download(output, shaped(segment.data, handle))

    def give_pinned(self, output, handle):
        self.give_host(output, handle, pinned=True)

    def give_ipc(self, output, handle):
        self.count += 1
        handle["key"] = f"{os.getpid()}.ipc.{self.count}"
        self.shared[handle["key"]], handle["handle"] = self.side.share(output)

    def give_files(self, output, handle):
        array = numpy.empty(handle["shape"], handle["dtype"])
        self.side.download(output, array)
        self.side.synchronise()
        handle["key"] = self.files.path()
        raw(array).tofile(handle["key"])
