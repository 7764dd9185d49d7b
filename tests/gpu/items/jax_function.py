"""A jitted JAX function. XLA's autotuning times kernels and may choose differently each run, so it
is off."""
import os

import worker

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["XLA_FLAGS"] = os.environ.get(
    "XLA_FLAGS", "") + " --xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def setup():
    import jax
    import jax.numpy as jnp
    import numpy

    @jax.jit
    def function(x):
        y = jnp.tanh(x @ x)
        return y, y.sum(), jnp.sort(y[0])

    x = jnp.asarray(numpy.random.default_rng(3).standard_normal((512, 512), dtype=numpy.float32))
    state = {}

    def step():
        state["out"] = jax.block_until_ready(function(x))

    return step, lambda: {
        f"out{i}": numpy.asarray(value).tobytes() for i, value in enumerate(state["out"])
    }


worker.serve(setup)
