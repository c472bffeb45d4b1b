"""Tensor maps: the 128 bytes that tell TMA how an array lies in global memory, and which box of it one copy moves.

The driver's format (`cuTensorMapEncodeTiled`) is not published; this one serves the simulator alone:

    byte  0  8 bytes   "mgputmap"
          8  u64       address of element (0, .., 0)
         16  u8 x 4    rank, bytes an element, swizzle in bytes (0 for none), 0
         20  u32 x 5   box, innermost dimension first
         40  u64 x 5   dims, innermost dimension first
         80  u64 x 4   bytes between neighbours along dimensions 1 ..

(CUDA driver API, "Tensor Map Object Management"; element strides are 1, nothing is interleaved, and what a
box holds outside of the array is zero.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError

MAP_BYTES = 128
MAX_RANK = 5
MAX_BOX = 256
_MAGIC = b"mgputmap"
_FORMAT = "<8sQ4B5I5Q4Q"


@dataclass(frozen=True)
class DecodedMap:
    """What a tensor map says.

    Attributes:
      address: of element (0, .., 0).
      element_bytes: 1, 2, 4 or 8.
      dims: extents of the array, innermost first.
      strides_bytes: bytes between neighbours along each dimension but the innermost.
      box: extents of what one copy moves, innermost first.
      swizzle: 0, 32, 64 or 128 bytes.
    """

    address: int
    element_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class TensorMap:
    """An argument of a launch: the map of `array`, which is another argument of the same launch.

    The other attributes are those of `DecodedMap`.
    """

    array: np.ndarray[Any, np.dtype[Any]]
    element_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


def encode(tensor: TensorMap, address: int) -> bytes:
    """The 128 bytes for an array at `address`.

    Raises SimulationError where the driver would refuse the map, with the rule that is broken.
    """
    decoded = DecodedMap(address, tensor.element_bytes, tensor.dims, tensor.strides_bytes, tensor.box, tensor.swizzle)
    for holds, rule in _rules(decoded):
        if not holds:
            raise SimulationError(f"a tensor map must have {rule}", got=str(decoded))
    rank = len(tensor.dims)
    box = [*tensor.box, *[0] * (MAX_RANK - rank)]
    dims = [*tensor.dims, *[0] * (MAX_RANK - rank)]
    strides = [*tensor.strides_bytes, *[0] * (MAX_RANK - rank)]
    head = (_MAGIC, address, rank, tensor.element_bytes, tensor.swizzle, 0)
    return struct.pack(_FORMAT, *head, *box, *dims, *strides).ljust(MAP_BYTES, b"\0")


def decode(data: bytes) -> DecodedMap:
    """The map in 128 bytes.  Raises SimulationError where there is none."""
    magic, address, rank, element_bytes, swizzle, _, *rest = struct.unpack_from(_FORMAT, data)
    if magic != _MAGIC:
        raise SimulationError("the tensor map that a copy names is none", got=data[:8].hex())
    box, dims, strides = rest[:rank], rest[5 : 5 + rank], rest[10 : 10 + rank - 1]
    return DecodedMap(address, element_bytes, tuple(dims), tuple(strides), tuple(box), swizzle)


def _rules(m: DecodedMap) -> list[tuple[bool, str]]:
    """What `cuTensorMapEncodeTiled` demands."""
    rank = len(m.dims)
    inner_bytes = m.box[0] * m.element_bytes if m.box else 0
    return [
        (1 <= rank <= MAX_RANK and len(m.box) == rank and len(m.strides_bytes) == rank - 1, "1 to 5 dimensions"),
        (m.address % 16 == 0, "an address that 16 divides"),
        (m.element_bytes in (1, 2, 4, 8), "elements of 1, 2, 4 or 8 bytes"),
        (all(1 <= n <= 1 << 32 for n in m.dims), "dims of 1 to 2**32"),
        (all(1 <= n <= MAX_BOX for n in m.box), "a box of 1 to 256 elements a dimension"),
        (all(s % 16 == 0 and 0 < s < 1 << 40 for s in m.strides_bytes), "strides below 2**40 that 16 divides"),
        (inner_bytes % 16 == 0, "a box whose innermost dimension takes a multiple of 16 bytes"),
        (m.swizzle in (0, 32, 64, 128), "a swizzle of 0, 32, 64 or 128 bytes"),
        (m.swizzle == 0 or inner_bytes <= m.swizzle, "a box whose innermost dimension the swizzle holds"),
    ]
