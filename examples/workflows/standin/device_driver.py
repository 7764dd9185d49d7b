"""Where a stand-in computes: plain arrays of the CUDA driver API, by ctypes. It has the methods of
device_torch.Side, starts in a moment, and runs wherever there is a libcuda.so.1: on the simulated
GPU, too.

The two kernels mix every word of their inputs into every word of an output: one changed byte, or
one in another place, changes all that comes behind it.
"""
import base64
import ctypes

import numpy

BLOCKS, THREADS = 4, 64
PTX = b"""
.version 7.0
.target sm_75
.address_size 64

// sums[0] += a mix of each word with its place
.visible .entry fold(.param .u64 words, .param .u32 count, .param .u64 sums)
{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [count];
  ld.param.u64 %rd2, [sums];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  mov.u32 %r6, %nctaid.x;
  mul.lo.u32 %r6, %r6, %r3;
  mov.u32 %r7, 0;
LOOP:
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd4, %rd1, %rd3;
  ld.global.u32 %r8, [%rd4];
  mad.lo.u32 %r9, %r5, 0x9E3779B1, %r8;
  mul.lo.u32 %r9, %r9, 0x85EBCA77;
  shr.u32 %r10, %r9, 15;
  xor.b32 %r9, %r9, %r10;
  add.u32 %r7, %r7, %r9;
  add.u32 %r5, %r5, %r6;
  bra LOOP;
DONE:
  atom.global.add.u32 %r11, [%rd2], %r7;
  ret;
}

// out[i] = a mix of words[i % count], i and sums[0]
.visible .entry spread(.param .u64 words, .param .u32 count, .param .u64 sums,
                       .param .u64 out, .param .u32 most)
{
  .reg .pred %p<2>;
  .reg .b32 %r<14>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [count];
  ld.param.u64 %rd2, [sums];
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r2, [most];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r6, %r3, %r4, %r5;
  mov.u32 %r7, %nctaid.x;
  mul.lo.u32 %r7, %r7, %r4;
  ld.global.u32 %r8, [%rd2];
LOOP:
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  rem.u32 %r9, %r6, %r1;
  mul.wide.u32 %rd4, %r9, 4;
  add.u64 %rd5, %rd1, %rd4;
  ld.global.u32 %r10, [%rd5];
  mad.lo.u32 %r11, %r6, 0xC2B2AE3D, %r10;
  xor.b32 %r11, %r11, %r8;
  mul.lo.u32 %r12, %r11, 0x27D4EB2F;
  mul.wide.u32 %rd6, %r6, 4;
  add.u64 %rd7, %rd3, %rd6;
  st.global.u32 [%rd7], %r12;
  add.u32 %r6, %r6, %r7;
  bra LOOP;
DONE:
  ret;
}
"""


class Array:
    """Device memory with a type and a shape; `free` gives it back."""

    def __init__(self, pointer, dtype, shape, free):
        self.pointer, self.dtype, self.shape, self.free = pointer, dtype, list(shape), free

    @property
    def nbytes(self):
        return int(numpy.prod(self.shape)) * numpy.dtype(self.dtype).itemsize

    @property
    def __cuda_array_interface__(self):
        return {"version": 3, "shape": tuple(self.shape), "typestr": numpy.dtype(self.dtype).str,
                "data": (self.pointer.value, False), "strides": None}

    def __del__(self):
        self.free(self.pointer)


class Driver:
    """The driver API with errors as exceptions."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} answers {code}")

    def made(self, name, kind, *arguments):
        """What a call writes through its first argument."""
        value = kind()
        self(name, ctypes.byref(value), *arguments)
        return value


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class Side:
    """One GPU of the driver; its `device` for a function is this side itself."""
    shares = True

    def __init__(self, name):
        self.driver = driver = Driver()
        driver("cuInit", 0)
        number = driver.made("cuDeviceGet", ctypes.c_int, int(name))
        context = driver.made("cuDevicePrimaryCtxRetain", ctypes.c_void_p, number)
        driver("cuCtxSetCurrent", context)
        module = driver.made("cuModuleLoadData", ctypes.c_void_p, PTX)
        self.kernels = {kernel: driver.made("cuModuleGetFunction", ctypes.c_void_p, module,
                                            kernel.encode()) for kernel in ("fold", "spread")}
        self.device = self

    def empty(self, dtype, shape):
        size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
        pointer = self.driver.made("cuMemAlloc_v2", ctypes.c_uint64, ctypes.c_size_t(size))
        return Array(pointer, dtype, shape, lambda p: self.driver("cuMemFree_v2", p))

    def describe(self, array):
        return array.dtype, array.shape

    def upload(self, array):
        made = self.empty(array.dtype.name, array.shape)
        self.driver("cuMemcpyHtoD_v2", made.pointer, ctypes.c_void_p(array.ctypes.data),
                    ctypes.c_size_t(array.nbytes))
        return made

    def download(self, made, array):
        self.driver("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), made.pointer,
                    ctypes.c_size_t(array.nbytes))

    def register(self, data):
        self.driver("cuMemHostRegister_v2", ctypes.c_void_p(data.ctypes.data),
                    ctypes.c_size_t(data.nbytes), 0)

    def share(self, made):
        handle = self.driver.made("cuIpcGetMemHandle", IpcHandle, made.pointer)
        told = (base64.b64encode(bytes(handle)).decode(), made.dtype, made.shape)
        return made, told

    def open(self, told):
        handle = IpcHandle.from_buffer_copy(base64.b64decode(told[0]))
        pointer = self.driver.made("cuIpcOpenMemHandle_v2", ctypes.c_uint64, handle, 1)
        return Array(pointer, told[1], told[2], lambda p: self.driver("cuIpcCloseMemHandle", p))

    def synchronise(self):
        self.driver("cuCtxSynchronize")

    def stream(self):
        return 0

    def stored(self, made):
        return made

    def taken(self, held):
        pointer = ctypes.c_uint64(held.data)
        return Array(pointer, numpy.dtype(held.typestr).name, held.shape,
                     lambda _: held.release(self.stream()))

    def launch(self, kernel, *arguments):
        slots = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        self.driver("cuLaunchKernel", self.kernels[kernel], BLOCKS, 1, 1, THREADS, 1, 1, 0, None,
                    slots, None)

    def fold(self, array, sums):
        self.launch("fold", array.pointer, ctypes.c_uint32(array.nbytes // 4), sums.pointer)

    def spread(self, array, sums, out):
        self.launch("spread", array.pointer, ctypes.c_uint32(array.nbytes // 4), sums.pointer,
                    out.pointer, ctypes.c_uint32(out.nbytes // 4))
