"""Boxes at traced places of a tile: dynamic_slice and dynamic_update_slice, with lax's clamped starts."""

from __future__ import annotations

from collections.abc import Sequence

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.rules_shape import empty_of, moves
from mosaic_gpu.lowering.jaxpr.scratch import clamp_index, spill


@moves("dynamic_slice")
def lower_dynamic_slice(
    ctx: RuleContext, x: ir.Value, *starts: ir.Value, slice_sizes: Sequence[int], **_: object
) -> ir.Value:
    empty = empty_of(ctx.avals_out[0])
    if empty is not None:
        return empty
    if tuple(slice_sizes) == shape_of(x.type):
        return x
    return emit.load(emit.subview(spill(x), _clamped(ctx, 1, starts, slice_sizes), slice_sizes))


@moves("dynamic_update_slice")
def lower_dynamic_update_slice(ctx: RuleContext, x: ir.Value, update: ir.Value, *starts: ir.Value) -> ir.Value:
    sizes = shape_of(update.type)
    if 0 in sizes:
        return x
    if sizes == shape_of(x.type):
        return update
    memory = spill(x)
    emit.store(update, emit.subview(memory, _clamped(ctx, 2, starts, sizes), sizes))
    return emit.load(memory)


def _clamped(ctx: RuleContext, first: int, starts: Sequence[ir.Value], sizes: Sequence[int]) -> list[ir.Value]:
    """The starts, which are operands `first` and on, moved so that the box lies inside."""
    shape, dtypes = ctx.avals_in[0].shape, [a.dtype for a in ctx.avals_in[first:]]
    limits = [n - s for n, s in zip(shape, sizes, strict=True)]
    return [clamp_index(i, d, limit) for i, d, limit in zip(starts, dtypes, limits, strict=True)]
