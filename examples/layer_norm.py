"""Layer normalisation: each row to mean 0 and variance 1, then a learned scale and shift for each column.

python examples/layer_norm.py
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def layer_norm_kernel(x_ref, scale_ref, shift_ref, o_ref, *, epsilon: float):
    """x_ref, o_ref: blocks (rows, n); scale_ref, shift_ref: all of (n,)."""
    x = x_ref[...].astype(jnp.float32)
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    normal = centred * jax.lax.rsqrt(variance + epsilon)
    o_ref[...] = (normal * scale_ref[...] + shift_ref[...]).astype(o_ref.dtype)


def layer_norm(
    x: jax.Array, scale: jax.Array, shift: jax.Array, *, epsilon: float = 1e-5, block_rows: int = 4
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


def layer_norm_reference(x: jax.Array, scale: jax.Array, shift: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """The same in plain JAX."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * scale + shift


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    rng = np.random.default_rng(0)
    x, scale, shift = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((10, 300), (300,), (300,)))
    compiled = mosaic_gpu.compile(layer_norm, x, scale, shift, target="sm_90a")
    print(compiled.resources)
    error = np.abs(jax.jit(layer_norm)(x, scale, shift) - layer_norm_reference(x, scale, shift)).max()
    print(f"largest difference from plain JAX: {error:.1e}")


if __name__ == "__main__":
    main()
