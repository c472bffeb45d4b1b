"""The blocks that are resident at the same time, with their registers and memories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.barriers import Barriers
from mosaic_gpu.simulator.bulk import BulkCopies
from mosaic_gpu.simulator.copies import Copies
from mosaic_gpu.simulator.mbarriers import Mbarriers
from mosaic_gpu.simulator.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW_BYTES,
    GlobalMemory,
    Region,
)
from mosaic_gpu.simulator.slots import View
from mosaic_gpu.simulator.taint import Taint
from mosaic_gpu.simulator.timing import Timing
from mosaic_gpu.simulator.warpgroups import Warpgroups

if TYPE_CHECKING:
    from mosaic_gpu.simulator.prepare import Kernel
    from mosaic_gpu.simulator.races import Races
    from mosaic_gpu.simulator.register_hazards import RegisterHazards

Array = np.ndarray[Any, np.dtype[Any]]
_ALIGN = 128
#: Of an H100.
_MULTIPROCESSORS = 132


@dataclass
class Counters:
    """What a launch has run so far; `limit` in thread-instructions, or 0 for none."""

    limit: int = 0
    instructions: int = 0
    warp_instructions: int = 0


@dataclass(frozen=True)
class Shape:
    """Launch shape: blocks and threads by dimension, blocks per cluster, bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int

    @property
    def blocks(self) -> int:
        """The number of blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]


def _strided(nbytes: int) -> int:
    return max(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)


class Wave:
    """The blocks with the given `numbers` of a launch.  Threads are numbered block by block; a warp's threads
    are neighbours, and the last warp of a block may have fewer than 32."""

    #: The race detector, if it is on.
    races: Races | None = None
    #: The watch over wgmma's registers, if the kernel has one and hazards are looked for.
    register_hazards: RegisterHazards | None = None

    def __init__(
        self, kernel: Kernel, shape: Shape, memory: GlobalMemory, params: Region, numbers: Array,
        emit: Callable[[str], None], counters: Counters, seed: int = 0,
    ) -> None:  # fmt: skip
        per_block = shape.threads
        self.kernel, self.shape, self.memory, self.params = kernel, shape, memory, params
        self.numbers, self.blocks = numbers, len(numbers)
        blocks = self.blocks
        self.per_block = per_block
        self.T = blocks * per_block
        self.iota = np.arange(self.T, dtype=np.int64)
        self.block_of = np.repeat(np.arange(blocks), per_block)
        self.tid = self.iota - self.block_of * per_block
        self.lane = self.tid & 31
        self.warps_per_block = -(-per_block // 32)
        self.warp_of = self.block_of * self.warps_per_block + (self.tid >> 5)
        self.warps = blocks * self.warps_per_block
        self.warp_bits = self.lane_bits(self.iota)
        self.exited_bits = np.zeros(self.warps, np.uint32)
        self.alive = np.full(blocks, per_block, np.int64)
        self.exited = 0
        self.emit, self.counters = emit, counters
        self.cluster_of, self.cluster_blocks, self.rank = self._clusters()
        self.barriers = Barriers(self)
        self.copies = Copies(self.T)
        self.timing = Timing(seed)
        self.warpgroups = Warpgroups(self)
        self.woken: list[tuple[int, Array]] = []
        self.mbarriers = Mbarriers(self)
        self.bulk = BulkCopies(self)
        self._starts: dict[tuple[str, int, int], Array] = {}
        self._memories(kernel.shared_bytes + shape.shared_bytes, kernel.local_bytes)
        self.slots = self._materialise()
        self.taint = Taint(self)

    def _memories(self, shared_bytes: int, local_bytes: int) -> None:
        stride = _strided(shared_bytes)
        total = stride * self.blocks
        self.shared = Region(
            "shared memory", SHARED_WINDOW, shared_bytes, np.zeros(total, np.uint8), unit="block",
            stride=stride, shadow=np.zeros(total, np.uint8),
        )  # fmt: skip
        stride = _strided(local_bytes) if local_bytes else 0
        self.local = Region(
            "local memory", LOCAL_WINDOW, local_bytes, np.zeros(stride * self.T, np.uint8), unit="thread",
            stride=stride,
        )  # fmt: skip

    def _clusters(self) -> tuple[Array, Array, Array]:
        """(the cluster of each resident block, the resident blocks of each cluster by rank, each block's rank).
        The clusters are numbered as they come in the wave, which holds all blocks of each."""
        shape, cluster = self.shape, self.shape.cluster
        if cluster == (1, 1, 1):
            each = np.arange(self.blocks)
            return each, each[:, None], np.zeros(self.blocks, np.int64)
        number = cluster_numbers(self.numbers, shape)
        rank = np.zeros(self.blocks, np.int64)
        for axis in (2, 1, 0):
            rank = rank * cluster[axis] + _coordinate(self.numbers, shape.grid, axis) % cluster[axis]
        number = np.unique(number, return_inverse=True)[1]
        members = np.zeros((int(number.max()) + 1, cluster[0] * cluster[1] * cluster[2]), np.int64)
        members[number, rank] = np.arange(self.blocks)
        return number, members, rank

    def block_number(self, block: int) -> int:
        """The number in the grid of a resident block."""
        return int(self.numbers[block])

    def clock(self) -> int:
        """The time that %clock shows: the thread-instructions run so far."""
        return self.counters.instructions

    def window(self, address: int) -> Region | None:
        """The region of a generic address outside global memory."""
        start = address // SHARED_WINDOW * SHARED_WINDOW
        if address - start >= WINDOW_BYTES:
            return None
        return {SHARED_WINDOW: self.shared, LOCAL_WINDOW: self.local, PARAM_WINDOW: self.params}.get(start)

    def unit_starts(self, region: Region, shift: int) -> Array:
        """The start of each thread's stretch of a region, in units of 2**shift bytes."""
        key = (region.unit, region.stride, shift)
        starts = self._starts.get(key)
        if starts is None:
            unit = self.block_of if region.unit == "block" else self.iota
            starts = self._starts[key] = unit * (region.stride >> shift)
        return starts

    def lane_bits(self, threads: Array) -> Array:
        """Per warp, the bits of the lanes that are among `threads`."""
        bits = np.bincount(self.warp_of[threads], weights=np.exp2(self.lane[threads]), minlength=self.warps)
        return bits.astype(np.uint32)

    @property
    def restless(self) -> bool:
        """True if something may happen besides the threads that run: sleepers have woken, copies are in flight."""
        return bool(self.woken or self.bulk.flying)

    def peer(self, blocks: Array, ranks: Array) -> Array:
        """The resident blocks of the given ranks in the clusters of `blocks`; ranks must be in range."""
        return self.cluster_blocks[self.cluster_of[blocks], ranks]

    def whole_warpgroups(self, there: Array) -> Array:
        """Per warp, whether all lanes of its warpgroup (four warps from a multiple of four on) are in `there`."""
        groups = -(-self.warps_per_block // 4)
        whole = np.zeros((self.blocks, 4 * groups), np.bool_)
        whole[:, : self.warps_per_block] = (there == 0xFFFFFFFF).reshape(self.blocks, -1)
        together = np.repeat(whole.reshape(-1, 4).all(axis=1), 4).reshape(self.blocks, -1)
        return together[:, : self.warps_per_block].reshape(-1)

    def _materialise(self) -> list[Array]:
        """The arrays of all slots, for all threads."""
        slots = self.kernel.slots
        what: Any
        storage = {kind: np.zeros((count, self.T), kind) for kind, count in slots.counts.items()}
        arrays: list[Array] = []
        for what in slots.views:
            if isinstance(what, View):
                row = storage[what.row.dtype][what.row.number]
                arrays.append(row.view(what.dtype)[what.start :: what.step])
            elif isinstance(what, tuple):
                arrays.append(self.special(what[0]).astype(what[1]))
            else:
                arrays.append(what)
        self.storage = storage
        return arrays

    def special(self, name: str) -> Array:
        """A special register of each thread; of length 1 where it is the same for all."""
        stem, _, axis = name[1:].partition(".")
        if axis:
            return self._by_axis(stem, "xyzw".index(axis))
        if stem.startswith("lanemask_"):
            return self._lane_mask(stem[-2:])
        return np.atleast_1d(np.asarray(self._scalar(stem)))

    def _scalar(self, stem: str) -> Any:
        shape, cluster = self.shape, self.shape.cluster
        match stem:
            case "laneid":
                return self.lane
            case "warpid":
                return self.tid >> 5
            case "nwarpid":
                return self.warps_per_block
            case "smid":
                return self.numbers[self.block_of] % _MULTIPROCESSORS
            case "nsmid":
                return _MULTIPROCESSORS
            case "dynamic_smem_size":
                return shape.shared_bytes
            case "total_smem_size" | "aggr_smem_size":
                return shape.shared_bytes + self.kernel.shared_bytes
            case "cluster_ctarank":
                return self.rank[self.block_of]
            case "cluster_nctarank":
                return cluster[0] * cluster[1] * cluster[2]
            case "is_explicit_cluster":
                return int(cluster != (1, 1, 1))
        return 1

    def _lane_mask(self, which: str) -> Array:
        bit = np.left_shift(np.uint64(1), self.lane.astype(np.uint64))
        masks = {"eq": bit, "lt": bit - np.uint64(1), "ge": ~(bit - np.uint64(1))}
        masks["le"], masks["gt"] = masks["lt"] | bit, masks["ge"] ^ bit
        return masks[which] & np.uint64(0xFFFFFFFF)

    def _by_axis(self, stem: str, axis: int) -> Array:
        if axis == 3:
            return np.zeros(1, np.int64)
        shape = self.shape
        counts = [-(-g // c) for g, c in zip(shape.grid, shape.cluster, strict=True)]
        sizes = {
            "ntid": shape.block,
            "nctaid": shape.grid,
            "cluster_nctaid": shape.cluster,
            "nclusterid": counts,
        }
        if stem in sizes:
            return np.array([sizes[stem][axis]], np.int64)
        if stem == "tid":
            return _coordinate(self.tid, shape.block, axis)
        block = _coordinate(self.numbers[self.block_of], shape.grid, axis)
        if stem == "ctaid":
            return block
        return block % shape.cluster[axis] if stem == "cluster_ctaid" else block // shape.cluster[axis]

    def describe(self, thread: int) -> str:
        """Where a thread stands: block, thread, warp, lane."""
        block = self.block_number(int(self.block_of[thread]))
        tid = int(self.tid[thread])
        where = [tuple(int(_coordinate(np.array(v), s, a)) for a in range(3))
                 for v, s in ((block, self.shape.grid), (tid, self.shape.block))]  # fmt: skip
        return f"block {where[0]}, thread {where[1]}, warp {tid // 32}, lane {tid % 32}"


def cluster_numbers(blocks: Array, shape: Shape) -> Array:
    """The cluster in the grid of each block."""
    numbers = np.zeros(len(blocks), np.int64)
    for axis in (2, 1, 0):
        size = shape.cluster[axis]
        numbers = numbers * (shape.grid[axis] // size) + _coordinate(blocks, shape.grid, axis) // size
    return numbers


def _coordinate(linear: Array, size: tuple[int, int, int], axis: int) -> Array:
    if axis == 0:
        return linear % size[0]
    return linear // size[0] % size[1] if axis == 1 else linear // (size[0] * size[1])
