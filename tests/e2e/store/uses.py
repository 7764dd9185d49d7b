"""Uses of the package `tube` that need nothing but Python; uses_test.py runs each. "equal" at the
end.

    dying         arrays that die while an exception is on its way
    places        a put of an array in GPU memory goes to that GPU, whatever is current
    interrupted   a signal between a get and its Object
    forked        a child is told that a fork has no store
"""
import ctypes
import gc
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))

import tube  # noqa: E402

BYTES = 4096
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.restype, rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def is_gone(name):
    """Asks the proxy, behind the releases that are on their way."""
    try:
        tube.delete(name)
    except tube.NotFound:
        return True
    return False


class Taken:
    """What a library makes of a capsule: it calls the tensor's deleter in the end."""

    def __init__(self, capsule):
        self.address = pointer_of(capsule, b"dltensor")
        rename(capsule, b"used_dltensor")

    def end(self):
        deleter = ctypes.c_void_p.from_address(self.address + 56).value
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(self.address)


def dying():
    tube.put("once", bytearray(BYTES), consumers=1)
    held = tube.get("once")
    for _ in range(100):
        try:
            print(held.__dlpack__(), {}["a key"])
        except KeyError as error:
            assert error.args == ("a key",)
    taken = Taken(held.__dlpack__())
    del held
    gc.collect()
    assert tube.exists("once")
    taken.end()
    gc.collect()
    assert is_gone("once")


def places():
    cuda = ctypes.CDLL("libcuda.so.1")

    def must(result):
        assert result == 0, result

    must(cuda.cuInit(0))
    contexts = [ctypes.c_void_p(), ctypes.c_void_p()]
    for i, context in enumerate(contexts):
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), i))
    must(cuda.cuCtxSetCurrent(contexts[1]))
    memory, stream = ctypes.c_uint64(), ctypes.c_void_p()
    must(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(BYTES)))
    must(cuda.cuStreamCreate(ctypes.byref(stream), 1))

    class OnGpu:
        __cuda_array_interface__ = {"version": 3, "shape": (BYTES,), "typestr": "|u1",
                                    "data": (memory.value, True), "strides": None}

    for current in (contexts[0], None):
        must(cuda.cuCtxSetCurrent(current))
        tube.put("x", OnGpu(), stream=stream.value)
        seen = tube.peek("x")
        assert (seen.place, seen.__dict__["_shown"].device) == (tube.GPU, 1), seen
        tube.delete("x")


def interrupted():
    must = tube.must
    tube.put("once", bytearray(BYTES), consumers=1)

    def signal(_):
        raise KeyboardInterrupt

    for call in (lambda: tube.get("once"), lambda: tube.reserve("made", (BYTES,), place=tube.HOST)):
        tube.must = signal
        try:
            call()
        except KeyboardInterrupt:
            pass
        tube.must = must
    gc.collect()
    assert is_gone("once")
    with tube.reserve("made", (BYTES,), place=tube.HOST):
        pass
    tube.delete("made")


def forked():
    tube.put("once", bytearray(BYTES), consumers=1)
    held = tube.get("once")
    child = os.fork()
    if child == 0:
        try:
            tube.put("x", bytearray(BYTES))
        except tube.Error as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    held.release()
    assert is_gone("once")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("equal")
