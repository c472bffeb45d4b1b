"""Matrix multiplication with what usually follows it fused in: a bias, an activation, a residual.

The depth is the last dimension of the grid, and the accumulator is scratch memory.  The compiler turns that into copies
by TMA that run ahead of the tensor cores, and keeps the accumulator in registers.

python examples/matmul.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu


def matmul_kernel(
    a_ref, b_ref, bias_ref, residual_ref, o_ref, acc_ref, *, activation: Callable[..., jax.Array], transpose_b: bool
):
    """a_ref: (bm, bk); b_ref: (bk, bn), or transposed; bias_ref: (bn,) or None; residual_ref: (bm, bn) or None.

    o_ref: (bm, bn); acc_ref: scratch of its shape, float32 or int32.
    """
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    b = b_ref[...].T if transpose_b else b_ref[...]
    acc_ref[...] += jnp.dot(a_ref[...], b, preferred_element_type=acc_ref.dtype)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        result = acc_ref[...]
        if bias_ref is not None:
            result += bias_ref[...].astype(result.dtype)
        result = activation(result)
        if residual_ref is not None:
            result += residual_ref[...].astype(result.dtype)
        o_ref[...] = result.astype(o_ref.dtype)


def matmul(
    a: jax.Array,
    b: jax.Array,
    bias: jax.Array | None = None,
    residual: jax.Array | None = None,
    *,
    activation: Callable[[jax.Array], jax.Array] = lambda x: x,
    transpose_b: bool = False,
    out_dtype: str | None = None,
    block: tuple[int, int, int] = (128, 128, 64),
) -> jax.Array:
    """activation(a @ b + bias) + residual: (m, n).

    Arguments:
      a, b: (m, k) and (k, n), float16, bfloat16, an 8-bit float or int8.  Sums are float32, those of int8 int32.
      bias, residual: (n,) and (m, n), of any dtype.
      activation: of an array of sums; any function that a kernel can contain.
      transpose_b: b is (n, k).  For types of 8 bits that is faster: the matrix units read them in no other way.
      out_dtype: of the result; left out, that of a, of int8 int32.
      block: rows, columns and depth of a step.
    """
    (m, k), n, (bm, bn, bk) = a.shape, b.shape[0 if transpose_b else 1], block
    right = pl.BlockSpec((bn, bk), lambda i, j, s: (j, s))
    if not transpose_b:
        right = pl.BlockSpec((bk, bn), lambda i, j, s: (s, j))
    sums = jnp.int32 if jnp.issubdtype(a.dtype, jnp.integer) else jnp.float32
    tile = pl.BlockSpec((bm, bn), lambda i, j, s: (i, j))
    return pl.pallas_call(
        functools.partial(matmul_kernel, activation=activation, transpose_b=transpose_b),
        out_shape=jax.ShapeDtypeStruct((m, n), out_dtype or (sums if sums == jnp.int32 else a.dtype)),
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), pl.cdiv(k, bk)),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, s: (i, s)),
            right,
            None if bias is None else pl.BlockSpec((bn,), lambda i, j, s: (j,)),
            None if residual is None else tile,
        ],
        out_specs=tile,
        scratch_shapes=[plgpu.SMEM((bm, bn), sums)],
        compiler_params=mosaic_gpu.CompilerParams(),
        name="matmul",
    )(a, b, bias, residual)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    rng = np.random.default_rng(0)
    a, b, bias = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in ((200, 300), (300, 264), (264,)))
    layer = functools.partial(matmul, activation=jax.nn.gelu, out_dtype="float32")
    print(mosaic_gpu.compile(layer, a, b, bias, target="sm_90a").resources)
    expected = jax.nn.gelu(jnp.dot(a, b, preferred_element_type=jnp.float32) + bias)
    print(f"largest difference from plain JAX: {jnp.abs(jax.jit(layer)(a, b, bias) - expected).max():.1e}")


if __name__ == "__main__":
    main()
