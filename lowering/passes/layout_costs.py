"""What an access or a conversion costs in a given layout, in bytes moved.

The numbers only rank alternatives.  An access counts the 32-byte sectors that each warp instruction
touches, so an uncoalesced one costs up to eight times its bytes, plus a little for each instruction.  In
shared memory an instruction costs its bank conflicts.  A conversion counts the bytes it moves, and a
barrier where it goes through shared memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mosaic_gpu.dialect.layout_conversions import conversion
from mosaic_gpu.dialect.layouts import WARP_SIZE, Layout

SECTOR_BYTES = 32
BANKS = 32
BANK_BYTES = 4
INSTRUCTION_COST = 16
BARRIER_COST = 512


@lru_cache(4096)
def access_cost(
    layout: Layout,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    element_bytes: int,
    vector: int,
    space: str,
    leader_only: bool,
) -> int:
    """Bytes moved for a load or store of a tile of `shape` in `layout`, in accesses of `vector` elements.

    `strides`: elements between neighbours along each dimension in memory.  `leader_only`: only one of the
    warps that hold the same element takes part (a store).
    """
    lanes = layout.thread_coordinates()[:WARP_SIZE]
    inside = (lanes < np.array(shape)).all(axis=1)
    addresses = (lanes[inside] @ np.array(strides, np.int64)) * element_bytes
    instructions = max(1, layout.num_registers(shape) // vector)
    warps = layout.num_warps >> (layout.free_warps.bit_count() if leader_only else 0)
    width = vector * element_bytes
    once = _sectors(addresses, width) * SECTOR_BYTES if space == "gmem" else _bank_bytes(addresses, width)
    return warps * instructions * (once + INSTRUCTION_COST)


def _sectors(addresses: np.ndarray[tuple[int], np.dtype[np.int64]], width: int) -> int:
    """Sectors that accesses of `width` bytes at these byte addresses touch."""
    first, last = addresses // SECTOR_BYTES, (addresses + width - 1) // SECTOR_BYTES
    return len(set(first.tolist()) | set(last.tolist()))


def _bank_bytes(addresses: np.ndarray[tuple[int], np.dtype[np.int64]], width: int) -> int:
    """Bytes that shared memory could have moved in the time that these accesses take."""
    words = {word for a in addresses.tolist() for word in range(a // BANK_BYTES, (a + width - 1) // BANK_BYTES + 1)}
    loads = [0] * BANKS
    for word in words:
        loads[word % BANKS] += 1
    return max(loads, default=0) * BANKS * BANK_BYTES


@lru_cache(4096)
def conversion_cost(source: Layout, dest: Layout, shape: tuple[int, ...], element_bytes: int) -> int:
    """Bytes moved by converting a tile of `shape` from `source` to `dest`."""
    kind = conversion(source, dest, shape).kind
    if kind == "registers":
        return 0
    loaded = dest.num_threads * dest.num_registers(shape) * element_bytes
    if kind == "shuffle":
        return loaded
    stored = (source.num_threads >> source.free_threads.bit_count()) * source.num_registers(shape) * element_bytes
    return stored + loaded + BARRIER_COST


@lru_cache(4096)
def reduction_cost(layout: Layout, shape: tuple[int, ...], axes: tuple[int, ...], element_bytes: int) -> int:
    """Bytes moved by folding a tile of `shape` along `axes`: shuffles for lanes, shared memory for warps."""
    kept = [d for d in range(layout.rank) if d not in axes]
    partial = max(1, int(np.prod([r for d, r in enumerate(layout.reps(shape)) if d in kept], dtype=np.int64)))
    partial <<= sum(any(image[d] for d in kept) for image in layout.register)
    held = partial * layout.num_threads * element_bytes
    lanes = sum(any(image[d] for d in axes) for image in layout.lane)
    warps = any(any(image[d] for d in axes) for image in layout.warp)
    return lanes * held + (2 * held + BARRIER_COST if warps else 0)
