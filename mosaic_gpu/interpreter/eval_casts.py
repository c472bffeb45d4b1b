"""Conversions of values and of bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.eval_elementwise import NIBBLES, narrow, widen
from mosaic_gpu.interpreter.registry import evaluates
from mosaic_gpu.interpreter.values import Array, is_float, working_dtype


@evaluates("convert_element_type")
def eval_convert_element_type(equation: Equation, x: Any, **_: Any) -> Any:
    return convert(x, equation.dtype)


def convert(x: Any, dtype: Any) -> Any:
    """Integers wrap around; floats become integers towards zero, saturated, and NaN 0; not 0 is True."""
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return x.astype(np.float64) != 0 if is_float(x.dtype) else x.astype(working_dtype(x.dtype)) != 0
    if not is_float(x.dtype) or is_float(dtype):
        return rounded(x, dtype) if is_float(x.dtype) else narrow(widen(x)[0], dtype)
    return _float_to_int(np.asarray(x, np.float64), dtype)


def rounded(x: Any, dtype: Any) -> Any:
    """A float in another float's dtype, rounded once: ml_dtypes goes from f64 by way of f32, so that has to be odd
    where it is not exact (Boldo and Melquiond, "When double rounding is odd", 2005)."""
    if x.dtype != np.float64 or dtype.itemsize >= 4 or dtype == np.float16:
        return x.astype(dtype)
    near = np.asarray(x, np.float32)
    bits = near.view(np.uint32)
    truncated = np.where(np.abs(near.astype(np.float64)) > np.abs(x), bits - 1, bits)
    inexact = np.isfinite(x) & (near.astype(np.float64) != x)
    odd = np.where(inexact, truncated | 1, bits).astype(np.uint32).view(np.float32)
    return odd.astype(dtype)


def _float_to_int(x: Array, dtype: Any) -> Any:
    info = ml_dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    wide = np.uint64 if low == 0 else np.int64
    whole = np.trunc(np.nan_to_num(x, nan=0.0))
    top = float(high) if float(high) == high else np.nextafter(float(high), 0.0)
    inside = np.clip(whole, float(low), top).astype(wide)
    inside = np.where(whole >= float(high), np.array(high, wide), inside)
    return narrow(inside, dtype)


@evaluates("bitcast_convert_type")
def eval_bitcast_convert_type(equation: Equation, x: Any, **_: Any) -> Any:
    """The same bits; where the sizes differ, the last dimension appears or goes."""
    x, dtype = np.ascontiguousarray(x).reshape(np.shape(x)), equation.dtype
    if (x.dtype in NIBBLES) != (dtype in NIBBLES):
        return _recast_nibbles(x, dtype)
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return x.view(dtype) if x.dtype not in NIBBLES else x.astype(np.int8).astype(dtype)
    if old > new:
        return x.reshape(*x.shape, 1).view(dtype)
    return x.view(dtype).reshape(x.shape[:-1])


def _recast_nibbles(x: Array, dtype: Any) -> Any:
    """Bytes as pairs of 4-bit integers, the low one first, and back."""
    if dtype in NIBBLES:
        parts = x.reshape(*x.shape, 1).view(np.uint8)
        nibbles = np.stack([parts & 15, parts >> 4], -1).reshape(*x.shape, -1)
        return nibbles.astype(np.int8).astype(dtype)
    nibbles = x.astype(np.int8).view(np.uint8) & 15
    joined = nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)
    return np.ascontiguousarray(joined).view(dtype).reshape(x.shape[:-1])
