"""Arithmetic, comparisons, bits, choices and conversions, element by element, as XLA defines them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.registry import evaluates
from mosaic_gpu.interpreter.values import is_float, working_dtype

NIBBLES = {np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)}


def widen(*values: Any) -> list[Any]:
    """Values in the dtype that arithmetic on them is done in."""
    return [v if (w := working_dtype(v.dtype)) is v.dtype else v.astype(w) for v in values]


def narrow(value: Any, dtype: Any) -> Any:
    """A result in its dtype; integers keep their low bits."""
    return value if value.dtype == dtype else value.astype(dtype)


def _div_scalars(x: Any, y: Any) -> Any:
    a, b = int(x), int(y)
    if b == 0 or b == -1:
        return _divide(x, y)
    return np.int32(-(-a // b) if (a < 0) != (b < 0) else a // b)


def _rem_scalars(x: Any, y: Any) -> Any:
    a, b = int(x), int(y)
    if b == 0:
        return x
    return np.int32(a % b if (a < 0) == (b < 0) or a % b == 0 else a % b - b)


# Of two int32 scalars, which most of a kernel's bookkeeping is.
_SCALAR: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _div_scalars,
    "rem": _rem_scalars,
}


def _binary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    of_scalars = _SCALAR.get(name)

    def rule(equation: Equation, x: Any, y: Any, **params: Any) -> Any:
        if of_scalars is not None and type(x) is np.int32 and type(y) is np.int32:
            return of_scalars(x, y)
        if x.dtype != y.dtype or x.dtype != equation.dtype:
            dtype = np.dtype(params.get("out_dtype") or equation.dtype or x.dtype)
            x, y = narrow(x, dtype), narrow(y, dtype)
        values = (x, y) if equation.name.startswith("shift") else widen(x, y)
        return narrow(function(*values), equation.dtype)

    return rule


def _compare(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda equation, x, y, **_: function(x, y)


def _divide(x: Any, y: Any) -> Any:
    """Integers: towards zero; by zero all bits are one, and the least by -1 is itself."""
    if is_float(x.dtype):
        return np.divide(x, y)
    zero = y == 0
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // np.where(zero, 1, y).astype(x.dtype))
    quotient = x - _remainder(x, y)
    safe = np.where(zero | (y == -1), 1, y).astype(x.dtype)
    result = np.where(y == -1, np.negative(x), quotient // safe)
    return np.where(zero, np.array(-1, x.dtype), result)


def _remainder(x: Any, y: Any) -> Any:
    """The sign is x's; by zero an integer stays."""
    if is_float(x.dtype):
        return np.fmod(x, y)
    special = (y == 0) | (y == -1) if x.dtype.kind == "i" else y == 0
    result = np.fmod(x, np.where(special, 1, y).astype(x.dtype))
    return np.where(y == 0, x, result)


def _extreme(function: Any, logical: Any) -> Callable[[Any, Any], Any]:
    def rule(x: Any, y: Any) -> Any:
        if x.dtype == np.bool_:
            return logical(x, y)
        result = function(x, y)
        if is_float(x.dtype):
            # NumPy keeps the first of two zeros, whatever their signs.
            zeros = (x == 0) & (y == 0)
            if np.any(zeros):
                result = np.where(zeros, x + y if function is np.maximum else -((-x) + (-y)), result).astype(x.dtype)
        return result

    return rule


def _shift(function: Any, arithmetic: bool) -> Callable[[Any, Any], Any]:
    def rule(x: Any, y: Any) -> Any:
        if x.dtype in NIBBLES:
            return _shift_nibbles(rule, x, y, function is np.right_shift, arithmetic)
        bits = x.dtype.itemsize * 8
        unsigned = np.dtype(f"uint{bits}")
        amount = np.asarray(y).astype(unsigned)
        outside = amount >= bits
        amount = np.where(outside, bits - 1, amount)
        if arithmetic:
            signed = np.asarray(x).view(np.dtype(f"int{bits}"))
            return function(signed, amount.astype(signed.dtype)).view(x.dtype)
        result = function(np.asarray(x).view(unsigned), amount.astype(unsigned))
        return np.where(outside, np.array(0, unsigned), result).astype(unsigned).view(x.dtype)

    return rule


def _shift_nibbles(rule: Any, x: Any, y: Any, right: bool, arithmetic: bool) -> Any:
    """4-bit integers, shifted as bytes that hold them at one end."""
    amount = y.astype(np.int8) & np.int8(15)
    if not right:
        return np.where(amount > 3, 0, rule(x.astype(np.int8), np.minimum(amount, 3))).astype(np.int8).astype(x.dtype)
    high = (x.astype(np.int8) & np.int8(15)).view(np.uint8) << np.uint8(4)
    shifted = rule(high.view(np.int8) if arithmetic else high, np.minimum(amount, 4).astype(high.dtype))
    low = (np.asarray(shifted).view(np.uint8) >> np.uint8(4)).view(np.int8)
    return low.astype(x.dtype)


