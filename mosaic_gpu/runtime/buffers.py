"""The memory a kernel runs in: initial contents of results, and guards around every array."""

from __future__ import annotations

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.runtime.dtypes import initial_value
from mosaic_gpu.runtime.interface import Array, ArrayType

GUARD_BYTES = 256
_GUARD = 0xC5


def uninitialised(type_: ArrayType, poison: int | None = None) -> Array:
    """What a result holds before the kernel runs: a value that is easy to tell from a computed one.

    As in Pallas' interpreter: NaN, the least integer, False (and 0 in int16).  With `poison`, a byte, every
    byte of the array is that instead.
    """
    dtype = type_.memory_dtype
    if poison is not None:
        return np.full(_bytes(type_), poison, np.uint8).view(dtype).reshape(type_.shape)
    return np.full(type_.shape, initial_value(type_.dtype), dtype)


class GuardedArray:
    """A writable copy of an array between two guards, which nothing may write to."""

    def __init__(self, value: Array) -> None:
        memory = np.full(value.nbytes + 3 * GUARD_BYTES, _GUARD, np.uint8)
        start = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES) % GUARD_BYTES
        end = start + value.nbytes
        self._guards = (memory[:start], memory[end:])
        self.array: Array = memory[start:end].view(value.dtype).reshape(value.shape)
        self.array[...] = value

    def check(self, what: str) -> None:
        """Raises SimulationError if a guard of this array, which messages call `what`, was overwritten."""
        for guard, place in zip(self._guards, ("before", "after"), strict=True):
            if (guard != _GUARD).any():
                raise SimulationError(f"the kernel wrote to memory {place} {what}")


def _bytes(type_: ArrayType) -> int:
    return int(np.prod(type_.shape, dtype=np.int64)) * type_.memory_dtype.itemsize
