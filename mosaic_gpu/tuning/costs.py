"""What one element of an elementwise operation costs, in instructions of a thread.

Rough numbers: how many additions or multiply-adds, and how many instructions of the special-function unit, the code of
this compiler (accurate or libdevice's functions) has for a float32.  What is not listed is one instruction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Cost(NamedTuple):
    """Instructions of an element: plain ones, and those of the special-function unit."""

    plain: float
    special: float = 0.0


# Address arithmetic, or nothing at all.
FREE = frozenset(
    {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy", "stop_gradient", "split", "slice", "copy_p"}
)

_ACCURATE = {
    "exp": Cost(4, 1), "exp2": Cost(2, 1), "log": Cost(12), "log2": Cost(12), "log1p": Cost(16), "expm1": Cost(12, 1),
    "tanh": Cost(8, 2), "logistic": Cost(10, 2), "sin": Cost(25), "cos": Cost(25), "tan": Cost(40), "erf": Cost(20, 1),
    "erf_inv": Cost(25), "pow": Cost(30, 3), "cbrt": Cost(10, 2), "atan2": Cost(25, 1), "rsqrt": Cost(2, 1),
    "sqrt": Cost(5, 1), "div": Cost(8, 1), "rem": Cost(20), "integer_pow": Cost(2), "sign": Cost(2),
    "transpose": Cost(2), "cumsum": Cost(4), "cumprod": Cost(4), "cummax": Cost(4), "cumlogsumexp": Cost(20, 2),
    "argmax": Cost(3), "argmin": Cost(3), "sort": Cost(60), "gather": Cost(4), "scatter": Cost(4), "clamp": Cost(2),
    "threefry2x32": Cost(80), "random_bits": Cost(80),
}  # fmt: skip
_APPROXIMATE = {
    "exp": Cost(1, 1), "log": Cost(1, 1), "tanh": Cost(0, 1), "logistic": Cost(2, 2), "sin": Cost(0, 1),
    "cos": Cost(0, 1), "div": Cost(1, 1), "rsqrt": Cost(0, 1), "sqrt": Cost(0, 1), "pow": Cost(1, 2),
    "exp2": Cost(0, 1),
}  # fmt: skip
_INTEGER_DIVISION = Cost(20)


def cost_of(primitive: str, dtype: np.dtype[Any], approx_math: bool) -> Cost:
    """The cost of one element of `dtype`, an operation that is not in FREE."""
    if primitive in ("div", "rem") and dtype.kind in "iu":
        return _INTEGER_DIVISION
    found = _APPROXIMATE.get(primitive) if approx_math and dtype.name == "float32" else None
    return found or _ACCURATE.get(primitive, Cost(1))


def pipe_of(dtype: np.dtype[Any]) -> str:
    """Which units compute on a dtype: "fp32", "fp64" or "int32"."""
    if dtype.name == "float64":
        return "fp64"
    return "int32" if dtype.kind in "iub" or dtype.name in ("int4", "uint4") else "fp32"


def packing_of(dtype: np.dtype[Any]) -> float:
    """Instructions of an element against those of a 32-bit one: halves go in pairs, 64-bit integers take two."""
    if dtype.name in ("float16", "bfloat16"):
        return 0.5
    return 2.0 if dtype.kind in "iu" and dtype.itemsize == 8 else 1.0
