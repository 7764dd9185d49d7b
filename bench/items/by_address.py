"""A program that allocates COUNT blocks of BYTES and uses one: what bench/by_address looks at.

by_address.py COUNT BYTES STEPS: writes to the last block and reads it back, then times STEPS launches
of small memsets and one upload of pageable memory into that block. `@held {}` when all is allocated
and used; it goes on at a line, `@times {...}`. At the end of its input it ends.
"""
import ctypes
import json
import sys
import time

CUDA = ctypes.CDLL("libcuda.so.1")
SMALL, UPLOAD, EACH = 64 << 10, 64 << 20, 100


def check(result):
    if result != 0:
        sys.exit(f"a driver call failed with {result}")


def say(kind, values):
    print(f"@{kind} {json.dumps(values)}", flush=True)


def main():
    count, block_bytes, steps = (int(word) for word in sys.argv[1:4])
    context = ctypes.c_void_p()
    check(CUDA.cuInit(0))
    check(CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(CUDA.cuCtxSetCurrent(context))
    blocks = []
    for _ in range(count):
        address = ctypes.c_uint64()
        check(CUDA.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(block_bytes)))
        blocks.append(address)
    last = blocks[-1]
    small = min(SMALL, block_bytes)
    check(CUDA.cuMemsetD8_v2(last, ctypes.c_ubyte(7), ctypes.c_size_t(small)))
    back = (ctypes.c_ubyte * small)()
    check(CUDA.cuMemcpyDtoH_v2(back, last, ctypes.c_size_t(small)))
    if bytes(back) != b"\7" * small:
        sys.exit("the bytes differ")
    say("held", {})
    sys.stdin.readline()
    begin = time.perf_counter_ns()
    for i in range(steps):
        check(CUDA.cuMemsetD8Async(last, ctypes.c_ubyte(i % 256), ctypes.c_size_t(256), None))
        if i % EACH == EACH - 1:
            check(CUDA.cuCtxSynchronize())
    check(CUDA.cuCtxSynchronize())
    launch_ns = (time.perf_counter_ns() - begin) / max(steps, 1)
    size = min(UPLOAD, block_bytes)
    source = ctypes.create_string_buffer(size)
    begin = time.perf_counter_ns()
    check(CUDA.cuMemcpyHtoD_v2(last, source, ctypes.c_size_t(size)))
    say("times", {
        "launch_ns": round(launch_ns),
        "upload_gb_s": round(size / (time.perf_counter_ns() - begin), 2)
    })
    sys.stdin.readline()


if __name__ == "__main__":
    main()
