"""The elements of matrix instructions as numbers, and how a product is accumulated.

The products are exact and so, for all practical purposes, is their sum: it is taken in float64 (integers
of 8 bits and less in float32, where they are exact), the accumulator is added in float64 and the result
rounded once to nearest even.  PTX leaves the order and the precision of the sum open ("at least single
precision"); hardware truncates a little more, so the results agree to a few units in the last place.
mma with .f64 is a chain of fused multiply-adds along K, lowest first.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mosaic_gpu.simulator import halves
from mosaic_gpu.simulator.floats import NAN32, fma64
from mosaic_gpu.simulator.fragments import BITS

Array = np.ndarray[Any, np.dtype[Any]]
F32, F64, U8, U16, U32 = np.float32, np.float64, np.uint8, np.uint16, np.uint32
INTEGERS = frozenset(["s8", "u8", "s4", "u4", "b1"])
_FP8 = {
    kind: np.arange(256, dtype=U8).view(dtype).astype(F64)
    for kind, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2))
}
_TF32_MASK = U32(0xFFFFE000)


def decode(words: Array, kind: str) -> Array:
    """Registers (.., n) of 32 bits (64 for f64) -> the elements (.., n * elements per register) as float64,
    integers as float32.  tf32 ignores the 13 low bits."""
    if kind == "f64":
        return words.view(F64)
    if kind == "tf32":
        return (words & _TF32_MASK).view(F32).astype(F64)
    if kind in ("f16", "bf16"):
        return halves.widen(words.view(U16), kind).astype(F64)
    if kind in _FP8:
        return np.asarray(_FP8[kind][words.view(U8)])
    if kind in ("s8", "u8"):
        return words.view(np.int8 if kind == "s8" else U8).astype(F32)
    pieces = np.unpackbits(words.view(U8), axis=-1, bitorder="little")
    if kind == "b1":
        return pieces.astype(F32)
    weights = np.array([1, 2, 4, -8 if kind == "s4" else 8], F32)
    return np.asarray(pieces.reshape(*words.shape[:-1], -1, 4) @ weights)


def multiply(a: Array, b: Array, operation: str = "and") -> Array:
    """(.., M, K) and (.., N, K) -> (.., M, N); `operation` "xor" counts the bits of a ^ b."""
    product: Array = np.matmul(a, np.swapaxes(b, -1, -2))
    if operation == "xor":
        product = a.sum(-1)[..., :, None] + b.sum(-1)[..., None, :] - 2 * product
    return product


def accumulate(product: Array, c: Array | None, kind: str, *, saturate: bool = False) -> Array:
    """The bits of product + c rounded once; `c` are the bits of the accumulator, None stands for zeros."""
    if kind == "s32":
        return _accumulate_integers(product, c, saturate)
    if kind == "f16":
        total = product if c is None else product + halves.widen(c, "f16")
        return halves.narrow(total, "f16")
    total = product if c is None else product + c.view(F32)
    result = total.astype(F32).view(U32)
    nan = np.isnan(total)
    if nan.any():
        result[nan] = NAN32
    return result


def _accumulate_integers(product: Array, c: Array | None, saturate: bool) -> Array:
    total = product.astype(np.int64)
    if c is not None:
        total = total + c.view(np.int32)
    if saturate:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return (total & 0xFFFFFFFF).astype(U32)


def chain64(a: Array, b: Array, c: Array) -> Array:
    """(.., M, K), (.., N, K), (.., M, N) in float64: fused multiply-adds along K."""
    total = c.copy()
    flat = total.reshape(-1)
    for k in range(a.shape[-1]):
        left = np.broadcast_to(a[..., :, None, k], total.shape).reshape(-1)
        right = np.broadcast_to(b[..., None, :, k], total.shape).reshape(-1)
        fma64(left, right, flat.copy(), flat)
    return total


def accumulator_bits(kind: str) -> np.dtype[Any]:
    """The unsigned type of the accumulator's elements."""
    return np.dtype(f"u{BITS[kind] // 8}")
