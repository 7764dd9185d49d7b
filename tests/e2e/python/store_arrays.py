"""The package `tube`: arrays of NumPy and numba into the store and out of it, errors, life of
objects. Natively there is no proxy and the store is the process's own: what is printed is the
same."""
import ctypes
import gc
import mmap
import os
import pathlib
import signal
import sys

os.environ["NUMBA_CUDA_USE_NVIDIA_BINDING"] = "0"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import numpy as np  # noqa: E402
import tube  # noqa: E402

for left in tube.objects():  # by the run before: a store outlives its functions
    tube.delete(left.name)
for name, array in {
        "floats": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "bytes": np.zeros(5, np.uint8),
        "complex": np.ones((3, 1), np.complex64), "one": np.array(7, np.int64),
        "bools": np.array([True, False])}.items():
    tube.put(name, array, group="arrays")
    with tube.get(name) as found:
        for seen in (np.asarray(found), np.from_dlpack(found)):
            assert seen.dtype == array.dtype and np.array_equal(seen, array), name
            assert seen.__array_interface__["data"][0] == found.data
        print(name, found.shape, found.typestr, found.nbytes)
tube.put("text", b"some bytes")
assert bytes(np.asarray(tube.get("text"))) == b"some bytes"

# Written in place, sealed at the end; given up when something goes wrong.
with tube.reserve("made", (4, 5), "<f8", place=tube.HOST) as made:
    np.asarray(made)[:] = 3.5
    assert not tube.exists("made")
print(np.asarray(tube.get("made")).sum())
try:
    with tube.reserve("never", (4,), place=tube.HOST):
        raise RuntimeError("no")
except RuntimeError:
    # A seal or an end is on its way when it returns: the next round trip comes behind it.
    tube.put("behind", b"x")
    print("never", tube.exists("never"))

# An array keeps the object it is made of, and that keeps its bytes.
kept = np.asarray(tube.get("floats"))
also = np.from_dlpack(tube.get("floats"))
tube.delete("floats")
tube.put("floats", np.zeros((2, 3, 4), np.float32))
gc.collect()
print(kept.sum(), also.sum(), np.asarray(tube.get("floats")).sum())
del kept, also

# Along a dimension of one an exporter writes any stride.
odd = np.lib.stride_tricks.as_strided(np.arange(6, dtype=np.int32), (1, 2, 1, 3), (4, 12, 400, 4))


class Exporter:
    __dlpack__, __dlpack_device__ = odd.__dlpack__, odd.__dlpack_device__


for name, array in {"odd": odd, "exported": Exporter()}.items():
    tube.put(name, array, group="arrays")
    print(name, np.asarray(tube.get(name)).tolist(), tube.get(name).shape)


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


# A wait ends with a signal's handler, as one for Ctrl-C.
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    tube.get("never", timeout=None)
except Interrupted:
    print("interrupted")

for how in ({"copy": True}, {"dl_device": (2, 7)}):
    try:
        tube.get("text").__dlpack__(**how)
        print("no error")
    except BufferError as error:
        print(error)
assert tube.get("text").__dlpack__(copy=False, dl_device=(1, 0)) is not None

for what in (lambda: tube.get("nothing"), lambda: tube.get("nothing", timeout=-1), lambda: tube.put("text", b"again"),
             lambda: tube.put("gaps", np.zeros((4, 4))[:, ::2]), lambda: tube.put("", b"x"),
             lambda: tube.reserve("many", (1,) * 9), lambda: tube.delete("nothing")):
    try:
        what()
        print("no error")
    except tube.Error as error:
        print(type(error).__name__, error)
print(tube.delete_group("arrays"), sorted(o.name for o in tube.objects()))

names = {tube.unique_id() for _ in range(50)}
print(len(names))
tube.store(names.pop(), b"1234", consumers=1)

from numba import config, cuda  # noqa: E402
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
# Without a proxy it is on the host.
tube.put("from a gpu", cuda.to_device(np.arange(1000)))
print(np.asarray(tube.get("from a gpu", place=tube.HOST)).sum())
if tube.connected():
    on_gpu = cuda.to_device(np.arange(1000, dtype=np.float32))
    tube.put("gpu", on_gpu)
    found = tube.fetch("gpu")
    assert found.place == tube.GPU and found.__dlpack_device__()[0] == 2
    assert np.array_equal(cuda.as_cuda_array(found).copy_to_host(), np.arange(1000))
    with tube.get("gpu", place=tube.HOST) as on_host:
        assert np.array_equal(np.asarray(on_host), np.arange(1000))
    with tube.reserve("gpu2", (10,), "<i4", place=tube.GPU) as made:
        cuda.as_cuda_array(made).copy_to_device(np.arange(10, dtype=np.int32))
    assert np.array_equal(cuda.as_cuda_array(tube.get("gpu2")).copy_to_host(), np.arange(10))
    found.release()
    tube.put("bytes", b"0123456789", place=tube.HOST)
    with tube.get("bytes") as held:
        descriptor, size, offset = held.export_fd()
        with mmap.mmap(descriptor, 10, prot=mmap.PROT_READ, offset=offset) as seen:
            assert size >= 10 and seen[:] == b"0123456789"
        os.close(descriptor)
    # Behind the stream that is named: the next object of its size lies elsewhere while that stands.
    driver, stream, word = ctypes.CDLL("libcuda.so.1"), cuda.stream(), cuda.pinned_array(1, np.uint32)
    handle, at = ctypes.c_void_p(int(stream.handle.value)), ctypes.c_uint64(word.ctypes.data)
    for place in (tube.HOST, tube.GPU):
        for end in (lambda held: held[0].release(stream=stream), list.clear):
            tube.put("held", np.zeros(1 << 20, np.uint8), place=place)
            held = [tube.get("held", stream=stream if end is list.clear else 0)]
            word[0], address = 0, held[0].data
            assert driver.cuStreamWaitValue32_v2(handle, at, 1, 0) == 0
            end(held)
            tube.delete("held")
            with tube.reserve("next", (1 << 20,), place=place) as following:
                assert following.data != address, place
            tube.delete("next")
            word[0] = 1
            stream.synchronize()
    # A release that is refused can be made up for.
    with tube.get("gpu") as refused:
        try:
            refused.release(stream=12345)
            print("no error")
        except tube.Error as error:
            assert refused.data and "CUDA error 400" in str(error), error
    # No object of a thread without a context stays.
    import threading
    for _ in range(4):
        tube.put("once", np.zeros(9, np.uint8), place=tube.GPU, consumers=1)
        dropped = [tube.get("once")]
        thread = threading.Thread(target=dropped.clear)
        thread.start()
        thread.join()
        try:
            tube.delete("once")
            print("still there")
        except tube.NotFound:
            pass
tube.put("at the end", np.arange(10))


# Arrays that end when the interpreter does.
class AtTheEnd:
    kept = np.from_dlpack(tube.get("at the end"))

    def __init__(self):
        self.me, self.also = self, np.from_dlpack(tube.get("at the end"))


print(AtTheEnd.kept.sum(), AtTheEnd().also.sum())
for left in tube.objects():
    tube.delete(left.name)
print("done")
