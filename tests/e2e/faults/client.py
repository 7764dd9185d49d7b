"""A driver-API program that is told on standard input what to do, one word a line, and answers each
with `WORD CODE`.

load:TEXT (a module with that pragma) | init | good | spin (a kernel that ends when it is released) |
bad, far, misaligned, trapped, failed (kernels that fault: a store to address 16, one far from
any memory, one beside the word's alignment, a trap, a failed assertion) |
release | sync | query | answer (what came before has reached the proxy). Kernels are launched on the
default stream and not waited for.
"""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
KERNELS = b"""
.version 6.4
.target sm_70
.address_size 64
.visible .entry good(.param .u64 word) { ret; }
.visible .entry misaligned(.param .u64 word) {
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [word];
  ld.volatile.global.u32 %r1, [%rd1+1];
  st.global.u32 [%rd1+1], %r1;
  ret;
}
.visible .entry trapped(.param .u64 word) { trap; }
.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,
                           .param .b64 function, .param .b64 width);
.global .align 1 .b8 text[2] = {120, 0};
.visible .entry failed(.param .u64 word) {
  .reg .b64 %rd<3>;
  mov.u64 %rd1, text;
  cvta.global.u64 %rd2, %rd1;
  {
    .param .b64 message; .param .b64 file; .param .b32 line; .param .b64 function; .param .b64 width;
    st.param.b64 [message], %rd2;
    st.param.b64 [file], %rd2;
    st.param.b32 [line], 7;
    st.param.b64 [function], %rd2;
    st.param.b64 [width], 1;
    call.uni __assertfail, (message, file, line, function, width);
  }
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
STORE = b"""
.visible .entry %s(.param .u64 word) {
  .reg .b64 %%rd<2>; .reg .b32 %%r<2>;
  mov.u64 %%rd1, %d;
  mov.u32 %%r1, 1;
  st.global.u32 [%%rd1], %%r1;
  ret;
}
"""
KERNELS += STORE % (b"bad", 16) + STORE % (b"far", 0x123456789000)
module, word = ctypes.c_void_p(), ctypes.c_void_p()
NAMES = "good", "bad", "spin", "far", "misaligned", "trapped", "failed"
kernels = {name: ctypes.c_void_p() for name in NAMES}


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
