"""numba CUDA kernels: elementwise, shared-memory reduction, atomics, 2D, a device function, math,
streams, a ufunc."""
import hashlib
import math
import os

# numba's own ctypes calls; the bindings are tested by cuda_bindings.py.
os.environ["NUMBA_CUDA_USE_NVIDIA_BINDING"] = "0"

import numpy as np  # noqa: E402
from numba import config, cuda, float32, int32, vectorize  # noqa: E402

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


def show(name, array):
    print(
        f"{name}: {array.dtype} {array.shape} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:24]}"
    )


@cuda.jit
def saxpy(a, x, y, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def block_sum(x, out):
    shared = cuda.shared.array(128, dtype=float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[t] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def histogram(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.jit(device=True)
def clamp(value, low, high):
    return min(max(value, low), high)


@cuda.jit
def blur(image, out):
    y, x = cuda.grid(2)
    height, width = image.shape
    if y >= height or x >= width:
        return
    total = int32(0)
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            total += image[clamp(y + dy, 0, height - 1), clamp(x + dx, 0, width - 1)]
    out[y, x] = total // 9


@cuda.jit
def roots(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.sqrt(x[i]) + x[i] / 3.0


@vectorize(["float32(float32, float32)"], target="cuda")
def mix(a, b):
    return a * float32(0.75) + b * float32(0.25)


def main():
    rng = np.random.default_rng(11)
    device = cuda.get_current_device()
    print("compute capability", device.compute_capability)
    x = rng.standard_normal(10007).astype(np.float32)
    y = rng.standard_normal(10007).astype(np.float32)
    dx, dy = cuda.to_device(x), cuda.to_device(y)
    out = cuda.device_array_like(dx)
    saxpy[(x.size + 127) // 128, 128](np.float32(2.5), dx, dy, out)
    result = out.copy_to_host()
    np.testing.assert_allclose(result, 2.5 * x + y, rtol=1e-5, atol=1e-6)
    show("saxpy", result)

    sums = cuda.device_array((x.size + 127) // 128, dtype=np.float32)
    block_sum[sums.size, 128](dx, sums)
    show("sums", sums.copy_to_host())

    values = rng.integers(0, 64, 20000).astype(np.int32)
    bins = cuda.to_device(np.zeros(64, dtype=np.int32))
    histogram[157, 128](cuda.to_device(values), bins)
    assert (bins.copy_to_host() == np.bincount(values, minlength=64)).all()
    show("histogram", bins.copy_to_host())

    image = rng.integers(0, 256, (61, 83)).astype(np.int32)
    blurred = cuda.device_array((61, 83), dtype=np.int32)
    blur[(8, 11), (8, 8)](cuda.to_device(image), blurred)
    show("blur", blurred.copy_to_host())

    positive = np.abs(rng.standard_normal(1000))
    rooted = cuda.device_array(1000, dtype=np.float64)
    roots[8, 128](cuda.to_device(positive), rooted)
    show("roots", rooted.copy_to_host())

    stream = cuda.stream()
    pinned = cuda.pinned_array(x.shape, dtype=np.float32)
    pinned[:] = x
    first = cuda.to_device(pinned, stream=stream)
    saxpy[(x.size + 127) // 128, 128, stream](np.float32(-1.0), first, dy, out)
    event = cuda.event()
    event.record(stream)
    event.synchronize()
    out.copy_to_host(pinned, stream=stream)
    stream.synchronize()
    show("stream", pinned)

    mapped = cuda.mapped_array(256, dtype=np.float32)
    mapped[:] = 1.5
    saxpy[2, 128](np.float32(2.0), mapped, mapped, mapped)
    cuda.synchronize()
    show("mapped", np.array(mapped))
    show("ufunc", mix(x, y))


main()
