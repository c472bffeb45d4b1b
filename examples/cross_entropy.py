"""Cross entropy over a large vocabulary, a block of columns at a time, with its gradient.

The forward kernel goes over a row once: it keeps the largest logit so far and the sum of the exponentials, which it
rescales as larger logits come.  It also gives the logarithm of the whole sum, all that the backward kernel needs.

python examples/cross_entropy.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu

BLOCK = (4, 1024)
"""Rows and columns of a step."""


def _columns(shape: tuple[int, int]) -> jax.Array:
    return pl.program_id(1) * shape[1] + jax.lax.broadcasted_iota(jnp.int32, shape, 1)


def cross_entropy_kernel(x_ref, label_ref, loss_ref, log_sum_ref, top_ref, total_ref, picked_ref, *, vocabulary):
    """x_ref: logits (rows, columns); label_ref, loss_ref, log_sum_ref: (rows,).

    top_ref, total_ref, picked_ref: scratch (rows,), float32: the largest logit so far, the sum of the exponentials of
    what the logits are below it, and the label's logit.
    """
    step = pl.program_id(1)

    @pl.when(step == 0)
    def _():
        top_ref[...] = jnp.full_like(top_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)
        picked_ref[...] = jnp.zeros_like(picked_ref)

    column = _columns(x_ref.shape)
    x = jnp.where(column < vocabulary, x_ref[...].astype(jnp.float32), -jnp.inf)
    top = jnp.maximum(top_ref[...], x.max(axis=1))
    total_ref[...] = jnp.exp(top_ref[...] - top) * total_ref[...] + jnp.exp(x - top[:, None]).sum(axis=1)
    picked_ref[...] += jnp.where(column == label_ref[...][:, None], x, 0).sum(axis=1)
    top_ref[...] = top

    @pl.when(step == pl.num_programs(1) - 1)
    def _():
        log_sum = top_ref[...] + jnp.log(total_ref[...])
        log_sum_ref[...] = log_sum
        loss_ref[...] = log_sum - picked_ref[...]


def cross_entropy_backward_kernel(x_ref, label_ref, log_sum_ref, g_ref, dx_ref):
    """dx_ref: of the logits' gradient, a block; g_ref: (rows,) of the losses'; the others as above."""
    probability = jnp.exp(x_ref[...].astype(jnp.float32) - log_sum_ref[...][:, None])
    wanted = (_columns(x_ref.shape) == label_ref[...][:, None]).astype(jnp.float32)
    dx_ref[...] = ((probability - wanted) * g_ref[...][:, None]).astype(dx_ref.dtype)


def cross_entropy_forward(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The losses and log(sum(exp(logits))), (m,) float32 each, for `logits` (m, vocabulary) and `labels` (m,) int32."""
    m, vocabulary = logits.shape
    rows, columns = BLOCK
    vector = pl.BlockSpec((rows,), lambda i, j: (i,))
    return pl.pallas_call(
        lambda *refs: cross_entropy_kernel(*refs, vocabulary=vocabulary),
        out_shape=(jax.ShapeDtypeStruct((m,), jnp.float32),) * 2,
        grid=(pl.cdiv(m, rows), pl.cdiv(vocabulary, columns)),
        in_specs=[pl.BlockSpec(BLOCK, lambda i, j: (i, j)), vector],
        out_specs=(vector, vector),
        scratch_shapes=[plgpu.SMEM((rows,), jnp.float32)] * 3,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="cross_entropy",
    )(logits, labels)


def cross_entropy_backward(logits: jax.Array, labels: jax.Array, log_sum: jax.Array, g: jax.Array) -> jax.Array:
    """The gradient of `logits` (m, vocabulary) for that of the losses, `g` (m,)."""
    m, vocabulary = logits.shape
    rows, columns = BLOCK
    block, vector = pl.BlockSpec(BLOCK, lambda i, j: (i, j)), pl.BlockSpec((rows,), lambda i, j: (i,))
    return pl.pallas_call(
        cross_entropy_backward_kernel,
        out_shape=jax.ShapeDtypeStruct(logits.shape, logits.dtype),
        grid=(pl.cdiv(m, rows), pl.cdiv(vocabulary, columns)),
        in_specs=[block, vector, vector, vector],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="cross_entropy_backward",
    )(logits, labels, log_sum, g)


@jax.custom_vjp
def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log(softmax(logits)[label]) of each row: (m,) float32, for `logits` (m, vocabulary) and `labels` (m,) int32."""
    return cross_entropy_forward(logits, labels)[0]


def _forward(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    losses, log_sum = cross_entropy_forward(logits, labels)
    return losses, (logits, labels, log_sum)


def _backward(kept: tuple[jax.Array, ...], g: jax.Array) -> tuple[jax.Array, None]:
    return cross_entropy_backward(*kept, g), None


cross_entropy.defvjp(_forward, _backward)


def cross_entropy_reference(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The same in plain JAX, in float32."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), labels[:, None], axis=1)[:, 0]


def main() -> None:
    """Compiles the kernels for Hopper, runs them and compares values and gradients with plain JAX's."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(3 * rng.normal(size=(6, 5000)), jnp.float32)
    labels, g = jnp.asarray(rng.integers(0, 5000, size=6), jnp.int32), jnp.asarray(rng.normal(size=6), jnp.float32)
    print(mosaic_gpu.compile(cross_entropy_forward, logits, labels, target="sm_90a").resources)
    found, expected = (jax.vjp(lambda x, f=f: f(x, labels), logits) for f in (cross_entropy, cross_entropy_reference))
    pairs = zip((found[0], *found[1](g)), (expected[0], *expected[1](g)), strict=True)
    print(f"largest difference from plain JAX: {max(float(jnp.abs(a - b).max()) for a, b in pairs):.1e}")


if __name__ == "__main__":
    main()
