"""What happens before what: the order that synchronisation gives to accesses to memory; `races.py` uses it.

Time is one counter that each synchronisation moves on.  `known[w, v]` says up to which time the accesses of warp v
are known to (happen before what is next done by) warp w; `known[w, w]` says so for the lanes of one warp.  An
access that happened at time t in warp v is ordered before one by warp w if t <= known[w, v]:

    time 1   warp 0 writes            record (1, warp 0)
             bar.sync of both         known[1, 0] = 1, and time moves on to 2
    time 2   warp 1 reads             1 <= known[1, 0]: no race
    time 2   warp 0 writes            record (2, warp 0); warp 1 read at 2 > known[0, 1] = 1: a race

With W warps in a block (or its cluster), a kernel that has bulk copies or wgmma has 2 W columns more: in
`known[w, W + v]` up to which time the accesses of v were followed by a fence.proxy.async before w came to know them,
and in `known[w, 2 W + v]` up to which time the asynchronous accesses that v started are known to have finished.

`floor` is the time up to which every access of a block's warps is ordered before all that follows, so that after a
barrier of all one comparison with `limit`, the least record that may be unordered, is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.race_records import FUTURE, TIME_SHIFT

if TYPE_CHECKING:
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]


class HappensBefore:
    """The order of a launch's accesses; `start_wave` is called for each wave."""

    wave: Wave
    known: Array
    floor: Array

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.now = 1

    def start_wave(self, wave: Wave) -> None:
        """All of the last wave is over."""
        self.wave = wave
        self.now += 1
        self.start = self.now
        self.cluster_size = int(np.prod(wave.shape.cluster))
        self.warps_wide = self.cluster_size * wave.warps_per_block
        self.width = self.warps_wide * (3 if self.asynchronous else 1)
        self.block_of_warp = np.repeat(np.arange(wave.blocks), wave.warps_per_block)
        self.column = (wave.rank[:, None] * wave.warps_per_block + np.arange(wave.warps_per_block)).reshape(-1)
        self.column_of = self.column[wave.warp_of]
        self.arrived: dict[int, Array] = {}
        self.completed: dict[int, Array] = {}
        self.fences: Array | None = None
        self.flags = np.zeros((0, 0), np.int64)
        self.heard = self.flags
        self.forget()

    def forget(self) -> None:
        """Starts anew: everything so far is ordered."""
        self.known = np.full((self.wave.warps, self.width), self.now - 1, np.int64)
        self.floor = np.full(self.wave.blocks, self.now - 1, np.int64)
        self.limit = self.now << TIME_SHIFT

    def tick(self) -> None:
        """Time moves on, after a synchronisation."""
        self.now += 1
        if self.now >= FUTURE - 1:
            self.now = self.start = 2
            self.forget()

    def everyone(self) -> None:
        """All threads of all blocks passed a barrier of their block together."""
        if self.cluster_size == 1:
            self.known[:, : self.warps_wide] = self.now
            if self.width > self.warps_wide:
                rows = self.known.reshape(self.wave.blocks, -1, self.width)[:, :, self.warps_wide :]
                rows[...] = rows.max(axis=1, keepdims=True)
            self.floor.fill(self.now)
            self.limit = self.now + 1 << TIME_SHIFT
        else:
            total, blocks = self.totals(self.wave.blocks), np.arange(self.wave.blocks)
            self._add(total, blocks, *self.knowledge(self.wave.iota))
            self.acquire_rows(np.arange(self.wave.warps), total[self.block_of_warp])
        self.tick()

    def knowledge(self, threads: Array) -> tuple[Array, Array]:
        """(warps of the threads, what each of them knows: a row with its own time up to now)."""
        warps = self.wave.warp_of[threads]
        if len(warps) > 1:
            warps = warps[np.concatenate([[True], warps[1:] != warps[:-1]])]
        rows = self.known[warps]
        rows[np.arange(len(warps)), self.column[warps]] = self.now
        return warps, rows

    def release(self, total: Array, threads: Array, units: Array) -> None:
        """Adds what the threads know to `total[unit of the warp]`; `units` are per block."""
        self._add(total, units, *self.knowledge(threads))
        self.tick()

    def _add(self, total: Array, units: Array, warps: Array, rows: Array) -> None:
        unit = units[self.block_of_warp[warps]]
        starts = np.flatnonzero(np.concatenate([[True], unit[1:] != unit[:-1]]))
        np.maximum.at(total, unit[starts], np.maximum.reduceat(rows, starts, axis=0))

    def acquire(self, total: Array, threads: Array, units: Array) -> None:
        """The threads come to know `total[unit of the warp]`."""
        warps = np.unique(self.wave.warp_of[threads])
        self.acquire_rows(warps, total[units[self.block_of_warp[warps]]])

    def acquire_rows(self, warps: Array, rows: Array) -> None:
        """The warps come to know `rows`; the floors of their blocks rise."""
        self.known[warps] = np.maximum(self.known[warps], rows)
        units = self.wave.cluster_of if self.cluster_size > 1 else np.arange(self.wave.blocks)
        lowest = np.full(int(units.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(lowest, units[self.block_of_warp], self.known[:, : self.warps_wide].min(axis=1))
        self.floor = lowest[units]
        self.limit = int(self.floor.min()) + 1 << TIME_SHIFT

    def totals(self, count: int) -> Array:
        """Room for what `count` barriers are told."""
        return np.zeros((count, self.width), np.int64)

    def arrive(self, index: int, threads: Array) -> None:
        """Threads arrive at the mbarrier at `index`."""
        known = self.arrived.setdefault(index, np.zeros(self.width, np.int64))
        np.maximum(known, self.knowledge(threads)[1].max(axis=0), out=known)
        self.tick()

    def complete(self, index: int) -> None:
        """The phase of the mbarrier is complete."""
        known = self.arrived.pop(index, None)
        if known is not None:
            before = self.completed.get(index)
            self.completed[index] = known if before is None else np.maximum(before, known)

    def pass_mbarrier(self, index: int, threads: Array) -> None:
        """Threads have seen that a phase of the mbarrier is complete."""
        known = self.completed.get(index)
        if known is not None:
            warps = np.unique(self.wave.warp_of[threads])
            self.acquire_rows(warps, np.broadcast_to(known, (len(warps), self.width)))

    def proxy_fence(self, threads: Array) -> None:
        """fence.proxy.async: the accesses that are known now are known to the async proxy too."""
        if self.width > self.warps_wide:
            warps, rows = self.knowledge(threads)
            self.known[warps, self.warps_wide : 2 * self.warps_wide] = rows[:, : self.warps_wide]
            self.tick()

    def finished(self, thread: int, warps: Array) -> None:
        """The warps know that the asynchronous accesses that `thread` started have finished."""
        column = 2 * self.warps_wide + self.column_of[thread]
        self.known[warps, column] = self.now

    def finish_copy(self, index: int, thread: int) -> None:
        """A bulk copy of `thread` has landed, and the mbarrier at `index` knows it."""
        if self.asynchronous:
            known = self.arrived.setdefault(index, np.zeros(self.width, np.int64))
            known[2 * self.warps_wide + self.column_of[thread]] = self.now
            self.tick()

    def warp_barrier(self, threads: Array) -> None:
        """bar.warp.sync."""
        warps = self.wave.warp_of[threads]
        self.known[warps, self.column[warps]] = self.now
        self.tick()

    def fence(self, threads: Array) -> None:
        """fence or membar: what came before may be released, what was heard is acquired."""
        wave = self.wave
        if self.fences is None:
            self.fences = np.zeros((wave.warps, self.width), np.int64)
            self.flags = np.zeros((int(wave.cluster_of.max()) + 1, self.width), np.int64)
            self.heard = self.fences.copy()
        warps, rows = self.knowledge(threads)
        self.fences[warps] = rows
        self.acquire_rows(warps, self.heard[warps])
        self.tick()

    def strong(self, threads: Array, *, acquires: bool, releases: bool) -> None:
        """A strong access: all flags of a cluster count as one.  `releases` and `acquires` are its own order;
        without them a fence before or after it has the same effect."""
        if releases:
            self.fence(threads)
        if self.fences is None:
            return
        warps = np.unique(self.wave.warp_of[threads])
        clusters = self.wave.cluster_of[self.block_of_warp[warps]]
        np.maximum.at(self.flags, clusters, self.fences[warps])
        self.heard[warps] = np.maximum(self.heard[warps], self.flags[clusters])
        if acquires:
            self.acquire_rows(warps, self.heard[warps])
