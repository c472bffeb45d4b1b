"""How values of JAX's dtypes are held in PyTorch's tensors.

PyTorch has 16, 32 and 64-bit unsigned integers and 8-bit floats, but few operators of them.  So that each rule is
written once, between kernels such a value is carried by an integer tensor of the same bits:

    JAX's dtype               tensor at the border   carried as
    uint16, uint32, uint64    the same               int16, int32, int64
    float8_e4m3fn, ..._e5m2   the same               uint8
    any other                 the same               the same

Moving elements needs no more.  Wrapping sums and products are the same for both signs; what looks at the order or at
the value of elements goes through `ordered`, `load` and `store`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from mosaic_gpu.runtime.dtypes import name_of, named

_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
_UNSIGNED = {"uint16": torch.int16, "uint32": torch.int32, "uint64": torch.int64}
_SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2")

TORCH_DTYPES: dict[str, torch.dtype] = {n: getattr(torch, n) for n in (*_PLAIN, *_UNSIGNED, *_SMALL_FLOATS)}
"""PyTorch's dtype of JAX's, by name."""

NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in TORCH_DTYPES.items()}

CARRIERS: dict[str, torch.dtype] = {
    **{name: TORCH_DTYPES[name] for name in _PLAIN},
    **_UNSIGNED,
    **dict.fromkeys(_SMALL_FLOATS, torch.uint8),
}
"""The dtype of the tensor that carries values of JAX's dtype."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NUMPY_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of JAX or NumPy."""
    return name_of(np.dtype(dtype))


def is_float(name: str) -> bool:
    """Whether values of this dtype are floats."""
    return "float" in name


def is_unsigned(name: str) -> bool:
    """Whether values of this dtype are unsigned integers, carried by signed ones."""
    return name in _UNSIGNED


def carrier(tensor: Tensor) -> Tensor:
    """What carries the values of a tensor of the user's: the same memory."""
    held = CARRIERS[NAMES[tensor.dtype]]
    return tensor if held is tensor.dtype else tensor.view(held)


def uncarried(tensor: Tensor, name: str) -> Tensor:
    """The tensor of dtype `name` that `tensor` carries: the same memory."""
    wanted = TORCH_DTYPES[name]
    return tensor if wanted is tensor.dtype else tensor.view(wanted)


def load(tensor: Tensor, name: str) -> Tensor:
    """Carried values in a dtype that PyTorch computes with: 8-bit floats as float32."""
    return tensor.view(TORCH_DTYPES[name]).to(torch.float32) if name in _SMALL_FLOATS else tensor


def store(tensor: Tensor, name: str) -> Tensor:
    """Computed values as they are carried: rounded, integers cut to their low bits."""
    if name in _SMALL_FLOATS:
        # Versions of PyTorch differ in what becomes of larger ones.
        limit, beyond = (464.0, torch.nan) if name == "float8_e4m3fn" else (61439.999, torch.inf)
        value = tensor.to(torch.float32)
        value = torch.where(value.abs() > limit, torch.copysign(torch.full_like(value, beyond), value), value)
        return value.to(TORCH_DTYPES[name]).view(torch.uint8)
    return tensor.to(CARRIERS[name])


def ordered(tensor: Tensor, name: str) -> Tensor:
    """Values whose order is that of the carried ones; its own inverse for unsigned integers."""
    return tensor ^ least(tensor.dtype) if name in _UNSIGNED else load(tensor, name)


def unordered(tensor: Tensor, name: str) -> Tensor:
    """The carried values of what `ordered` gave."""
    return tensor ^ least(tensor.dtype) if name in _UNSIGNED else store(tensor, name)


def least(dtype: torch.dtype) -> int:
    """The least integer of a dtype: for signed ones also its sign bit."""
    return int(torch.iinfo(dtype).min)


def widened(tensor: Tensor, name: str) -> Tensor:
    """Integers in int64, as numbers; uint64 stays the bits it is."""
    wide = tensor.to(torch.int64)
    return wide & (1 << 8 * tensor.element_size()) - 1 if name in ("uint16", "uint32") else wide


def to_numpy(tensor: Tensor, name: str) -> np.ndarray[Any, Any]:
    """Carried values on the host as an array of the same memory."""
    dtype = named(name)
    if tensor.dtype is torch.bool:
        return np.asarray(tensor.numpy())
    bits: np.ndarray[Any, Any] = tensor.view(_BITS[dtype.itemsize]).numpy()
    return bits.view(dtype)


def from_numpy(array: np.ndarray[Any, Any], name: str) -> Tensor:
    """The inverse of `to_numpy`, for an array that can be written to."""
    if array.dtype == np.bool_:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_NUMPY_BITS[array.dtype.itemsize])).view(CARRIERS[name])
