"""wgmma's operands in shared memory: the 64-bit matrix descriptor, and where it says the elements lie.

    bits     field
    0-13     start address / 16
    16-29    leading dimension byte offset (LBO) / 16
    32-45    stride dimension byte offset (SBO) / 16
    49-51    base offset: (address of the pattern's start / 128) % 8, 0 if that is aligned to the pattern
    62-63    swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
(PTX ISA, "Matrix Descriptor Format" and "Shared Memory Matrix Layout" of wgmma.)

Memory moves in chunks of 16 bytes.  An instruction takes 32 bytes along K, two chunks, of each row of A (or
column of B) if K is the contiguous dimension; if M or N is (16-bit types only), a chunk is 8 elements along
it for one of 16 values of k.  With w the swizzle's width in bytes (32, 64, 128), chunk (row r, chunk c along
K) or (chunk m along M or N, k) is at

    contiguous   swizzle   offset from the start address
    K            none      r % 8 * 16 + r // 8 * SBO + c * LBO
    K            w         r % 8 * w  + r // 8 * SBO + c * 16
    M or N       none      k % 8 * 16 + k // 8 * LBO + m * SBO
    M or N       w         k % 8 * w  + k // 8 * SBO + m % (w / 16) * 16 + m // (w / 16) * LBO

and the swizzle then exchanges chunks: bits 4.. of the address are XORed with bits 7.. of it (1, 2 or 3 of
them for 32, 64 or 128 bytes), counted from the base offset.  With 128 bytes, start 0, row 3: chunks 0 and 1
at 384 and 400 are found at 384 + 48 and 384 + 32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
#: Field of the descriptor -> (bits exchanged, width in bytes).
_SWIZZLES = {0: (0, 0), 1: (3, 128), 2: (2, 64), 3: (1, 32)}
CHUNK_BYTES = 16
_K_CHUNKS, _MN_DEPTH = 2, 16


class Descriptor(NamedTuple):
    """The fields, offsets in bytes; `swizzle` is the number of address bits exchanged."""

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: int
    width: int


def parse_descriptor(bits: int) -> Descriptor:
    """The fields of a descriptor."""
    swizzle, width = _SWIZZLES[bits >> 62 & 3]
    return Descriptor((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4,
                      bits >> 49 & 7, swizzle, width)  # fmt: skip


@lru_cache(maxsize=512)
def chunk_addresses(bits: int, size: int, k_major: bool) -> Array:
    """The address in the block's shared memory of every 16-byte chunk of an operand with `size` rows (or
    columns): (size, 2) if K is contiguous, else (16, size / 8)."""
    d = parse_descriptor(bits)
    if k_major:
        row, chunk = np.ogrid[:size, :_K_CHUNKS]
        pitch, step = (d.width, CHUNK_BYTES) if d.width else (CHUNK_BYTES, d.leading)
        offset = row % 8 * pitch + row // 8 * d.stride + chunk * step
    else:
        k, chunk = np.ogrid[:_MN_DEPTH, : size // 8]
        if d.width:
            per_row = d.width // CHUNK_BYTES
            offset = k % 8 * d.width + k // 8 * d.stride + chunk % per_row * CHUNK_BYTES + chunk // per_row * d.leading
        else:
            offset = k % 8 * CHUNK_BYTES + k // 8 * d.leading + chunk * d.stride
    return swizzled(d.start + offset, d.swizzle, d.base_offset)


def swizzled(address: Array, bits: int, base_offset: int = 0) -> Array:
    """Addresses in shared memory with `bits` address bits from bit 4 on XORed with those from bit 7 on."""
    if not bits:
        return address
    phase = ((address >> 7) - base_offset) & ((1 << bits) - 1)
    return np.asarray(address ^ (phase << 4))
