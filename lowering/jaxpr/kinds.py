"""Questions about JAX dtypes that lowering rules ask: signedness, width, and where arithmetic happens.

MLIR integers are signless, so a rule takes the sign from the dtype.  Storage dtypes (fp8, 4-bit and
2-bit integers) have no arithmetic: it is done in their `compute_dtype` and rounded back.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

DType = np.dtype[Any]


def is_bool(dtype: Any) -> bool:
    """Whether `dtype` is bool (one bit, i1)."""
    return bool(np.dtype(dtype) == np.bool_)


def is_float(dtype: Any) -> bool:
    """Whether `dtype` is a real floating point dtype, bf16 and fp8 included."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def is_signed(dtype: Any) -> bool:
    """Whether `dtype` is a signed integer dtype, int4 included."""
    return bool(jnp.issubdtype(dtype, jnp.signedinteger))


def is_unsigned(dtype: Any) -> bool:
    """Whether `dtype` compares and extends as an unsigned integer: uint and bool."""
    return is_bool(dtype) or bool(jnp.issubdtype(dtype, jnp.unsignedinteger))


def width(dtype: Any) -> int:
    """Bits of one element: 1 for bool, 4 for int4."""
    if is_bool(dtype):
        return 1
    return int(jnp.finfo(dtype).bits if is_float(dtype) else jnp.iinfo(dtype).bits)


def compute_dtype(dtype: Any) -> DType:
    """Where arithmetic on `dtype` is done: f32 for fp8, int8 for int4, `dtype` itself otherwise."""
    if is_float(dtype) and width(dtype) < 16:
        return np.dtype(np.float32)
    if not is_bool(dtype) and width(dtype) < 8:
        return np.dtype(np.int8 if is_signed(dtype) else np.uint8)
    own: DType = np.dtype(dtype)
    return own


def math_dtype(dtype: Any) -> DType:
    """Where functions of a float `dtype` are computed: f64 for f64, f32 for all others."""
    return np.dtype(np.float64 if width(dtype) == 64 else np.float32)


def sum_dtype(dtype: Any) -> DType:
    """Where long sums and products of `dtype` are accumulated: f32 for narrower floats."""
    return math_dtype(dtype) if is_float(dtype) else compute_dtype(dtype)


def bits_dtype(dtype: Any) -> DType:
    """The signed integer dtype as wide as `dtype` (at least 8 bits)."""
    return np.dtype(f"int{max(8, width(dtype))}")
