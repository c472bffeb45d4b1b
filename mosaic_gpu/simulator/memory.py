"""Memory: regions of bytes, and the checked way of reaching them.

Addresses are numbers of the simulator's own: each buffer is a region of global memory with a wide
unmapped gap (the red zone) on both sides; the bytes are the caller's own array.  Shared and local
memory are one array for all resident blocks (threads), where a block (thread) has its own stretch.

    generic address     what
    SHARED_WINDOW + o   byte o of the block's shared memory
    SHARED_WINDOW + ((r + 1) << 24) + o   byte o of the shared memory of the block of rank r in the cluster
    LOCAL_WINDOW + o    byte o of the thread's local memory
    PARAM_WINDOW + o    byte o of the kernel's parameters
    anything else       global and constant memory
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.ptx import Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame

Array = np.ndarray[Any, np.dtype[Any]]

SHARED_WINDOW = 1 << 48
#: An address of shared::cluster holds the block's rank in its cluster plus 1 from this bit on; 0 is the own block.
RANK_SHIFT = 24
LOCAL_WINDOW = 2 << 48
PARAM_WINDOW = 3 << 48
WINDOW_BYTES = 1 << 32
FUNCTION_BASE = 0x7D00_0000_0000
MODULE_BASE = 0x7E00_0000_0000
BUFFER_BASE = 0x7F00_0000_0000
RED_ZONE_BYTES = 1 << 20
_MASK = (1 << 64) - 1


class Region:
    """A stretch of memory.

    `base` is its generic address, `size` the bytes that one thread can reach, `data` the bytes of all.
    With `unit` "block" or "thread" each block or thread has its own `stride` bytes of `data`.
    `shadow`, if any, holds 0xFF for each byte that has been written.
    """

    def __init__(
        self, name: str, base: int, size: int, data: Array, *, unit: str = "", stride: int = 0,
        shadow: Array | None = None, writable: bool = True,
    ) -> None:  # fmt: skip
        self.name, self.base, self.size, self.data = name, base, size, data
        self.unit, self.stride, self.shadow, self.writable = unit, stride, shadow, writable
        self._views: dict[tuple[str, int, bool], Array] = {}

    def typed(self, dtype: np.dtype[Any], count: int, *, shadow: bool = False) -> Array:
        """The bytes as elements of `dtype`; with `count` > 1 as rows of that many."""
        key = (dtype.str, count, shadow)
        view = self._views.get(key)
        if view is None:
            data = self.shadow if shadow and self.shadow is not None else self.data
            width = dtype.itemsize * count
            view = data[: len(data) // width * width].view(dtype)
            view = self._views[key] = view.reshape(-1, count) if count > 1 else view
        return view


class GlobalMemory:
    """The regions of global and constant memory, found by address."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.bases: list[int] = []
        self.base_array = np.zeros(0, np.uint64)

    def add(self, region: Region) -> None:
        """Maps a region; regions do not overlap."""
        at = bisect_right(self.bases, region.base)
        self.regions.insert(at, region)
        self.bases.insert(at, region.base)
        self.base_array = np.array(self.bases, np.uint64)

    def find(self, address: int) -> Region | None:
        """The last region that starts at or below the address."""
        at = bisect_right(self.bases, address)
        return self.regions[at - 1] if at else None


