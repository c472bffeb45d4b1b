"""`lax.reduce_window`: pooling.  One strided view of the stored tile for each place of the window.

View number w holds, for every result, the element that lies at place w of its window; where the window
overhangs the operand the view reads the start value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary
from mosaic_gpu.lowering.jaxpr.casts import convert, fill
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.folds import identity
from mosaic_gpu.lowering.jaxpr.kinds import compute_dtype, sum_dtype
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.rules_shape import empty_of
from mosaic_gpu.lowering.jaxpr.scratch import repeat, spill
from mosaic_gpu.lowering.jaxpr.tracing import lower_mapped

_OPERATIONS = {"reduce_window_sum": "add", "reduce_window_max": "max", "reduce_window_min": "min"}
Combine = Callable[[Sequence[ir.Value], Sequence[ir.Value]], list[ir.Value]]


@lowers(*_OPERATIONS)
def lower_named_window(ctx: RuleContext, x: ir.Value, **params: Any) -> ir.Value:
    """f16 and bf16 sums are accumulated in f32 and rounded once."""
    name, dtype = _OPERATIONS[ctx.primitive], ctx.avals_in[0].dtype
    work = sum_dtype(dtype) if name == "add" else compute_dtype(dtype)
    start = fill(identity(name, work), element_type(work), work)
    tiles = [convert(x, dtype, work)]
    (result,) = _fold_windows(ctx, tiles, [start], lambda old, new: [binary(name, old[0], new[0], work)], params)
    return convert(result, work, dtype)


@lowers("reduce_window")
def lower_reduce_window(ctx: RuleContext, *values: ir.Value, jaxpr: Any, consts: Any = (), **params: Any) -> Any:
    """With any function of scalars; several operands of one shape go together."""
    if consts:
        raise ctx.refuse("reduce_window with a function that captures arrays")
    count, shape = len(values) // 2, tuple(ctx.avals_out[0].shape)

    def combine(old: Sequence[ir.Value], new: Sequence[ir.Value]) -> list[ir.Value]:
        return lower_mapped(ctx, jaxpr, [*old, *new], shape)

    return _fold_windows(ctx, values[:count], values[count:], combine, params)


def _fold_windows(
    ctx: RuleContext,
    tiles: Sequence[ir.Value],
    starts: Sequence[ir.Value],
    combine: Combine,
    params: dict[str, Any],
) -> list[ir.Value]:
    window, strides, padding = (params[k] for k in ("window_dimensions", "window_strides", "padding"))
    if any(n != 1 for n in params["base_dilation"]):
        raise ctx.refuse(f"{ctx.primitive} with base dilation {tuple(params['base_dilation'])}")
    empties = [empty_of(a) for a in ctx.avals_out]
    if any(e is not None for e in empties):
        return [e for e in empties if e is not None]
    shape = tuple(ctx.avals_out[0].shape)
    total = [emit.broadcast(s, shape, ()) for s in starts]
    if 0 in shape_of(tiles[0].type) or not shape:
        return total if shape else combine(total, tiles)
    memories = [spill(t) for t in tiles]
    checked = [1] * len(shape)

    def body(step: ir.Value, old: list[ir.Value]) -> list[ir.Value]:
        offsets = _offsets(step, window, [low for low, _ in padding], params["window_dilation"])
        views = [emit.subview(m, offsets, shape, strides, checked=checked) for m in memories]
        new = [emit.load(v, other=s) for v, s in zip(views, starts, strict=True)]
        return combine(old, new)

    return repeat(math.prod(window), body, total)


def _offsets(step: ir.Value, window: Sequence[int], lows: Sequence[int], dilation: Sequence[int]) -> list[ir.Value]:
    """Where the view of place `step` (row-major in the window) begins."""
    offsets, rest = [], step
    for size, low, spread in reversed(list(zip(window, lows, dilation, strict=True))):
        extent = emit.int_constant(size)
        place = arith.RemUIOp(rest, extent).result
        rest = arith.DivUIOp(rest, extent).result
        moved = arith.MulIOp(place, emit.int_constant(spread)).result
        offsets.append(arith.SubIOp(moved, emit.int_constant(low)).result)
    return offsets[::-1]
