"""Small arrays of constants, whose elements differ: the dialect has none, so they are computed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.casts import convert, fill, fill_like, select
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.kinds import is_bool, is_float

LARGEST = 128
"""Up to so many elements are put together one by one."""

_INT64 = np.dtype(np.int64)


def computed_constant(array: NDArray[Any]) -> ir.Value | None:
    """The tile `array` from an iota: scaled and shifted, or one select an element; None where it is too large."""
    flat, dtype = array.reshape(-1), array.dtype
    value = _progression(flat, dtype)
    if value is None and flat.size <= LARGEST:
        value = _one_by_one(flat, dtype)
    return None if value is None else emit.reshape(value, array.shape)


def _progression(flat: NDArray[Any], dtype: Any) -> ir.Value | None:
    """Integers with equal steps."""
    if is_float(dtype) or is_bool(dtype) or flat.size < 2:
        return None
    numbers = [int(n) for n in flat]
    step = numbers[1] - numbers[0]
    if any(b - a != step for a, b in pairwise(numbers)):
        return None
    place = convert(emit.iota((flat.size,), 0), np.int32, _INT64)
    scaled = arith.MulIOp(place, fill_like(step, place, _INT64)).result
    return convert(arith.AddIOp(scaled, fill_like(numbers[0], place, _INT64)).result, _INT64, dtype)


def _one_by_one(flat: NDArray[Any], dtype: Any) -> ir.Value:
    place = emit.iota((flat.size,), 0)
    type_ = tile_type((flat.size,), element_type(dtype))
    value = fill(flat[-1], type_, dtype)
    for i in reversed(range(flat.size - 1)):
        below = arith.CmpIOp(arith.CmpIPredicate.sle, place, fill_like(i, place, np.int32)).result
        value = select(below, fill(flat[i], type_, dtype), value)
    return value