class Access:
    """How one instruction reaches memory: `total` bytes at V[slot] + offset, naturally aligned.

    `targets` are the registers (function, name) that a plain load writes, None for each that is thrown away; `number`
    is its place among the kernel's accesses; `order` its memory order ("": a plain access), which is
    `strong` if it is relaxed, volatile or more.  `remote` allows addresses of other blocks of the cluster in the
    space "shared"; generic addresses always may be.
    """

    targets: tuple[tuple[str, str] | None, ...] = ()
    number = 0
    order = ""
    strong = False
    remote = False

    def __init__(self, instruction: Instruction, space: str, slot: int, offset: int, total: int, what: str) -> None:
        self.instruction, self.space, self.slot, self.total, self.what = instruction, space, slot, total, what
        self.offset = offset
        self.shift = total.bit_length() - 1
        self.delta64, self.delta32 = np.uint64(offset & _MASK), np.uint32(offset & 0xFFFFFFFF)

    def reach(self, slots: list[Array], frame: Frame) -> Iterator[tuple[Region, Array, Array | None]]:
        """Yields (region, index, threads): `index` counts in units of the access's bytes; `threads` are
        positions in the frame, or None for all.  An `index` of length 1 stands for every thread.  Raises
        SimulationError for an access that is out of bounds or misaligned."""
        address = slots[self.slot]
        if address.dtype.itemsize == 4:
            address = np.add(address, self.delta32).astype(np.uint64)
        elif self.offset:
            address = np.add(address, self.delta64)
        region = self._region(frame, address)
        if region is not None:
            offset = np.subtract(address, np.uint64(region.base)) if self.space not in ("shared", "local") else address
            if int(offset.max()) + self.total <= region.size:
                yield region, self._index(region, offset, frame, None), None
                return
        yield from self._split(address, frame)

    def _region(self, frame: Frame, address: Array) -> Region | None:
        wave = frame.wave
        if self.space == "shared":
            return wave.shared
        if self.space == "local":
            return wave.local
        first = int(address[0])
        if self.space in ("", "param") and first >= SHARED_WINDOW:
            return wave.window(first)
        return wave.memory.find(first)

    def _index(self, region: Region, offset: Array, frame: Frame, chosen: Array | None) -> Array:
        if self.total > 1 and int(np.bitwise_or.reduce(offset)) & (self.total - 1):
            self._misaligned(region, offset, frame, chosen)
        index = np.right_shift(offset, np.uint64(self.shift)).view(np.int64)
        if region.unit:
            start = frame.unit_starts(region, self.shift)
            index = index + (start if chosen is None else start[chosen])
        return index

    def _split(self, address: Array, frame: Frame) -> Iterator[tuple[Region, Array, Array | None]]:
        """The general case: the threads reach different regions, or one is out of bounds."""
        wave = frame.wave
        address = np.broadcast_to(address, frame.n)
        if self.remote:
            yield wave.shared, self._peers(address, frame, None), None
            return
        if self.space in ("shared", "local"):
            own = wave.shared if self.space == "shared" else wave.local
            over = np.argmax(address + np.uint64(self.total) > own.size)
            raise self._fault(own, address, int(over), frame)
        generic = self.space in ("", "param")
        keys = np.searchsorted(wave.memory.base_array, address, side="right").astype(np.int64) - 1
        if generic:
            window = (address >> np.uint64(48)).astype(np.int64)
            keys = np.where(window > 0, -1 - window, keys)
        parts = []
        for key in np.unique(keys).tolist():
            chosen = np.flatnonzero(keys == key)
            region = wave.memory.regions[key] if key >= 0 else wave.window(int(address[chosen[0]]))
            if region is None:
                raise self._fault(None, address, int(chosen[0]), frame)
            offset = np.subtract(address[chosen], np.uint64(region.base))
            if region is wave.shared:
                parts.append((region, self._peers(offset, frame, chosen), chosen))
                continue
            bad = offset + np.uint64(self.total) > region.size
            if bad.any():
                raise self._fault(region, address, int(chosen[np.argmax(bad)]), frame)
            parts.append((region, self._index(region, offset, frame, chosen), chosen))
        yield from parts

    def _peers(self, offset: Array, frame: Frame, chosen: Array | None) -> Array:
        """Indexes into shared memory for offsets that may name another block of the cluster."""
        wave, shared = frame.wave, frame.wave.shared
        blocks = wave.block_of[frame.ids if chosen is None else frame.ids[chosen]]
        rank = (offset >> np.uint64(RANK_SHIFT)).astype(np.int64) - 1
        within = offset & np.uint64((1 << RANK_SHIFT) - 1)
        bad = (within + np.uint64(self.total) > shared.size) | (rank >= wave.cluster_blocks.shape[1])
        if bad.any():
            at = int(np.argmax(bad))
            where = f"byte {_signed(int(offset[at]))} of {shared.name} ({shared.size} bytes)"
            if 0 <= rank[at] < 16:
                where = f"byte {int(within[at])} of {shared.name} ({shared.size} bytes) of the block of rank {rank[at]}"
                where += f" in a cluster of {wave.cluster_blocks.shape[1]}"
            position = at if chosen is None else int(chosen[at])
            raise self.error(f"out-of-bounds {self.what}: {self.total} bytes at {where}", frame, position)
        if self.total > 1 and int(np.bitwise_or.reduce(within)) & (self.total - 1):
            self._misaligned(shared, within, frame, chosen)
        blocks = np.where(rank < 0, blocks, wave.peer(blocks, np.maximum(rank, 0)))
        index: Array = (within >> np.uint64(self.shift)).astype(np.int64) + blocks * (shared.stride >> self.shift)
        return index

    def _misaligned(self, region: Region, offset: Array, frame: Frame, chosen: Array | None) -> None:
        position = int(np.argmax((offset & np.uint64(self.total - 1)) != 0))
        where = int(offset[position])
        position = position if chosen is None else int(chosen[position])
        raise self.error(
            f"misaligned {self.what}: {self.total} bytes at byte {where} of {region.name}", frame, position,
            hint=f"the address must be a multiple of {self.total}",
        )  # fmt: skip

    def _fault(self, region: Region | None, address: Array, position: int, frame: Frame) -> SimulationError:
        where = int(address[position])
        near = region if region is not None else frame.wave.memory.find(where)
        after = frame.wave.memory.bases[bisect_right(frame.wave.memory.bases, where) :]
        if self.space not in ("shared", "local") and near is not None and near is not region:
            region = near
        place = f"address {where:#x}"
        if region is not None and self.space in ("shared", "local"):
            place = f"byte {_signed(where)} of {region.name} ({region.size} bytes)"
        elif after and after[0] - where <= RED_ZONE_BYTES // 2:
            behind = frame.wave.memory.find(after[0])
            place = f"{after[0] - where} bytes before {behind.name if behind else ''}"
        elif region is not None:
            place = f"byte {where - region.base} of {region.name} ({region.size} bytes)"
        return self.error(f"out-of-bounds {self.what}: {self.total} bytes at {place}", frame, position)

    def error(self, what: str, frame: Frame, position: int, *, hint: str = "") -> SimulationError:
        """A fault of the thread at `position` of the frame."""
        return frame.error(self.instruction, what, position, hint=hint)

    def written(self, region: Region, frame: Frame) -> None:
        """Raises SimulationError if the region may not be written."""
        if not region.writable:
            raise self.error(f"{self.what} to {region.name}, which is read-only", frame, 0)


def _signed(offset: int) -> int:
    if offset >= 1 << 63:
        return offset - (1 << 64)
    return offset - (1 << 32) if 1 << 31 <= offset < 1 << 32 else offset


def window_slice(index: Array, iota: Array) -> slice | None:
    """The slice that the indices are, if they count up by one; else None."""
    n = len(index)
    if n < 64 or n > len(iota):
        return None
    first, last = int(index[0]), int(index[-1])
    if last - first != n - 1:
        return None
    distance = np.subtract(index, iota[:n])
    if int(distance.max()) == first and int(distance.min()) == first:
        return slice(first, last + 1)
    return None
