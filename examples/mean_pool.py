"""The mean over time of each sequence of a batch, whose lengths are known at run time only.

The sequences lie in one padded array; the grid is as long as the longest of them needs, so padding that no sequence
uses is never loaded.

python examples/mean_pool.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu


def mean_pool_kernel(length_ref, x_ref, o_ref, total_ref):
    """length_ref: (batch,); x_ref: block (time, columns) of one sequence; o_ref, total_ref (float32): (1, columns)."""
    sequence, step, time = pl.program_id(0), pl.program_id(2), x_ref.shape[0]
    length = length_ref[sequence]

    @pl.when(step == 0)
    def _():
        total_ref[...] = jnp.zeros_like(total_ref)

    @pl.when(step * time < length)
    def _():
        moment = step * time + jax.lax.broadcasted_iota(jnp.int32, x_ref.shape, 0)
        valid = jnp.where(moment < length, x_ref[...].astype(jnp.float32), 0)
        total_ref[...] += valid.sum(axis=0, keepdims=True)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = (total_ref[...] / length.astype(jnp.float32)).astype(o_ref.dtype)


def mean_pool(x: jax.Array, lengths: jax.Array, *, block: tuple[int, int] = (32, 128)) -> jax.Array:
    """The mean of the first `lengths[b]` rows of each `x[b]` (batch, time, n): (batch, n), in the dtype of `x`.

    Arguments:
      lengths: (batch,) int32, each at least 1.
      block: moments and columns of a step.
    """
    batch, _, n = x.shape
    time, columns = block
    grid_spec = mosaic_gpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(batch, pl.cdiv(n, columns), pl.cdiv(lengths.max(), time)),
        in_specs=[pl.BlockSpec((None, time, columns), lambda b, j, t, lengths: (b, t, j))],
        out_specs=pl.BlockSpec((1, columns), lambda b, j, t, lengths: (b, j)),
        scratch_shapes=[plgpu.SMEM((1, columns), jnp.float32)],
    )
    return pl.pallas_call(
        mean_pool_kernel,
        out_shape=jax.ShapeDtypeStruct((batch, n), x.dtype),
        grid_spec=grid_spec,
        compiler_params=mosaic_gpu.CompilerParams(dimension_semantics=("parallel", "parallel", "sequential")),
        name="mean_pool",
    )(lengths, x)


def mean_pool_reference(x: jax.Array, lengths: jax.Array) -> jax.Array:
    """The same in plain JAX, in float32."""
    valid = jnp.arange(x.shape[1])[:, None] < lengths[:, None, None]
    return jnp.where(valid, x.astype(jnp.float32), 0).sum(axis=1) / lengths[:, None]


def main() -> None:
    """Compiles the kernel for Hopper, runs it with several lengths and compares it with plain JAX."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 200, 300)), jnp.float32)
    run, error = jax.jit(mean_pool), 0.0
    for sizes in ([200, 1, 33, 64], [3, 1, 2, 31], [32, 32, 32, 32]):
        lengths = jnp.asarray(sizes, jnp.int32)
        error = max(error, float(jnp.abs(run(x, lengths) - mean_pool_reference(x, lengths)).max()))
    print(f"largest difference from plain JAX: {error:.1e}")


if __name__ == "__main__":
    main()
