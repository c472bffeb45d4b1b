"""Integer arithmetic as PTX defines it, on NumPy arrays: the kernels write their result into `out`."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def add_with_carry(a: Array, b: Array, carry: Array | None, subtract: bool, bits: int) -> tuple[Array, Array]:
    """(sum, carry out) of unsigned or signed words; a subtraction's carry is its borrow."""
    unsigned = np.dtype(f"u{bits // 8}")
    x, y = np.ascontiguousarray(a).view(unsigned), np.ascontiguousarray(b).view(unsigned)
    extra = np.zeros(1, unsigned) if carry is None else carry.astype(unsigned)
    if subtract:
        first = x - y
        total = first - extra
        return total.view(a.dtype), (x < y) | (first < extra)
    first = x + y
    total = first + extra
    return total.view(a.dtype), (first < x) | (total < first)


def mul_high(a: Array, b: Array, out: Array) -> None:
    """The upper half of the product."""
    width = a.dtype.itemsize
    if width < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * width}")
        out[...] = np.right_shift(np.multiply(a, b, dtype=wide), wide.type(8 * width))
        return
    x, y = np.ascontiguousarray(a).view(np.uint64), np.ascontiguousarray(b).view(np.uint64)
    top = _mul_high_u64(x, y)
    if a.dtype.kind == "i":
        top = top - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    out[...] = top.view(out.dtype)


def _mul_high_u64(x: Array, y: Array) -> Array:
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    xl, xh, yl, yh = x & mask, x >> half, y & mask, y >> half
    middle = xh * yl + ((xl * yl) >> half)
    other = xl * yh + (middle & mask)
    top: Array = xh * yh + (middle >> half) + (other >> half)
    return top


def mul_wide(a: Array, b: Array, out: Array) -> None:
    """The whole product, in twice the width."""
    np.multiply(a, b, out, dtype=np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}"))


def mad_wide(a: Array, b: Array, c: Array, out: Array) -> None:
    """a * b + c in twice the width."""
    np.add(np.multiply(a, b, dtype=out.dtype), c, out)


def mad_low(a: Array, b: Array, c: Array, out: Array) -> None:
    """The lower half of the product, plus c."""
    np.add(np.multiply(a, b), c, out)


def mad_high(a: Array, b: Array, c: Array, out: Array) -> None:
    """The upper half of the product, plus c."""
    high = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    mul_high(a, b, high)
    np.add(high, c, out)


def mad_high_saturating(a: Array, b: Array, c: Array, out: Array) -> None:
    """The upper half of the product, plus c, clamped to 32 bits."""
    high = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    mul_high(a, b, high)
    out[...] = np.clip(high.astype(np.int64) + c, -(1 << 31), (1 << 31) - 1)


def divide_integers(a: Array, b: Array, out: Array) -> None:
    """Truncating division; by zero it gives all ones, as the hardware does."""
    if a.dtype.kind == "u":
        result = np.floor_divide(a, b)
    else:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        quotient = np.abs(a).view(unsigned) // np.abs(b).view(unsigned)
        negative = (a < 0) != (b < 0)
        result = np.where(negative, np.negative(quotient), quotient).view(a.dtype)
    zero = b == 0
    out[...] = np.where(zero, np.array(-1).astype(a.dtype), result) if zero.any() else result


def remainder_integers(a: Array, b: Array, out: Array) -> None:
    """The remainder of the truncating division, with the sign of `a`; by zero it gives `a`."""
    if a.dtype.kind == "u":
        result = np.remainder(a, b)
    else:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        rest = np.remainder(np.abs(a).view(unsigned), np.abs(b).view(unsigned))
        result = np.where(a < 0, np.negative(rest), rest).view(a.dtype)
    out[...] = np.where(b == 0, a, result)
