"""CuPy beyond a first array: kernels of all kinds, reductions, the libraries behind it, streams,
memory pools, graphs, transfers."""
import cases
import cupy
import numpy

rng = numpy.random.default_rng


def normal(seed, *shape, dtype=numpy.float32):
    return cupy.asarray(rng(seed).standard_normal(shape).astype(dtype))


@cases.case
def elementwise_and_ufuncs():
    a, b = normal(1, 300, 200), normal(2, 300, 200)
    kernel = cupy.ElementwiseKernel("T x, T y, float32 factor", "T z", "z = x * factor + sin(y)",
                                    "mixed")
    fused = cupy.fuse()(lambda x, y: cupy.exp(x) * y + cupy.sqrt(cupy.absolute(x)))
    return {
        "kernel": kernel(a, b, 0.5),
        "fused": fused(a, b),
        "where": cupy.where(a > b, a, -b),
        "ufuncs": cupy.arctan2(a, b) + cupy.hypot(a, b),
        "broadcast": a[:, :1] * b[:1],
        "integers": (a * 100).astype(cupy.int32) % 7
    }


@cases.case
def reductions():
    a = normal(3, 1000, 333)
    kernel = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    return {
        "kernel": kernel(a),
        "rows": a.sum(1),
        "std": a.std(0),
        "argmax": a.argmax(1),
        "cumsum": a.ravel().cumsum(),
        "percentile": cupy.percentile(a, [5, 50]),
        "histogram": cupy.histogram(a, bins=40)[0],
        "bincount": cupy.bincount((abs(a) * 10).astype(cupy.int64).ravel())
    }


@cases.case
def sorting_and_searching():
    a = normal(4, 50000)
    return {
        "sorted": cupy.sort(a),
        "order": cupy.argsort(a),
        "unique": cupy.unique((a * 20).astype(cupy.int32)),
        "searched": cupy.searchsorted(cupy.sort(a), a[:100]),
        "partition": cupy.sort(cupy.partition(a, 100)[:100]),
        "nonzero": cupy.nonzero(a > 2.5)[0]
    }


RAW = r'''
template <typename T> __global__ void scale(const T* in, T* out, int count, T factor) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * factor;
}
__constant__ float table[8];
__device__ int visits;
extern "C" __global__ void look_up(float* out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) { out[i] = table[i & 7]; atomicAdd(&visits, 1); }
}
'''


@cases.case
def raw_module():
    module = cupy.RawModule(code=RAW, options=("--std=c++17",),
                            name_expressions=["scale<float>", "scale<double>"])
    a = normal(5, 5000)
    out, wide = cupy.empty_like(a), cupy.empty(5000, dtype=cupy.float64)
    module.get_function("scale<float>")((20,), (256,),
                                        (a, out, numpy.int32(5000), numpy.float32(1.5)))
    module.get_function("scale<double>")(
        (20,), (256,), (a.astype(cupy.float64), wide, numpy.int32(5000), numpy.float64(2.5)))
    table = cupy.ndarray(8, dtype=cupy.float32, memptr=module.get_global("table"))
    table[...] = cupy.arange(8, dtype=cupy.float32) / 3
    found = cupy.zeros(1000, dtype=cupy.float32)
    module.get_function("look_up")((4,), (256,), (found, numpy.int32(1000)))
    visits = cupy.ndarray(1, dtype=cupy.int32, memptr=module.get_global("visits"))
    return {"float": out, "double": wide, "table": found, "visits": visits}


@cases.case
def raw_kernel_with_shared_memory():
    kernel = cupy.RawKernel(
        r'''extern "C" __global__ void reverse(const float* in, float* out, int count) {
      extern __shared__ float staged[];
      for (int i = threadIdx.x; i < count; i += blockDim.x) staged[i] = in[i];
      __syncthreads();
      for (int i = threadIdx.x; i < count; i += blockDim.x) out[i] = staged[count - 1 - i];
    }''', "reverse")
    kernel.max_dynamic_shared_size_bytes = 80000
    a = normal(6, 20000)
    out = cupy.empty_like(a)
    kernel((1,), (256,), (a, out, numpy.int32(20000)), shared_mem=80000)
    return {
        "out":
            out,
        "attributes":
            f"{kernel.max_threads_per_block} {kernel.shared_size_bytes} {kernel.const_size_bytes}"
    }


@cases.case
def jit_kernel():
    from cupyx import jit

    @jit.rawkernel()
    def fill(x, y, count):
        i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        if i < count:
            y[i] = x[i] * x[i] + 0.25

    x = normal(7, 3000)
    y = cupy.zeros_like(x)
    fill[12, 256](x, y, 3000)
    return {"y": y}


