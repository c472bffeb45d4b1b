"""Floating point as PTX defines it, bit for bit, on NumPy arrays.

NumPy's float32 and float64 add, sub, mul, div and sqrt are IEEE and round to nearest even: they are used
as they are.  What NumPy lacks is built here from error-free transformations:

* A fused multiply-add must round once.  For f32 the product is exact in f64 (48 bits); the sum s = p + c
  may round, and rounding s again to f32 can then be wrong, but only where s lies exactly on a tie of
  f32.  Those few elements are rounded to odd first: s is moved to its odd neighbour if it was inexact,
  which keeps it on the right side of the tie.
* f64 fma follows Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008), with exact
  rational arithmetic where the exponents are too large or small for it.
* A directed rounding takes the nearest value and the sign of what is missing, and steps by one.

NaN results of f32, f16 and bf16 are canonical (PTX ISA, "Floating-Point Instructions").
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
F32, F64, U32, I64 = np.float32, np.float64, np.uint32, np.int64
TINY32 = np.float32(2.0**-126)
NAN32 = np.uint32(0x7FFFFFFF)
NAN16 = np.uint16(0x7FFF)
_TIE_MASK, _TIE = np.int64(0x1FFFFFFF), np.int64(0x10000000)


def canonical32(out: Array) -> None:
    """Makes every NaN of a float32 array the canonical one.  The dot product is NaN if any element is."""
    if math.isnan(np.dot(out, out)):
        out[np.isnan(out)] = NAN32.view(F32)


def flush32(a: Array) -> Array:
    """Subnormal float32 become zeros of the same sign (.ftz)."""
    return np.where(np.abs(a) < TINY32, np.copysign(F32(0), a), a)


def saturate(out: Array) -> None:
    """.sat: clamps to [0, 1]; NaN becomes +0."""
    np.fmax(out, 0, out=out)
    np.fmin(out, 1, out=out)
    np.add(out, 0, out=out)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s + e == a + b exactly, with s the rounded sum (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def round_to_odd(s: Array, e: Array) -> Array:
    """The float64 that s + e rounds to under round-to-odd, where s is s + e rounded to nearest."""
    bits = s.view(I64).copy()
    inexact = (e != 0) & (bits & 1 == 0) & np.isfinite(s)
    step = np.where((e > 0) == (s > 0), 1, -1)
    bits[inexact] += step[inexact]
    return bits.view(F64)


def fma32(a: Array, b: Array, c: Array, out: Array) -> None:
    """out = a * b + c in float32, rounded once to nearest even."""
    p = a.astype(F64)
    p = p * b
    s = p + c
    r = s.astype(F32)
    hard = (s.view(I64) & _TIE_MASK) == _TIE
    magnitude = np.abs(r)
    if magnitude.min() < TINY32:
        hard |= (magnitude < TINY32) & (s != 0)
    if hard.any():
        _fma32_hard(p, c, r, np.flatnonzero(hard))
    canonical32(r)
    out[...] = r


def _fma32_hard(p: Array, c: Array, r: Array, at: Array) -> None:
    """Rounds p + c again, through round-to-odd, at the positions `at` of `r`."""
    n = len(r)
    total, error = two_sum(np.broadcast_to(p, n)[at], np.broadcast_to(c, n)[at].astype(F64))
    r[at] = round_to_odd(total, error).astype(F32)


def directed32(s: Array, e: Array, mode: str) -> Array:
    """The exact value s + e (s float64 nearest to it) as float32, rounded by `mode` rz, rm or rp."""
    r = s.astype(F32)
    missing = s - r.astype(F64)
    missing = np.where(missing != 0, missing, e)
    return step_towards(r, missing, mode)


def step_towards(r: Array, missing: Array, mode: str) -> Array:
    """`r`, nearest to r + missing, moved by one float where the directed rounding is another."""
    down, up = missing < 0, missing > 0
    if mode == "rz":
        down, up = down & ((r > 0) | (r == np.inf)), up & (r < 0)
    elif mode == "rm":
        up = np.zeros_like(up)
    else:
        down = np.zeros_like(down)
    low = np.nextafter(r, r.dtype.type(-np.inf))
    high = np.nextafter(r, r.dtype.type(np.inf))
    return np.where(down, low, np.where(up, high, r))


def _zero_sign(r: Array, cancelled: Array, mode: str) -> Array:
    """An exact zero from a cancellation is -0 when rounding down."""
    return np.where(cancelled & (r == 0), r.dtype.type(-0.0), r) if mode == "rm" else r


def directed_add32(a: Array, b: Array, mode: str) -> Array:
    """a + b in float32 rounded by `mode`."""
    s, e = two_sum(a.astype(F64), b.astype(F64))
    cancelled = (s == 0) & (np.signbit(a) != np.signbit(b))
    return _zero_sign(directed32(s, e, mode), cancelled, mode)


def directed_mul32(a: Array, b: Array, mode: str) -> Array:
    """a * b in float32 rounded by `mode`."""
    p = a.astype(F64) * b.astype(F64)
    return directed32(p, np.zeros_like(p), mode)


def directed_fma32(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c in float32 rounded by `mode`."""
    p = a.astype(F64) * b.astype(F64)
    s, e = two_sum(p, c.astype(F64))
    cancelled = (s == 0) & (np.signbit(p) != np.signbit(c))
    return _zero_sign(directed32(s, e, mode), cancelled, mode)


