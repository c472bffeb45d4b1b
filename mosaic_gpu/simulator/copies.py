"""Asynchronous copies on their way: they land when they are waited for, and not before.

Until then the destination counts as not written, so a read without the wait is an error.  Each thread
counts its own groups: `cp.async.wait_group n` lands all but its n youngest ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.memory import Access, Region
from mosaic_gpu.simulator.ptx import TYPES

if TYPE_CHECKING:
    from mosaic_gpu.simulator.races import Races

Array = np.ndarray[Any, np.dtype[Any]]
#: What the shadow of shared memory holds for a byte that a copy is on its way to.
IN_FLIGHT = 0x0F


@dataclass
class Copy:
    """Copies of `size` bytes, one per thread: `threads` and their `group` numbers, where each one goes
    (`target`, in units of `size`) and comes from, and how many bytes are read (the rest is zero)."""

    threads: Array
    group: Array
    size: int
    region: Region
    target: Array
    source_region: Region
    source: Array
    read_bytes: Array
    access: Access | None = None

    def land(self, chosen: Array) -> None:
        """Lands the copies at positions `chosen`."""
        whole = self.read_bytes[chosen] == self.size
        if whole.all():
            unit, count = np.dtype(f"u{min(self.size, 8)}"), max(1, self.size // 8)
            rows = self.source_region.typed(unit, count).take(self.source[chosen], axis=0)
            self._write(chosen, rows, unit, count)
            return
        data = self.source_region.typed(TYPES["b8"], 1)
        start = self.source[chosen, None] * self.size + np.arange(self.size)
        kept = np.arange(self.size) < self.read_bytes[chosen, None]
        values = np.where(kept, data[np.where(kept, start, 0)] if len(data) else 0, 0).astype(np.uint8)
        self._write(chosen, values, TYPES["b8"], self.size)

    def _write(self, chosen: Array, rows: Array, unit: np.dtype[Any], count: int) -> None:
        where = self.target[chosen]
        self.region.typed(unit, count)[where] = rows
        self.region.typed(unit, count, shadow=True)[where] = unit.type((1 << 8 * unit.itemsize) - 1)

    def without(self, gone: Array) -> Copy:
        """The copies that are still on their way."""
        keep = ~gone
        return Copy(self.threads[keep], self.group[keep], self.size, self.region, self.target[keep],
                    self.source_region, self.source[keep], self.read_bytes[keep], self.access)  # fmt: skip


class Copies:
    """The copies in flight of a wave, and the number of the group that each thread is filling."""

    def __init__(self, threads: int) -> None:
        self.group = np.zeros(threads, np.int64)
        self.flying: list[Copy] = []
        self.races: Races | None = None

    def wait(self, ids: Array, most: int) -> None:
        """Lands the groups of these threads except the `most` youngest of those committed."""
        waits = np.zeros(len(self.group), np.bool_)
        waits[ids] = True
        left = []
        for copy in self.flying:
            done = waits[copy.threads] & (copy.group < self.group[copy.threads] - most)
            if done.any():
                copy.land(np.flatnonzero(done))
                if self.races is not None:
                    self.races.copies.copied(copy, np.flatnonzero(done))
                copy = copy.without(done)
            if len(copy.threads):
                left.append(copy)
        self.flying = left
