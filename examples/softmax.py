"""Softmax along the last axis: a whole row at a time, in float32 inside whatever the array's dtype.

python examples/softmax.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def softmax_kernel(x_ref, o_ref):
    """x_ref, o_ref: blocks (rows, n) of float16, bfloat16 or float32."""
    x = x_ref[...].astype(jnp.float32)
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    o_ref[...] = (e / e.sum(axis=-1, keepdims=True)).astype(o_ref.dtype)


def softmax(x: jax.Array, block_rows: int = 4) -> jax.Array:
    """The softmax of each row of `x` (m, n), any m and n; one block of threads takes `block_rows` rows."""
    m, n = x.shape
    block = pl.BlockSpec((block_rows, n), lambda i: (i, 0))
    return pl.pallas_call(
        softmax_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(m, block_rows),),
        in_specs=[block],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="softmax",
    )(x)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(10, 1000)), jnp.float32)
    compiled = mosaic_gpu.compile(softmax, x, target="sm_90a")
    print(compiled.resources)
    error = np.abs(jax.jit(softmax)(x) - jax.nn.softmax(x, axis=-1)).max()
    print(f"largest difference from jax.nn.softmax: {error:.1e}")


if __name__ == "__main__":
    main()
