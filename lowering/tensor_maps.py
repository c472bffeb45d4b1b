"""What TMA is told of an array: the facts of a tensor map, as every stage and runtime knows them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MAX_RANK = 5
MAX_BOX = 256
MAP_BYTES = 128


@dataclass(frozen=True)
class TensorMapFacts:
    """A tensor map that a kernel takes as a parameter behind its pointers (CUDA driver API, `cuTensorMapEncodeTiled`).

    Elements are unsigned integers of `element_bytes` bytes (the copies do not look at them), element strides are 1,
    nothing is interleaved, and what lies outside of the array is zero.

    Attributes:
      argument: number of the array among the kernel's pointers.
      element_bytes: 1, 2, 4 or 8.
      dims: extents of the array, innermost first.
      strides_bytes: bytes between neighbours along each dimension but the innermost.
      box: extents of what one copy moves, innermost first.
      swizzle: 0, 32, 64 or 128 bytes.
    """

    argument: int
    element_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    def text(self) -> str:
        """For an attribute of a module."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(fields: dict[str, Any]) -> TensorMapFacts:
        """The facts in what JSON made of them."""
        lists = {key: tuple(fields[key]) for key in ("dims", "strides_bytes", "box")}
        return TensorMapFacts(fields["argument"], fields["element_bytes"], swizzle=fields["swizzle"], **lists)
