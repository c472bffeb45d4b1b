"""Arithmetic, comparison, selection and bit manipulation, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir, math
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.jaxpr import arithmetic, emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary, compare, compare_to
from mosaic_gpu.lowering.jaxpr.casts import bitcast, convert, fill_like, is_nan, ordered_bits, select, typed
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.kinds import bits_dtype, compute_dtype, is_bool, is_float, is_signed, math_dtype, width
from mosaic_gpu.lowering.jaxpr.registry import lowers


def spread(ctx: RuleContext, values: Sequence[ir.Value]) -> list[ir.Value]:
    """`values` in the shape of the first result: scalars and sizes of 1 stretch."""
    shape = tuple(ctx.avals_out[0].shape)
    return [emit.broadcast(v, shape, range(len(shape_of(v.type)))) for v in values]


def _binary_rule(function: Any) -> Any:
    def rule(ctx: RuleContext, x: ir.Value, y: ir.Value, **params: Any) -> ir.Value:
        x, y = spread(ctx, [x, y])
        dtype = np.dtype(params.get("out_dtype") or ctx.avals_in[0].dtype)
        x, y = (convert(v, a.dtype, dtype) for v, a in zip((x, y), ctx.avals_in, strict=True))
        return function(x, y, dtype)

    return rule


def _unary_rule(function: Any) -> Any:
    def rule(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
        return function(x, ctx.avals_in[0].dtype)

    return rule


def _named(function: Any, name: str) -> Any:
    return lambda x, y, dtype: function(name, x, y, dtype)


for _name in ("add", "sub", "mul", "max", "min", "and", "or", "xor"):
    lowers(_name)(_binary_rule(_named(binary, _name)))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    lowers(_name)(_binary_rule(_named(compare, _name)))
lowers("add_any")(_binary_rule(_named(binary, "add")))
lowers("rem")(_binary_rule(arithmetic.remainder))
lowers("shift_left")(_binary_rule(arithmetic.shift_left))
lowers("shift_right_logical")(_binary_rule(arithmetic.shift_right_logical))
lowers("shift_right_arithmetic")(_binary_rule(arithmetic.shift_right_arithmetic))
lowers("nextafter")(_binary_rule(arithmetic.next_after))
lowers("neg")(_unary_rule(arithmetic.negate))
lowers("abs")(_unary_rule(arithmetic.absolute))
lowers("sign")(_unary_rule(arithmetic.sign))


@lowers("eq_to", "le_to", "lt_to")
def lower_total_order(ctx: RuleContext, x: ir.Value, y: ir.Value, **_: Any) -> ir.Value:
    """Comparison in IEEE's total order: -NaN < -inf < .. < -0 < 0 < .. < inf < NaN."""
    x, y = spread(ctx, [x, y])
    name, dtype = ctx.primitive.removesuffix("_to"), ctx.avals_in[0].dtype
    if not is_float(dtype):
        return compare(name, x, y, dtype)
    return compare(name, ordered_bits(x, dtype), ordered_bits(y, dtype), bits_dtype(dtype))