def directed_div32(a: Array, b: Array, mode: str) -> Array:
    """a / b in float32 rounded by `mode`: the sign of a - r * b, exact in float64, tells what is missing."""
    r = np.divide(a, b)
    rest = a.astype(F64) - r.astype(F64) * b.astype(F64)
    missing = np.where(np.signbit(b), -rest, rest)
    over = np.isinf(r) & np.isfinite(a) & (b != 0)
    missing = np.where(over, np.where(r > 0, -1.0, 1.0), missing)
    missing = np.where(np.isfinite(r) | over, missing, 0.0)
    return step_towards(r, missing, mode)


def directed_sqrt32(a: Array, mode: str) -> Array:
    """sqrt(a) in float32 rounded by `mode`."""
    r = np.sqrt(a)
    missing = a.astype(F64) - r.astype(F64) * r.astype(F64)
    return step_towards(r, np.where(np.isfinite(r), missing, 0.0), mode)


def _split(a: Array) -> tuple[Array, Array]:
    """Dekker's split of float64 into two halves of 26 bits."""
    c = a * F64(134217729.0)
    high = c - (c - a)
    return high, a - high


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """p + e == a * b exactly, while nothing overflows or underflows (Dekker)."""
    p = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    return p, al * bl - (((p - ah * bh) - al * bh) - ah * bl)


