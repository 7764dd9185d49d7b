"""A numba CUDA kernel: libNVVM or nvJitLink compile it in this process, the driver loads the
result."""
import worker


def setup():
    import numpy
    from numba import cuda

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] * x[i] + 0.5

    x = cuda.to_device(numpy.random.default_rng(5).standard_normal(100000).astype(numpy.float32))
    out = cuda.device_array_like(x)

    def step():
        kernel[(x.size + 255) // 256, 256](x, out)
        cuda.synchronize()

    return step, lambda: {"out": out.copy_to_host().tobytes()}


worker.serve(setup)
