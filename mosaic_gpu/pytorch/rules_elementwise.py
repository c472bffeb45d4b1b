"""Arithmetic, comparisons, bits and choices, element by element, as XLA defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.pytorch.registry import Equation, evaluates
from mosaic_gpu.pytorch.values import is_float, is_unsigned, least, load, ordered, store, unordered

Function = Callable[..., Tensor]


def arithmetic(function: Function) -> Function:
    """The rule of a function of values that does not look at the sign of integers."""

    def rule(equation: Equation, *values: Tensor, **_: Any) -> Tensor:
        loaded = [load(v, name) for v, name in zip(values, equation.dtypes_in, strict=True)]
        return store(function(*loaded), equation.dtype)

    return rule


def by_kind(floats: Function, signed: Function, unsigned: Function) -> Function:
    """The rule of a function that differs for floats, signed integers and unsigned ones, carried as signed."""

    def rule(equation: Equation, *values: Tensor, **_: Any) -> Tensor:
        name = equation.dtypes_in[0]
        loaded = [load(v, name) for v in values]
        function = floats if is_float(name) else unsigned if is_unsigned(name) else signed
        return store(function(*loaded), equation.dtype)

    return rule


def _if_bool(logical: Function, function: Function) -> Function:
    return lambda x, y: logical(x, y) if x.dtype is torch.bool else function(x, y)


def unsigned_less(x: Tensor, y: Tensor) -> Tensor:
    """x < y of unsigned integers that signed ones carry."""
    return (x ^ least(x.dtype)) < (y ^ least(y.dtype))


def _divide(x: Tensor, y: Tensor) -> Tensor:
    """Integers: towards zero; by zero all bits are one, and the least by -1 is itself."""
    zero = y == 0
    if x.dtype is torch.uint8:
        return torch.where(zero, 255, torch.div(x, torch.where(zero, 1, y), rounding_mode="trunc"))
    flips = y == -1
    quotient = torch.div(x, torch.where(zero | flips, 1, y), rounding_mode="trunc")
    return torch.where(zero, -1, torch.where(flips, -x, quotient))


def _divide_unsigned(x: Tensor, y: Tensor) -> Tensor:
    """By half of x, which is not negative, and a correction (Warren, Hacker's Delight, 9-3)."""
    positive = torch.where(y > 0, y, 1)
    half = (x >> 1) & ~least(x.dtype)
    quotient = torch.div(half, positive, rounding_mode="trunc") << 1
    quotient = quotient + (~unsigned_less(x - quotient * positive, positive)).to(x.dtype)
    large = (~unsigned_less(x, y)).to(x.dtype)  # of divisors with the upper bit
    return torch.where(y == 0, -1, torch.where(y < 0, large, quotient))


def _remainder_by(divide: Function) -> Function:
    """The sign is x's; by zero an integer stays."""
    return lambda x, y: torch.where(y == 0, x, x - divide(x, y) * y)


for _name, _function in {
    "add": _if_bool(torch.logical_or, torch.add),
    "add_any": _if_bool(torch.logical_or, torch.add),
    "sub": torch.sub,
    "mul": _if_bool(torch.logical_and, torch.mul),
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "neg": torch.neg,
    "square": lambda x: x * x,
}.items():
    evaluates(_name)(arithmetic(_function))
evaluates("div")(by_kind(torch.div, _divide, _divide_unsigned))
evaluates("rem")(by_kind(torch.fmod, _remainder_by(_divide), _remainder_by(_divide_unsigned)))


def _in_order(function: Function) -> Function:
    """The rule of a function that looks at the order of values, and gives one of them."""

    def rule(equation: Equation, *values: Tensor, **_: Any) -> Tensor:
        name = equation.dtype
        return unordered(function(*(ordered(v, name) for v in values)), name)

    return rule


def _clamp(low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    if x.dtype is torch.bool:
        return (x | low) & high
    return torch.minimum(torch.maximum(x, low), high)


evaluates("max")(_in_order(_if_bool(torch.logical_or, torch.maximum)))
evaluates("min")(_in_order(_if_bool(torch.logical_and, torch.minimum)))
evaluates("clamp")(_in_order(_clamp))


def _comparison(function: Function) -> Function:
    def rule(equation: Equation, x: Tensor, y: Tensor, **_: Any) -> Tensor:
        name = equation.dtypes_in[0]
        return function(ordered(x, name), ordered(y, name))

    return rule


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    evaluates(_name)(_comparison(getattr(torch, _name)))


@evaluates("eq_to", "le_to", "lt_to")
def eval_total_order(equation: Equation, x: Tensor, y: Tensor, **_: Any) -> Tensor:
    """Comparison in IEEE's total order (IEEE 754, 5.10)."""
    function = {"eq_to": torch.eq, "le_to": torch.le, "lt_to": torch.lt}[equation.name]
    name = equation.dtypes_in[0]
    if not is_float(name):
        return function(ordered(x, name), ordered(y, name))
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    x, y = x.view(bits), y.view(bits)
    most = torch.iinfo(bits).max
    return function(torch.where(x < 0, x ^ most, x), torch.where(y < 0, y ^ most, y))


def _in_range(x: Tensor, amount: Tensor) -> tuple[Tensor, Tensor]:
    """How far to shift, and whether that is less than the width; amounts are unsigned."""
    bits = 8 * x.element_size()
    inside = amount < bits if amount.dtype is torch.uint8 else (amount >= 0) & (amount < bits)
    return torch.where(inside, amount, bits - 1), inside


def _shift_left(x: Tensor, amount: Tensor) -> Tensor:
    amount, inside = _in_range(x, amount)
    return torch.where(inside, x << amount, 0)


def _shift_logical(x: Tensor, amount: Tensor) -> Tensor:
    amount, inside = _in_range(x, amount)
    if x.dtype is torch.uint8:
        return torch.where(inside, x >> amount, 0)
    most = ~least(x.dtype)
    rest = (x >> 1 & most) >> (amount - 1).clamp(min=0)
    return torch.where(inside, torch.where(amount == 0, x, rest), 0)


def _shift_arithmetic(x: Tensor, amount: Tensor) -> Tensor:
    amount, _ = _in_range(x, amount)
    if x.dtype is torch.uint8:
        return (x.view(torch.int8) >> amount.view(torch.int8)).view(torch.uint8)
    return x >> amount


evaluates("shift_left")(arithmetic(_shift_left))
evaluates("shift_right_logical")(arithmetic(_shift_logical))
evaluates("shift_right_arithmetic")(arithmetic(_shift_arithmetic))


def _sign(x: Tensor) -> Tensor:
    """Zeros and NaN stay what they are."""
    return torch.where((x == 0) | x.isnan(), x, torch.copysign(torch.ones_like(x), x))


evaluates("abs")(by_kind(torch.abs, torch.abs, lambda x: x))
evaluates("sign")(by_kind(_sign, torch.sign, lambda x: (x != 0).to(x.dtype)))
evaluates("is_finite")(arithmetic(torch.isfinite))
evaluates("floor")(arithmetic(torch.floor))
evaluates("ceil")(arithmetic(torch.ceil))


@evaluates("round")
def eval_round(equation: Equation, x: Tensor, *, rounding_method: Any, **_: Any) -> Tensor:
    """To the nearest integer; halves away from zero (method 0) or to even (method 1)."""
    x = load(x, equation.dtype)
    if int(rounding_method) == 1:
        return store(x.round(), equation.dtype)
    whole = x.trunc()
    away = torch.where((x - whole).abs() >= 0.5, torch.copysign(torch.ones_like(x), x), 0.0)
    return store(torch.copysign(whole + away, x), equation.dtype)


@evaluates("integer_pow")
def eval_integer_pow(equation: Equation, x: Tensor, *, y: int, **_: Any) -> Tensor:
    """x**y by repeated squaring, rounded once; integers wrap around; a negative power is 1 divided by the positive."""
    base = load(x, equation.dtype)
    base = base.to(torch.float32) if base.dtype in (torch.float16, torch.bfloat16) else base
    result, rest = torch.ones_like(base), abs(y)
    while rest:
        result = result * base if rest & 1 else result
        rest >>= 1
        base = base * base if rest else base
    if y < 0:
        one = torch.ones_like(result)
        result = _reciprocal_rule(equation, one, result)
    return store(result, equation.dtype)


def _reciprocal_rule(equation: Equation, one: Tensor, x: Tensor) -> Tensor:
    name = equation.dtype
    return one / x if is_float(name) else (_divide_unsigned if is_unsigned(name) else _divide)(one, x)


@evaluates("select_n")
def eval_select_n(equation: Equation, which: Tensor, *cases: Tensor, **_: Any) -> Tensor:
    """`cases[which]`, the number clamped to those there are."""
    result = cases[0]
    for number in range(1, len(cases)):
        result = torch.where(which if which.dtype is torch.bool else which >= number, cases[number], result)
    return result


@evaluates("copy", "copy_p", "stop_gradient", "tie", "name", "layout_cast")
def eval_identity(equation: Equation, *values: Tensor, **_: Any) -> Tensor:
    """The value itself (of two, the second)."""
    return values[-1]


@evaluates("optimization_barrier")
def eval_optimization_barrier(equation: Equation, *values: Tensor, **_: Any) -> list[Tensor]:
    return list(values)


@evaluates("population_count")
def eval_population_count(equation: Equation, x: Tensor, **_: Any) -> Tensor:
    return store(_count_bits(_zero_extended(x)), equation.dtype)


@evaluates("clz")
def eval_clz(equation: Equation, x: Tensor, **_: Any) -> Tensor:
    """Leading zeros: what is left of the width behind the bits below and at the highest one."""
    bits, width = _zero_extended(x), 8 * x.element_size()
    for step in (1, 2, 4, 8, 16, 32):
        bits = bits | _shift_logical(bits, torch.full_like(bits, step))
    return store(width - _count_bits(bits), equation.dtype)


def _zero_extended(x: Tensor) -> Tensor:
    width = 8 * x.element_size()
    wide = x.to(torch.int64)
    return wide if width == 64 else wide & (1 << width) - 1


def _count_bits(x: Tensor) -> Tensor:
    """Bits that are set, of int64 (Warren, Hacker's Delight, 5-1)."""
    lanes = {1: 0x5555555555555555, 2: 0x3333333333333333, 4: 0x0F0F0F0F0F0F0F0F}
    for step, mask in lanes.items():
        x = (x & mask) + (x >> step & mask)
    for step in (8, 16, 32):
        x = x + (x >> step)
    return x & 0x7F
