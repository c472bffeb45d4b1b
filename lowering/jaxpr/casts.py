"""Conversions between dtypes, as XLA defines them.

float -> int: truncates, saturates, NaN becomes 0.  int -> int: wraps.  Anything -> bool: is it not zero
(NaN is not).  To bf16 every wider number goes through f32, which is what XLA on the CPU and ml_dtypes do.
fp8 from f64 is rounded once: f64 -> f32 rounds to odd, which a second rounding cannot spoil.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_tile import BitcastOp
from mosaic_gpu.dialect.types import shape_of, tile_type
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.kinds import bits_dtype, is_bool, is_float, is_signed, is_unsigned, width

_F32 = np.dtype(np.float32)


def typed(value: ir.Value, dtype: Any) -> ir.Type:
    """The type of `value`'s shape with elements of `dtype`."""
    return tile_type(shape_of(value.type), element_type(dtype))


def fill(number: Any, type_: ir.Type, dtype: Any) -> ir.Value:
    """A constant of `type_`, every element of it `number` of `dtype` (integers wrap to the dtype's width)."""
    element = element_type(dtype)
    if is_float(dtype):
        attr: ir.Attribute = ir.FloatAttr.get(element, float(number))
    else:
        bits = width(dtype)
        wrapped = int(number) & ((1 << bits) - 1)
        attr = ir.IntegerAttr.get(element, wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    if shape_of(type_):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.ConstantOp(type_, attr).result


def fill_like(number: Any, value: ir.Value, dtype: Any) -> ir.Value:
    """`fill` for the shape of `value`, whose elements may be of another dtype."""
    return fill(number, typed(value, dtype), dtype)


def bitcast(value: ir.Value, dtype: Any) -> ir.Value:
    """The bits of `value` as elements of `dtype`, which has the same width."""
    type_ = typed(value, dtype)
    return value if type_ == value.type else BitcastOp(type_, value).result


def compare_float(predicate: arith.CmpFPredicate, x: ir.Value, y: ir.Value) -> ir.Value:
    """One comparison of floats; i1 of their shape."""
    return arith.CmpFOp(predicate, x, y).result


def is_nan(x: ir.Value) -> ir.Value:
    """Where `x` is NaN."""
    return compare_float(arith.CmpFPredicate.UNO, x, x)


def select(condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """`x` where `condition` (i1, of their shape or a scalar), else `y`."""
    return arith.SelectOp(condition, x, y).result


def convert(value: ir.Value, source: Any, target: Any) -> ir.Value:
    """`value` of dtype `source` as `target`."""
    source, target = np.dtype(source), np.dtype(target)
    if source == target:
        return value
    if is_bool(target):
        return _to_bool(value, source)
    if is_float(source):
        return _float_to_float(value, source, target) if is_float(target) else _float_to_int(value, source, target)
    return _int_to_float(value, source, target) if is_float(target) else _int_to_int(value, source, target)


def _to_bool(value: ir.Value, source: Any) -> ir.Value:
    if is_float(source):
        value, source = _widen_fp8(value, source)
        return compare_float(arith.CmpFPredicate.UNE, value, fill_like(0, value, source))
    if width(source) < 8:
        value, source = convert(value, source, np.int8), np.dtype(np.int8)
    return arith.CmpIOp(arith.CmpIPredicate.ne, value, fill_like(0, value, source)).result


def _widen_fp8(value: ir.Value, source: Any) -> tuple[ir.Value, Any]:
    if width(source) >= 16:
        return value, source
    return arith.ExtFOp(typed(value, _F32), value).result, _F32


def _float_to_float(value: ir.Value, source: Any, target: Any) -> ir.Value:
    value, source = _widen_fp8(value, source)
    if source == target:
        return value
    if width(target) < 16:
        value = _round_to_odd(value) if width(source) == 64 else convert(value, source, _F32)
        return arith.TruncFOp(typed(value, target), value).result
    if width(source) == width(target) or (width(source) == 64 and target == jnp.bfloat16):
        return convert(convert(value, source, _F32), _F32, target)
    op = arith.ExtFOp if width(source) < width(target) else arith.TruncFOp
    return op(typed(value, target), value).result


def _round_to_odd(value: ir.Value) -> ir.Value:
    """f64 -> f32: the neighbour with the odd last bit where the value is between two."""
    near = arith.TruncFOp(typed(value, np.float32), value).result
    back = arith.ExtFOp(value.type, near).result
    bits = bitcast(near, np.int32)
    one = fill_like(1, bits, np.int32)
    even = arith.CmpIOp(arith.CmpIPredicate.eq, arith.AndIOp(bits, one).result, fill_like(0, bits, np.int32)).result
    inexact = compare_float(arith.CmpFPredicate.ONE, back, value)
    magnitude_grew = _magnitude_above(back, value)
    moved = arith.AddIOp(bits, select(magnitude_grew, fill_like(-1, bits, np.int32), one)).result
    return bitcast(select(arith.AndIOp(inexact, even).result, moved, bits), np.float32)


def _magnitude_above(x: ir.Value, y: ir.Value) -> ir.Value:
    """Where |x| > |y| for f64 values of one sign (their bits then compare as integers do)."""
    mask = fill_like(2**63 - 1, x, np.int64)
    x_bits = arith.AndIOp(bitcast(x, np.int64), mask).result
    y_bits = arith.AndIOp(bitcast(y, np.int64), mask).result
    return arith.CmpIOp(arith.CmpIPredicate.sgt, x_bits, y_bits).result


def _float_to_int(value: ir.Value, source: Any, target: Any) -> ir.Value:
    """Saturating; the comparisons are done in f32 or f64, where every bound is exact."""
    if width(source) < 32:
        value, source = convert(value, source, _F32), _F32
    info = jnp.iinfo(target)
    low, high = int(info.min), int(info.max)
    work = np.dtype(f"{'int' if is_signed(target) else 'uint'}{max(8, width(target))}")
    op = arith.FPToSIOp if is_signed(target) else arith.FPToUIOp
    inner = op(typed(value, work), value).result
    below = compare_float(arith.CmpFPredicate.OLE, value, fill_like(low, value, source))
    above = compare_float(arith.CmpFPredicate.OGE, value, fill_like(high + 1, value, source))
    result = select(below, fill_like(low, inner, work), select(above, fill_like(high, inner, work), inner))
    result = select(is_nan(value), fill_like(0, inner, work), result)
    return _int_to_int(result, work, target)


def _int_to_int(value: ir.Value, source: Any, target: Any) -> ir.Value:
    if width(source) == width(target):
        return value
    if width(source) > width(target):
        return arith.TruncIOp(typed(value, target), value).result
    op = arith.ExtUIOp if is_unsigned(source) else arith.ExtSIOp
    return op(typed(value, target), value).result


def _int_to_float(value: ir.Value, source: Any, target: Any) -> ir.Value:
    if width(source) < 8:
        wide = np.dtype(np.uint8 if is_unsigned(source) else np.int8)
        value, source = _int_to_int(value, source, wide), wide
    direct = target if width(target) >= 32 else _F32
    op = arith.UIToFPOp if is_unsigned(source) else arith.SIToFPOp
    return convert(op(typed(value, direct), value).result, direct, target)


def ordered_bits(value: ir.Value, dtype: Any) -> ir.Value:
    """Floats as signed integers that compare alike: -inf < .. < -0 < 0 < .. < inf < NaN (total order)."""
    signed = bits_dtype(dtype)
    bits = bitcast(value, signed)
    sign = arith.ShRSIOp(bits, fill_like(width(signed) - 1, bits, signed)).result
    low_bits = fill_like((1 << (width(signed) - 1)) - 1, bits, signed)
    return arith.XOrIOp(bits, arith.AndIOp(sign, low_bits).result).result
