"""The k largest elements of each row and where they are: k times the largest of those that are left.

python examples/top_k.py
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def top_k_kernel(x_ref, value_ref, place_ref):
    """x_ref: (rows, n); value_ref, place_ref: (rows, k)."""
    x = x_ref[...]
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)

    def take(i, taken):
        left = jnp.where(taken, -jnp.inf, x)
        largest = left.max(axis=1)
        is_it = (left == largest[:, None]) & ~taken
        place = jnp.where(is_it, column, x.shape[1]).min(axis=1)
        value_ref[:, i], place_ref[:, i] = largest, place
        return taken | (column == place[:, None])

    jax.lax.fori_loop(0, value_ref.shape[1], take, jnp.zeros(x.shape, bool))


def top_k(x: jax.Array, k: int, *, block_rows: int = 4) -> tuple[jax.Array, jax.Array]:
    """As `jax.lax.top_k`: the k largest elements of each row of `x` (m, n), largest first, and their columns, (m, k).

    Of equal elements the first comes first.  x has a floating dtype and no NaN.  k is at most n, and small: each
    takes a pass over the row, in registers.
    """
    m, n = x.shape
    rows = pl.BlockSpec((block_rows, k), lambda i: (i, 0))
    return pl.pallas_call(
        top_k_kernel,
        out_shape=(jax.ShapeDtypeStruct((m, k), x.dtype), jax.ShapeDtypeStruct((m, k), jnp.int32)),
        grid=(pl.cdiv(m, block_rows),),
        in_specs=[pl.BlockSpec((block_rows, n), lambda i: (i, 0))],
        out_specs=(rows, rows),
        compiler_params=mosaic_gpu.CompilerParams(),
        name="top_k",
    )(x)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 500)), jnp.float32)
    best = functools.partial(top_k, k=5)
    print(mosaic_gpu.compile(best, x, target="sm_90a").resources)
    pairs = zip(jax.jit(best)(x), jax.lax.top_k(x, 5), strict=True)
    print(f"the same as jax.lax.top_k: {all(bool((a == b).all()) for a, b in pairs)}")


if __name__ == "__main__":
    main()
