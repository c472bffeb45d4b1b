"""Primitives that only move elements: broadcast, reshape, transpose, slice, pad, concatenate and kin.

All of them also take random keys, whose words are one more dimension of the tile: the same primitive is
then mapped over that dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_tile import ConcatenateOp, SliceOp
from mosaic_gpu.dialect.types import element_of, shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.casts import convert, fill, fill_like
from mosaic_gpu.lowering.jaxpr.compat import is_extended_dtype, physical_shape_dtype
from mosaic_gpu.lowering.jaxpr.context import RuleContext, aval_type
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.scratch import constants, joined, spill
from mosaic_gpu.lowering.jaxpr.tracing import lower_function
from mosaic_gpu.rule_tables import Rule


def moves(name: str) -> Callable[[Rule], Rule]:
    """Registers the rule of a primitive that only moves elements, for numbers and for random keys."""

    def register(rule: Rule) -> Rule:
        def of_any(ctx: RuleContext, *values: ir.Value, **params: Any) -> Any:
            if any(is_extended_dtype(a) for a in ctx.avals_in):
                return _of_words(ctx, name, values, params)
            return rule(ctx, *values, **params)

        lowers(name)(of_any)
        return rule

    return register


def _of_words(ctx: RuleContext, name: str, values: Sequence[ir.Value], params: dict[str, Any]) -> list[ir.Value]:
    primitive = getattr(jax.lax, f"{name}_p")
    axes = tuple(-1 if is_extended_dtype(a) else None for a in ctx.avals_in)
    mapped = jax.vmap(lambda *arrays: primitive.bind(*arrays, **params), in_axes=axes, out_axes=-1)
    physical = [jax.ShapeDtypeStruct(*physical_shape_dtype(a)) for a in ctx.avals_in]
    return lower_function(ctx, mapped, values, physical)


def empty_of(aval: Any) -> ir.Value | None:
    """The value of a shape that has no elements; None where it has some."""
    return fill(0, aval_type(aval), aval.dtype) if 0 in aval.shape else None


def sliced(x: ir.Value, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> ir.Value:
    """A static strided box of `x`."""
    if tuple(sizes) == shape_of(x.type) and all(s == 1 for s in strides):
        return x
    type_ = tile_type(tuple(sizes), element_of(x.type))
    return SliceOp(type_, x, emit.int_array(starts), emit.int_array(strides)).result


@moves("broadcast_in_dim")
def lower_broadcast_in_dim(
    _ctx: RuleContext, x: ir.Value, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any
) -> ir.Value:
    return emit.broadcast(x, tuple(shape), broadcast_dimensions)


@moves("reshape")
def lower_reshape(
    _ctx: RuleContext, x: ir.Value, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None, **_: Any
) -> ir.Value:
    if dimensions is not None:
        x = emit.transpose(x, dimensions)
    return emit.reshape(x, tuple(new_sizes))


@moves("squeeze")
def lower_squeeze(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    return emit.reshape(x, tuple(ctx.avals_out[0].shape))


@moves("transpose")
def lower_transpose(_ctx: RuleContext, x: ir.Value, *, permutation: Sequence[int], **_: Any) -> ir.Value:
    return emit.transpose(x, permutation)


@moves("slice")
def lower_slice(
    ctx: RuleContext,
    x: ir.Value,
    *,
    start_indices: Sequence[int],
    strides: Sequence[int] | None,
    **_: Any,
) -> ir.Value:
    shape = tuple(ctx.avals_out[0].shape)
    return sliced(x, start_indices, shape, strides or [1] * len(shape))


@moves("rev")
def lower_rev(_ctx: RuleContext, x: ir.Value, *, dimensions: Sequence[int], **_: Any) -> ir.Value:
    shape = shape_of(x.type)
    if 0 in shape or not dimensions:
        return x
    starts = [n - 1 if d in dimensions else 0 for d, n in enumerate(shape)]
    return sliced(x, starts, shape, [-1 if d in dimensions else 1 for d in range(len(shape))])


@moves("split")
def lower_split(_ctx: RuleContext, x: ir.Value, *, sizes: Sequence[int], axis: int, **_: Any) -> list[ir.Value]:
    pieces, place, shape = [], 0, shape_of(x.type)
    for size in map(int, sizes):
        starts = [place if d == axis else 0 for d in range(len(shape))]
        kept = [size if d == axis else n for d, n in enumerate(shape)]
        pieces.append(sliced(x, starts, kept, [1] * len(shape)))
        place += size
    return pieces


@moves("unstack")
def lower_unstack(ctx: RuleContext, x: ir.Value, *, axis: int, **_: Any) -> list[ir.Value]:
    count = shape_of(x.type)[axis]
    pieces = lower_split(ctx, x, sizes=[1] * count, axis=axis)
    return [emit.reshape(p, tuple(a.shape)) for p, a in zip(pieces, ctx.avals_out, strict=True)]


@moves("concatenate")
def lower_concatenate(ctx: RuleContext, *values: ir.Value, dimension: int, **_: Any) -> ir.Value:
    return concatenated(ctx, values, dimension)


def concatenated(ctx: RuleContext, values: Sequence[ir.Value], dimension: int) -> ir.Value:
    """Tiles of one type in registers, tiles of different sizes through shared memory."""
    empty = empty_of(ctx.avals_out[0])
    if empty is not None:
        return empty
    values = [v for v in values if shape_of(v.type)[dimension]]
    if len(values) == 1:
        return values[0]
    if len({str(v.type) for v in values}) > 1:
        return joined(values, dimension)
    return ConcatenateOp(ctx.out_type(), values, emit.int_attr(dimension)).result


@moves("stack")
def lower_stack(ctx: RuleContext, *values: ir.Value, axis: int, **_: Any) -> ir.Value:
    shape = list(ctx.avals_out[0].shape)
    shape[axis] = 1
    return concatenated(ctx, [emit.reshape(v, shape) for v in values], axis)


@moves("tile")
def lower_tile(ctx: RuleContext, x: ir.Value, *, reps: Sequence[int], **_: Any) -> ir.Value:
    """As a broadcast between the dimensions: (n,) -> (reps, n) -> (reps * n,)."""
    shape, result = shape_of(x.type), tuple(ctx.avals_out[0].shape)
    shape = (1,) * (len(reps) - len(shape)) + shape
    wide = [n for pair in zip(reps, shape, strict=True) for n in pair]
    dimensions = range(1, len(wide), 2)
    return emit.reshape(emit.broadcast(emit.reshape(x, shape), wide, dimensions), result)


@moves("pad")
def lower_pad(
    ctx: RuleContext, x: ir.Value, padding: ir.Value, *, padding_config: Sequence[tuple[int, int, int]], **_: Any
) -> ir.Value:
    """A box of the stored tile that leaves it on all sides; with interior padding, an indexed read."""
    shape, result = shape_of(x.type), tuple(ctx.avals_out[0].shape)
    empty = empty_of(ctx.avals_out[0])
    if empty is not None or all(p == (0, 0, 0) for p in padding_config):
        return x if empty is None else empty
    if 0 in shape:
        return emit.broadcast(padding, result, ())
    memory = spill(x)
    if any(step for _, _, step in padding_config):
        return _interior_pad(memory, padding, padding_config, result)
    lows = constants([-low for low, _, _ in padding_config])
    return emit.load(emit.subview(memory, lows, result, checked=[1] * len(shape)), other=padding)


def _interior_pad(
    memory: ir.Value, padding: ir.Value, config: Sequence[tuple[int, int, int]], result: Sequence[int]
) -> ir.Value:
    """Element i of a dimension is element (i - low) / (interior + 1) where that is whole and inside."""
    indices, mask = [], fill_like(1, emit.iota(result, 0), np.bool_)
    for d, (low, _, interior) in enumerate(config):
        place = emit.iota(result, d)
        moved = arith.SubIOp(place, fill_like(low, place, np.int32)).result
        step = fill_like(interior + 1, place, np.int32)
        index = arith.DivSIOp(moved, step).result
        size = fill_like(shape_of(memory.type)[d], place, np.int32)
        for condition in (
            arith.CmpIOp(arith.CmpIPredicate.eq, arith.MulIOp(index, step).result, moved).result,
            arith.CmpIOp(arith.CmpIPredicate.ult, index, size).result,
        ):
            mask = arith.AndIOp(mask, condition).result
        indices.append(index)
    return emit.gather(memory, indices, mask, emit.broadcast(padding, result, ()))


@lowers("iota")
def lower_iota(ctx: RuleContext, *, dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> ir.Value:
    del ctx
    return convert(emit.iota(tuple(shape), dimension), np.int32, dtype)


@lowers("empty", "empty2")
def lower_empty(ctx: RuleContext, **_: Any) -> ir.Value:
    """Any value will do; zero is one."""
    aval = ctx.avals_out[0]
    return fill(0, aval_type(aval), aval.dtype)
