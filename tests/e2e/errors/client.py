"""A small driver-API program: makes the calls named on its command line and prints each result as
`NAME CODE`.

Arguments: init | alloc:BYTES | sync | launch | unsupported:NAME | table:ID (an export table, in
hexadecimal digits) | heap:MIB | malloc:BYTES (in a kernel) | graph_in_itself | fork (the
words behind it are the child's) | callbacks (a host function and a stream callback behind a value
that is never written) | called (waits for that callback; its code) | wait (reads a line from standard input). It loads libcuda.so.1 by
name, like any program, and knows nothing of Tube.
"""
import ctypes
import os
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
MALLOC_HEAP_SIZE = 2
KERNEL = b"""
.version 6.4
.target sm_70
.address_size 64
.extern .func (.param .b64 block) malloc(.param .b64 bytes);
.extern .func free(.param .b64 block);
.visible .entry user(.param .u64 bytes) {
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [bytes];
  { .param .b64 a; .param .b64 r;
    st.param.b64 [a], %rd1;
    call (r), malloc, (a);
    ld.param.b64 %rd2, [r]; }
  { .param .b64 a;
    st.param.b64 [a], %rd2;
    call free, (a); }
  ret;
}
"""


def launch(bytes_wanted):
    module, kernel, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(bytes_wanted)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(size))
    return cuda.cuModuleLoadData(ctypes.byref(module), KERNEL) or cuda.cuModuleGetFunction(
        ctypes.byref(kernel), module, b"user") or cuda.cuLaunchKernel(
            kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None) or cuda.cuCtxSynchronize()


called, status = threading.Event(), []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def function(_):
    print("the function ran", flush=True)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(_stream, code, _data):
    status.append(code)
    called.set()


def put_callbacks():
    stream, word = ctypes.c_void_p(), ctypes.c_void_p()
    return cuda.cuStreamCreate(ctypes.byref(stream), 1) or cuda.cuMemHostAlloc(
        ctypes.byref(word), ctypes.c_size_t(4096), 0) or cuda.cuStreamWaitValue32_v2(
            stream, word, 1, 0) or cuda.cuLaunchHostFunc(
                stream, function, None) or cuda.cuStreamAddCallback(stream, callback, None, 0)


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
    if name == "heap":
        return cuda.cuCtxSetLimit(MALLOC_HEAP_SIZE, ctypes.c_size_t(int(argument) << 20))
    if name == "malloc":
        return launch(int(argument))
    if name == "graph_in_itself":
        graph, node = ctypes.c_void_p(), ctypes.c_void_p()
        return cuda.cuGraphCreate(ctypes.byref(graph), 0) or cuda.cuGraphAddChildGraphNode(
            ctypes.byref(node), graph, None, ctypes.c_size_t(0), graph)
    if name == "fork":  # the words behind it are the child's
        child = os.fork()
        if child != 0:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return 0
    if name == "callbacks":
        return put_callbacks()
    if name == "called":
        return status[0] if called.wait(60) else "never"
    if name == "wait":
        print("waiting", flush=True)
        sys.stdin.readline()
        return 0
    raise SystemExit(f"unknown word {word}")


for word in sys.argv[1:]:
    print(word, run(word), flush=True)
