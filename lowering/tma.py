"""How a view of global memory is copied by TMA: which boxes, and where each lies in shared memory.

A copy moves one box: up to 256 elements along each dimension of the array, its innermost row a multiple of 16
bytes (PTX ISA, `cp.async.bulk.tensor`; CUDA driver API, `cuTensorMapEncodeTiled`).  A view is cut into equal boxes:

* into swizzled shared memory (`lowering.swizzles`), one panel of columns after another, at most 256 rows at a time;
* into plain shared memory, so that the boxes follow one another as the rows of the view do.

    view 128x256 of f16, swizzle 128     boxes of 128 x 64, at bytes 0, 16384, 32768, 49152
    view 16x512 of f32, plain            boxes of 1 x 256, at bytes 0, 1024, 2048, ..
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mosaic_gpu.lowering.swizzles import Panels
from mosaic_gpu.lowering.tensor_maps import MAX_BOX, MAX_RANK
from mosaic_gpu.lowering.views import RefView, row_strides

ALIGNMENT_BYTES = 16
DEST_ALIGNMENT = 128
"""Of a box in shared memory, in bytes."""
_UNKNOWN = 2**31 - 1  # a size that is known at run time only, and nothing that i32 coordinates reach past
MAX_PIECES = 32
"""Boxes that one thread may start for one view."""


@dataclass(frozen=True)
class Piece:
    """One box: its first element's coordinate in the view's root beyond the view's start, and its place, in bytes."""

    start: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True)
class CopyPlan:
    """The boxes of a view.

    Attributes:
      element_bytes: of an element.
      dims, strides_bytes: of the array, as in `TensorMapFacts` (innermost first).
      box: extents of each box along the root's dimensions, innermost last.
      swizzle: in bytes.
      pieces: the boxes.
    """

    element_bytes: int
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    pieces: tuple[Piece, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes that arrive in shared memory, zeros outside of the array included."""
        return math.prod(self.box) * self.element_bytes * len(self.pieces)


def plan_copy(view: RefView, panels: Panels | None) -> CopyPlan | None:
    """The plan for a view of global memory; None where TMA cannot copy it.

    `panels`: how it lies in shared memory; None for row-major.
    """
    if not _is_copyable(view):
        return None
    shapes = _swizzled_boxes(view, panels) if panels is not None else _plain_boxes(view)
    if shapes is None:
        return None
    box, pieces = shapes
    size = view.element_bytes
    row_bytes = box[-1] * size
    if row_bytes % ALIGNMENT_BYTES or len(pieces) > MAX_PIECES or max(box) > MAX_BOX:
        return None
    if any(piece.offset_bytes % DEST_ALIGNMENT for piece in pieces):
        return None
    dims = tuple(reversed(view.root_shape))
    strides = tuple(reversed(_padded_strides(view)))[1:]
    return CopyPlan(size, dims, strides, box, 0 if panels is None else panels.swizzle, tuple(pieces))


def _is_copyable(view: RefView) -> bool:
    """Whether the array has a tensor map, and the view is a box of it."""
    rank = len(view.root_shape)
    if view.space != "gmem" or not 1 <= rank <= MAX_RANK or 0 in view.root_shape or not view.shape:
        return False
    if view.root_dims[-1] != rank - 1 or max(view.root_shape) >= _UNKNOWN or view.element_bytes > 8:
        return False
    if any(s % ALIGNMENT_BYTES for s in _padded_strides(view)[:-1]):
        return False
    for number, step in enumerate(view.chain):
        if any(s != 1 and n != 1 for s, n in zip(step.strides, step.sizes, strict=True)):
            return False
        if number and any(step.checked):
            return False
    return True


def _padded_strides(view: RefView) -> list[int]:
    """Bytes between neighbours; that of a dimension of size 1 does not matter, and is made to fit."""
    strides = [s * view.element_bytes for s in row_strides(view.root_shape)]
    return [
        -(-s // ALIGNMENT_BYTES) * ALIGNMENT_BYTES if n == 1 else s
        for s, n in zip(strides, view.root_shape, strict=True)
    ]


def _swizzled_boxes(view: RefView, panels: Panels) -> tuple[tuple[int, ...], list[Piece]] | None:
    """Boxes of a tile of two dimensions in panels.  The last panel must be full, or end outside of the array."""
    if len(view.shape) != 2:
        return None
    (rows, columns), width = view.shape, panels.panel_columns
    last = len(view.root_shape) - 1
    if columns % width:
        bounds = view.bounds[last]
        if bounds is None or bounds[0] != 0 or view.root_shape[last] > columns:
            return None
    height = _largest_part(rows)
    if rows % height or (rows != height and height % 8):
        return None
    box, pieces = [1] * (last + 1), []
    box[view.root_dims[0]], box[last] = height, width
    for column in range(0, columns, width):
        for row in range(0, rows, height):
            start = [0] * (last + 1)
            start[view.root_dims[0]], start[last] = row, column
            pieces.append(Piece(tuple(start), column // width * panels.panel_bytes + row * panels.swizzle))
    return tuple(box), pieces


def _plain_boxes(view: RefView) -> tuple[tuple[int, ...], list[Piece]] | None:
    """Boxes of a row-major tile: whole rows as long as a box can hold them, else parts of single rows."""
    parts = [_largest_part(n) for n in view.shape]
    split = next((d for d in reversed(range(len(parts))) if parts[d] != view.shape[d]), 0)
    parts[:split] = [1] * split
    if any(n % p for n, p in zip(view.shape, parts, strict=True)):
        return None
    box = [1] * len(view.root_shape)
    for d, part in zip(view.root_dims, parts, strict=True):
        box[d] = part
    strides = row_strides(view.shape)
    pieces = []
    if math.prod(n // p for n, p in zip(view.shape, parts, strict=True)) > MAX_PIECES:
        return None
    for place in _grid(view.shape, parts):
        start = [0] * len(view.root_shape)
        for d, at in zip(view.root_dims, place, strict=True):
            start[d] = at
        offset = sum(a * s for a, s in zip(place, strides, strict=True)) * view.element_bytes
        pieces.append(Piece(tuple(start), offset))
    return tuple(box), pieces


def _grid(shape: tuple[int, ...], parts: list[int]) -> Iterator[tuple[int, ...]]:
    if not shape:
        yield ()
        return
    for first in range(0, shape[0], parts[0]):
        for rest in _grid(shape[1:], parts[1:]):
            yield (first, *rest)


def _largest_part(extent: int) -> int:
    """The largest extent of a box that cuts `extent` into equal parts, or `MAX_BOX` where there is no good one."""
    if extent <= MAX_BOX:
        return extent
    return next((p for p in range(MAX_BOX, 7, -8) if extent % p == 0), MAX_BOX)
