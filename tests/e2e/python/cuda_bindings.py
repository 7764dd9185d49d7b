"""cuda-python's own driver bindings: module loading from PTX, launch, streams, events, memory, a
graph, error codes."""
import ctypes
import hashlib

import numpy as np
from cuda.bindings import driver

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 data, .param .f32 factor, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [data];
  ld.param.f32 %f1, [factor];
  ld.param.u32 %r1, [count];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  mul.f32 %f3, %f2, %f1;
  st.global.f32 [%rd4], %f3;
DONE:
  ret;
}
\0"""


def ok(result):
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{code}")
    return values[0] if len(values) == 1 else tuple(values) if values else None


def show(name, array):
    print(f"{name}: {hashlib.sha256(array.tobytes()).hexdigest()[:24]}")


def launch(kernel, stream, data, factor, count):
    ok(
        driver.cuLaunchKernel(kernel, (count + 127) // 128, 1, 1, 128, 1, 1, 0, stream,
                              ((data, np.float32(factor), np.uint32(count)),
                               (None, ctypes.c_float, ctypes.c_uint32)), 0))


def main():
    print(driver.cuInit(0))
    print("driver", ok(driver.cuDriverGetVersion()), "devices", ok(driver.cuDeviceGetCount()))
    device = ok(driver.cuDeviceGet(0))
    print(ok(driver.cuDeviceGetName(100, device)).split(b"\0")[0].decode())
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    module = ok(driver.cuModuleLoadData(PTX))
    kernel = ok(driver.cuModuleGetFunction(module, b"scale"))
    count = 5000
    host = np.random.default_rng(2).standard_normal(count).astype(np.float32)
    data = ok(driver.cuMemAlloc(host.nbytes))
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    start, stop = (ok(driver.cuEventCreate(0)) for _ in range(2))
    ok(driver.cuMemcpyHtoDAsync(data, host.ctypes.data, host.nbytes, stream))
    ok(driver.cuEventRecord(start, stream))
    launch(kernel, stream, data, 1.5, count)
    ok(driver.cuEventRecord(stop, stream))
    back = np.empty_like(host)
    ok(driver.cuMemcpyDtoHAsync(back.ctypes.data, data, back.nbytes, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (back == host * np.float32(1.5)).all()
    show("scaled", back)
    print("elapsed", ok(driver.cuEventElapsedTime(start, stop)) >= 0)

    ok(
        driver.cuStreamBeginCapture(stream,
                                    driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    for factor in (2.0, 0.5, 3.0):
        launch(kernel, stream, data, factor, count)
    graph = ok(driver.cuStreamEndCapture(stream))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    for _ in range(3):
        ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemcpyDtoH(back.ctypes.data, data, back.nbytes))
    show("graph", back)
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))

    print(driver.cuModuleGetFunction(module, b"absent")[0])
    print(driver.cuMemFree(12345)[0])
    print(driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_INVALID_VALUE))
    for event in (start, stop):
        ok(driver.cuEventDestroy(event))
    ok(driver.cuStreamDestroy(stream))
    ok(driver.cuMemFree(data))
    ok(driver.cuModuleUnload(module))
    ok(driver.cuDevicePrimaryCtxRelease(device))


main()
