"""Tensor maps for the arrays of a launch (CUDA driver API, "Tensor Map Object Management").

The driver is called through ctypes: a map must start at a multiple of 128 bytes (64 before CUDA 13), and the objects of
cuda-python do not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from mosaic_gpu.lowering.tensor_maps import MAP_BYTES, TensorMapFacts
from mosaic_gpu.runtime import driver

_ALIGNMENT = 128
_TYPES = {1: "UINT8", 2: "UINT16", 4: "UINT32", 8: "UINT64"}
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class MapEncoder:
    """Makes the tensor map of an array wherever it lies.

    Attributes:
      argument: number of the array among the kernel's pointers.
    """

    def __init__(self, facts: TensorMapFacts, about: str) -> None:
        """`about` is told in errors: "kernel softmax"."""
        cuda, rank = driver.bindings(), len(facts.dims)
        self.argument = facts.argument
        self._about = f"{about}, argument {facts.argument}"
        self._head = (
            int(getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[facts.element_bytes]}")),
            rank,
        )
        self._tail = (
            (ctypes.c_uint64 * rank)(*facts.dims),
            (ctypes.c_uint64 * rank)(*facts.strides_bytes),
            (ctypes.c_uint32 * rank)(*facts.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            int(cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
            int(getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[facts.swizzle]}")),
            int(cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
            int(cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        )

    def __call__(self, pointer: int, place: int) -> None:
        """Writes the map of an array at `pointer` to the address `place`.  Raises ToolError where it is refused."""
        status = _encode()(ctypes.c_void_p(place), *self._head, ctypes.c_void_p(pointer), *self._tail)
        driver.check("cuTensorMapEncodeTiled", status, self._about)


def map_memory() -> Any:
    """A ctypes array for one map, where the driver wants it."""
    memory = ctypes.create_string_buffer(MAP_BYTES + _ALIGNMENT)
    return (ctypes.c_char * MAP_BYTES).from_buffer(memory, -ctypes.addressof(memory) % _ALIGNMENT)


@cache
def _encode() -> Callable[..., int]:
    function: Callable[..., int] = driver.library().cuTensorMapEncodeTiled
    return function