@cases.case
def matrix_products():
    a, b = normal(8, 200, 300), normal(9, 300, 100)
    batch = normal(10, 12, 30, 30)
    return {
        "float": a @ b,
        "half": a.astype(cupy.float16) @ b.astype(cupy.float16),
        "double": a.astype(cupy.float64) @ b.astype(cupy.float64),
        "batch": batch @ batch,
        "einsum": cupy.einsum("bij,bkj->bik", batch, batch),
        "tensordot": cupy.tensordot(batch, batch, axes=([0], [0]))[:3],
        "complex": (a + 1j * a).astype(cupy.complex64) @ b.astype(cupy.complex64)
    }


@cases.case
def linear_algebra():
    a = normal(11, 80, 80, dtype=numpy.float64)
    spd = a @ a.T + 80 * cupy.eye(80)
    u, s, vt = cupy.linalg.svd(a)
    q, r = cupy.linalg.qr(a)
    values, vectors = cupy.linalg.eigh(spd)
    return {
        "solve": cupy.linalg.solve(spd, a),
        "cholesky": cupy.linalg.cholesky(spd),
        "s": s,
        "u": u,
        "q": q,
        "r": r,
        "values": values,
        "vectors": vectors,
        "inverse": cupy.linalg.inv(spd),
        "determinant": cupy.linalg.det(spd / 80),
        "least": cupy.linalg.lstsq(a, a[:, 0], rcond=None)[0]
    }


@cases.case
def sparse_matrices():
    from cupyx.scipy import sparse
    dense = normal(12, 400, 300)
    dense[dense < 1.5] = 0
    matrix, other = sparse.csr_matrix(dense), normal(13, 300, 20)
    product = (matrix @ matrix.T).tocsr()
    product.sort_indices()
    return {
        "vector": matrix @ other[:, 0],
        "matrix": matrix @ other,
        "indices": product.indices,
        "data": product.data,
        "csc": matrix.tocsc().toarray(),
        "coo": matrix.tocoo().row
    }


@cases.case
def sparse_solver():
    from cupyx.scipy import sparse
    from cupyx.scipy.sparse import linalg
    matrix = sparse.diags([-1.0, 4.0, -1.0], [-1, 0, 1], shape=(500, 500), format="csr")
    return {"cg": linalg.cg(matrix, cupy.arange(500.0), rtol=1e-10)[0]}


@cases.case
def fourier():
    a = normal(14, 40, 60) + 1j * normal(15, 40, 60)
    from cupyx.scipy import fft
    return {
        "fft": cupy.fft.fft(a),
        "fft2": cupy.fft.fft2(a),
        "rfft": cupy.fft.rfft(a.real),
        "irfft": cupy.fft.irfft(a),
        "planned": fft.fftn(a, overwrite_x=False),
        "dct": fft.dct(a.real)
    }


@cases.case
def random_generators():
    cupy.random.seed(42)
    old = cupy.random.normal(size=1000)
    generator = cupy.random.default_rng(7)
    return {
        "old": old,
        "uniform": generator.random(1000),
        "normal": generator.standard_normal(1000),
        "integers": generator.integers(0, 1000, 500),
        "gamma": generator.gamma(2.0, size=300),
        "permutation": cupy.random.permutation(500)
    }


@cases.case
def streams_and_events():
    streams = [cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(), cupy.cuda.Stream.ptds]
    parts, events = [], []
    source = normal(16, 400, 400)
    cupy.cuda.Device().synchronize()
    for index, stream in enumerate(streams):
        with stream:
            part = source * (index + 1)
            for _ in range(5):
                part = cupy.tanh(part @ source / 20)
            parts.append(part)
            events.append(stream.record())
    for event in events:
        cupy.cuda.Stream.null.wait_event(event)
    total = sum(parts[1:], parts[0])
    cupy.cuda.Device().synchronize()
    seen = []
    streams[1].add_callback(lambda stream, status, data: seen.append((status, data)), "told")
    streams[1].synchronize()
    return {
        "total": total,
        "facts": f"{[event.done for event in events]} {[stream.done for stream in streams]} {seen}"
    }


@cases.case
def captured_graph():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a, out = normal(17, 100, 100), cupy.zeros((100, 100), dtype=cupy.float32)
        kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y += x * 0.5f", "accumulate")
        kernel(a, out)
        stream.synchronize()
        stream.begin_capture()
        kernel(a, out)
        kernel(a, out)
        graph = stream.end_capture()
        for _ in range(4):
            graph.launch(stream)
        stream.synchronize()
    return {"out": out}


@cases.case
def memory_pool():
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.used_bytes()
    arrays = [
        cupy.full(size, size % 13, dtype=cupy.float32)
        for size in (1, 1000, 100000, 3000000, 77) * 4
    ]
    used = pool.used_bytes() - before
    sums = cupy.stack([array.sum() for array in arrays])
    del arrays
    left = pool.used_bytes() - before
    pool.free_all_blocks()
    return {"sums": sums, "facts": f"{used} {left <= 4096}"}


def with_allocator(allocator):
    previous = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocator)
    try:
        arrays = [cupy.arange(size, dtype=cupy.float64) * 0.5 for size in (10, 5000, 1 << 20)]
        product = normal(18, 256, 256) @ normal(19, 256, 256)
        found = {"sums": cupy.stack([array.sum() for array in arrays]), "product": product}
        return {name: cupy.asnumpy(value) for name, value in found.items()}
    finally:
        cupy.cuda.set_allocator(previous)


