"""The inputs of a case in the GPU's memory: as many copies as the L2 cache cannot hold, all alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mosaic_gpu.errors import ToolError
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.device_array import DeviceArray
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.dtypes import name_of

from .floats import Array

MOST_COPIES = 128
_CACHES = 2  # times what the L2 cache holds
_LARGEST_PART = 0.25  # of the memory that is free: results and the peers' own arrays want theirs


@dataclass(frozen=True)
class Rotation:
    """Copies of arrays.

    Attributes:
      copies: of all arrays, one tuple a copy.
      exceeds_cache: whether a call finds nothing of its inputs in the L2 cache.
    """

    copies: tuple[tuple[DeviceArray, ...], ...]
    exceeds_cache: bool

    def __len__(self) -> int:
        return len(self.copies)


def to_gpu(array: Array) -> DeviceArray:
    """A copy on the GPU.  8-bit floats go as bytes: not every library's DLPack has names for them."""
    given = array.view(np.uint8) if name_of(array.dtype).startswith("float8") else array
    return DeviceArray.of(given)


def rotation(arrays: Sequence[Array], l2_bytes: int) -> Rotation:
    """Copies of `arrays`, enough to take twice the L2 cache where memory has room.

    Raises ToolError where not even one copy fits.
    """
    one = sum(array.nbytes for array in arrays)
    free, _ = driver.call("cuMemGetInfo")
    wanted = max(2, math.ceil(_CACHES * l2_bytes / max(one, 1)))
    count = max(1, min(wanted, MOST_COPIES, int(_LARGEST_PART * free) // max(one, 1)))
    first = tuple(to_gpu(array) for array in arrays)
    copies = (first, *(tuple(_copy(a) for a in first) for _ in range(count - 1)))
    driver.call("cuStreamSynchronize", 0)  # other libraries' streams do not wait for this one
    # A call reads its own copy once: what the calls between two uses of it read has driven it out.
    return Rotation(copies, count * one > l2_bytes)


def _copy(array: DeviceArray) -> DeviceArray:
    made = DeviceArray(array.shape, array.dtype, array.device)
    if made.nbytes:
        driver.call("cuMemcpyDtoDAsync", made.pointer, array.pointer, made.nbytes, 0)
    return made


def poison(array: DeviceArray) -> None:
    """Fills an array with ones in all bits: NaN as a float, so that what a kernel leaves out is found."""
    if array.nbytes:
        driver.call("cuMemsetD8Async", array.pointer, 0xFF, array.nbytes, 0)


def check_room(place: Device, wanted_bytes: int) -> None:
    """Raises ToolError where the GPU has not so much memory free."""
    free, _ = driver.call("cuMemGetInfo")
    if wanted_bytes > free:
        raise ToolError(
            f"the arrays do not fit into the memory of {place.name}",
            got=f"{wanted_bytes} bytes",
            expected=f"at most {free}",
        )
