"""JAX beyond a first function: transformations, control flow, convolutions, linear algebra, random
numbers, precisions, one-device sharding.

XLA's autotuning times kernels and may choose differently in each run, so it is off.
"""
import os

import cases

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = os.environ.get(
    "XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
if cases.DEVICE == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
from jax import lax  # noqa: E402

jax.config.update("jax_enable_x64", True)


def normal(seed, *shape, dtype=numpy.float32):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape).astype(dtype))


@cases.case
def platform():
    return {
        "facts": f"{jax.devices()[0].platform} {jax.device_count()} {jax.devices()[0].device_kind}"
    }


@cases.case
def jit_and_grad():
    def loss(weights, x):
        return jnp.mean(jnp.tanh(x @ weights) ** 2)

    weights, x = normal(1, 64, 32), normal(2, 128, 64)
    value, gradient = jax.jit(jax.value_and_grad(loss))(weights, x)
    return {
        "value": value,
        "gradient": gradient,
        "hessian": jax.jit(jax.hessian(lambda w: loss(w, x[:, :4])))(weights[:4, :3])
    }


@cases.case
def vmap_and_jacobians():
    a = normal(3, 20, 16, 16)
    return {
        "products": jax.vmap(lambda m: m @ m.T)(a),
        "forward": jax.jacfwd(jnp.sin)(a[0, 0]),
        "backward": jax.jacrev(lambda v: jnp.cumsum(v) * v)(a[0, 1])
    }


@cases.case
def scan_and_loops():
    def step(carry, x):
        carry = jnp.tanh(carry @ carry * 0.1 + x)
        return carry, carry.sum()

    last, sums = jax.jit(lambda c, xs: lax.scan(step, c, xs))(normal(4, 30, 30),
                                                              normal(5, 25, 30, 30))
    counted = jax.jit(lambda n: lax.while_loop(lambda s: s[0] < n, lambda s:
                                               (s[0] + 1, s[1] * 1.01), (0, 1.0)))(50)
    folded = jax.jit(lambda x: lax.fori_loop(0, 10, lambda i, v: v + i * jnp.sin(v), x))(normal(
        6, 100))
    chosen = jax.jit(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x))(True, normal(7, 10))
    return {"last": last, "sums": sums, "counted": counted[1], "folded": folded, "chosen": chosen}


@cases.case
def convolutions():
    x, w = normal(8, 4, 8, 20, 20), normal(9, 16, 8, 3, 3)
    plain = jax.jit(lambda x, w: lax.conv(x, w, (1, 1), "SAME"))
    general = jax.jit(
        lambda x, w: lax.conv_general_dilated(x, w, (2, 2), [(1, 1), (1, 1)], rhs_dilation=(2, 2)))
    gradient = jax.jit(jax.grad(lambda w: (plain(x, w) ** 2).sum()))
    return {
        "plain":
            plain(x, w),
        "general":
            general(x, w),
        "gradient":
            gradient(w),
        "transposed":
            lax.conv_transpose(x,
                               w.transpose(2, 3, 1, 0)[:, :, :, :8], (2, 2), "SAME",
                               dimension_numbers=("NCHW", "HWIO", "NCHW")),
        "half":
            plain(x.astype(jnp.float16), w.astype(jnp.float16)),
        "pooled":
            lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    }


@cases.case
def precisions():
    a, b = normal(10, 256, 256), normal(11, 256, 256)
    found = {
        name: jnp.matmul(a, b, precision=getattr(lax.Precision, name))
        for name in ("DEFAULT", "HIGH", "HIGHEST")
    }
    for kind in ("float16", "bfloat16", "float64"):
        found[kind] = (a.astype(kind) @ b.astype(kind)).astype(jnp.float64)
    found["int8"] = lax.dot(
        jnp.arange(64, dtype=jnp.int8).reshape(8, 8),
        jnp.arange(64, dtype=jnp.int8).reshape(8, 8), preferred_element_type=jnp.int32)
    return found