def plain_fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded twice, but right where an operand is infinite or NaN: a product that overflows
    does not meet an infinite `c`."""
    return np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), c, a * b + c)


def fma64(a: Array, b: Array, c: Array, out: Array) -> None:
    """out = a * b + c in float64, rounded once to nearest even."""
    a, b, c = np.broadcast_arrays(a, b, c)
    plain = plain_fma64(a, b, c)
    uh, ul = two_product(a, b)
    th, tl = two_sum(c, ul)
    vh, vl = two_sum(uh, th)
    rest, error = two_sum(tl, vl)
    z = vh + round_to_odd(rest, error)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    zero = (a == 0) | (b == 0)
    z = np.where(finite & ~zero & (z != 0), z, plain)
    at = np.flatnonzero(finite & ~zero & ~_safe64(a, b, c, plain))
    if len(at):
        z[at] = [exact_fma(float(a[i]), float(b[i]), float(c[i]), "rn") for i in at]
    out[...] = z


def _safe64(a: Array, b: Array, c: Array, result: Array) -> Array:
    """Where the error-free transformations neither overflow nor lose bits below the subnormals."""

    def within(x: Array, low: float, high: float) -> Array:
        m = np.abs(x)
        return (m >= low) & (m <= high)

    operands = within(a, 2.0**-400, 2.0**400) & within(b, 2.0**-400, 2.0**400)
    safe: Array = operands & (np.abs(c) <= 2.0**900) & within(result, 2.0**-900, 2.0**1000)
    return safe


def round_exact(value: Fraction, mode: str) -> float:
    """A rational number as float64, rounded by `mode` rn, rz, rm or rp."""
    try:
        r = value.numerator / value.denominator
    except OverflowError:
        r = math.inf if value > 0 else -math.inf
    if mode == "rn":
        return r
    if math.isinf(r):
        over, under = r > 0, r < 0
    else:
        over, under = Fraction(r) > value, Fraction(r) < value
    if over and (mode == "rm" or (mode == "rz" and value > 0)):
        return math.nextafter(r, -math.inf)
    if under and (mode == "rp" or (mode == "rz" and value < 0)):
        return math.nextafter(r, math.inf)
    return r


def exact_fma(a: float, b: float, c: float, mode: str) -> float:
    """a * b + c for finite Python floats, rounded once by `mode`."""
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value == 0:
        product_negative = math.copysign(1, a) * math.copysign(1, b) < 0
        if (a == 0 or b == 0) and c == 0 and product_negative == (math.copysign(1, c) < 0):
            return c
        return -0.0 if mode == "rm" else 0.0
    r = round_exact(value, mode)
    return math.copysign(r, -1 if value < 0 else 1)


def exact64(name: str, operands: tuple[Array, ...], mode: str) -> Array:
    """add, mul, fma, div or sqrt in float64 rounded by `mode`, element by element in exact arithmetic."""
    arrays = np.broadcast_arrays(*operands)
    plain = _PLAIN[name](*arrays)
    out = np.array(plain)
    finite = np.logical_and.reduce([np.isfinite(x) for x in arrays])
    if name == "div":
        finite &= (arrays[1] != 0) & (arrays[0] != 0)
    if name == "sqrt":
        finite &= arrays[0] > 0
    for i in np.flatnonzero(finite).tolist():
        values = [float(x[i]) for x in arrays]
        out[i] = _exact_one(name, values, mode)
    return out


_PLAIN: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "fma": plain_fma64,
}  # fmt: skip


def _exact_one(name: str, v: list[float], mode: str) -> float:
    if name == "add":
        return exact_fma(v[0], 1.0, v[1], mode)
    if name == "fma":
        return exact_fma(v[0], v[1], v[2], mode)
    if name == "sqrt":
        return _exact_sqrt(v[0], mode)
    value = Fraction(v[0]) * Fraction(v[1]) if name == "mul" else Fraction(v[0]) / Fraction(v[1])
    sign = math.copysign(1, v[0]) * math.copysign(1, v[1])
    return math.copysign(round_exact(value, mode), sign)


def _exact_sqrt(x: float, mode: str) -> float:
    r = math.sqrt(x)
    square = Fraction(r) ** 2
    if mode in ("rz", "rm") and square > Fraction(x):
        return math.nextafter(r, 0.0)
    if mode == "rp" and square < Fraction(x):
        return math.nextafter(r, math.inf)
    return r


def minimum(a: Array, b: Array, *, largest: bool, nan: bool) -> Array:
    """min (or max) of floats: -0 is less than +0; a NaN operand is ignored, or with `nan` wins."""
    pick = (np.maximum if nan else np.fmax) if largest else (np.minimum if nan else np.fmin)
    r: Array = pick(a, b)
    zero = r == 0
    if zero.any():
        a, b = np.broadcast_arrays(a, b)
        both = zero & (a == 0) & (b == 0)
        negative = (np.signbit(a) & np.signbit(b)) if largest else (np.signbit(a) | np.signbit(b))
        r = np.where(both, np.copysign(np.zeros_like(r), np.where(negative, -1, 1).astype(r.dtype)), r)
    return r
