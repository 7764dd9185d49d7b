"""A small driver-API program: makes the calls named on its command line and prints each result as
`NAME CODE`.

Arguments: init | alloc:BYTES | sync | launch | unsupported:NAME |
table:ID (an export table, in hexadecimal digits) | wait (reads a line from standard
input). It loads libcuda.so.1 by name, like any program, and knows nothing of Tube.
"""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def run(word):
    name, _, argument = word.partition(":")
    if name == "init":
        code = cuda.cuInit(0)
        if code == 0:
            device, context = ctypes.c_int(), ctypes.c_void_p()
            cuda.cuDeviceGet(ctypes.byref(device), 0)
            code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context),
                                                 device) or cuda.cuCtxSetCurrent(context)
        return code
    if name == "alloc":
        return cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(argument)))
    if name == "sync":
        return cuda.cuCtxSynchronize()
    if name == "unsupported":
        return getattr(cuda, argument)(*[ctypes.c_void_p()] * 8)
    if name == "table":
        return cuda.cuGetExportTable(ctypes.byref(ctypes.c_void_p()), bytes.fromhex(argument))
    if name == "wait":
        print("waiting", flush=True)
        sys.stdin.readline()
        return 0
    raise SystemExit(f"unknown word {word}")


for word in sys.argv[1:]:
    print(word, run(word), flush=True)
