"""Races: two accesses to the same bytes, one of them a write, that nothing puts in order.

Accesses are ordered by happens-before (PTX ISA, "Memory Consistency Model"): program order, barriers, mbarriers,
cluster barriers, bar.warp.sync between the lanes of a warp, and fences around strong accesses to flags; see
`happens_before.py`.  The simulator's schedule plays no part: a race is found whichever of its two accesses came first.

Memory is divided into units as wide as the kernel's narrowest access.  Of each unit of shared memory the last
write and each warp's last read are kept; of global memory the last write, the last read, and the last read by another
block than that one's.

What is not seen: a partial mask of bar.warp.sync counts as a whole one; only the last lane of a warp that read a
unit is known; atomics of different threads do not race with one another, nor with volatile, relaxed, acquire and
release accesses; a kernel with a fence or such an order at gpu or sys scope may pass data between blocks in ways
that are not followed, so its blocks are not compared; bulk copies are followed in shared memory only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.happens_before import HappensBefore
from mosaic_gpu.simulator.race_copies import AsynchronousAccesses
from mosaic_gpu.simulator.race_records import (
    ASYNC,
    FUTURE,
    SEVERAL,
    STRONG,
    THREAD_MASK,
    TIME_SHIFT,
    GlobalRecords,
    SharedRecords,
    access_bits,
    access_number,
)  # fmt: skip

if TYPE_CHECKING:
    from mosaic_gpu.errors import SimulationError
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.memory import Access, Region
    from mosaic_gpu.simulator.prepare import Kernel
    from mosaic_gpu.simulator.ptx import Instruction
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
_HINT = "a barrier that both pass between the two, an mbarrier, or bar.warp.sync within a warp"


class Races(HappensBefore):
    """The race detector of a launch; `begin` is called for each wave."""

    shared: SharedRecords

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(_is_asynchronous(kernel))
        layout = kernel.layout
        self.accesses = layout.accesses
        self.shared_unit, self.global_unit = layout.shared_unit, layout.global_unit
        self.between_blocks = not layout.fenced
        self.buffers: dict[int, GlobalRecords] = {}
        self.copies = AsynchronousAccesses(self)

    def begin(self, wave: Wave) -> None:
        """All of the last wave is over; its accesses to global memory are remembered."""
        self.start_wave(wave)

    def forget(self) -> None:
        """Starts anew: everything so far is ordered, and forgotten if time has run over."""
        super().forget()
        if self.start == 2:
            self.buffers.clear()
        columns = self.warps_wide * (2 if self.asynchronous else 1)
        self.shared = SharedRecords(len(self.wave.shared.data), self.shared_unit, columns)

    def read(self, access: Access, region: Region, where: Any, frame: Frame, chosen: Array | None) -> None:
        """Threads of the frame (positions `chosen`) read a region at `where`, in units of the access."""
        if access.total < (self.shared_unit if region.unit == "block" else self.global_unit):
            return  # an access to another space than its own, through a window
        if region.unit == "block":
            ids = frame.ids if chosen is None else frame.ids[chosen]
            self._shared_read(access, where, ids)
        elif not region.unit and region.writable and region is not self.wave.params:
            ids = frame.ids if chosen is None else frame.ids[chosen]
            self._global_read(access, region, where, ids)

    def write(self, access: Access, region: Region, where: Any, frame: Frame, chosen: Array | None) -> None:
        """As `read`, for a write."""
        if region.unit == "thread" or access.total < (self.shared_unit if region.unit else self.global_unit):
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
            others = (before & THREAD_MASK != ids_like(ids, before)) | (before & SEVERAL != 0)
            several = (before >= self.limit) & others
        elif not isinstance(where, np.ndarray) or not lost.any():
            return
        else:
            several = np.zeros(before.shape, np.bool_)
        if several.any() or lost.any():
            stamps = np.broadcast_to(stamps, before.shape)
            self.keep_reads(k, self.positions(where), table, before, several, stamps, lost)

    def keep_reads(
        self, k: int, index: Array, table: Array, before: Array, several: Array, stamps: Array, lost: Array
    ) -> None:  # fmt: skip
        """Keeps the reads `before` that are not the readers' own, and those that were `lost` to another of now."""
        for chosen, records in ((several, before), (lost, stamps)):
            some = np.flatnonzero(chosen if chosen.ndim == 1 else chosen.any(axis=1))
            if len(some):
                part = records[some]
                columns = self.column_of[part & THREAD_MASK] + (part & ASYNC != 0) * self.warps_wide
                self.shared.keep(k, columns, index[some], part)
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
        index = self.positions(where)[some]
        for column in range(self.shared.columns):
            last = self.shared.reads(k, column)[index]
            if int(last.max()) >= self.limit:
                self._judge(access, last, ids[some], index, None, "read")

    def positions(self, where: Any) -> Array:
        """The indices that `where` stands for."""
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
        if self.asynchronous:
            bad |= last & ASYNC != 0
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
        bad = bad[some] & (part != 0) & self.unordered(part, me, region)
        if bad.any():
            rows = bad.reshape(len(bad), -1)
            position = int(np.argmax(rows.any(axis=1)))
            record = int(part.reshape(len(part), -1)[position][int(np.argmax(rows[position]))])
            index = np.broadcast_to(self.positions(where), len(ids))[some[position]]
            raise self._report(access, record, int(ids[some[position]]), int(index), region, kind)

    def unordered(self, records: Array, me: Array, region: Region | None) -> Array:
        """Which records are not ordered before what the threads `me` do now."""
        thread, time = records & THREAD_MASK, records >> TIME_SHIFT
        wave = self.wave
        if region is None:
            columns = self.column_of[thread]
            if self.asynchronous:
                columns = columns + (records & ASYNC != 0) * (2 * self.warps_wide)
            return np.asarray(time > self.known[wave.warp_of[me], columns])
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
        records.mark_read(k, where, ids, self.now << TIME_SHIFT | access_bits(access), self._block_of)

    def _block_of(self, records: Array) -> Array:
        """The blocks of the threads of records; -1 of earlier waves."""
        thread = np.where(records >> TIME_SHIFT < self.start, 0, records & THREAD_MASK)
        return np.where(records >> TIME_SHIFT < self.start, -1, self.wave.block_of[thread])

    def _global_write(self, access: Access, region: Region, where: Any, ids: Array) -> None:
        records, k = self._buffer(region), access.total // self.global_unit
        reads = [records.reads(k), *records.other_reads(k)]
        for kind, table in (("write", records.written(k)), *(("read", table) for table in reads)):
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

    def access_of(self, record: int) -> Access:
        """The access that made a record."""
        access: Access = self.accesses[access_number(record) - 1]
        return access

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
        other = self.access_of(record)
        who = record & THREAD_MASK
        foreign = record >> TIME_SHIFT < self.start
        where = "another block, which ran before" if foreign else wave.describe(who)
        if record & ASYNC and record >> TIME_SHIFT == FUTURE:
            return self._overtaken(access, byte, place, other.instruction, frame)
        line = f" ({other.instruction.source})" if other.instruction.source else ""
        return access.error(
            f"race: {access.what} of {access.total} bytes at byte {byte} of {place.name}, and a {kind} of them by "
            f"another thread, with nothing that orders them\n  the other: PTX line {other.instruction.line}: "
            f"{other.instruction.name}, {where}{line}", frame, 0,
            hint=_HINT,
        )  # fmt: skip

    def _overtaken(
        self, access: Access, byte: int, place: Region, other: Instruction, frame: Frame
    ) -> SimulationError:  # fmt: skip
        line = f" ({other.source})" if other.source else ""
        return access.error(
            f"hazard: {access.what} of {access.total} bytes at byte {byte} of {place.name}, which an asynchronous "
            f"operation is still using\n  the operation: PTX line {other.line}: {other.name}{line}", frame, 0,
            hint="wait for the operation (its mbarrier, or its wait_group) before its memory is used again",
        )  # fmt: skip


def ids_like(ids: Array, records: Array) -> Array:
    """The threads beside their records, which may have several columns."""
    return ids if records.ndim == 1 else ids[:, None]


def _is_asynchronous(kernel: Kernel) -> bool:
    return any(
        i.opcode == "wgmma" or (i.opcode == "cp" and "bulk" in i.modifiers) or "async" in i.modifiers[:1]
        for block in kernel.blocks for i in block.instructions
    )  # fmt: skip
