"""The package `tube`: arrays of NumPy and numba into the store and out of it, errors, life of
objects. Natively there is no proxy and the store is the process's own: what is printed is the
same."""
import gc
import mmap
import os
import pathlib
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

for what in (lambda: tube.get("nothing"), lambda: tube.put("text", b"again"),
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

if tube.connected():
    from numba import config, cuda
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
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
for left in tube.objects():
    tube.delete(left.name)
print("done")