_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "rem": _remainder,
    "max": _extreme(np.maximum, np.logical_or),
    "min": _extreme(np.minimum, np.logical_and),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": _shift(np.left_shift, False),
    "shift_right_logical": _shift(np.right_shift, False),
    "shift_right_arithmetic": _shift(np.right_shift, True),
}
for _name, _function in _BINARY.items():
    evaluates(_name)(_binary(_name, _function))
for _name, _function in {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}.items():
    evaluates(_name)(_compare(_function))


def bits_of(x: Any) -> Any:
    """The bits of floats (or integers) as unsigned integers of their size."""
    x = np.asarray(x)
    return x.view(np.dtype(f"uint{x.dtype.itemsize * 8}"))


def ordered_bits(x: Any) -> Any:
    """Integers in the order of IEEE 754's total order of floats (5.10); integers as they are."""
    x = np.asarray(x)
    if not is_float(x.dtype):
        return x
    bits = x.view(np.dtype(f"int{x.dtype.itemsize * 8}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


@evaluates("eq_to", "le_to", "lt_to")
def eval_total_order(equation: Equation, x: Any, y: Any, **_: Any) -> Any:
    """Comparison in IEEE's total order."""
    function = {"eq_to": np.equal, "le_to": np.less_equal, "lt_to": np.less}[equation.name]
    return function(ordered_bits(x), ordered_bits(y))


@evaluates("nextafter")
def eval_nextafter(equation: Equation, x: Any, y: Any, **_: Any) -> Any:
    """The next float from x towards y."""
    if x.dtype.kind == "f":
        return np.nextafter(x, y)
    x, y = np.broadcast_arrays(x, y)
    bits, up = bits_of(x.copy()), (y > x) == (x > 0)
    step = np.where(up, bits + 1, bits - 1).astype(bits.dtype)
    sign = bits_of(np.copysign(np.float32(1), y.astype(np.float32)).astype(x.dtype)) >> (bits.dtype.itemsize * 8 - 1)
    least = (sign << (bits.dtype.itemsize * 8 - 1)) | 1
    moved = np.where(x == 0, least, step).astype(bits.dtype).view(x.dtype)
    return np.where(np.isnan(x) | np.isnan(y), np.array(np.nan, x.dtype), np.where(x == y, y, moved))


@evaluates("neg")
def eval_neg(equation: Equation, x: Any, **_: Any) -> Any:
    return np.negative(*widen(x))


@evaluates("abs")
def eval_abs(equation: Equation, x: Any, **_: Any) -> Any:
    return np.abs(*widen(x))


@evaluates("sign")
def eval_sign(equation: Equation, x: Any, **_: Any) -> Any:
    """Zeros and NaN stay what they are."""
    (x,) = widen(x)
    if is_float(x.dtype):
        return np.where((x == 0) | np.isnan(x), x, np.copysign(np.ones_like(x), x)).astype(x.dtype)
    return np.sign(x)


@evaluates("square")
def eval_square(equation: Equation, x: Any, **_: Any) -> Any:
    (x,) = widen(x)
    return x * x


@evaluates("one_minus_square")
def eval_one_minus_square(equation: Equation, x: Any, **_: Any) -> Any:
    """(1 + x) (1 - x)."""
    wide = x.astype(np.float64) if is_float(x.dtype) else x
    return ((1 + wide) * (1 - wide)).astype(x.dtype)


@evaluates("integer_pow")
def eval_integer_pow(equation: Equation, x: Any, *, y: int, **_: Any) -> Any:
    """x**y; integers wrap around, and a negative power is 1 divided by the positive one."""
    if is_float(x.dtype):
        return np.power(x.astype(np.float64), y).astype(x.dtype)
    (work,) = widen(x)
    power = np.ones_like(work)
    for _i in range(abs(y)):
        power = power * work
    return narrow(power if y >= 0 else _divide(np.ones_like(work), power), x.dtype)


@evaluates("not")
def eval_not(equation: Equation, x: Any, **_: Any) -> Any:
    return np.invert(*widen(x))


@evaluates("mulhi")
def eval_mulhi(equation: Equation, x: Any, y: Any, **_: Any) -> Any:
    """The upper half of the double-width product."""
    bits = x.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if x.dtype.kind == "i" else np.uint64
        return (x.astype(wide) * y.astype(wide) >> wide(bits)).astype(x.dtype)
    product = np.asarray(x).astype(object) * np.asarray(y).astype(object) >> 64
    return np.asarray(product).astype(x.dtype)


@evaluates("is_finite")
def eval_is_finite(equation: Equation, x: Any, **_: Any) -> Any:
    return np.isfinite(*widen(x))


@evaluates("population_count")
def eval_population_count(equation: Equation, x: Any, **_: Any) -> Any:
    return narrow(np.bitwise_count(_zero_extended(x)).astype(np.int8), x.dtype)


@evaluates("clz")
def eval_clz(equation: Equation, x: Any, **_: Any) -> Any:
    width = 4 if x.dtype in NIBBLES else x.dtype.itemsize * 8
    bits, zeros = _zero_extended(x), np.full(np.shape(x), width, np.int64)
    for place in range(width):
        zeros = np.where(bits >> np.uint64(place) != 0, width - 1 - place, zeros)
    return narrow(zeros, x.dtype)


def _zero_extended(x: Any) -> Any:
    x = np.asarray(x)
    if x.dtype in NIBBLES:
        return x.astype(np.int8).view(np.uint8).astype(np.uint64) & np.uint64(15)
    return bits_of(x).astype(np.uint64)


@evaluates("clamp")
def eval_clamp(equation: Equation, low: Any, x: Any, high: Any, **_: Any) -> Any:
    low, x, high = widen(low, x, high)
    if x.dtype == np.bool_:
        return (x | low) & high
    return np.minimum(np.maximum(low, x), high)


@evaluates("select_n")
def eval_select_n(equation: Equation, which: Any, *cases: Any, **_: Any) -> Any:
    """`cases[which]`, the number clamped to those there are."""
    if len(cases) == 1:
        return cases[0]
    if np.ndim(which) == 0:
        return cases[min(max(int(which), 0), len(cases) - 1)]
    result = cases[0]
    for number in range(1, len(cases)):
        result = np.where(which if which.dtype == np.bool_ else which >= number, cases[number], result)
    return result


@evaluates("round")
def eval_round(equation: Equation, x: Any, *, rounding_method: Any, **_: Any) -> Any:
    """To the nearest integer; halves away from zero (method 0) or to even (method 1)."""
    wide = x.astype(np.float64)
    if int(rounding_method) == 1:
        return np.rint(wide).astype(x.dtype)
    whole = np.trunc(wide)
    away = np.where(np.abs(wide - whole) >= 0.5, np.copysign(1.0, wide), 0.0)
    return np.copysign(whole + away, wide).astype(x.dtype)


@evaluates("floor", "ceil")
def eval_floor(equation: Equation, x: Any, **_: Any) -> Any:
    function = np.floor if equation.name == "floor" else np.ceil
    return function(x.astype(np.float64)).astype(x.dtype)


@evaluates("copy", "copy_p", "stop_gradient", "stage", "tie", "multiple_of", "max_contiguous", "name", "layout_cast")
def eval_identity(equation: Equation, *values: Any, **_: Any) -> Any:
    """The value itself (of two, the second)."""
    return values[-1]


@evaluates("optimization_barrier")
def eval_optimization_barrier(equation: Equation, *values: Any, **_: Any) -> list[Any]:
    return list(values)


@evaluates("reciprocal")
def eval_reciprocal(equation: Equation, x: Any, **_: Any) -> Any:
    (x,) = widen(x)
    return np.divide(np.ones_like(x), x)


@evaluates("reduce_precision")
def eval_reduce_precision(equation: Equation, x: Any, *, exponent_bits: int, mantissa_bits: int, **_: Any) -> Any:
    """Rounds to so many bits, half to even; too small becomes 0, too large inf."""
    info, x = ml_dtypes.finfo(x.dtype), np.asarray(x)
    wide = x.astype(np.float64)
    if mantissa_bits < info.nmant:
        bits, dropped = bits_of(x).astype(np.uint64), np.uint64(info.nmant - mantissa_bits)
        one = np.uint64(1)
        moved = bits + ((one << (dropped - one)) - one) + ((bits >> dropped) & one)
        kept = (moved >> dropped << dropped).astype(bits_of(x).dtype).view(x.dtype)
        wide = np.where(np.isfinite(x), kept.astype(np.float64), wide)
    if exponent_bits < info.bits - 1 - info.nmant:
        reach = 2 ** (exponent_bits - 1) - 1
        with_range = np.where(np.abs(wide) >= 2.0 ** (reach + 1), np.copysign(np.inf, wide), wide)
        wide = np.where(np.abs(wide) < 2.0 ** (1 - reach), np.copysign(0.0, wide), with_range)
    return np.where(np.isnan(x), x, wide.astype(x.dtype))
