"""A driver-API program that is told on standard input what to do, one word a line, and answers each
with `WORD CODE`.

load:TEXT (a module with that pragma) | init | good | bad (a kernel that stores to address 16) | spin (one that ends when it is released) |
release | sync | query | answer (what came before has reached the proxy). Kernels are launched on the default stream and not waited for.
"""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
KERNELS = b"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry good(.param .u64 word) { ret; }
.visible .entry bad(.param .u64 word) {
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  mov.u64 %rd1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry spin(.param .u64 word) {
  .reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [word];
again:
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}
"""
module, word = ctypes.c_void_p(), ctypes.c_void_p()
kernels = {name: ctypes.c_void_p() for name in ("good", "bad", "spin")}


def init():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    code = (cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0) or
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or
            cuda.cuCtxSetCurrent(context) or cuda.cuMemHostAlloc(ctypes.byref(word),
                                                                 ctypes.c_size_t(4096), 0) or
            cuda.cuModuleLoadData(ctypes.byref(module), KERNELS))
    # Now: a look-up waits for the kernels of all functions.
    for name, kernel in kernels.items():
        code = code or cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode())
    if code == 0:
        ctypes.c_uint32.from_address(word.value).value = 0
    return code


def launch(name):
    argument = ctypes.c_uint64(word.value)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
    return cuda.cuLaunchKernel(kernels[name], 1, 1, 1, 1, 1, 1, 0, None, arguments, None)


def release():
    ctypes.c_uint32.from_address(word.value).value = 1
    return 0


WORDS = {
    "init": init,
    "release": release,
    "sync": cuda.cuCtxSynchronize,
    "answer": lambda: cuda.cuMemGetInfo_v2(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t())),
    "query": lambda: cuda.cuStreamQuery(None)
}
def load(pragma):
    text = b".version 6.4\n.target sm_70\n.address_size 64\n.pragma \"%s\";\n" % pragma.encode()
    return cuda.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), text + b".visible .entry k() { ret; }\n")


for line in sys.stdin:
    name = line.strip()
    if name.startswith("load:"):
        print(name, load(name[len("load:"):]), flush=True)
        continue
    print(name, WORDS[name]() if name in WORDS else launch(name), flush=True)
