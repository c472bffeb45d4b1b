"""Swizzled shared memory: where an element lies so that the matrix units and TMA find it, and no banks collide.

A tile of R rows and C columns is cut into *panels* of S bytes of columns (S = 32, 64 or 128, the swizzle).  A panel
is R rows of S bytes, one after another; panels follow each other.  Inside a panel the 16-byte chunks of a
row are permuted: the byte offset x becomes

    x ^ ((x >> 3) & (S - 16))           (bits 4 .. of the offset XOR its bits 7 ..; PTX ISA, "Swizzling modes")

so that eight neighbouring rows hold one column of chunks in eight different groups of banks.  For S = 128
and 2-byte elements:

    row  column   panel  x             swizzled
    0    0        0      0             0
    1    0        0      128           128 ^ 16  = 144
    1    8        0      144           144 ^ 16  = 128
    9    0        0      1152          1152 ^ 16 = 1168
    0    64       1      128 R         128 R                (R is a multiple of 8)

Offsets are linear over XOR in the bits of row and column, as register layouts are.  The tile starts at a multiple
of 8 S bytes, rows are a multiple of 8 and columns fill whole panels: what allocates rounds up.

An `mgpu.alloc` is swizzled where it has the attribute `mgpu.swizzle` (S in bytes); dimensions before the last two
count such tiles (the stages of a pipeline).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits

SWIZZLE = "mgpu.swizzle"
CHUNK_BYTES = 16
PERIOD_ROWS = 8
ALIGNMENT = 1024
"""Of every swizzled allocation, in bytes: the period of the widest swizzle."""
SWIZZLES = (32, 64, 128)


@dataclass(frozen=True)
class Panels:
    """The arrangement of one swizzled tile: `swizzle` bytes a panel row, `rows` x `columns` elements."""

    swizzle: int
    rows: int
    columns: int
    element_bytes: int

    @property
    def panel_columns(self) -> int:
        """Columns in one panel."""
        return self.swizzle // self.element_bytes

    @property
    def panel_bytes(self) -> int:
        """Bytes from one panel to the next."""
        return self.rows * self.swizzle

    def offset(self, row: int, column: int) -> int:
        """Bytes from the tile's start to an element."""
        panel, inner = divmod(column * self.element_bytes, self.swizzle)
        return panel * self.panel_bytes + self.swizzled(row * self.swizzle + inner)

    def in_panel(self, row: int, column: int) -> int:
        """Bytes from the start of the element's panel; linear over XOR in the bits of row and column."""
        return self.swizzled(row * self.swizzle + column * self.element_bytes % self.swizzle)

    def panel(self, column: int) -> int:
        """Number of the panel that holds a column; linear over XOR."""
        return column * self.element_bytes // self.swizzle

    def swizzled(self, offset: int) -> int:
        """A linear byte offset in a panel with its chunks permuted."""
        return offset ^ (offset >> 3 & self.mask)

    @property
    def mask(self) -> int:
        """The bits of an offset that the swizzle changes."""
        return self.swizzle - CHUNK_BYTES


def swizzle_for(columns: int, element_bytes: int) -> int:
    """The narrowest swizzle whose panel holds `columns` columns, or the widest."""
    return next((s for s in SWIZZLES if columns * element_bytes <= s), SWIZZLES[-1])


def swizzle_of(alloc: Any) -> int:
    """The swizzle of an `mgpu.alloc` operation in bytes; 0 where it has none."""
    return int(ir.IntegerAttr(alloc.attributes[SWIZZLE]).value) if SWIZZLE in alloc.attributes else 0


def panels_of(alloc: Any) -> Panels | None:
    """The arrangement of the tiles of an `mgpu.alloc` operation; None where it is not swizzled."""
    swizzle = swizzle_of(alloc)
    if not swizzle:
        return None
    type_ = alloc.results[0].type
    rows, columns = shape_of(type_)[-2:]
    return Panels(swizzle, rows, columns, storage_bits(element_of(type_)) // 8)
