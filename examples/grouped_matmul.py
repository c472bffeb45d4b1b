"""Ragged (grouped) matrix multiplication: rows of one matrix, sorted by group, times a matrix for each group.

How many rows a group has is known at run time only (tokens that a mixture of experts has routed, say).  The first
dimension of the grid is as long as there is work, and a table of operands for index maps tells each tile its group.

python examples/grouped_matmul.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import triton as masked

import mosaic_gpu


def grouped_matmul_kernel(group_ref, start_ref, end_ref, x_ref, w_ref, zeros_ref, o_ref, acc_ref):
    """group_ref, start_ref, end_ref: of each tile the group, its first row, and where the group's rows end.

    x_ref: rows (bm, bk) of the left side from the tile's first one on; w_ref: (bk, bn) of the group's matrix;
    o_ref: (bm, bn) of the result, which zeros_ref is before; acc_ref: scratch of its shape, float32.
    """
    tile, step = pl.program_id(0), pl.program_id(2)

    @pl.when(step == 0)
    def _():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        row = start_ref[tile] + jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, 0)
        masked.store(o_ref, acc_ref[...].astype(o_ref.dtype), mask=row < end_ref[tile])


def tile_table(group_sizes: jax.Array, rows: int, block_rows: int) -> tuple[jax.Array, ...]:
    """How many tiles there are; and for as many as there can be: group, first row, end of the group's rows (int32)."""
    groups = group_sizes.shape[0]
    tiles = pl.cdiv(group_sizes, block_rows)
    ends = jnp.cumsum(group_sizes)
    last_tiles = jnp.cumsum(tiles)
    number = jnp.arange(pl.cdiv(rows, block_rows) + groups, dtype=jnp.int32)
    group = jnp.searchsorted(last_tiles, number, side="right").astype(jnp.int32)
    group = jnp.minimum(group, groups - 1)
    place = number - (last_tiles - tiles)[group]
    start = (ends - group_sizes)[group] + place * block_rows
    return last_tiles[-1], group, start.astype(jnp.int32), ends[group].astype(jnp.int32)


def grouped_matmul(
    x: jax.Array, w: jax.Array, group_sizes: jax.Array, *, block: tuple[int, int, int] = (64, 64, 32)
) -> jax.Array:
    """The rows of `x` (m, k) that belong to group g times `w[g]` (groups, k, n): (m, n), in the dtype of `x`.

    Arguments:
      group_sizes: (groups,) int32; group 0 has the first rows, and so on.  Rows behind the last group give 0.
      block: rows, columns and depth of a step.
    """
    (m, k), n, (bm, bn, bk) = x.shape, w.shape[2], block
    count, *table = tile_table(group_sizes, m, bm)
    rows = (pl.Element(bm), pl.Element(bn))
    result = pl.BlockSpec(rows, lambda i, j, s, group, start, end: (start[i], bn * j))
    grid_spec = mosaic_gpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=3,
        grid=(count, pl.cdiv(n, bn), pl.cdiv(k, bk)),
        in_specs=[
            pl.BlockSpec((pl.Element(bm), pl.Element(bk)), lambda i, j, s, group, start, end: (start[i], bk * s)),
            pl.BlockSpec((None, bk, bn), lambda i, j, s, group, start, end: (group[i], s, j)),
            result,
        ],
        out_specs=result,
        scratch_shapes=[plgpu.SMEM((bm, bn), jnp.float32)],
    )
    return pl.pallas_call(
        grouped_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid_spec=grid_spec,
        input_output_aliases={5: 0},
        # Tiles overlap where a group ends, but each writes its group's rows alone.
        compiler_params=mosaic_gpu.CompilerParams(dimension_semantics=("parallel", "parallel", "sequential")),
        name="grouped_matmul",
    )(*table, x, w, jnp.zeros((m, n), x.dtype))


def grouped_matmul_reference(x: jax.Array, w: jax.Array, group_sizes: jax.Array) -> jax.Array:
    """The same in plain JAX, in float32."""
    group = jnp.searchsorted(jnp.cumsum(group_sizes), jnp.arange(x.shape[0]), side="right")
    each = jnp.einsum("mk,gkn->gmn", x.astype(jnp.float32), w.astype(jnp.float32))
    chosen = [jnp.where((group == g)[:, None], each[g], 0) for g in range(w.shape[0])]
    return sum(chosen)


def main() -> None:
    """Compiles the kernel for Hopper, runs it with group sizes of all kinds and compares it with plain JAX."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(512, 128)), jnp.bfloat16)
    w = jnp.asarray(rng.normal(size=(4, 128, 192)), jnp.bfloat16)
    run = jax.jit(grouped_matmul)
    error = 0.0
    for sizes in ([128, 128, 128, 128], [0, 500, 1, 11], [63, 64, 65, 100], [0, 0, 0, 0]):
        group_sizes = jnp.asarray(sizes, jnp.int32)
        expected = grouped_matmul_reference(x, w, group_sizes)
        difference = (run(x, w, group_sizes).astype(jnp.float32) - expected) / (1 + jnp.abs(expected))
        error = max(error, float(jnp.abs(difference).max()))
    print(f"largest relative difference from plain JAX: {error:.1e}")


if __name__ == "__main__":
    main()
