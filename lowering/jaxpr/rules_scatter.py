"""`lax.scatter` and scatter-add, -sub, -mul, -min, -max, with all their dimension numbers and modes.

Windows that leave the operand are dropped, or moved inside with mode "clip".  Windows that may fall on one
another are applied one after the other in the order of the indices, so that duplicates accumulate, and of
plain writes the last one stays: the result does not depend on timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.rules_gather import Starts, starts_of
from mosaic_gpu.lowering.jaxpr.scratch import repeat, spill
from mosaic_gpu.lowering.jaxpr.tracing import lower_mapped

_OPERATIONS = {"scatter-add": "add", "scatter-sub": "sub", "scatter-mul": "mul", "scatter-min": "min"}
_OPERATIONS["scatter-max"] = "max"

Combine = Callable[[ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Windows:
    """What a scatter writes: a window of `sizes` for each of `count` updates.

    Attributes:
      sizes: extents of a window in the operand, 1 along `dropped` dimensions.
      dropped: operand's dimensions that the updates do not have.
      starts: see `Starts`; of shape (count,) here.
      updates: (count, *window without the dropped dimensions).
    """

    count: int
    sizes: tuple[int, ...]
    dropped: tuple[int, ...]
    starts: Starts
    updates: ir.Value


@lowers("scatter", *_OPERATIONS)
def lower_scatter(
    ctx: RuleContext,
    operand: ir.Value,
    indices: ir.Value,
    updates: ir.Value,
    *,
    update_jaxpr: Any,
    unique_indices: bool,
    **params: Any,
) -> ir.Value:
    if 0 in shape_of(updates.type) or 0 in shape_of(operand.type):
        return operand
    combine = _combination(ctx, update_jaxpr)
    windows = _windows(ctx, indices, updates, params["dimension_numbers"], params["mode"])
    memory = spill(operand)
    if windows.count == 1:
        _write_one(memory, windows, combine)
    elif unique_indices:
        _write_together(memory, windows, combine)
    else:
        _write_in_turn(memory, windows, combine)
    return emit.load(memory)


def _combination(ctx: RuleContext, update_jaxpr: Any) -> Combine | None:
    """What becomes of an old element and an update; None where the update replaces it."""
    dtype = ctx.avals_in[0].dtype
    if ctx.primitive in _OPERATIONS:
        name = _OPERATIONS[ctx.primitive]
        return lambda old, update: binary(name, old, update, dtype)
    if update_jaxpr is None:
        return None
    return lambda old, update: lower_mapped(ctx, update_jaxpr, [old, update], shape_of(old.type))[0]


def _windows(ctx: RuleContext, indices: ir.Value, updates: ir.Value, dims: Any, mode: Any) -> Windows:
    """Index arrays and updates with their batch dimensions in front, flattened into one."""
    shape, update_shape = tuple(ctx.avals_in[0].shape), shape_of(updates.type)
    dropped = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    window_sizes = iter(update_shape[d] for d in dims.update_window_dims)
    sizes = tuple(1 if d in dropped else next(window_sizes) for d in range(len(shape)))
    batching = dict(zip(dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True))
    drop = mode.name != "CLIP"
    to_operand = dims.scatter_dims_to_operand_dims
    starts = starts_of(indices, ctx.avals_in[1].dtype, shape, sizes, to_operand, batching, drop)
    batch_dims = [d for d in range(len(update_shape)) if d not in dims.update_window_dims]
    count = math.prod(update_shape[d] for d in batch_dims)
    ordered = emit.transpose(updates, [*batch_dims, *dims.update_window_dims])
    flat = emit.reshape(ordered, (count, *(update_shape[d] for d in dims.update_window_dims)))
    places = tuple(None if p is None else emit.reshape(p, (count,)) for p in starts.places)
    valid = None if starts.valid is None else emit.reshape(starts.valid, (count,))
    return Windows(count, sizes, tuple(sorted(dropped)), Starts(places, valid), flat)


def _write_one(memory: ir.Value, windows: Windows, combine: Combine | None) -> None:
    """The only window."""
    starts = windows.starts
    offsets = [emit.int_constant(0) if p is None else emit.reshape(p, ()) for p in starts.places]
    valid = None if starts.valid is None else emit.reshape(starts.valid, ())
    update = emit.reshape(windows.updates, shape_of(windows.updates.type)[1:])
    _write(emit.subview(memory, offsets, windows.sizes, dropped=windows.dropped), update, valid, combine)


def _write(view: ir.Value, update: ir.Value, valid: ir.Value | None, combine: Combine | None) -> None:
    emit.store(update if combine is None else combine(emit.load(view), update), view, valid)


def _write_in_turn(memory: ir.Value, windows: Windows, combine: Combine | None) -> None:
    """A loop over the updates; each changes a box of `memory`."""
    starts, zero = windows.starts, emit.int_constant(0)
    places = [None if p is None else spill(p) for p in starts.places]
    valid = None if starts.valid is None else spill(starts.valid)
    updates = spill(windows.updates)
    window = shape_of(windows.updates.type)[1:]

    def one(source: ir.Value | None, step: ir.Value) -> ir.Value:
        return zero if source is None else emit.load(emit.subview(source, [step], [1], dropped=[0]))

    def body(step: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        offsets = [step, *(zero for _ in window)]
        update = emit.load(emit.subview(updates, offsets, [1, *window], dropped=[0]))
        view = emit.subview(memory, [one(p, step) for p in places], windows.sizes, dropped=windows.dropped)
        _write(view, update, None if valid is None else one(valid, step), combine)
        return []

    repeat(windows.count, body, [])


def _write_together(memory: ir.Value, windows: Windows, combine: Combine | None) -> None:
    """All at once: one index a dimension for each element of the updates, no two of them alike."""
    shape = shape_of(windows.updates.type)
    offsets = iter(range(1, len(shape)))
    indices = []
    for d, start in enumerate(windows.starts.places):
        index = None if start is None else emit.broadcast(start, shape, [0])
        if d not in windows.dropped:
            place = emit.iota(shape, next(offsets))
            index = place if index is None else arith.AddIOp(index, place).result
        indices.append(index if index is not None else emit.int_constant(0, tile_type(shape, emit.i32())))
    valid = windows.starts.valid
    mask = None if valid is None else emit.broadcast(valid, shape, [0])
    value = windows.updates
    if combine is not None:
        value = combine(emit.gather(memory, indices, mask), value)
    emit.scatter(value, memory, indices, mask)
