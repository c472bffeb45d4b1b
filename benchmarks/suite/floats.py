"""The floating-point formats of the cases in plain NumPy: written from float32, and read back exactly.

Arrays carry the format in their dtype (`mosaic_gpu.runtime.dtypes.named`), with ml_dtypes or without.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mosaic_gpu.runtime.dtypes import name_of, named

Array = np.ndarray[Any, np.dtype[Any]]

ROUNDOFF = {
    "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3,
}  # fmt: skip
"""The largest relative error of rounding to a format: half a unit in the last of its digits."""


def two_roundings(name: str) -> float:
    """The largest relative error of rounding to a format twice, a product of two rounded numbers say."""
    return (1 + ROUNDOFF[name]) ** 2 - 1


SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
"""Names of formats in the names of cases."""

SMALLEST = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""The smallest positive number of a format."""

# Exponent bits, fraction bits and exponent bias; e4m3fn has no infinities and one NaN (OCP 8-bit floating point).
_FP8 = {"float8_e4m3fn": (4, 3, 7), "float8_e5m2": (5, 2, 15)}


def encode(values: Array, name: str) -> Array:
    """float32 `values` rounded to the nearest number of a format."""
    values = np.ascontiguousarray(values, np.float32)
    if name == "bfloat16":
        bits = values.view(np.uint32)
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)
        return (rounded >> 16).astype(np.uint16).view(named(name))
    if name in _FP8:
        table = _fp8_values(name)[:128]
        finite = table[np.isfinite(table)]
        middles = (finite[1:] + finite[:-1]) / 2
        code = np.searchsorted(middles, np.abs(values)).astype(np.uint8)
        return np.where(np.signbit(values), code | 0x80, code).astype(np.uint8).view(named(name))
    return values.astype(named(name))


def decode(array: Array) -> Array:
    """The numbers of an array of any format of the cases, float32; other arrays as they are."""
    name = name_of(array.dtype)
    if name == "bfloat16":
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if name in _FP8:
        return _fp8_values(name)[array.view(np.uint8)]
    return array.astype(np.float32) if array.dtype.kind == "f" else array


@cache
def _fp8_values(name: str) -> Array:
    """What each of the 256 bytes means."""
    exponent_bits, fraction_bits, bias = _FP8[name]
    codes = np.arange(256)
    fraction = (codes & (2**fraction_bits - 1)) / 2**fraction_bits
    exponent = (codes & 0x7F) >> fraction_bits
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if name == "float8_e4m3fn":
        size[codes & 0x7F == 0x7F] = np.nan
    else:
        size[exponent == 2**exponent_bits - 1] = np.where(
            fraction[exponent == 2**exponent_bits - 1] == 0, np.inf, np.nan
        )
    return np.where(codes & 0x80, -size, size).astype(np.float32)
