"""A program that shares memory and events: reads commands from standard input, one per line, and
answers each with one line.

It loads libcuda.so.1 by name and knows nothing of Tube. Memory and events are numbered in the order
they came; an answer is `CODE` or `CODE VALUE`. With OCCUPY=ADDRESS it maps a page there first, so
that an address range is taken.
"""
import ctypes
import mmap
import os
import socket
import sys

cuda = ctypes.CDLL("libcuda.so.1")
pointers, events, streams, fds, pages = [], [], [], [], []
flag = ctypes.c_uint64()
link = socket.socket(fileno=int(os.environ["LINK_FD"])) if "LINK_FD" in os.environ else None


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location),
                ("meta", ctypes.c_void_p), ("rest", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def need(code, what):
    if code != 0:
        raise SystemExit(f"{what}: {code}")


def start():
    if "OCCUPY" in os.environ:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        got = libc.mmap(ctypes.c_void_p(int(os.environ["OCCUPY"], 16)), ctypes.c_size_t(4096),
                        mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
        if got != int(os.environ["OCCUPY"], 16):
            raise SystemExit(f"mapped at {got:#x} instead")
    context = ctypes.c_void_p()
    need(cuda.cuInit(0), "cuInit")
    need(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "retain")
    need(cuda.cuCtxSetCurrent(context), "set current")


def handle_of(text):
    return Handle((ctypes.c_ubyte * 64).from_buffer_copy(bytes.fromhex(text)))


def stream(index):
    while len(streams) <= index:
        made = ctypes.c_void_p()
        need(cuda.cuStreamCreate(ctypes.byref(made), 1), "stream")
        streams.append(made)
    return streams[index]


class Commands:
    def alloc(self, size):
        pointer = ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(size)))
        pointers.append(pointer)
        return code

    def fill(self, index, value, count):
        code = cuda.cuMemsetD32_v2(pointers[int(index)], int(value), ctypes.c_size_t(int(count)))
        return code or cuda.cuCtxSynchronize()

    def read(self, index, offset="0"):
        word = ctypes.c_uint32()
        code = cuda.cuMemcpyDtoH_v2(ctypes.byref(word),
                                    ctypes.c_uint64(pointers[int(index)].value + int(offset)),
                                    ctypes.c_size_t(4))
        return code, word.value

    def free(self, index):
        return cuda.cuMemFree_v2(pointers[int(index)])

    def export(self, index):
        handle = Handle()
        return cuda.cuIpcGetMemHandle(ctypes.byref(handle),
                                      pointers[int(index)]), bytes(handle.bytes).hex()

    def open(self, handle):
        pointer = ctypes.c_uint64()
        code = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), handle_of(handle), 1)
        pointers.append(pointer)
        return code

    def close(self, index):
        return cuda.cuIpcCloseMemHandle(pointers[int(index)])

    def same(self, first, second):
        return 0, int(pointers[int(first)].value == pointers[int(second)].value)

    def address(self, index):
        return 0, f"{pointers[int(index)].value:x}"

    def event(self):
        made = ctypes.c_void_p()
        code = cuda.cuEventCreate(ctypes.byref(made), 6)
        events.append(made)
        return code

    def export_event(self, index):
        handle = Handle()
        return cuda.cuIpcGetEventHandle(ctypes.byref(handle),
                                        events[int(index)]), bytes(handle.bytes).hex()

    def open_event(self, handle):
        made = ctypes.c_void_p()
        code = cuda.cuIpcOpenEventHandle(ctypes.byref(made), handle_of(handle))
        events.append(made)
        return code

    def hold(self, index):
        """The stream stands still until release."""
        need(cuda.cuMemAlloc_v2(ctypes.byref(flag), ctypes.c_size_t(4)), "flag")
        need(cuda.cuMemsetD32_v2(flag, 0, ctypes.c_size_t(1)), "flag")
        need(cuda.cuStreamSynchronize(None), "flag")
        return cuda.cuStreamWaitValue32_v2(stream(int(index)), flag, 1, 1)

    def release(self):
        return cuda.cuStreamWriteValue32_v2(stream(9), flag, 1, 0) or cuda.cuStreamSynchronize(
            stream(9))

    def watch(self, on, index, value):
        """The stream waits until the memory's first word is at least `value`."""
        return cuda.cuStreamWaitValue32_v2(stream(int(on)), pointers[int(index)], int(value), 0)

    def write(self, on, index, value):
        return cuda.cuStreamWriteValue32_v2(stream(int(on)), pointers[int(index)], int(value), 0)

    def share_page(self, path):
        """A page of a file, registered."""
        with open(path, "r+b") as file:
            pages.append(mmap.mmap(file.fileno(), 4096))
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages[-1]))
        pointers.append(ctypes.c_uint64(address))
        return cuda.cuMemHostRegister_v2(ctypes.c_void_p(address), ctypes.c_size_t(4096), 2)

    def record(self, index, on):
        return cuda.cuEventRecord(events[int(index)], stream(int(on)))

    def query(self, index):
        return cuda.cuEventQuery(events[int(index)])

    def wait(self, index):
        return cuda.cuEventSynchronize(events[int(index)])

    def follow(self, on, index):
        return cuda.cuStreamWaitEvent(stream(int(on)), events[int(index)], 0)

    def query_stream(self, on):
        return cuda.cuStreamQuery(stream(int(on)))

    def wait_stream(self, on):
        return cuda.cuStreamSynchronize(stream(int(on)))

    def create(self, size):
        """Memory of cuMemCreate, mapped; its fd goes through the link."""
        memory, fd = ctypes.c_uint64(), ctypes.c_int()
        properties = Properties(type=1, handles=1, location=Location(1, 0))
        need(
            cuda.cuMemCreate(ctypes.byref(memory), ctypes.c_size_t(int(size)),
                             ctypes.byref(properties), ctypes.c_ulonglong(0)), "create")
        code = cuda.cuMemExportToShareableHandle(ctypes.byref(fd), memory, 1, ctypes.c_ulonglong(0))
        if code == 0:
            socket.send_fds(link, [b"f"], [fd.value])
            os.close(fd.value)
        return code or self.map(memory, int(size))

    def adopt(self, size):
        _, received, _, _ = socket.recv_fds(link, 1, 1)
        memory = ctypes.c_uint64()
        code = cuda.cuMemImportFromShareableHandle(ctypes.byref(memory),
                                                   ctypes.c_void_p(received[0]), 1)
        os.close(received[0])
        return code or self.map(memory, int(size))

    def map(self, memory, size):
        pointer = ctypes.c_uint64()
        access = Access(Location(1, 0), 3)
        need(
            cuda.cuMemAddressReserve(ctypes.byref(pointer),
                                     ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0),
                                     ctypes.c_ulonglong(0)), "reserve")
        need(
            cuda.cuMemMap(pointer, ctypes.c_size_t(size), ctypes.c_size_t(0), memory,
                          ctypes.c_ulonglong(0)), "map")
        need(
            cuda.cuMemSetAccess(pointer, ctypes.c_size_t(size), ctypes.byref(access),
                                ctypes.c_size_t(1)), "access")
        pointers.append(pointer)
        return 0


start()
print("ready", flush=True)
for line in sys.stdin:
    name, *words = line.split()
    answer = getattr(Commands(), name)(*words)
    print(*(answer if isinstance(answer, tuple) else (answer,)), flush=True)
