"""Conditions on the elements that a thread holds: inside the tile, inside checked bounds.

A condition is a Python bool where it is known beforehand, else an i1 value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.memref import Check
from mosaic_gpu.lowering.nvvm.threads import Split, Threads, split_offset, thread_mask

type Condition = bool | ir.Value


def all_of(conditions: Iterable[Condition]) -> Condition:
    """The conjunction."""
    total: Condition = True
    for condition in conditions:
        if condition is False or total is False:
            return False
        if condition is True:
            continue
        total = condition if total is True else emit.and_(total, condition)
    return total


@dataclass
class Coordinates:
    """The coordinates that a thread's registers have, for one tile; values are emitted where they are asked for.

    Build one for each place of use: what it has emitted is used again.
    """

    threads: Threads
    layout: Layout
    shape: tuple[int, ...]
    _cache: dict[tuple[object, ...], ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mask = thread_mask(self.layout)
        self.splits = [split_offset(o, self.mask) for o in self.layout.register_offsets(self.shape)]
        self.thread = self.threads.coordinate(self.layout)

    def __len__(self) -> int:
        return len(self.splits)

    def flipped(self, dim: int, flip: int) -> ir.Value | None:
        """The thread's coordinate along `dim` XOR `flip` (i32); None where it is always 0."""
        thread = self.thread[dim]
        if thread is None or flip == 0:
            return thread
        return self._cached(("flip", dim, flip), lambda: emit.xor(thread, flip))

    def inside(self, register: int, dims: Iterable[int] | None = None) -> Condition:
        """Whether a register's element lies inside the tile along `dims` (all of them by default)."""
        split = self.splits[register]
        every = range(self.layout.rank) if dims is None else dims
        return all_of(self._below(split, d, self.shape[d]) for d in every)

    def below(self, register: int, dim: int, bound: int) -> Condition:
        """Whether a register's coordinate along `dim` is less than `bound`."""
        return self._below(self.splits[register], dim, bound)

    def _below(self, split: Split, dim: int, bound: int) -> Condition:
        room = bound - split.added[dim]
        thread = self.flipped(dim, split.flipped[dim])
        if room <= 0:
            return False
        step = self.mask[dim] & -self.mask[dim]
        if step:  # the thread's part is a multiple of this, so many rooms are one condition
            room = -(-room // step) * step
        if thread is None or room > self.mask[dim]:
            return True
        return self._cached(("below", dim, split.flipped[dim], room), lambda: emit.compare(emit.ULT, thread, room))

    def passes(self, register: int, checks: Sequence[Check]) -> Condition:
        """Whether a register's element passes `checks`."""
        return all_of(self._check(register, number, check) for number, check in enumerate(checks))

    def _check(self, register: int, number: int, check: Check) -> ir.Value:
        split = self.splits[register]
        where = (0, 0) if check.dim is None else (split.flipped[check.dim], split.added[check.dim])

        def emit_check() -> ir.Value:
            start = check.start
            thread = None if check.dim is None else self.flipped(check.dim, where[0])
            if thread is not None:
                same = emit.convert_int(thread, emit.bits_of(start.type), signed=False)
                start = emit.add(start, emit.mul(same, check.scale))
            return emit.compare(emit.ULT, emit.add(start, where[1] * check.scale), check.extent)

        return self._cached(("check", number, where), emit_check)

    def vector(self, dim: int, bits: int) -> ir.Value:
        """The coordinates along `dim` of all registers, as a vector of integers of `bits` bits."""
        type_ = emit.int_type(bits)
        added = emit.dense(type_, [s.added[dim] for s in self.splits])
        if self.thread[dim] is None:
            return added
        base = emit.convert_int(self.thread[dim], bits, signed=False)
        spread = emit.splat(base, len(self))
        flips = [s.flipped[dim] for s in self.splits]
        if any(flips):
            spread = emit.xor(spread, emit.dense(type_, flips))
        return emit.binary("addi", spread, added)

    def _cached(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> ir.Value:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]
