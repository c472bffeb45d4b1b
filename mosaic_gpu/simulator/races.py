"""Races: two accesses to the same bytes, one of them a write, that nothing puts in order.

Accesses are ordered by happens-before (PTX ISA, "Memory Consistency Model"): program order, barriers, mbarriers,
cluster barriers, bar.warp.sync between the lanes of a warp, and fences around strong accesses to flags.  The
simulator's schedule plays no part: a race is found whichever of its two accesses came first.

Time is one counter that each synchronisation moves on.  `known[w, v]` says up to which time the accesses of warp v
are known to (happen before what is next done by) warp w; `known[w, w]` says so for the lanes of one warp.  An
access that happened at time t in warp v is ordered before one by warp w if t <= known[w, v]:

    time 1   warp 0 writes            record (1, warp 0)
             bar.sync of both         known[1, 0] = 1, and time moves on to 2
    time 2   warp 1 reads             1 <= known[1, 0]: no race
    time 2   warp 0 writes            record (2, warp 0); warp 1 read at 2 > known[0, 1] = 1: a race

Memory is divided into units as wide as the kernel's narrowest access.  Of each unit of shared memory the last
write and each warp's last read are kept; of global memory the last write and the last read.  `floor` is the time
up to which everything in a block is ordered, so that after a barrier of all one comparison is enough.

What is not seen: a partial mask of bar.warp.sync counts as a whole one; only the last lane of a warp that read a
unit is known; atomics of different threads do not race with one another, nor with volatile, relaxed, acquire and
release accesses; a kernel with a fence or such an order at gpu or sys scope may pass data between blocks in ways
that are not followed, so its blocks are not compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.race_records import (
    SEVERAL, STRONG, THREAD_MASK, TIME_SHIFT, GlobalRecords, SharedRecords, access_bits, access_number,
)  # fmt: skip

if TYPE_CHECKING:
    from mosaic_gpu.errors import SimulationError
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.memory import Access, Region
    from mosaic_gpu.simulator.prepare import Kernel
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
_LAST_TIME = (1 << 62 - TIME_SHIFT) - 2


class Races:
    """The race detector of a launch; `begin` is called for each wave."""

    wave: Wave
    known: Array
    floor: Array
    shared: SharedRecords

    def __init__(self, kernel: Kernel) -> None:
        layout = kernel.layout
        self.accesses = layout.accesses
        self.shared_unit, self.global_unit = layout.shared_unit, layout.global_unit
        self.between_blocks = not layout.fenced
        self.now = 1
        self.buffers: dict[int, GlobalRecords] = {}

    def begin(self, wave: Wave) -> None:
        """All of the last wave is over; its writes to global memory are remembered."""
        self.wave = wave
        self.now += 1
        self.start = self.now
        size = int(np.prod(wave.shape.cluster))
        self.cluster_size, self.width = size, size * wave.warps_per_block
        self.block_of_warp = np.repeat(np.arange(wave.blocks), wave.warps_per_block)
        self.column = (wave.rank[:, None] * wave.warps_per_block + np.arange(wave.warps_per_block)).reshape(-1)
        self.column_of = self.column[wave.warp_of]
        self._forget()
        self.arrived: dict[int, Array] = {}
        self.completed: dict[int, Array] = {}
        self.fences: Array | None = None
        self.flags = np.zeros((0, 0), np.int64)
        self.heard = self.flags

    def _forget(self) -> None:
        wave = self.wave
        self.known = np.full((wave.warps, self.width), self.now - 1, np.int64)
        self.floor = np.full(wave.blocks, self.now - 1, np.int64)
        self.limit = self.now << TIME_SHIFT
        self.shared = SharedRecords(len(wave.shared.data), self.shared_unit, self.width)

    def tick(self) -> None:
        """Time moves on, after a synchronisation."""
        self.now += 1
        if self.now >= _LAST_TIME:
            self.now = self.start = 2
            self.buffers.clear()
            self._forget()

    # Synchronisation

    def everyone(self) -> None:
        """All threads of all blocks passed a barrier of their block together."""
        if self.cluster_size == 1:
            self.known.fill(self.now)
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
        np.minimum.at(lowest, units[self.block_of_warp], self.known.min(axis=1))
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

    # Accesses

    def read(self, access: Access, region: Region, where: Any, frame: Frame, chosen: Array | None) -> None:
        """Threads of the frame (positions `chosen`) read a region at `where`, in units of the access."""
        if region.unit == "block":
            ids = frame.ids if chosen is None else frame.ids[chosen]
            self._shared_read(access, where, ids)
        elif not region.unit and region.writable and region is not self.wave.params:
            ids = frame.ids if chosen is None else frame.ids[chosen]
            self._global_read(access, region, where, ids)

    def write(self, access: Access, region: Region, where: Any, frame: Frame, chosen: Array | None) -> None:
        """As `read`, for a write."""
        if region.unit == "thread":
            return
        ids = frame.ids if chosen is None else frame.ids[chosen]
        if region.unit == "block":
            self._shared_write(access, where, ids)
        else:
            self._global_write(access, region, where, ids)

    def _stamps(self, access: Access, ids: Array) -> Array:
        return np.add(ids, self.now << TIME_SHIFT | access_bits(access))

    def _shared_read(self, access: Access, where: Any, ids: Array) -> None:
        k = access.total // self.shared_unit
        records = self.shared
        last = records.written(k)[where]
        if last.size and int(last.max()) >= self.limit:
            self._judge(access, last, ids, where, None, "write")
        table = records.read(k)
        before, stamps = table[where], self._stamps(access, ids)
        stamps = stamps if before.ndim == 1 else stamps[:, None]
        table[where] = stamps
        after = table[where] if isinstance(where, np.ndarray) else stamps
        lost = after != stamps
        if before.size and int(before.max()) >= self.limit:
            several = (before >= self.limit) & ((before & THREAD_MASK != ids_like(ids, before)) | (before & SEVERAL != 0))
        elif not isinstance(where, np.ndarray) or not lost.any():
            return
        else:
            several = np.zeros(before.shape, np.bool_)
        if several.any() or lost.any():
            self._keep(k, self._positions(where), table, before, several, np.broadcast_to(stamps, before.shape), lost)

    def _keep(
        self, k: int, index: Array, table: Array, before: Array, several: Array, stamps: Array, lost: Array
    ) -> None:  # fmt: skip
        """Keeps the reads `before` that are not the readers' own, and those that were `lost` to another of now."""
        for chosen, records in ((several, before), (lost, stamps)):
            some = np.flatnonzero(chosen if chosen.ndim == 1 else chosen.any(axis=1))
            if len(some):
                part = records[some]
                self.shared.keep(k, self.column_of[part & THREAD_MASK], index[some], part)
                table[index[some]] |= SEVERAL

    def _shared_write(self, access: Access, where: Any, ids: Array) -> None:
        k = access.total // self.shared_unit
        records, written = self.shared, self.shared.written(k)
        last, readers = written[where], records.read(k)[where]
        if last.size and int(last.max()) >= self.limit:
            self._judge(access, last, ids, where, None, "write")
        if readers.size and int(readers.max()) >= self.limit:
            self._judge_readers(access, readers, ids, where)
        self._mark_write(access, written, where, ids, None)

    def _judge_readers(self, access: Access, readers: Array, ids: Array, where: Any) -> None:
        self._judge(access, readers, ids, where, None, "read")
        k = access.total // self.shared_unit
        several = (readers >= self.limit) & (readers & SEVERAL != 0)
        some = np.flatnonzero(several if several.ndim == 1 else several.any(axis=1))
        if not len(some):
            return
        index = self._positions(where)[some]
        for column in range(self.width):
            last = self.shared.reads(k, column)[index]
            if int(last.max()) >= self.limit:
                self._judge(access, last, ids[some], index, None, "read")

    def _positions(self, where: Any) -> Array:
        return np.arange(where.start, where.stop) if isinstance(where, slice) else where

    def _mark_write(self, access: Access, written: Array, where: Any, ids: Array, region: Region | None) -> None:
        stamps = self._stamps(access, ids)
        single = not isinstance(where, slice) and len(where) == 1 and len(ids) > 1
        if single:
            written[where] = stamps[-1]
        else:
            written[where] = stamps if written.ndim == 1 else stamps[:, None]
        if access.strong or isinstance(where, slice):
            return
        found = written[where]
        wrong = found != (stamps if found.ndim == 1 else stamps[:, None])
        if wrong.any():
            where = np.broadcast_to(where, len(ids))
            bad = np.broadcast_to(wrong.reshape(len(wrong), -1).any(axis=1), len(ids)) & (ids != found.reshape(
                len(found), -1)[:, 0] & THREAD_MASK)  # fmt: skip
            position = int(np.argmax(bad))
            record = int(found.reshape(len(found), -1)[position if len(found) > 1 else 0][0])
            raise self._report(access, record, int(ids[position]), int(where[position]), region, "write")

    def _judge(
        self, access: Access, last: Array, ids: Array, where: Any, region: Region | None, kind: str
    ) -> None:  # fmt: skip
        """Raises for a record in `last` that is not ordered before the threads `ids`."""
        bad = last & THREAD_MASK != ids_like(ids, last)
        if region is None:
            bad &= last >= self.limit
        elif self.start > 2:
            bad |= (last < self.start << TIME_SHIFT) & (last != 0)
        if access.strong:
            bad &= last & STRONG == 0
        if not bad.any():
            return
        some = np.flatnonzero(bad if bad.ndim == 1 else bad.any(axis=1))
        part, me = last[some], ids_like(ids[some], last)
        bad = bad[some] & (part != 0) & self._unordered(part, me, region)
        if bad.any():
            rows = bad.reshape(len(bad), -1)
            position = int(np.argmax(rows.any(axis=1)))
            record = int(part.reshape(len(part), -1)[position][int(np.argmax(rows[position]))])
            index = np.broadcast_to(self._positions(where), len(ids))[some[position]]
            raise self._report(access, record, int(ids[some[position]]), int(index), region, kind)

    def _unordered(self, records: Array, me: Array, region: Region | None) -> Array:
        """Which records are not ordered before what the threads `me` do now."""
        thread, time = records & THREAD_MASK, records >> TIME_SHIFT
        wave = self.wave
        if region is None:
            return np.asarray(time > self.known[wave.warp_of[me], self.column_of[thread]])
        foreign = time < self.start
        thread = np.where(foreign, 0, thread)
        together = ~foreign & (wave.cluster_of[wave.block_of[thread]] == wave.cluster_of[wave.block_of[me]])
        late = time > self.known[wave.warp_of[me], self.column_of[thread]]
        return np.where(together, late, self.between_blocks)

    def _global_read(self, access: Access, region: Region, where: Any, ids: Array) -> None:
        records, k = self._buffer(region), access.total // self.global_unit
        if records.was_written:
            last = records.written(k)[where]
            if last.size and int(last.max()) > 0:
                self._judge(access, np.broadcast_to(last, (len(ids), *last.shape[1:])), ids, where, region, "write")
        records.mark_read(k, where, ids, self.now << TIME_SHIFT | access_bits(access))

    def _global_write(self, access: Access, region: Region, where: Any, ids: Array) -> None:
        records, k = self._buffer(region), access.total // self.global_unit
        for kind, table in (("write", records.written(k)), ("read", records.reads(k))):
            last = table[where]
            if last.size and int(last.max()) > 0:
                self._judge(access, np.broadcast_to(last, (len(ids), *last.shape[1:])), ids, where, region, kind)
        records.was_written = True
        self._mark_write(access, records.written(k), where, ids, region)

    def _buffer(self, region: Region) -> GlobalRecords:
        records = self.buffers.get(id(region))
        if records is None:
            records = self.buffers[id(region)] = GlobalRecords(region.size, self.global_unit)
        return records

    def _report(
        self, access: Access, record: int, thread: int, index: int, region: Region | None, kind: str
    ) -> SimulationError:  # fmt: skip
        from mosaic_gpu.simulator.frame import Frame

        wave = self.wave
        ids = np.array([thread])
        frame = Frame(wave, ids, 1, wave.slots)
        place = region if region is not None else wave.shared
        byte = index * access.total
        byte = byte if region is not None else byte % wave.shared.stride
        other = self.accesses[access_number(record) - 1]
        who = record & THREAD_MASK
        foreign = record >> TIME_SHIFT < self.start
        where = "another block, which ran before" if foreign else wave.describe(who)
        line = f" ({other.instruction.source})" if other.instruction.source else ""
        return access.error(
            f"race: {access.what} of {access.total} bytes at byte {byte} of {place.name}, and a {kind} of them by "
            f"another thread, with nothing that orders them\n  the other: PTX line {other.instruction.line}: "
            f"{other.instruction.name}, {where}{line}", frame, 0,
            hint="a barrier that both pass between the two, an mbarrier, or bar.warp.sync within a warp",
        )  # fmt: skip



def ids_like(ids: Array, records: Array) -> Array:
    """The threads beside their records, which may have several columns."""
    return ids if records.ndim == 1 else ids[:, None]
