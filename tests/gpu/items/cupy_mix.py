"""CuPy: a GEMM, a RawKernel compiled by NVRTC, an FFT."""
import worker


def setup():
    import cupy
    import numpy
    rng = numpy.random.default_rng(7)
    a = cupy.asarray(rng.standard_normal((256, 256), dtype=numpy.float32))
    b = cupy.asarray(rng.standard_normal((256, 256), dtype=numpy.float32))
    signal = cupy.asarray(rng.standard_normal(4096).astype(numpy.complex64))
    kernel = cupy.RawKernel(r'''
    extern "C" __global__ void mix(const float* a, float* out, int count, float factor) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < count) out[i] = a[i] * factor + sinf(a[i]);
    }''', "mix")
    state = {}

    def step():
        product = a @ b
        mixed = cupy.empty_like(product)
        kernel((256,), (256,), (product, mixed, numpy.int32(mixed.size), numpy.float32(0.25)))
        state["mixed"] = mixed
        state["spectrum"] = cupy.fft.fft(signal)
        cupy.cuda.Device().synchronize()

    return step, lambda: {name: cupy.asnumpy(array).tobytes() for name, array in state.items()}


worker.serve(setup)
