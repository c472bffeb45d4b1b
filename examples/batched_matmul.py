"""Products of many matrices in one launch: the batch is one more dimension of the grid.

The right sides may be given transposed, as (n, k), which costs nothing: the matrix units read them either way round.

python examples/batched_matmul.py
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu


def batched_matmul_kernel(a_ref, b_ref, o_ref, acc_ref, *, transpose_b: bool):
    """a_ref: (bm, bk); b_ref: (bk, bn), or transposed; o_ref: (bm, bn); acc_ref: scratch of its shape, float32."""
    step = pl.program_id(3)

    @pl.when(step == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    b = b_ref[...].T if transpose_b else b_ref[...]
    acc_ref[...] += jnp.dot(a_ref[...], b, preferred_element_type=jnp.float32)

    @pl.when(step == pl.num_programs(3) - 1)
    def _():
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def batched_matmul(
    a: jax.Array, b: jax.Array, *, transpose_b: bool = False, block: tuple[int, int, int] = (128, 128, 64)
) -> jax.Array:
    """a[i] @ b[i] for each i: (batch, m, n), in the dtype of a.

    Arguments:
      a: (batch, m, k), float16, bfloat16 or an 8-bit float.
      b: (batch, k, n), or (batch, n, k) where `transpose_b`, of the same dtype.
      block: rows, columns and depth of a step.
    """
    (batch, m, k), n, (bm, bn, bk) = a.shape, b.shape[1 if transpose_b else 2], block
    right = pl.BlockSpec((None, bn, bk), lambda e, i, j, s: (e, j, s))
    if not transpose_b:
        right = pl.BlockSpec((None, bk, bn), lambda e, i, j, s: (e, s, j))
    return pl.pallas_call(
        functools.partial(batched_matmul_kernel, transpose_b=transpose_b),
        out_shape=jax.ShapeDtypeStruct((batch, m, n), a.dtype),
        grid=(batch, pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        in_specs=[pl.BlockSpec((None, bm, bk), lambda e, i, j, s: (e, i, s)), right],
        out_specs=pl.BlockSpec((None, bm, bn), lambda e, i, j, s: (e, i, j)),
        scratch_shapes=[plgpu.SMEM((bm, bn), jnp.float32)],
        compiler_params=mosaic_gpu.CompilerParams(),
        name="batched_matmul",
    )(a, b)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=shape), jnp.float16) for shape in ((3, 100, 200), (3, 96, 200)))
    product = functools.partial(batched_matmul, transpose_b=True)
    print(mosaic_gpu.compile(product, a, b, target="sm_90a").resources)
    expected = jnp.einsum("emk,enk->emn", a, b, preferred_element_type=jnp.float32)
    print(f"largest difference from plain JAX: {jnp.abs(jax.jit(product)(a, b) - expected).max():.1e}")


if __name__ == "__main__":
    main()
