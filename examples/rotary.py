"""Rotary position embedding: pairs of elements of each head turned by an angle that grows with the position.

Element i of a head's first half and of its second half are a pair.  Turning back is the gradient.

python examples/rotary.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def rotary_kernel(x_ref, cos_ref, sin_ref, o_ref):
    """x_ref, o_ref: (positions, heads, d); cos_ref, sin_ref: (positions, d / 2)."""
    half = x_ref.shape[-1] // 2
    a, b = x_ref[:, :, :half].astype(jnp.float32), x_ref[:, :, half:].astype(jnp.float32)
    cos, sin = cos_ref[...][:, None, :], sin_ref[...][:, None, :]
    o_ref[:, :, :half] = (a * cos - b * sin).astype(o_ref.dtype)
    o_ref[:, :, half:] = (b * cos + a * sin).astype(o_ref.dtype)


def angles(positions: int, d: int, base: float = 10000.0) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of the angle of each position and pair: (positions, d / 2) each, float32."""
    angle = jnp.arange(positions)[:, None] * base ** (-jnp.arange(0, d, 2) / d)
    return jnp.cos(angle), jnp.sin(angle)


@jax.custom_vjp
def rotary(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """`x` (batch, positions, heads, d), d even, turned by the angles of `cos` and `sin` (positions, d / 2)."""
    batch, positions, heads, d = x.shape
    rows = max(1, 4096 // (heads * d))  # about 4096 elements for a block of threads
    block = pl.BlockSpec((None, rows, heads, d), lambda b, i: (b, i, 0, 0))
    table = pl.BlockSpec((rows, d // 2), lambda b, i: (i, 0))
    return pl.pallas_call(
        rotary_kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(batch, pl.cdiv(positions, rows)),
        in_specs=[block, table, table],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="rotary",
    )(x, cos, sin)


def _forward(x: jax.Array, cos: jax.Array, sin: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return rotary(x, cos, sin), (cos, sin)


def _backward(kept: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, None, None]:
    cos, sin = kept
    return rotary(g, cos, -sin), None, None


rotary.defvjp(_forward, _backward)


def rotary_reference(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """The same in plain JAX, in float32."""
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 50, 3, 64)), jnp.float32)
    arguments = (x, *angles(50, 64))
    print(mosaic_gpu.compile(rotary, *arguments, target="sm_90a").resources)
    error = jnp.abs(jax.jit(rotary)(*arguments) - rotary_reference(*arguments)).max()
    print(f"largest difference from plain JAX: {error:.1e}")


if __name__ == "__main__":
    main()
