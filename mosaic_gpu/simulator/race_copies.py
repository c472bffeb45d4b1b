"""Asynchronous accesses to shared memory: bulk copies, cp.async, and the operands of wgmma.

Bulk copies and wgmma are of the async proxy.  What a thread wrote before, they see only if a fence.proxy.async
stands between (PTX ISA, "Async proxy").  From the moment they start until it is known that they have finished, what
they read must not be written and what they write must not be touched: their records lie in the FUTURE.  Then they
get the time at which they finished, known to those who waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import Access
from mosaic_gpu.simulator.race_records import (
    ASYNC,
    FUTURE,
    SEVERAL,
    THREAD_MASK,
    TIME_SHIFT,
    access_bits,
    access_number,
)  # fmt: skip

if TYPE_CHECKING:
    from mosaic_gpu.errors import SimulationError
    from mosaic_gpu.simulator.copies import Copy
    from mosaic_gpu.simulator.ptx import Instruction
    from mosaic_gpu.simulator.races import Races

Array = np.ndarray[Any, np.dtype[Any]]


class AsynchronousAccesses:
    """What the race detector knows of asynchronous accesses."""

    def __init__(self, races: Races) -> None:
        self.races = races
        self.made: dict[int, Access] = {}
        self.plain = np.zeros(0, np.bool_)

    def _access(self, instruction: Instruction) -> Access:
        """The access that stands for an instruction, numbered among the kernel's."""
        access = self.made.get(id(instruction))
        if access is None:
            what = "the operand of wgmma" if instruction.opcode == "wgmma" else "the asynchronous copy"
            access = self.made[id(instruction)] = Access(instruction, "shared", 0, 0, 1, what)
            self.races.accesses.append(access)
            access.number = len(self.races.accesses)
        return access

    def begin(self, instruction: Instruction, thread: int, where: Any, k: int, *, writes: bool) -> None:
        """An access of the async proxy that `thread` starts, to the units `where` (rows of `k` units)."""
        races = self.races
        access, records = self._access(instruction), races.shared
        last = records.written(k)[where]
        self._judge(access, thread, last, where, k, after_write=True)
        reads = records.read(k)
        before = reads[where]
        stamp = FUTURE << TIME_SHIFT | access_bits(access) | ASYNC | thread
        if writes:
            self._judge(access, thread, before, where, k, after_write=False)
            self._judge_kept(access, thread, before, where, k)
            records.written(k)[where] = stamp
            return
        several = (before >= races.limit) & ((before & THREAD_MASK != thread) | (before & ASYNC == 0))
        several |= (before >= races.limit) & (before & SEVERAL != 0)
        reads[where] = stamp
        if several.any():
            nothing = np.zeros(before.shape, np.bool_)
            races.keep_reads(k, races.positions(where), reads, before, several, before, nothing)

    def end(self, instruction: Instruction, thread: int, where: Any, k: int, *, writes: bool) -> None:
        """The access is over now."""
        records = self.races.shared
        table = records.written(k) if writes else records.read(k)
        old = table[where]
        access = self._access(instruction)
        stamp = FUTURE << TIME_SHIFT | access_bits(access) | ASYNC | thread
        done = self.races.now << TIME_SHIFT | access_bits(access) | ASYNC | thread
        table[where] = np.where(old & ~SEVERAL == stamp, done | (old & SEVERAL), old)
        if not writes:
            kept = records.reads(k, self.races.warps_wide + int(self.races.column_of[thread]))
            old = kept[where]
            kept[where] = np.where(old & ~SEVERAL == stamp, done, old)

    def span(self, block: int, start: int, size: int) -> slice:
        """The units of a stretch of a block's shared memory."""
        races = self.races
        base = block * races.wave.shared.stride + start
        return slice(base // races.shared_unit, -(-(base + size) // races.shared_unit))

    def chunks(self, thread: int, addresses: Array) -> Array:
        """The indices of 16-byte chunks of the shared memory of a thread's block."""
        wave = self.races.wave
        base = int(wave.block_of[thread]) * (wave.shared.stride // 16)
        return np.asarray(base + addresses.reshape(-1) // 16)

    def copied(self, copy: Copy, chosen: Array) -> None:
        """cp.async, which is of the generic proxy, has landed: its writes count from now on."""
        races = self.races
        if copy.access is not None:
            k = copy.size // races.shared_unit
            stamps = copy.threads[chosen] + (races.now << TIME_SHIFT | access_bits(copy.access))
            races.shared.written(k)[copy.target[chosen]] = stamps if k == 1 else stamps[:, None]

    def _judge(self, access: Access, thread: int, records: Array, where: Any, k: int, *, after_write: bool) -> None:
        """Raises for a record that is not ordered before an access of the async proxy by the thread, or, if it is a
        write by the generic proxy, has no fence.proxy.async between."""
        races = self.races
        warp, wide = int(races.wave.warp_of[thread]), races.warps_wide
        known = races.known[warp]
        who, time, is_async = records & THREAD_MASK, records >> TIME_SHIFT, records & ASYNC != 0
        column = races.column_of[who]
        late = time > known[column + is_async * (2 * wide)]
        late &= (who != thread) | is_async
        unfenced = ~is_async & (time > known[wide + column]) if after_write else np.zeros(late.shape, np.bool_)
        if unfenced.any():
            unfenced &= ~self._plain_copies().take(access_number(records), mode="clip")
        bad = (late | unfenced) & (records != 0)
        if bad.any():
            at = np.unravel_index(int(np.argmax(bad)), bad.shape)
            unit = int(races.positions(where)[at[0]]) * k + (int(at[1]) if len(at) > 1 else 0)
            raise self._fault(access, thread, int(records[at]), unit, late=bool(late[at]), write=after_write)

    def _plain_copies(self) -> Array:
        """By number, whether an access is a cp.async."""
        accesses = self.races.accesses
        if len(self.plain) != len(accesses) + 1:
            self.plain = np.array([False, *(a.instruction.opcode == "cp" for a in accesses)])
        return self.plain

    def _judge_kept(self, access: Access, thread: int, before: Array, where: Any, k: int) -> None:
        races = self.races
        several = (before >= races.limit) & (before & SEVERAL != 0)
        some = np.flatnonzero(several if several.ndim == 1 else several.any(axis=1))
        if len(some):
            index = races.positions(where)[some]
            for column in range(races.shared.columns):
                last = races.shared.reads(k, column)[index]
                if int(last.max()) >= races.limit:
                    self._judge(access, thread, last, index, k, after_write=False)

    def _fault(
        self, access: Access, thread: int, record: int, unit: int, *, late: bool, write: bool
    ) -> SimulationError:  # fmt: skip
        races, wave = self.races, self.races.wave
        frame = Frame(wave, np.array([thread]), 1, wave.slots)
        byte = unit * races.shared_unit % wave.shared.stride
        other = races.access_of(record).instruction
        kind = "write" if write else "read"
        line = f" ({other.source})" if other.source else ""
        by = f"PTX line {other.line}: {other.name}, {wave.describe(record & THREAD_MASK)}{line}"
        if not late:
            return access.error(
                f"hazard: {access.what} uses byte {byte} of shared memory through the async proxy, with no "
                f"fence.proxy.async after a write of it by the generic proxy\n  the write: {by}", frame, 0,
                hint="fence.proxy.async after the write, before the barrier that the copy or wgmma comes after",
            )  # fmt: skip
        if record >> TIME_SHIFT == FUTURE:
            return access.error(
                f"hazard: {access.what} uses byte {byte} of shared memory, which an asynchronous operation is still "
                f"using\n  the operation: {by}", frame, 0,
                hint="wait for the operation (its mbarrier, or its wait_group) before its memory is used again",
            )  # fmt: skip
        return access.error(
            f"race: {access.what} uses byte {byte} of shared memory, and nothing orders it after a {kind} of "
            f"it\n  the {kind}: {by}", frame, 0, hint="a barrier or an mbarrier between the two",
        )  # fmt: skip
