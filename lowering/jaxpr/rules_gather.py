"""`lax.gather` with all its dimension numbers and modes.

Out of range, by `mode`: "clip" moves the slice inside; "fill_or_drop" gives the fill value for all of a
slice that leaves the operand anywhere; "promise_in_bounds" is taken at its word but clipped all the same,
so that nothing else of memory can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.casts import fill
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.kinds import is_bool, is_float, is_signed
from mosaic_gpu.lowering.jaxpr.rules_shape import empty_of, moves, sliced
from mosaic_gpu.lowering.jaxpr.scratch import clamp_index, inside, spill


@dataclass(frozen=True)
class Starts:
    """Where slices (gather) or windows (scatter) begin.

    Attributes:
      places: for each dimension of the operand the start, i32 of the batch shape; None where it is always 0.
      valid: where the slice lies inside the operand, i1 of the batch shape; None where it always does.
    """

    places: tuple[ir.Value | None, ...]
    valid: ir.Value | None


def starts_of(
    indices: ir.Value,
    dtype: Any,
    operand: Sequence[int],
    sizes: Sequence[int],
    index_map: Sequence[int],
    batching: dict[int, int],
    drop: bool,
) -> Starts:
    """The starts that an array of index vectors (its last dimension) names, clamped to the operand.

    `operand`, `sizes`: extents of the operand and of a slice; `index_map`: the operand's dimension of each
    component; `batching`: operand's dimension -> dimension of `indices` that it goes along with; `drop`:
    whether `valid` is wanted.
    """
    batch = shape_of(indices.type)[:-1]
    places: list[ir.Value | None] = [None] * len(operand)
    valid: ir.Value | None = None
    for component, d in enumerate(index_map):
        box = sliced(indices, [0] * len(batch) + [component], [*batch, 1], [1] * (len(batch) + 1))
        start, limit = emit.reshape(box, batch), operand[d] - sizes[d]
        if drop:
            good = inside(start, dtype, limit)
            valid = good if valid is None else arith.AndIOp(valid, good).result
        places[d] = clamp_index(start, dtype, max(limit, 0))
    for d, along in batching.items():
        places[d] = emit.iota(batch, along)
    return Starts(tuple(places), valid)


@moves("gather")
def lower_gather(
    ctx: RuleContext,
    operand: ir.Value,
    indices: ir.Value,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> ir.Value:
    empty = empty_of(ctx.avals_out[0])
    if empty is not None:
        return empty
    shape, dtype, dims = shape_of(operand.type), ctx.avals_in[0].dtype, dimension_numbers
    drop = mode.name == "FILL_OR_DROP"
    other = fill(_fill_value(dtype, fill_value), element_type(dtype), dtype) if drop else None
    if 0 in shape:
        return _nothing_to_gather(ctx, other)
    batching = dict(zip(dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True))
    starts = starts_of(indices, ctx.avals_in[1].dtype, shape, slice_sizes, dims.start_index_map, batching, drop)
    dropped = [*dims.collapsed_slice_dims, *dims.operand_batching_dims]
    memory = spill(operand)
    if len(shape_of(indices.type)) == 1:
        offsets = [emit.int_constant(0) if p is None else p for p in starts.places]
        view = emit.subview(memory, offsets, slice_sizes, dropped=sorted(dropped))
        return emit.load(view, starts.valid, None if starts.valid is None else other)
    return _gather_elements(ctx, memory, starts, dims.offset_dims, dropped, other)


def _nothing_to_gather(ctx: RuleContext, other: ir.Value | None) -> ir.Value:
    if other is None:
        raise ctx.refuse("gather from an array without elements")
    return emit.broadcast(other, tuple(ctx.avals_out[0].shape), ())


def _gather_elements(
    ctx: RuleContext,
    memory: ir.Value,
    starts: Starts,
    offset_dims: Sequence[int],
    dropped: Sequence[int],
    other: ir.Value | None,
) -> ir.Value:
    """One index a dimension for each element of the result: the slice's start and the place in the slice."""
    result = tuple(ctx.avals_out[0].shape)
    batch_dims = [d for d in range(len(result)) if d not in offset_dims]
    offsets = iter(sorted(offset_dims))
    indices = []
    for d, start in enumerate(starts.places):
        index = None if start is None else emit.broadcast(start, result, batch_dims)
        if d not in dropped:
            place = emit.iota(result, next(offsets))
            index = place if index is None else arith.AddIOp(index, place).result
        indices.append(index if index is not None else emit.int_constant(0, tile_type(result, emit.i32())))
    mask = None if starts.valid is None else emit.broadcast(starts.valid, result, batch_dims)
    return emit.gather(memory, indices, mask, None if mask is None else other)


def _fill_value(dtype: Any, given: Any) -> Any:
    """What JAX fills with where no value is given: NaN, the lowest signed or highest unsigned integer, True."""
    if given is not None:
        return given
    if is_float(dtype):
        return np.nan
    if is_bool(dtype):
        return True
    return int(jnp.iinfo(dtype).min if is_signed(dtype) else jnp.iinfo(dtype).max)
