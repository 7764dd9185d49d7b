"""numba-cuda: kernels from Python, shared memory, atomics, device functions, streams, pinned and
mapped arrays, reductions, ufuncs."""
import cases
import math
import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # numba looks for the name that NumPy 2.5 has dropped
from numba import cuda, float32, int32, vectorize  # noqa: E402

SIZE = 10000


def normal(seed, *shape):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


@cuda.jit
def scaled(x, out, factor):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.sin(x[i]) * factor + x[i]


@cuda.jit
def block_sums(x, out):
    partial = cuda.shared.array(256, float32)
    i = cuda.grid(1)
    partial[cuda.threadIdx.x] = x[i] if i < x.size else 0
    cuda.syncthreads()
    half = 128
    while half > 0:
        if cuda.threadIdx.x < half:
            partial[cuda.threadIdx.x] += partial[cuda.threadIdx.x + half]
        cuda.syncthreads()
        half //= 2
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i] % 16, 1)


@cuda.jit(device=True)
def helper(value):
    return value * value + 1


@cuda.jit
def with_helper(x, out):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        out[i, j] = helper(x[i, j])


@cases.case
def simple_kernel():
    x = cuda.to_device(normal(1, SIZE))
    out = cuda.device_array_like(x)
    scaled[(SIZE + 255) // 256, 256](x, out, 2.5)
    return {"out": out.copy_to_host()}


@cases.case
def shared_memory():
    x, out = cuda.to_device(normal(2, SIZE)), cuda.device_array((SIZE + 255) // 256, numpy.float32)
    block_sums[(SIZE + 255) // 256, 256](x, out)
    return {"out": out.copy_to_host()}


@cases.case
def atomics():
    x = cuda.to_device(numpy.random.default_rng(3).integers(0, 1000, SIZE).astype(numpy.int32))
    counts = cuda.to_device(numpy.zeros(16, numpy.int32))
    histogram[(SIZE + 255) // 256, 256](x, counts)
    return {"counts": counts.copy_to_host()}


@cases.case
def device_functions_on_two_dimensions():
    x = cuda.to_device(normal(4, 100, 90))
    out = cuda.device_array_like(x)
    with_helper[(7, 6), (16, 16)](x, out)
    return {"out": out.copy_to_host()}


@cases.case
def host_arrays_are_moved():
    x, out = normal(5, SIZE), numpy.zeros(SIZE, numpy.float32)
    scaled[(SIZE + 255) // 256, 256](x, out, 0.5)
    return {"out": out}


@cases.case
def streams_events_and_pinned_arrays():
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    pinned = cuda.pinned_array(SIZE, numpy.float32)
    pinned[:] = normal(6, SIZE)
    begin.record(stream)
    x = cuda.to_device(pinned, stream=stream)
    out = cuda.device_array(SIZE, numpy.float32, stream=stream)
    for _ in range(5):
        scaled[(SIZE + 255) // 256, 256, stream](x, out, 1.5)
    out.copy_to_host(pinned, stream=stream)
    end.record(stream)
    end.synchronize()
    return {"out": pinned.copy(), "facts": f"{begin.elapsed_time(end) >= 0}"}


@cases.case
def mapped_array():
    mapped = cuda.mapped_array(SIZE, numpy.float32)
    mapped[:] = normal(7, SIZE)
    scaled[(SIZE + 255) // 256, 256](mapped, mapped, 1.0)
    cuda.synchronize()
    return {"out": numpy.array(mapped)}


@cases.case
def reduction():
    total = cuda.reduce(lambda a, b: a + b)
    return {"total": numpy.float32(total(cuda.to_device(normal(8, SIZE))))}


@cases.case
def universal_function():
    function = vectorize([float32(float32, float32)],
                         target="cuda")(lambda a, b: a * b + math.sqrt(abs(a)))
    return {"out": function(normal(9, SIZE), normal(10, SIZE))}


@cases.case
def eager_signature():
    kernel = cuda.jit("void(int32[:], int32)")(eager_body)
    out = cuda.to_device(numpy.zeros(1000, numpy.int32))
    kernel[4, 256](out, 3)
    return {"out": out.copy_to_host()}


def eager_body(out, factor):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = int32(i) * factor


@cases.case
def memory_facts():
    free, total = cuda.current_context().get_memory_info()
    return {"facts": f"{total} {0 < free <= total} {cuda.get_current_device().compute_capability}"}


cases.main()
