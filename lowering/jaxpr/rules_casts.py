"""Conversions of value (`convert_element_type`) and of bits (`bitcast_convert_type`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_tile import BitcastOp
from mosaic_gpu.dialect.types import element_of, shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.casts import bitcast, convert, fill_like, typed
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.folds import fold
from mosaic_gpu.lowering.jaxpr.kinds import is_bool, width
from mosaic_gpu.lowering.jaxpr.registry import lowers


@lowers("convert_element_type")
def lower_convert_element_type(ctx: RuleContext, x: ir.Value, *, new_dtype: Any, **_: Any) -> ir.Value:
    return convert(x, ctx.avals_in[0].dtype, new_dtype)


@lowers("bitcast_convert_type")
def lower_bitcast_convert_type(ctx: RuleContext, x: ir.Value, *, new_dtype: Any, **_: Any) -> ir.Value:
    source, target = ctx.avals_in[0].dtype, np.dtype(new_dtype)
    if source == target:
        return x
    if is_bool(source) or is_bool(target):
        raise ctx.refuse(f"bitcast from {source} to {target}", "compare with 0, or convert, instead")
    if width(source) < 8 and width(target) < 8:
        return bitcast(x, target)
    if width(source) < 8:
        joined = _widen(_join_bits(x, width(source)), target)
        return emit.reshape(joined, tuple(ctx.avals_out[0].shape))
    if width(target) < 8:
        return bitcast(_split_bits(_narrow(x, np.int8), width(target)), target)
    return _narrow(x, target) if width(source) > width(target) else _widen(x, target)


def _narrow(x: ir.Value, target: Any) -> ir.Value:
    """A last dimension of width/width elements is gained, lowest bits first."""
    ratio = element_of(x.type).width // width(target)
    if ratio == 1:
        return bitcast(x, target)
    return BitcastOp(tile_type((*shape_of(x.type), ratio), element_type(target)), x).result


def _widen(x: ir.Value, target: Any) -> ir.Value:
    """The last dimension, of width/width elements, is taken away (where the widths differ)."""
    ratio = width(target) // element_of(x.type).width
    if ratio == 1:
        return bitcast(x, target)
    shape = shape_of(x.type)
    if shape[-1] != ratio:
        x = emit.reshape(x, (*shape[:-1], shape[-1] // ratio, ratio))
    return BitcastOp(tile_type(shape_of(x.type)[:-1], element_type(target)), x).result


def _split_bits(x: ir.Value, bits: int) -> ir.Value:
    """Bytes (..., n) as 4-bit or 2-bit integers (..., n * 8 / bits); the scalar's are (8 / bits,)."""
    count = 8 // bits
    shape = shape_of(x.type)
    wide = (*shape, count)
    spread = emit.broadcast(x, wide, range(len(shape)))
    place = emit.iota(wide, len(shape), element_type(np.int8))
    distance = arith.MulIOp(place, fill_like(bits, place, np.int8)).result
    shifted = arith.ShRUIOp(spread, distance).result
    small = arith.TruncIOp(tile_type(wide, ir.IntegerType.get_signless(bits)), shifted).result
    return small


def _join_bits(x: ir.Value, bits: int) -> ir.Value:
    """4-bit or 2-bit integers (..., n) as bytes (..., n * bits / 8): lowest bits first."""
    count = 8 // bits
    shape = shape_of(x.type)
    grouped = emit.reshape(x, (*shape[:-1], shape[-1] // count, count))
    extended = arith.ExtUIOp(typed(grouped, np.int8), grouped).result
    place = emit.iota(shape_of(grouped.type), len(shape), element_type(np.int8))
    distance = arith.MulIOp(place, fill_like(bits, place, np.int8)).result
    return fold("or", arith.ShLIOp(extended, distance).result, np.int8, (len(shape),))
