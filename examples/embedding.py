"""Embedding: the rows of a table that numbers name.

The kernel is given the whole table, and reads from it only the rows that it indexes.

python examples/embedding.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def embedding_kernel(table_ref, id_ref, o_ref):
    """table_ref: all rows, (rows, columns); id_ref: (tokens,); o_ref: (tokens, columns)."""
    o_ref[...] = table_ref[id_ref[...], :]


def embedding(table: jax.Array, ids: jax.Array, *, block: tuple[int, int] = (8, 512)) -> jax.Array:
    """table[ids]: (tokens, n), for a `table` (rows, n) of any dtype and `ids` (tokens,) of integers.

    Negative numbers count from the end; what is outside then is clamped, as in `jnp.take(mode="clip")`.
    """
    tokens, (rows, n) = ids.shape[0], table.shape
    return pl.pallas_call(
        embedding_kernel,
        out_shape=jax.ShapeDtypeStruct((tokens, n), table.dtype),
        grid=(pl.cdiv(tokens, block[0]), pl.cdiv(n, block[1])),
        in_specs=[pl.BlockSpec((rows, block[1]), lambda i, j: (0, j)), pl.BlockSpec(block[:1], lambda i, j: (i,))],
        out_specs=pl.BlockSpec(block, lambda i, j: (i, j)),
        compiler_params=mosaic_gpu.CompilerParams(),
        name="embedding",
    )(table, ids)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(1000, 300)), jnp.bfloat16)
    ids = jnp.asarray(rng.integers(0, 1000, size=50), jnp.int32)
    print(mosaic_gpu.compile(embedding, table, ids, target="sm_90a").resources)
    print(f"the same as plain JAX: {bool((jax.jit(embedding)(table, ids) == table[ids]).all())}")


if __name__ == "__main__":
    main()
