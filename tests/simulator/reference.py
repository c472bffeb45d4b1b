"""Exact arithmetic on rational numbers: what the simulator's floating point is compared with."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
#: name -> (bits of the significand, least exponent of a subnormal's last bit, greatest exponent)
FORMATS = {"f16": (11, -24, 15), "bf16": (8, -133, 127), "f32": (24, -149, 127), "f64": (53, -1074, 1023)}


def round_fraction(value: Fraction, kind: str, mode: str = "rn") -> float:
    """A non-zero rational rounded to a format, by the definition of IEEE 754; the result as a float."""
    digits, least, most = FORMATS[kind]
    magnitude = abs(value)
    exponent = _exponent(magnitude)
    quantum = max(exponent - digits + 1, least)
    scaled = magnitude / Fraction(2) ** quantum
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    negative = value < 0
    if mode == "rn":
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    elif (mode == "rp" and not negative) or (mode == "rm" and negative):
        whole += rest > 0
    result = Fraction(whole) * Fraction(2) ** quantum
    limit = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** most
    if result > limit:
        away = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        return math.copysign(math.inf if away else float(limit), -1.0 if negative else 1.0)
    return math.copysign(float(result), -1.0 if negative else 1.0)


def _exponent(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def fma(a: float, b: float, c: float, kind: str, mode: str = "rn") -> float:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return _special_fma(a, b, c)
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value != 0:
        return round_fraction(value, kind, mode)
    product_sign = math.copysign(1, a) * math.copysign(1, b)
    if product_sign == math.copysign(1, c) and (a == 0 or b == 0) and c == 0:
        return c
    return -0.0 if mode == "rm" else 0.0


def _special_fma(a: float, b: float, c: float) -> float:
    with np.errstate(all="ignore"):
        product = np.float64(np.sign(a)) * np.sign(b) * np.inf if np.isinf(a) or np.isinf(b) else np.float64(a) * 0
        if np.isnan(a) or np.isnan(b) or np.isnan(c):
            return math.nan
        return float(product + np.float64(c) if np.isinf(c) or np.isinf(product) else product)


def operation(name: str, kind: str, *operands: Array, mode: str = "rn") -> Array:
    """add, sub, mul, fma, div or sqrt on float64 arrays that hold values of `kind`; float64 results."""
    results = [_one(name, kind, mode, [float(x) for x in values]) for values in zip(*operands, strict=True)]
    return np.array(results)


def _one(name: str, kind: str, mode: str, v: list[float]) -> float:
    if name == "add":
        return fma(v[0], 1.0, v[1], kind, mode)
    if name == "sub":
        return fma(v[0], 1.0, -v[1], kind, mode)
    if name == "fma":
        return fma(v[0], v[1], v[2], kind, mode)
    if name == "mul":
        return _multiply(v[0], v[1], kind, mode)
    return _divide(v[0], v[1], kind, mode) if name == "div" else _root(v[0], kind, mode)


def _multiply(a: float, b: float, kind: str, mode: str) -> float:
    sign = math.copysign(1, a) * math.copysign(1, b)
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    value = Fraction(a) * Fraction(b)
    return math.copysign(0.0, sign) if value == 0 else round_fraction(value, kind, mode)


def _divide(a: float, b: float, kind: str, mode: str) -> float:
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isnan(a) or math.isnan(b) or (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    if math.isinf(a) or b == 0:
        return math.copysign(math.inf, sign)
    if math.isinf(b) or a == 0:
        return math.copysign(0.0, sign)
    return round_fraction(Fraction(a) / Fraction(b), kind, mode)


def _root(a: float, kind: str, mode: str) -> float:
    """sqrt by integers: 200 more bits than needed, and a sticky one for the rest."""
    if math.isnan(a) or a < 0:
        return math.nan
    if a == 0 or math.isinf(a):
        return a
    value = Fraction(a)
    scaled = value * Fraction(4) ** 1400
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(whole) ** 2 == scaled
    return round_fraction((Fraction(whole) + (0 if exact else Fraction(1, 2))) / Fraction(2) ** 1400, kind, mode)
