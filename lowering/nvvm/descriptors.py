"""Matrix descriptors: how `wgmma` is told where an operand lies in shared memory.

PTX ISA, "Matrix Descriptor Format" of `wgmma`: 64 bits, with addresses and offsets in units of 16 bytes:

    bits 0-13    start address
    bits 16-29   leading dimension byte offset (LBO)
    bits 32-45   stride dimension byte offset (SBO)
    bits 49-51   base offset: 0 where the tile starts at a multiple of the swizzle's period
    bits 62-63   swizzle: 1 = 128 bytes, 2 = 64, 3 = 32

An operand is made of blocks of eight rows of S bytes (`lowering.swizzles`), which lie one after another in a panel.

* K along the rows ("K-major"): M or N goes down the rows, so SBO = 8 S (the next eight rows). One instruction contracts
  32 bytes of K, which lie in one panel: LBO is not used.  The next step of K starts 32 bytes further, or in the next
  panel.
* M or N along the rows ("MN-major", 16-bit operands only): K goes down the rows, so SBO = 8 S is the way to the next
  eight of K, and LBO is the way to the next S bytes of M or N: the size of a panel.

    operand              S    rows  first row, K step          start address
    A 128x64 f16, K      128  128   64, step 2 (K = 32 ..)     64 * 128 + 64
    B 64x256 f16, N      128  64    -, step 1 (K = 16 ..)      16 * 128
"""

from __future__ import annotations

from dataclasses import dataclass

from mosaic_gpu.dialect.dot_layouts import K_BYTES
from mosaic_gpu.lowering.swizzles import PERIOD_ROWS, Panels

UNIT_BYTES = 16
ADDRESS_MASK = 0x3FFFF
"""Bits of a shared memory address that a descriptor holds."""
_SWIZZLE_CODES = {128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Operand:
    """An operand of `wgmma` in swizzled shared memory; `k_major`: K is along the rows of memory."""

    panels: Panels
    k_major: bool

    @property
    def constant(self) -> int:
        """The descriptor of an operand at address 0."""
        lbo = 0 if self.k_major else self.panels.panel_bytes
        sbo = PERIOD_ROWS * self.panels.swizzle
        fields = (lbo // UNIT_BYTES << 16) | (sbo // UNIT_BYTES << 32)
        return fields | _SWIZZLE_CODES[self.panels.swizzle] << 62

    def step_bytes(self, step: int) -> int:
        """Bytes from the operand's start to its K step number `step` (32 bytes of K each)."""
        if self.k_major:
            panel, inner = divmod(step * K_BYTES, self.panels.swizzle)
            return panel * self.panels.panel_bytes + inner
        return step * (K_BYTES // self.panels.element_bytes) * self.panels.swizzle

    def offset_bytes(self, rows: int) -> int:
        """Bytes from the operand's start to its row (of A; column of B) `rows`.

        That is a multiple of 8, and of a panel's columns where M or N is along the rows of memory.
        """
        if self.k_major:
            return rows * self.panels.swizzle
        return rows // self.panels.panel_columns * self.panels.panel_bytes
