"""Tensor maps: the 128 bytes that tell TMA how an array lies in global memory, and which box of it one copy moves.

The driver's format (`cuTensorMapEncodeTiled`) is not published; this one serves the simulator alone:

    byte   0  8 bytes   "mgputmap"
           8  u64       address of element (0, .., 0)
          16  u8 x 8    rank, type of an element, interleave, swizzle, fill outside of the array, 0, 0, 0
          24  u16 x 5   box, innermost dimension first
          34  u8 x 5    element strides, innermost dimension first
          40  u64 x 5   dims, innermost dimension first
          80  u64 x 4   bytes between neighbours along dimensions 1 ..

Types, interleave, swizzle and fill are the numbers of tensormap.replace (PTX ISA, "tensormap.replace", tables of
field values); the rest is as in the CUDA driver API, "Tensor Map Object Management".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError, UnsupportedError

MAP_BYTES = 128
MAX_RANK = 5
MAX_BOX = 256
MAGIC = b"mgputmap"
_FORMAT = "<8sQ8B5H5BB5Q4Q"
#: The type of an element by its number -> its bytes.
ELEMENT_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)
#: Swizzle by its number, in bytes.
SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True)
class DecodedMap:
    """What a tensor map says.

    Attributes:
      address: of element (0, .., 0).
      element_bytes: 1, 2, 4 or 8.
      dims: extents of the array, innermost first.
      strides_bytes: bytes between neighbours along each dimension but the innermost.
      box: extents of what one copy moves, innermost first, before the element strides thin it.
      swizzle: 0, 32, 64 or 128 bytes.
      element_type: one of `ELEMENT_TYPES`; "" for an unsigned integer of that size.
      element_strides: every how-manieth element of the box is copied; () for 1 everywhere.
      fill_nan: what lies outside of the array is NaN instead of zero.
    """

    address: int
    element_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    element_type: str = ""
    element_strides: tuple[int, ...] = ()
    fill_nan: bool = False

    def extents(self) -> tuple[int, ...]:
        """Elements that one copy moves along each dimension, innermost first."""
        return _thinned(self.box, self.element_strides)


@lru_cache(maxsize=256)
def _thinned(box: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-b // s) for b, s in zip(box, strides or (1,) * len(box), strict=True))


@dataclass(frozen=True)
class TensorMap:
    """An argument of a launch: the map of `array`, a buffer like the arrays that are arguments themselves.

    The other attributes are those of `DecodedMap`.
    """

    array: np.ndarray[Any, np.dtype[Any]]
    element_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    element_type: str = ""
    element_strides: tuple[int, ...] = field(default=())
    fill_nan: bool = False


def encode(tensor: TensorMap, address: int) -> bytes:
    """The 128 bytes for an array at `address`.

    Raises SimulationError where the driver would refuse the map, with the rule that is broken.
    """
    rank = len(tensor.dims)
    kind = tensor.element_type or {1: "u8", 2: "u16", 4: "u32", 8: "u64"}.get(tensor.element_bytes, "")
    strides = tensor.element_strides or (1,) * rank
    decoded = DecodedMap(address, tensor.element_bytes, tensor.dims, tensor.strides_bytes, tensor.box, tensor.swizzle,
                         kind, strides, tensor.fill_nan)  # fmt: skip
    check(decoded)
    head = (MAGIC, address, rank, ELEMENT_TYPES.index(kind), 0, SWIZZLES.index(tensor.swizzle), int(tensor.fill_nan))
    fields = (
        *_padded(tensor.box, 5),
        *_padded(strides, 5),
        0,
        *_padded(tensor.dims, 5),
        *_padded(tensor.strides_bytes, 4),
    )
    return struct.pack(_FORMAT, *head, 0, 0, 0, *fields).ljust(MAP_BYTES, b"\0")


def _padded(values: tuple[int, ...], count: int) -> list[int]:
    return [*values, *[0] * (count - len(values))]


def decode(data: bytes) -> DecodedMap:
    """The map in 128 bytes.  Raises SimulationError where there is none, or where it breaks a rule."""
    magic, address, rank, kind, interleave, swizzle, fill, _, _, _, *rest = struct.unpack_from(_FORMAT, data)
    if magic != MAGIC:
        raise SimulationError("the tensor map that a copy names is none", got=data[:8].hex())
    if not 1 <= rank <= MAX_RANK or kind >= len(ELEMENT_TYPES) or swizzle >= len(SWIZZLES) or fill > 1:
        raise SimulationError("the tensor map that a copy names holds a field out of range", got=data[16:24].hex())
    if interleave:
        raise UnsupportedError("an interleaved tensor map")
    box, strides = tuple(rest[:rank]), tuple(rest[5 : 5 + rank])
    dims, steps = tuple(rest[11 : 11 + rank]), tuple(rest[16 : 15 + rank])
    # Without interleave the innermost element stride is ignored (cuTensorMapEncodeTiled, elementStrides).
    decoded = DecodedMap(address, ELEMENT_BYTES[kind], dims, steps, box, SWIZZLES[swizzle], ELEMENT_TYPES[kind],
                         (1, *strides[1:]), bool(fill))  # fmt: skip
    check(decoded)
    return decoded


#: Field of tensormap.replace -> (byte offset, bytes, bytes from one ordinal to the next).
FIELDS = {
    "global_address": (8, 8, 0), "rank": (16, 1, 0), "elemtype": (17, 1, 0), "interleave_layout": (18, 1, 0),
    "swizzle_mode": (19, 1, 0), "fill_mode": (20, 1, 0), "box_dim": (24, 2, 2), "element_stride": (34, 1, 1),
    "global_dim": (40, 8, 8), "global_stride": (80, 8, 8),
}  # fmt: skip


def check(m: DecodedMap) -> None:
    """Raises SimulationError for a map that breaks a rule of `cuTensorMapEncodeTiled`."""
    for holds, rule in _rules(m):
        if not holds:
            raise SimulationError(f"a tensor map must have {rule}", got=str(m))


def _rules(m: DecodedMap) -> list[tuple[bool, str]]:
    """What `cuTensorMapEncodeTiled` demands."""
    rank = len(m.dims)
    inner_bytes = m.box[0] * m.element_bytes if m.box else 0
    return [
        (1 <= rank <= MAX_RANK and len(m.box) == rank and len(m.strides_bytes) == rank - 1, "1 to 5 dimensions"),
        (m.address % 16 == 0, "an address that 16 divides"),
        (m.element_bytes in (1, 2, 4, 8), "elements of 1, 2, 4 or 8 bytes"),
        (m.element_type in ("", *ELEMENT_TYPES), f"a type out of {', '.join(ELEMENT_TYPES)}"),
        (all(1 <= n <= 1 << 32 for n in m.dims), "dims of 1 to 2**32"),
        (all(1 <= n <= MAX_BOX for n in m.box), "a box of 1 to 256 elements a dimension"),
        (all(s % 16 == 0 and 0 < s < 1 << 40 for s in m.strides_bytes), "strides below 2**40 that 16 divides"),
        (all(1 <= s <= 8 for s in m.element_strides), "element strides of 1 to 8"),
        (inner_bytes % 16 == 0, "a box whose innermost dimension takes a multiple of 16 bytes"),
        (m.swizzle in SWIZZLES, "a swizzle of 0, 32, 64 or 128 bytes"),
        (m.swizzle == 0 or inner_bytes <= m.swizzle, "a box whose innermost dimension the swizzle holds"),
        (not m.fill_nan or m.element_type not in ("", *ELEMENT_TYPES[:6]), "a floating-point type to fill with NaN"),
    ]
