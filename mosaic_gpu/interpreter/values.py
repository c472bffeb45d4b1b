"""Values of an interpreted kernel: NumPy arrays, and random keys as arrays of raw bytes."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np

from mosaic_gpu.lowering.jaxpr import compat

Array = np.ndarray[Any, Any]

_NARROW_FLOATS = frozenset(
    np.dtype(getattr(ml_dtypes, name)) for name in dir(ml_dtypes) if name.startswith(("float8", "float6", "float4"))
)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32, FLOAT64 = (np.dtype(d) for d in (np.float16, np.float32, np.float64))
_HALVES = _NARROW_FLOATS | {BFLOAT16, FLOAT16}
_NIBBLES = {np.dtype(ml_dtypes.int4): np.dtype(np.int8), np.dtype(ml_dtypes.uint4): np.dtype(np.uint8)}


def is_float(dtype: Any) -> bool:
    """Whether a dtype is a float, ml_dtypes' included."""
    return dtype.kind == "f" or dtype in _HALVES


def working_dtype(dtype: Any) -> Any:
    """In which elementwise arithmetic is done before it is rounded: 8-bit floats and 4-bit integers widen."""
    return FLOAT32 if dtype in _NARROW_FLOATS else _NIBBLES.get(dtype, dtype)


def sum_dtype(dtype: Any) -> Any:
    """In which sums of a dtype are kept: small floats in float32, and float32 in float64."""
    if dtype in _HALVES:
        return FLOAT32
    return FLOAT64 if dtype == FLOAT32 else _NIBBLES.get(dtype, dtype)


def numpy_dtype(aval: Any) -> Any:
    """NumPy's dtype of an abstract value's elements; random keys are raw bytes."""
    if compat.is_key(aval):
        shape, dtype = compat.physical_shape_dtype(aval)
        return np.dtype((np.void, dtype.itemsize * shape[-1]))
    if compat.is_extended_dtype(aval):
        return None
    return np.dtype(aval.dtype)


def words_to_keys(words: Array) -> Array:
    """Random keys of their 32-bit words, which are the last dimension."""
    words = np.ascontiguousarray(words)
    return words.view(np.dtype((np.void, words.dtype.itemsize * words.shape[-1]))).reshape(words.shape[:-1])


def keys_to_words(keys: Array) -> Array:
    """The inverse of `words_to_keys`."""
    keys = np.asarray(keys, order="C")
    return keys.reshape(*keys.shape, 1).view(np.uint32)


def literal(value: Any, aval: Any) -> Any:
    """A constant in an equation."""
    if isinstance(value, jax.Array) and compat.is_extended_dtype(aval):
        return words_to_keys(np.asarray(jax.random.key_data(value)))
    array = np.asarray(value, numpy_dtype(aval)) if compat.is_array(aval) else value
    return array[()] if isinstance(array, np.ndarray) and not array.shape else array
