"""Layer normalisation: each row to mean 0 and variance 1, then a learned scale and shift for each column; its gradient.

The backward kernel computes a row's mean and variance again, which is cheaper than to keep them.  Each of its blocks
sums what its own rows say of the gradients of scale and shift, and plain JAX adds up these sums.

python examples/layer_norm.py
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def normalised(x: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """The rows of a block, float32, to mean 0 and variance 1, and what they were multiplied by for it (rows, 1)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + epsilon)
    return centred * inverse, inverse


def layer_norm_kernel(x_ref, scale_ref, shift_ref, o_ref, *, epsilon: float):
    """x_ref, o_ref: blocks (rows, n); scale_ref, shift_ref: all of (n,)."""
    normal, _ = normalised(x_ref[...].astype(jnp.float32), epsilon)
    o_ref[...] = (normal * scale_ref[...] + shift_ref[...]).astype(o_ref.dtype)


def layer_norm_backward_kernel(x_ref, scale_ref, g_ref, dx_ref, dscale_ref, dshift_ref, *, epsilon: float):
    """g_ref: of the result's gradient, and dx_ref: of x's, a block (rows, n); dscale_ref, dshift_ref: (1, n)."""
    normal, inverse = normalised(x_ref[...].astype(jnp.float32), epsilon)
    g = g_ref[...].astype(jnp.float32)
    g_normal = g * scale_ref[...]
    along = (g_normal * normal).mean(axis=-1, keepdims=True)
    dx = inverse * (g_normal - g_normal.mean(axis=-1, keepdims=True) - normal * along)
    dx_ref[...] = dx.astype(dx_ref.dtype)
    dscale_ref[...] = (g * normal).sum(axis=0, keepdims=True)
    dshift_ref[...] = g.sum(axis=0, keepdims=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def layer_norm(
    x: jax.Array, scale: jax.Array, shift: jax.Array, epsilon: float = 1e-5, block_rows: int = 4
) -> jax.Array:
    """The rows of `x` (m, n) normalised; `scale` and `shift` (n,) are applied to each row."""
    m, n = x.shape
    block = pl.BlockSpec((block_rows, n), lambda i: (i, 0))
    whole = pl.BlockSpec((n,), lambda i: (0,))
    return pl.pallas_call(
        functools.partial(layer_norm_kernel, epsilon=epsilon),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(m, block_rows),),
        in_specs=[block, whole, whole],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="layer_norm",
    )(x, scale, shift)


def layer_norm_backward(
    x: jax.Array, scale: jax.Array, g: jax.Array, epsilon: float = 1e-5, block_rows: int = 4
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """For the result's gradient `g`: that of x (m, n), and those of scale and shift by blocks of rows (blocks, n)."""
    m, n = x.shape
    blocks = pl.cdiv(m, block_rows)
    block, row = pl.BlockSpec((block_rows, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (i, 0))
    sums = jax.ShapeDtypeStruct((blocks, n), jnp.float32)
    return pl.pallas_call(
        functools.partial(layer_norm_backward_kernel, epsilon=epsilon),
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype), sums, sums),
        grid=(blocks,),
        in_specs=[block, pl.BlockSpec((n,), lambda i: (0,)), block],
        out_specs=(block, row, row),
        compiler_params=mosaic_gpu.CompilerParams(),
        name="layer_norm_backward",
    )(x, scale, g)


def _forward(
    x: jax.Array, scale: jax.Array, shift: jax.Array, epsilon: float, block_rows: int
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return layer_norm(x, scale, shift, epsilon, block_rows), (x, scale, shift)


def _backward(
    epsilon: float, block_rows: int, kept: tuple[jax.Array, ...], g: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, scale, shift = kept
    dx, dscale, dshift = layer_norm_backward(x, scale, g, epsilon, block_rows)
    return dx, dscale.sum(axis=0).astype(scale.dtype), dshift.sum(axis=0).astype(shift.dtype)


layer_norm.defvjp(_forward, _backward)


def layer_norm_reference(x: jax.Array, scale: jax.Array, shift: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """The same in plain JAX."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * scale + shift


def main() -> None:
    """Compiles the kernels for Hopper, runs them and compares values and gradients with plain JAX's."""
    rng = np.random.default_rng(0)
    shapes = ((10, 300), (300,), (300,), (10, 300))
    x, scale, shift, g = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    print(mosaic_gpu.compile(layer_norm, x, scale, shift, target="sm_90a").resources)
    found, expected = (jax.vjp(norm, x, scale, shift) for norm in (layer_norm, layer_norm_reference))
    pairs = zip((found[0], *found[1](g)), (expected[0], *expected[1](g)), strict=True)
    print(f"largest difference from plain JAX: {max(float(jnp.abs(a - b).max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
