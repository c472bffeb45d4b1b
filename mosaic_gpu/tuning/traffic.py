"""Bytes that a kernel moves: between the L2 cache and the multiprocessors, and between memory and the L2 cache.

One thread block runs the sequential steps of one point of the parallel grid, a *tile*.  Over these steps an input's
block changes or stays; one that stays is loaded once.  That counts its loads by one tile, hence the bytes from the L2
cache.

Tiles that run at the same time, a *wave*, share blocks: of a matrix product in which 132 tiles of 32 a row run at once,
the wave needs 32 different blocks of columns and 5 of rows at each step, not 132 of each.  What a wave needs comes from
memory once; but where all of a kernel's arrays fit into half the L2 cache, every byte does just once in all.

Index maps are evaluated, not guessed; one that looks something up in an operand is taken to give another block each
time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.lowering.jaxpr.grid import GridPlan
from mosaic_gpu.lowering.jaxpr.index_maps import evaluate
from mosaic_gpu.tuning.work import Work

_MOST_STEPS = 4096
_MOST_TILES = 4096
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Traffic:
    """Bytes of one launch.

    Attributes:
      tile_bytes: that one tile moves between the L2 cache and its multiprocessor, the mean over all tiles.
      tile_read_bytes: those of them that it reads.
      l2_bytes: that all tiles move.
      dram_bytes: that memory moves.
    """

    tile_bytes: float
    tile_read_bytes: float
    l2_bytes: float
    dram_bytes: float


@dataclass(frozen=True)
class _Stream:
    """One array: bytes that a tile moves, how many different blocks the tiles of a wave have, bytes of the array."""

    tile_bytes: float
    different: float
    array_bytes: float


def traffic_of(
    mapping: Any, plan: GridPlan, extents: Sequence[int], work: Work, first: int, wave: int, l2_bytes: int
) -> Traffic:
    """The traffic of a kernel.

    Arguments:
      mapping: Pallas' GridMapping.
      extents: of all grid dimensions.
      work: of one step.
      first: number of the first block-mapped array among the kernel's arguments.
      wave: how many tiles run at once.
      l2_bytes: size of the L2 cache.
    """
    tiles = math.prod(extents[d] for d in plan.parallel)
    steps = math.prod(extents[d] for d in plan.sequential)
    wave = max(1, min(wave, tiles))
    reads: list[_Stream] = []
    writes: list[_Stream] = []
    for number, block in enumerate(mapping.block_mappings):
        ids = _BlockIds(block, plan, extents)
        for moved, streams in ((work.reads[first + number], reads), (work.writes[first + number], writes)):
            if moved:
                streams.append(_stream(block, ids, moved * steps, wave))
    both = [*reads, *writes]
    tile = sum(s.tile_bytes for s in both)
    footprint = sum(min(s.array_bytes, s.tile_bytes * tiles) for s in both)
    by_waves = sum(s.tile_bytes * tiles * s.different / wave for s in both)
    dram = footprint if footprint <= l2_bytes / 2 else max(footprint, by_waves)
    return Traffic(tile, sum(s.tile_bytes for s in reads), tile * tiles, dram)


def _stream(block: Any, ids: _BlockIds, accessed: float, wave: int) -> _Stream:
    """`accessed`: bytes that all steps of a tile access: moved are at most those of the blocks that it gets."""
    array, inside = block.array_aval, _part_inside(block)
    size = math.prod(int(n) for n in array.shape) * np.dtype(array.dtype).itemsize
    width = math.prod(int(getattr(dim, "block_size", 1)) for dim in block.block_shape) * np.dtype(array.dtype).itemsize
    moved = min(accessed, ids.changes() * width) * inside
    return _Stream(moved, ids.different(wave), float(size))


def _part_inside(block: Any) -> float:
    """Of the bytes of all blocks, those that lie inside of the array: the others are not moved."""
    part = 1.0
    for size, dim in zip(block.array_aval.shape, block.block_shape, strict=True):
        width = int(getattr(dim, "block_size", 1))
        part *= int(size) / (math.ceil(int(size) / width) * width) if width and size else 1.0
    return part


class _BlockIds:
    """Which block of an array a step of the grid has."""

    def __init__(self, block: Any, plan: GridPlan, extents: Sequence[int]) -> None:
        self._block, self._plan, self._extents = block, plan, extents

    def changes(self) -> float:
        """How often one tile gets another block, the first time included."""
        dims = self._plan.sequential
        steps = math.prod(self._extents[d] for d in dims)
        looked_at = min(steps, _MOST_STEPS)
        found = self._along(dims, looked_at)
        if found is None:
            return steps
        return float(1 + (found[:, 1:] != found[:, :-1]).any(axis=0).sum()) * steps / looked_at

    def different(self, tiles: int) -> float:
        """How many different blocks so many neighbouring tiles have in one step."""
        looked_at = min(tiles, _MOST_TILES)
        found = self._along(self._plan.parallel, looked_at)
        if found is None:
            return tiles
        return len(np.unique(found, axis=1).T) * tiles / looked_at

    def _along(self, dims: Sequence[int], count: int) -> _Array | None:
        """The block's indices at the first `count` points along `dims`, the last fastest; others are at the middle."""
        points = [np.full(count, n // 2) for n in self._extents]
        if dims:
            places = np.unravel_index(np.arange(count), [self._extents[d] for d in dims])
            for d, place in zip(dims, places, strict=True):
                points[d] = place
        found = evaluate(self._block.index_map_jaxpr, points)
        return None if found is None else np.stack([np.broadcast_to(f, (count,)) for f in found] or [np.zeros(count)])