@lowers("square")
def lower_square(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    return binary("mul", x, x, ctx.avals_in[0].dtype)


@lowers("one_minus_square")
def lower_one_minus_square(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    """(1 + x) (1 - x): exact near 1, where 1 - x**2 is not."""
    dtype = ctx.avals_in[0].dtype
    work = math_dtype(dtype) if is_float(dtype) else compute_dtype(dtype)
    x = convert(x, dtype, work)
    one = fill_like(1, x, work)
    product = binary("mul", binary("add", one, x, work), binary("sub", one, x, work), work)
    return convert(product, work, dtype)


@lowers("integer_pow")
def lower_integer_pow(ctx: RuleContext, x: ir.Value, *, y: int, **_: Any) -> ir.Value:
    """x**y by repeated squaring, 1 / x**-y for negative y; floats below f32 are rounded once."""
    dtype = ctx.avals_in[0].dtype
    work = math_dtype(dtype) if is_float(dtype) else compute_dtype(dtype)
    square, power, rest = convert(x, dtype, work), None, abs(y)
    while rest:
        if rest & 1:
            power = square if power is None else binary("mul", power, square, work)
        rest >>= 1
        if rest:
            square = binary("mul", square, square, work)
    if power is None:
        power = fill_like(1, x, work)
    if y < 0:
        power = arithmetic.divide(fill_like(1, power, work), power, work)
    return convert(power, work, dtype)


@lowers("not")
def lower_not(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    dtype = ctx.avals_in[0].dtype
    return binary("xor", x, fill_like(-1, x, dtype), dtype)


@lowers("mulhi")
def lower_mulhi(ctx: RuleContext, x: ir.Value, y: ir.Value, **_: Any) -> ir.Value:
    """The upper half of the double-width product."""
    x, y = spread(ctx, [x, y])
    dtype = ctx.avals_in[0].dtype
    if width(dtype) == 64:
        return (arith.MulSIExtendedOp if is_signed(dtype) else arith.MulUIExtendedOp)(x, y).results[1]
    wide = np.dtype(np.int64 if is_signed(dtype) else np.uint64)
    product = arith.MulIOp(convert(x, dtype, wide), convert(y, dtype, wide)).result
    shift = arith.ShRSIOp if is_signed(dtype) else arith.ShRUIOp
    return convert(shift(product, fill_like(width(dtype), product, wide)).result, wide, dtype)


@lowers("is_finite")
def lower_is_finite(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    dtype = ctx.avals_in[0].dtype
    work = compute_dtype(dtype)
    magnitude = math.AbsFOp(convert(x, dtype, work)).result
    return compare_to("lt", magnitude, np.inf, work)


@lowers("population_count")
def lower_population_count(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    dtype = ctx.avals_in[0].dtype
    if width(dtype) >= 8:
        return math.CtPopOp(x).result
    return _of_low_bits(x, dtype, lambda bits: math.CtPopOp(bits).result)


@lowers("clz")
def lower_clz(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
    dtype = ctx.avals_in[0].dtype
    if width(dtype) >= 8:
        return math.CountLeadingZerosOp(x).result
    unused = 8 - width(dtype)

    def count(bits: ir.Value) -> ir.Value:
        return arith.SubIOp(math.CountLeadingZerosOp(bits).result, fill_like(unused, bits, np.uint8)).result

    return _of_low_bits(x, dtype, count)


def _of_low_bits(x: ir.Value, dtype: Any, function: Any) -> ir.Value:
    """`function` of the zero-extended bytes of 4-bit (or 2-bit) integers."""
    extended = arith.ExtUIOp(typed(x, np.uint8), x).result
    return convert(function(extended), np.uint8, dtype)


@lowers("clamp")
def lower_clamp(ctx: RuleContext, low: ir.Value, x: ir.Value, high: ir.Value, **_: Any) -> ir.Value:
    """min(max(low, x), high); NaN if any is NaN."""
    low, x, high = spread(ctx, [low, x, high])
    dtype = ctx.avals_out[0].dtype
    return binary("min", binary("max", low, x, dtype), high, dtype)


@lowers("select_n")
def lower_select_n(ctx: RuleContext, which: ir.Value, *cases: ir.Value, **_: Any) -> ir.Value:
    """`cases[which]`; a bool predicate takes two, an int32 one any number (clamped to them)."""
    if not is_scalar(which):
        (which,) = spread(ctx, [which])
    cases = tuple(spread(ctx, cases))
    dtype = ctx.avals_in[0].dtype
    if is_bool(dtype):
        return cases[0] if len(cases) == 1 else select(which, cases[1], cases[0])
    result = cases[-1]
    for number in reversed(range(len(cases) - 1)):
        result = select(compare_to("le", which, number, dtype), cases[number], result)
    return result


def is_scalar(value: ir.Value) -> bool:
    """Whether `value` has rank 0."""
    return shape_of(value.type) == ()


@lowers("round")
def lower_round(ctx: RuleContext, x: ir.Value, *, rounding_method: Any, **_: Any) -> ir.Value:
    """To the nearest integer; halves away from zero (method 0) or to even (method 1)."""
    dtype = ctx.avals_in[0].dtype
    work = math_dtype(dtype)
    x = convert(x, dtype, work)
    if int(rounding_method) == 1:
        return convert(math.RoundEvenOp(x).result, work, dtype)
    whole = math.TruncOp(x).result
    part = math.AbsFOp(arith.SubFOp(x, whole).result).result
    step = select(compare_to("ge", part, 0.5, work), fill_like(1, x, work), fill_like(0, x, work))
    rounded = arith.AddFOp(math.AbsFOp(whole).result, step).result
    return convert(math.CopySignOp(rounded, x).result, work, dtype)


def _rounding_rule(op: Any) -> Any:
    def rule(ctx: RuleContext, x: ir.Value, **_: Any) -> ir.Value:
        dtype = ctx.avals_in[0].dtype
        work = math_dtype(dtype)
        return convert(op(convert(x, dtype, work)).result, work, dtype)

    return rule


lowers("floor")(_rounding_rule(math.FloorOp))
lowers("ceil")(_rounding_rule(math.CeilOp))


@lowers("copy", "copy_p", "stop_gradient", "stage", "tie")
def lower_identity(_ctx: RuleContext, *values: ir.Value, **_: Any) -> ir.Value:
    """The value itself (of two, the second)."""
    return values[-1]


@lowers("optimization_barrier")
def lower_optimization_barrier(_ctx: RuleContext, *values: ir.Value, **_: Any) -> list[ir.Value]:
    """Values as they are."""
    return list(values)


@lowers("reduce_precision")
def lower_reduce_precision(
    ctx: RuleContext, x: ir.Value, *, exponent_bits: int, mantissa_bits: int, **_: Any
) -> ir.Value:
    """Rounds to a float of so many bits; what is too small becomes 0, what is too large inf, NaN stays."""
    dtype = ctx.avals_in[0].dtype
    work = compute_dtype(dtype)
    x = convert(x, dtype, work)
    signed, info = bits_dtype(work), jnp.finfo(work)
    bits = bitcast(x, signed)
    if mantissa_bits < info.nmant:
        bits = _round_mantissa(bits, signed, info.nmant - mantissa_bits)
    if exponent_bits < info.nexp:
        bits = _limit_exponent(bits, signed, info, exponent_bits)
    rounded = select(is_nan(x), x, bitcast(bits, work))
    return convert(rounded, work, dtype)


def _round_mantissa(bits: ir.Value, dtype: Any, dropped: int) -> ir.Value:
    """Half to even, by adding just below half of the last kept place, plus that place's own bit."""
    last = arith.ShRUIOp(bits, fill_like(dropped, bits, dtype)).result
    odd = arith.AndIOp(last, fill_like(1, bits, dtype)).result
    bias = arith.AddIOp(odd, fill_like((1 << (dropped - 1)) - 1, bits, dtype)).result
    moved = arith.AddIOp(bits, bias).result
    return arith.AndIOp(moved, fill_like(-(1 << dropped), bits, dtype)).result


def _limit_exponent(bits: ir.Value, dtype: Any, info: Any, exponent_bits: int) -> ir.Value:
    """Magnitudes beyond the narrower exponent's range become inf or 0, with their sign."""
    bias, reach = (1 << (info.nexp - 1)) - 1, (1 << (exponent_bits - 1)) - 1
    one = 1 << info.nmant
    sign_bit = 1 << (info.bits - 1)
    sign = arith.AndIOp(bits, fill_like(sign_bit, bits, dtype)).result
    magnitude = arith.AndIOp(bits, fill_like(sign_bit - 1, bits, dtype)).result
    infinity = fill_like(((1 << info.nexp) - 1) * one, bits, dtype)
    overflows = compare_to("ge", magnitude, (bias + reach + 1) * one, dtype)
    underflows = compare_to("lt", magnitude, (bias - reach + 1) * one, dtype)
    limited = select(overflows, infinity, select(underflows, fill_like(0, bits, dtype), magnitude))
    return arith.OrIOp(limited, sign).result
