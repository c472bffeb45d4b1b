"""Root-mean-square normalisation with its gradient: two kernels behind one `jax.custom_vjp`.

The backward kernel computes a row's root mean square again, which is cheaper than to keep it.  Each of its blocks sums
what its own rows say of the scale's gradient, and plain JAX adds up these sums.

python examples/rms_norm.py
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu

EPSILON = 1e-6


def rms_norm_kernel(x_ref, scale_ref, o_ref):
    """x_ref, o_ref: blocks (rows, n); scale_ref: all of (n,)."""
    x = x_ref[...].astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + EPSILON)
    o_ref[...] = (x * inverse * scale_ref[...]).astype(o_ref.dtype)


def rms_norm_backward_kernel(x_ref, scale_ref, g_ref, dx_ref, dscale_ref):
    """g_ref: of the result's gradient, and dx_ref: of x's, a block (rows, n); dscale_ref: (1, n), summed over rows."""
    x, g = x_ref[...].astype(jnp.float32), g_ref[...].astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + EPSILON)
    normal, g_normal = x * inverse, g * scale_ref[...]
    along = (g_normal * normal).mean(axis=-1, keepdims=True)
    dx_ref[...] = (inverse * (g_normal - normal * along)).astype(dx_ref.dtype)
    dscale_ref[...] = (g * normal).sum(axis=0, keepdims=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: jax.Array, scale: jax.Array, block_rows: int = 4) -> jax.Array:
    """The rows of `x` (m, n) divided by their root mean square, times `scale` (n,); in the dtype of x."""
    m, n = x.shape
    block = pl.BlockSpec((block_rows, n), lambda i: (i, 0))
    return pl.pallas_call(
        rms_norm_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(pl.cdiv(m, block_rows),),
        in_specs=[block, pl.BlockSpec((n,), lambda i: (0,))],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="rms_norm",
    )(x, scale)


def rms_norm_backward(x: jax.Array, scale: jax.Array, g: jax.Array, block_rows: int = 4) -> tuple[jax.Array, jax.Array]:
    """The gradients of x (m, n), and of the scale by each block of rows (blocks, n), float32, for the result's, `g`."""
    m, n = x.shape
    blocks = pl.cdiv(m, block_rows)
    block = pl.BlockSpec((block_rows, n), lambda i: (i, 0))
    return pl.pallas_call(
        rms_norm_backward_kernel,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((blocks, n), jnp.float32)),
        grid=(blocks,),
        in_specs=[block, pl.BlockSpec((n,), lambda i: (0,)), block],
        out_specs=(block, pl.BlockSpec((1, n), lambda i: (i, 0))),
        compiler_params=mosaic_gpu.CompilerParams(),
        name="rms_norm_backward",
    )(x, scale, g)


def _forward(x: jax.Array, scale: jax.Array, block_rows: int) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return rms_norm(x, scale, block_rows), (x, scale)


def _backward(block_rows: int, kept: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, scale = kept
    dx, dscale = rms_norm_backward(x, scale, g, block_rows)
    return dx, dscale.sum(axis=0).astype(scale.dtype)


rms_norm.defvjp(_forward, _backward)


def rms_norm_reference(x: jax.Array, scale: jax.Array) -> jax.Array:
    """The same in plain JAX."""
    return x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + EPSILON) * scale


def main() -> None:
    """Compiles the kernels for Hopper, runs them and compares values and gradients with plain JAX's."""
    rng = np.random.default_rng(0)
    x, scale, g = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((10, 300), (300,), (10, 300)))
    print(mosaic_gpu.compile(rms_norm_backward, x, scale, g, target="sm_90a").resources)
    found, expected = (jax.vjp(norm, x, scale) for norm in (rms_norm, rms_norm_reference))
    pairs = zip((found[0], *found[1](g)), (expected[0], *expected[1](g)), strict=True)
    print(f"largest difference from plain JAX: {max(float(jnp.abs(a - b).max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
