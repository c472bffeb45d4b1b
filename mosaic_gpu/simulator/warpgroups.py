"""wgmma operations on their way.

wgmma.mma_async only notes what is to be done.  Its operands in shared memory and registers are read, and its
accumulators are written, when a wgmma.wait_group covers it (with a seed, sometimes sooner): until then the
registers hold what they held, and an operand that is overwritten too soon gives a wrong result.  Operations of a
warpgroup complete in order, so a chain on the same accumulators needs no wait in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.descriptors import CHUNK_BYTES, chunk_addresses
from mosaic_gpu.simulator.fragments import a_table, c_table, invert
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.matrix_values import accumulate, accumulator_bits, decode, multiply
from mosaic_gpu.simulator.memory import Region
from mosaic_gpu.simulator.ptx import Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
GROUP = 128
_ROWS = 16


@dataclass(frozen=True)
class MatrixOperation:
    """One wgmma.mma_async of the program.  `accumulators` and `a_registers` are slots (none: A is in memory);
    the majors say whether K is contiguous; `negate_a` and `negate_b` are imm-scale of -1."""

    instruction: Instruction
    columns: int
    depth: int
    kind: str
    a_kind: str
    b_kind: str
    accumulators: tuple[int, ...]
    a_registers: tuple[int, ...] = ()
    a_k_major: bool = True
    b_k_major: bool = True
    negate_a: bool = False
    negate_b: bool = False
    saturate: bool = False


@dataclass
class PendingProduct:
    """An operation under way in some warpgroups: `threads` (groups, 128), the commit `group` it belongs to, the
    descriptors of A (None: registers) and B and whether the accumulator is read, all per warpgroup."""

    operation: MatrixOperation
    threads: Array
    group: Array
    a: Array | None
    b: Array
    reads_accumulator: Array
    product: Array | None = None

    def part(self, chosen: Array) -> PendingProduct:
        """The same for some of the warpgroups."""
        a = None if self.a is None else self.a[chosen]
        product = None if self.product is None else self.product[chosen]
        return PendingProduct(self.operation, self.threads[chosen], self.group[chosen], a, self.b[chosen],
                              self.reads_accumulator[chosen], product)  # fmt: skip

    def shared_chunks(self) -> list[tuple[int, Array]]:
        """(first thread, addresses in its block's shared memory of the 16-byte chunks that are read), per
        warpgroup and operand."""
        o, found = self.operation, []
        for i in range(len(self.b)):
            first = int(self.threads[i, 0])
            if self.a is not None:
                found.append((first, chunk_addresses(int(self.a[i]), 64, o.a_k_major)))
            found.append((first, chunk_addresses(int(self.b[i]), o.columns, o.b_k_major)))
        return found


@dataclass
class _Accumulators:
    """The accumulators that the operations being done work on, as matrices (groups, 64, N) of bits."""

    slots: tuple[int, ...]
    threads: Array
    kind: str
    columns: int
    bits: Array | None = None
    loaded: bool = field(default=False)


class Warpgroups:
    """The wgmma operations of a wave, and the number of the commit group that each thread is filling."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.group = np.zeros(wave.T, np.int64)
        self.pending: list[PendingProduct] = []

    def issue(self, pending: PendingProduct) -> None:
        """Takes an operation on its way."""
        self.pending.append(pending)
        if self.wave.races is not None:
            self._tell_races(pending, over=False)

    def commit(self, ids: Array) -> None:
        """wgmma.commit_group."""
        self.group[ids] += 1

    def wait(self, ids: Array, most: int) -> None:
        """Completes the groups of these threads' warpgroups except the `most` youngest of those committed."""
        if not self.pending:
            return
        limit = np.full(self.wave.T, -1, np.int64)
        limit[ids] = self.group[ids] - most
        left: list[PendingProduct] = []
        current: _Accumulators | None = None
        for pending in self.pending:
            done = pending.group < limit[pending.threads].max(axis=1)
            if not done.any():
                left.append(pending)
                continue
            whole = bool(done.all())
            current = self._perform(pending if whole else pending.part(np.flatnonzero(done)), current)
            if not whole:
                left.append(pending.part(np.flatnonzero(~done)))
        self._store(current)
        self.pending = left

    def _tell_races(self, pending: PendingProduct, *, over: bool) -> None:
        """The operands in shared memory are being read, or have been."""
        races = self.wave.races
        assert races is not None
        tell = races.copies.end if over else races.copies.begin
        for thread, addresses in pending.shared_chunks():
            if int(addresses.max()) + CHUNK_BYTES <= self.wave.shared.size:
                where = races.copies.chunks(thread, addresses)
                tell(pending.operation.instruction, thread, where, CHUNK_BYTES // races.shared_unit, writes=False)
        if over:
            for threads in pending.threads:
                races.finished(int(threads[0]), np.unique(self.wave.warp_of[threads]))
            races.tick()

    def _perform(self, pending: PendingProduct, current: _Accumulators | None) -> _Accumulators:
        """Does an operation; the accumulators are stored only when another operation's come."""
        o = pending.operation
        same = (
            current is not None and current.slots == o.accumulators and current.kind == o.kind
            and np.array_equal(current.threads, pending.threads)
        )  # fmt: skip
        if not same:
            self._store(current)
            current = _Accumulators(o.accumulators, pending.threads, o.kind, o.columns)
        assert current is not None
        product = self.product(pending) if pending.product is None else pending.product
        read = pending.reads_accumulator
        before = self._load(current) if read.any() else None
        if before is not None and not read.all():
            before = np.where(read[:, None, None], before, before.dtype.type(0))
        if self.wave.races is not None:
            self._tell_races(pending, over=True)
        current.bits = accumulate(product, before, o.kind, saturate=o.saturate)
        return current

    def _load(self, current: _Accumulators) -> Array:
        if current.bits is not None:
            return current.bits
        words = self.words(current.slots, current.threads).view(accumulator_bits(current.kind))
        table = c_table(_ROWS, current.columns, current.kind)
        return words[:, table].reshape(len(current.threads), 64, current.columns)

    def _store(self, current: _Accumulators | None) -> None:
        if current is None or current.bits is None:
            return
        table = invert(c_table(_ROWS, current.columns, current.kind))
        rows = current.bits.reshape(4 * len(current.threads), -1)
        words = np.ascontiguousarray(rows[:, table]).view(np.uint32).reshape(len(rows), -1, 32)
        where = positions(current.threads)
        for i, slot in enumerate(current.slots):
            self.wave.slots[slot][where] = words[:, i].reshape(-1)

    def words(self, slots: tuple[int, ...], threads: Array) -> Array:
        """The registers of whole warpgroups: (warps, registers * 32)."""
        where = positions(threads)
        words = np.empty((4 * len(threads), len(slots), 32), np.uint32)
        for i, slot in enumerate(slots):
            words[:, i] = self.wave.slots[slot][where].reshape(-1, 32)
        return words.reshape(len(words), -1)

    def product(self, pending: PendingProduct, registers: Array | None = None) -> Array:
        """A B of each warpgroup, (groups, 64, N); `registers` are A's, if they are not to be read now."""
        o, groups = pending.operation, len(pending.threads)
        if pending.a is None:
            words = self.words(o.a_registers, pending.threads) if registers is None else registers
            a = decode(words, o.a_kind)[:, a_table(_ROWS, o.depth, o.a_kind)].reshape(groups, 64, -1)
        else:
            a = self._operand(pending, pending.a, 64, o.a_kind, o.a_k_major)
        b = self._operand(pending, pending.b, o.columns, o.b_kind, o.b_k_major)
        total = multiply(a, b)
        return -total if o.negate_a != o.negate_b else total

    def _operand(self, pending: PendingProduct, descriptors: Array, size: int, kind: str, k_major: bool) -> Array:
        """(groups, size, K) elements from shared memory."""
        shared = self.wave.shared
        first, same = int(descriptors[0]), bool((descriptors == descriptors[0]).all())
        address = (
            chunk_addresses(first, size, k_major)[None] if same
            else np.stack([chunk_addresses(int(bits), size, k_major) for bits in descriptors.tolist()])
        )  # fmt: skip
        if int(address.max()) + CHUNK_BYTES > shared.size:
            self._fault(pending, address, f"outside its {shared.size} bytes", address + CHUNK_BYTES > shared.size)
        start = self.wave.block_of[pending.threads[:, 0]] * (shared.stride // CHUNK_BYTES)
        index = start[:, None, None] + address // CHUNK_BYTES
        self._require_written(pending, shared, address, index)
        words = shared.typed(np.dtype(np.uint32), 4).take(index, axis=0)
        elements = decode(words.reshape(*index.shape[:2], -1), kind)
        return elements if k_major else np.swapaxes(elements, 1, 2)

    def _require_written(self, pending: PendingProduct, shared: Region, address: Array, index: Array) -> None:
        if shared.shadow is None:
            return
        state = shared.typed(np.dtype(np.uint64), 2, shadow=True).take(index, axis=0)
        full = np.uint64(0xFFFFFFFFFFFFFFFF)
        if np.bitwise_and.reduce(state, axis=None) != full:
            bad = (state != full).any(axis=-1)
            self._fault(pending, np.broadcast_to(address, bad.shape), "that was never written", bad)

    def _fault(self, pending: PendingProduct, address: Array, what: str, bad: Array) -> None:
        where = np.unravel_index(int(np.argmax(bad)), bad.shape)
        group = int(where[0]) if len(bad) == len(pending.threads) else 0
        ids = pending.threads[group]
        frame = Frame(self.wave, ids, len(ids), self.wave.slots)
        raise frame.error(
            pending.operation.instruction,
            f"wgmma reads 16 bytes of shared memory at byte {int(address[where])} {what}", 0,
        )  # fmt: skip


def positions(threads: Array) -> Any:
    """Thread numbers (groups, 128) flat, or the slice that they are."""
    flat = threads.reshape(-1)
    if int(flat[-1]) - int(flat[0]) == len(flat) - 1:
        return slice(int(flat[0]), int(flat[-1]) + 1)
    return flat
