"""The dtypes of a kernel's elements by name, those that NumPy itself does not know included.

Where ml_dtypes is installed they are its own.  Without it, as a bundle may run, they stand for memory alone: a
structured dtype with one field of that name, which NumPy copies and views (`bits.view(named("bfloat16"))`) but does not
compute with.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

_NAN_BITS = {
    "bfloat16": 0x7FC0,
    "float8_e4m3fn": 0x7F,
    "float8_e5m2": 0x7E,
    "float8_e4m3fnuz": 0x80,
    "float8_e5m2fnuz": 0x80,
    "float8_e4m3b11fnuz": 0x80,
}
# Of the dtypes that NumPy does not know, what their elements are in memory.
_MEMORY = {
    **{name: np.uint16 if name == "bfloat16" else np.uint8 for name in _NAN_BITS},
    "int4": np.int8,
    "uint4": np.uint8,
}


@cache
def named(name: str) -> np.dtype[Any]:
    """The dtype `name`, as kernels name it.  Raises TypeError where there is none."""
    try:
        found: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        found = np.dtype([(name, _MEMORY[name])]) if name in _MEMORY else np.dtype(name)
    return found


def name_of(dtype: np.dtype[Any]) -> str:
    """The name that `named` takes."""
    return dtype.name if dtype.names is None else dtype.names[0]


def initial_value(dtype: np.dtype[Any]) -> Any:
    """What each element of a result holds before the kernel runs: NaN, the least integer, False (and 0 in int16)."""
    name = name_of(dtype)
    if dtype in (np.dtype(np.bool_), np.dtype(np.int16)):
        return 0
    if name in ("int4", "uint4"):
        return -8 if name == "int4" else 0
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min)
    return float("nan") if dtype.names is None else np.array((_NAN_BITS[name],), dtype)[()]
