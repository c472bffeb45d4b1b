"""Arrays of NumPy as PyTorch's tensors and back, those of dtypes that NumPy does not know included."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

TORCH_DTYPES = {
    np.dtype(getattr(ml_dtypes, name)): getattr(torch, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
}
_BITS = {1: np.uint8, 2: np.int16}


def as_tensor(array: Any) -> torch.Tensor:
    """A copy of an array."""
    given = np.array(array, order="C")
    if given.dtype in TORCH_DTYPES:
        return torch.from_numpy(given.view(_BITS[given.dtype.itemsize])).view(TORCH_DTYPES[given.dtype])
    return torch.from_numpy(given)


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A copy of a tensor on the host."""
    plain = tensor.detach().contiguous().clone()
    for dtype, theirs in TORCH_DTYPES.items():
        if plain.dtype is theirs:
            bits = torch.uint8 if dtype.itemsize == 1 else torch.int16
            return plain.view(bits).numpy().view(dtype)
    return np.array(plain.numpy())