@cases.case
def linear_algebra():
    a = normal(12, 50, 50, dtype=numpy.float64)
    spd = a @ a.T + 50 * jnp.eye(50)
    values, vectors = jnp.linalg.eigh(spd)
    u, s, vt = jnp.linalg.svd(a)
    q, r = jnp.linalg.qr(a)
    return {
        "solve": jnp.linalg.solve(spd, a),
        "cholesky": jnp.linalg.cholesky(spd),
        "values": values,
        "vectors": vectors,
        "s": s,
        "q": q,
        "r": r,
        "inverse": jnp.linalg.inv(spd),
        "triangular": jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(spd), a, lower=True)
    }


@cases.case
def fourier():
    a = normal(13, 6, 48, 50)
    return {
        "fft": jnp.fft.fft(a),
        "rfft": jnp.fft.rfft(a),
        "irfft": jnp.fft.irfft(jnp.fft.rfft(a)),
        "fftn": jnp.fft.fftn(a),
        "double": jnp.fft.fft(a.astype(jnp.float64))
    }


@cases.case
def random_numbers():
    key = jax.random.key(5)
    keys = jax.random.split(key, 4)
    return {
        "uniform": jax.random.uniform(keys[0], (1000,)),
        "normal": jax.random.normal(keys[1], (1000,)),
        "permutation": jax.random.permutation(keys[2], 1000),
        "categorical": jax.random.categorical(keys[3], jnp.zeros((10,)), shape=(500,)),
        "gamma": jax.random.gamma(keys[0], 2.0, (100,))
    }


@cases.case
def sorting_scattering_gathering():
    a = normal(14, 5000)
    indices = jnp.asarray(numpy.random.default_rng(15).integers(0, 5000, 3000))
    return {
        "sorted": jnp.sort(a),
        "order": jnp.argsort(a),
        "top": lax.top_k(a, 50)[0],
        "gathered": a[indices],
        "scattered": jnp.zeros(5000, jnp.int64).at[indices].add(1),
        "segments": jax.ops.segment_sum(jnp.ones(3000), indices % 100, 100),
        "scan": lax.associative_scan(jnp.add, a),
        "histogram": jnp.histogram(a, 30)[0]
    }


@cases.case
def one_device_parallel():
    replicated = jax.pmap(lambda x: lax.psum(jnp.sin(x), "i") * 2,
                          axis_name="i")(normal(16, 1, 100))
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:1]), ("x",))
    sharded = jax.device_put(normal(17, 64, 64),
                             jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    return {"pmap": replicated, "sharded": jax.jit(lambda v: v @ v.T)(sharded)}


@cases.case
def training_loop():
    def predict(parameters, x):
        for w, b in parameters:
            x = jax.nn.gelu(x @ w + b)
        return x

    parameters = [(normal(18, 32, 64) * 0.1, jnp.zeros(64, jnp.float32)),
                  (normal(19, 64, 8) * 0.1, jnp.zeros(8, jnp.float32))]
    x, y = normal(20, 256, 32), normal(21, 256, 8)

    @jax.jit
    def update(parameters):
        value, gradient = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - y)**2))(parameters)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradient)

    losses = []
    for _ in range(20):
        value, parameters = update(parameters)
        losses.append(value)
    return {"losses": jnp.stack(losses), "weights": parameters[0][0]}


@cases.case
def callbacks_into_python():
    seen = []

    @jax.jit
    def function(x):
        jax.debug.callback(lambda v: seen.append(float(v)), x.sum())
        return jax.pure_callback(lambda v: numpy.asarray(v) * 2,
                                 jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    out = jax.block_until_ready(function(jnp.arange(10.0)))
    jax.effects_barrier()
    return {"out": out, "seen": str(seen)}


@cases.case
def donated_buffers_and_transfers():
    function = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = normal(22, 1 << 16)
    for _ in range(10):
        x = function(x) * 0.4
    big = jax.device_put(numpy.arange(8 << 20, dtype=numpy.float32))
    return {
        "x": x,
        "equal": str(bool((numpy.asarray(big) == numpy.arange(8 << 20, dtype=numpy.float32)).all()))
    }


@cases.case
def attention_and_layers():
    q, k, v = (normal(seed, 2, 64, 4, 32).astype(jnp.bfloat16) for seed in (23, 24, 25))
    return {
        "attention": jax.nn.dot_product_attention(q, k, v, is_causal=True).astype(jnp.float32),
        "softmax": jax.nn.softmax(normal(26, 100, 50)),
        "normalised": jax.nn.standardize(normal(27, 100, 50))
    }


cases.main()
