"""JAX dtypes as MLIR element types."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError

_FLOATS: dict[str, Any] = {
    "float16": ir.F16Type,
    "bfloat16": ir.BF16Type,
    "float32": ir.F32Type,
    "float64": ir.F64Type,
    "float8_e4m3fn": ir.Float8E4M3FNType,
    "float8_e5m2": ir.Float8E5M2Type,
    "float8_e4m3b11fnuz": ir.Float8E4M3B11FNUZType,
    "float8_e4m3fnuz": ir.Float8E4M3FNUZType,
    "float8_e5m2fnuz": ir.Float8E5M2FNUZType,
}


def element_type(dtype: Any) -> ir.Type:
    """The element type of `dtype`: integers are signless, a bool is i1.

    Raises UnsupportedError for dtypes that no kernel can hold (complex numbers, strings).
    """
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return ir.IntegerType.get_signless(1)
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name].get()
    if jnp.issubdtype(dtype, jnp.integer):
        return ir.IntegerType.get_signless(int(jnp.iinfo(dtype).bits))
    raise UnsupportedError(f"dtype {dtype.name} cannot be held in a kernel")
