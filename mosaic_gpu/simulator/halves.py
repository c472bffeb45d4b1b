"""f16 and bf16: widening, and rounding once to nearest even from a wider result.

A f16 register is viewed as float16; a bf16 register as the bits, which are the upper half of a float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.floats import F32, F64, NAN16, U32

Array = np.ndarray[Any, np.dtype[Any]]
U16 = np.uint16


def widen(bits: Array, kind: str) -> Array:
    """The float32 values of f16 or bf16 bits; exact."""
    if kind == "bf16":
        return np.left_shift(bits.astype(U32), U32(16)).view(F32)
    if not bits.flags.c_contiguous:
        bits = np.ascontiguousarray(bits)
    return bits.view(np.float16).astype(F32)


def narrow(value: Array, kind: str) -> Array:
    """float32 or float64 -> the bits of f16 or bf16, rounded once to nearest even; NaN is canonical."""
    bits = _to_f16(value) if kind == "f16" else _to_bf16(value)
    nan = np.isnan(value)
    if nan.any():
        bits = np.where(nan, NAN16, bits)
    return bits


def _to_f16(value: Array) -> Array:
    return value.astype(np.float16).view(U16)


def _to_bf16(value: Array) -> Array:
    bits = to_odd32(value).view(U32) if value.dtype == F64 else np.ascontiguousarray(value).view(U32)
    rounded = bits + (U32(0x7FFF) + ((bits >> U32(16)) & U32(1)))
    return (rounded >> U32(16)).astype(U16)


def to_odd32(value: Array) -> Array:
    """float64 -> float32 rounded to odd, so that rounding again to fewer bits is right."""
    r = value.astype(F32)
    back = r.astype(F64)
    bits = r.view(U32).copy()
    inexact = (back != value) & ~np.isnan(value)
    bits[inexact & (np.abs(back) > np.abs(value))] -= U32(1)
    bits[inexact] |= U32(1)
    return bits.view(F32)


def directed_narrow(value: Array, kind: str, mode: str) -> Array:
    """float32 or float64 -> bits of f16 or bf16 rounded by rz, rm or rp."""
    bits = narrow(value, kind)
    back = widen(bits, kind).astype(F64)
    exact = value.astype(F64)
    over, under = back > exact, back < exact
    negative = np.signbit(exact)
    if mode == "rz":
        inward = (over & ~negative) | (under & negative)
        return np.where(inward, bits - U16(1), bits)
    moves = over if mode == "rm" else under
    outward = negative if mode == "rm" else ~negative
    zero = (bits & U16(0x7FFF)) == 0
    sign = U16(0x8000) if mode == "rm" else U16(0)
    away = np.where(zero, sign | U16(1), bits + U16(1))
    inner = bits - U16(1)
    return np.where(moves, np.where(outward | zero, away, inner), bits)


def flush16(value: Array) -> Array:
    """Values of f16 (widened) whose subnormals become zeros of the same sign."""
    return np.where(np.abs(value) < F32(2.0**-14), np.copysign(F32(0), value), value)


def flush_bits(bits: Array) -> Array:
    """Bits of f16 whose subnormals become zeros of the same sign."""
    return np.where(bits & U16(0x7C00) == 0, bits & U16(0x8000), bits)


def low(bits: Array) -> Array:
    """The lower half of 32-bit pairs."""
    return bits.astype(U16)


def high(bits: Array) -> Array:
    """The upper half of 32-bit pairs."""
    return (bits >> U32(16)).astype(U16)


def join(lower: Array, upper: Array) -> Array:
    """Pairs of 16 bits as 32."""
    return lower.astype(U32) | (upper.astype(U32) << U32(16))