@cases.case
def stream_ordered_pool():
    return with_allocator(cupy.cuda.MemoryAsyncPool().malloc)


@cases.case
def managed_memory():
    found = with_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    memory = cupy.cuda.malloc_managed(4096)
    device = cupy.ndarray(1024, dtype=cupy.int32, memptr=memory)
    device[...] = cupy.arange(1024, dtype=cupy.int32)
    cupy.cuda.Device().synchronize()
    # The host reads the same memory: this is what managed memory is for.
    import ctypes
    host = numpy.ctypeslib.as_array((ctypes.c_int32 * 1024).from_address(memory.ptr)).copy()
    return dict(found, host=host)


@cases.case
def pinned_and_asynchronous_copies():
    memory = cupy.cuda.alloc_pinned_memory(4 << 20)
    pinned = numpy.frombuffer(memory, numpy.float32, 1 << 20)
    pinned[...] = rng(20).standard_normal(1 << 20)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        device = cupy.empty(1 << 20, dtype=cupy.float32)
        device.set(pinned, stream=stream)
        device *= 2
        back = device.get(stream=stream)
    stream.synchronize()
    return {"equal": str(bool((back == pinned * 2).all())), "sum": cupy.asarray(back[:1000])}


@cases.case
def device_facts():
    device = cupy.cuda.Device()
    free, total = device.mem_info
    return {
        "facts":
            f"{device.compute_capability} {cupy.cuda.runtime.runtimeGetVersion()} {total} {0 < free <= total} {cupy.cuda.runtime.getDeviceCount()}"
    }


@cases.case
def image_filters():
    from cupyx.scipy import ndimage
    from cupyx.scipy import special
    a = normal(21, 64, 64)
    return {
        "gaussian": ndimage.gaussian_filter(a, 2),
        "median": ndimage.median_filter(a, 3),
        "rotate": ndimage.rotate(a, 30),
        "erf": special.erf(a),
        "label": ndimage.label(a > 1)[0]
    }


TEXTURES = r'''
extern "C" __global__ void sample(float* out, cudaTextureObject_t texture, int width, int height) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < width * height) out[i] = tex2D<float>(texture, (i % width) * 0.75f, (i / width) * 1.25f);
}
extern "C" __global__ void negate(cudaSurfaceObject_t surface, int width, int height) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width * height) return;
  float value = surf2Dread<float>(surface, (i % width) * 4, i / width);
  surf2Dwrite(-value, surface, (i % width) * 4, i / width);
}
'''


def float_array(data, flags=0):
    from cupy.cuda import runtime, texture
    channels = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    array = texture.CUDAarray(channels, data.shape[1], data.shape[0], 0, flags)
    array.copy_from(data)
    return array, texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=array)


@cases.case
def textures():
    from cupy.cuda import runtime, texture
    from cupyx.scipy import ndimage
    data = normal(23, 48, 64)
    found = {}
    for name, mode in (("point", runtime.cudaFilterModePoint), ("linear",
                                                                runtime.cudaFilterModeLinear)):
        array, resource = float_array(data)
        how = texture.TextureDescriptor(
            (runtime.cudaAddressModeClamp, runtime.cudaAddressModeClamp), mode,
            runtime.cudaReadModeElementType)
        sampled = cupy.zeros_like(data)
        cupy.RawKernel(TEXTURES, "sample")(
            (12,), (256,),
            (sampled, texture.TextureObject(resource, how), numpy.int32(64), numpy.int32(48)))
        found[name] = sampled
        cupy.cuda.Device().synchronize()
    matrix = cupy.asarray([[0.9, 0.2, 1.0], [-0.1, 1.1, 2.0], [0.0, 0.0, 1.0]], dtype=cupy.float32)
    return dict(found, affine=ndimage.affine_transform(data, matrix, order=1, texture_memory=True))


@cases.case
def surfaces():
    from cupy.cuda import runtime, texture
    data = normal(24, 48, 64)
    array, resource = float_array(data, runtime.cudaArraySurfaceLoadStore)
    cupy.RawKernel(TEXTURES, "negate")(
        (12,), (256,), (texture.SurfaceObject(resource), numpy.int32(64), numpy.int32(48)))
    back = cupy.empty_like(data)
    array.copy_to(back)
    cupy.cuda.Device().synchronize()
    return {"negated": back, "equal": str(bool((back == -data).all()))}


@cases.case
def shared_with_torch():
    try:
        import torch
    except ImportError as error:
        raise cases.Skipped("no torch") from error
    a = normal(22, 100, 100)
    tensor = torch.from_dlpack(a)
    tensor.mul_(2)
    torch.cuda.synchronize()
    return {"both": a, "back": cupy.from_dlpack(torch.arange(50, device="cuda").float())}


cases.main()
