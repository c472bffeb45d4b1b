"""Scans: the running fold along one axis, by doubling.

The coordinate along the axis is a number of bits, each held by a register, lane or warp bit of the layout.  They
are joined from the lowest up.  Before bit j, every element knows the running fold inside its aligned block of
2**j elements, and every thread the totals of its blocks; then the later half of each block of 2**(j+1) takes the
total of the earlier half in front:

    bit held by a register   the thread has both halves
    bit held by a lane       the partner's total comes by a shuffle
    bit held by a warp       the partner's total comes through shared memory

At last the repetitions of the base tile follow one another with a carry.  In a reverse scan the half with the
higher coordinates is the earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import LANE_BITS, Layout
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.combiner import Combiner, Values
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.convert import convert_tile
from mosaic_gpu.lowering.nvvm.exchange import from_partner
from mosaic_gpu.lowering.nvvm.predicates import Condition, Coordinates
from mosaic_gpu.lowering.nvvm.registers import chosen_layout
from mosaic_gpu.lowering.nvvm.shuffles import shuffle_xor


@converts("mgpu.scan")
def convert_scan(conversion: Conversion, op: Any) -> list[ir.Value]:
    """In the layout of the first operand, or in a blocked one where that mixes the axis with other dimensions."""
    types = [v.type for v in op.inputs]
    shape, axis = shape_of(types[0]), ir.IntegerAttr(op.axis).value
    layout = chosen_layout(types[0])
    if not _is_separate(layout, axis):
        layout = Layout.blocked(shape, layout.num_warps)
    values = [
        convert_tile(conversion, v, shape, chosen_layout(t), layout)
        for v, t in zip(conversion.all(op.inputs), types, strict=True)
    ]
    combiner = Combiner(conversion, op.body.blocks[0])
    is_reverse = bool(ir.IntegerAttr(op.reverse).value)
    if is_reverse:
        values = _neutralized(conversion, layout, shape, axis, values, conversion.all(op.identities))
    scan = _Scan(conversion, combiner, layout, shape, axis, is_reverse, values)
    return [
        convert_tile(conversion, v, shape, layout, chosen_layout(r.type))
        for v, r in zip(scan.run(), op.operation.results, strict=True)
    ]


def _is_separate(layout: Layout, axis: int) -> bool:
    """Whether every bit that moves the axis moves one bit of it, and nothing else."""
    moving = [image for image in (*layout.register, *layout.thread_images) if image[axis]]
    return all(sum(image) == image[axis] and image[axis] & (image[axis] - 1) == 0 for image in moving)


def _neutralized(
    conversion: Conversion,
    layout: Layout,
    shape: tuple[int, ...],
    axis: int,
    values: Values,
    identities: Sequence[ir.Value],
) -> Values:
    """Padding along the axis, where a reverse scan starts, is replaced by identities."""
    coordinates = Coordinates(conversion.threads, layout, shape)
    found: dict[Condition, list[int]] = {}
    for register in range(len(coordinates)):
        found.setdefault(coordinates.inside(register, [axis]), []).append(register)
    for condition, registers in found.items():
        if condition is True:
            continue
        neutral = [emit.splat(i, len(registers)) for i in identities]
        if condition is not False:
            kept = [emit.pick(v, registers) for v in values]
            neutral = [emit.select(condition, k, n) for k, n in zip(kept, neutral, strict=True)]
        values = [emit.overlay(v, registers, n) for v, n in zip(values, neutral, strict=True)]
    return values


@dataclass
class _Scan:
    """The state of one scan.

    Attributes:
      prefixes: the running folds so far, one vector an operand, all registers.
      totals: totals of the blocks so far; element i belongs to the registers whose `owner` is `keys[i]`.
      joined: register bits that have been joined.
    """

    conversion: Conversion
    combiner: Combiner
    layout: Layout
    shape: tuple[int, ...]
    axis: int
    is_reverse: bool
    prefixes: Values
    totals: Values = field(init=False)
    keys: list[int] = field(init=False)
    joined: int = 0

    def __post_init__(self) -> None:
        self.totals = self.prefixes
        self.keys = list(range(self.count))

    @property
    def count(self) -> int:
        """Registers of the tile."""
        return self.layout.num_registers(self.shape)

    def run(self) -> Values:
        """The scanned vectors."""
        for place in range(self.layout.base[self.axis].bit_length() - 1):
            self._join(1 << place)
        self._carry_repetitions()
        return self.prefixes

    def _join(self, step: int) -> None:
        for bit, image in enumerate(self.layout.register):
            if image[self.axis] == step:
                self._join_registers(1 << bit)
        for bit, image in enumerate(self.layout.thread_images):
            if image[self.axis] == step:
                self._join_threads(bit)

    def _join_registers(self, mask: int) -> None:
        low = [k for k in self.keys if not k & mask]
        high = [k | mask for k in low]
        earlier, later = (high, low) if self.is_reverse else (low, high)
        first, second = self._totals_of(earlier), self._totals_of(later)
        takers = [r for r in range(self.count) if bool(r & mask) != self.is_reverse]
        givers = [self._owner(r) ^ mask for r in takers]
        moved = self.combiner(self._totals_of(givers), [emit.pick(p, takers) for p in self.prefixes])
        self.prefixes = [emit.overlay(p, takers, m) for p, m in zip(self.prefixes, moved, strict=True)]
        self.totals, self.keys = self.combiner(first, second), low
        self.joined |= mask

    def _join_threads(self, bit: int) -> None:
        if bit < LANE_BITS:
            others = [shuffle_xor(t, 1 << bit) for t in self.totals]
        else:
            others = [from_partner(self.conversion, t, 1 << bit) for t in self.totals]
        is_low = self.conversion.threads.has_no_bits(1 << bit)
        spread = self._positions([self._owner(r) for r in range(self.count)])
        moved = self.combiner([emit.pick(o, spread) for o in others], self.prefixes)
        self.prefixes = [self._if_later(is_low, m, p) for m, p in zip(moved, self.prefixes, strict=True)]
        first = [self._if_later(is_low, o, t) for o, t in zip(others, self.totals, strict=True)]
        second = [self._if_later(is_low, t, o) for o, t in zip(others, self.totals, strict=True)]
        self.totals = self.combiner(first, second)

    def _if_later(self, is_low: ir.Value | None, yes: ir.Value, no: ir.Value) -> ir.Value:
        """`yes` in threads that hold the later half, else `no`."""
        if is_low is None:
            raise AssertionError("a bit was asked for")
        return emit.select(is_low, yes, no) if self.is_reverse else emit.select(is_low, no, yes)

    def _carry_repetitions(self) -> None:
        by_repetition: dict[int, list[int]] = {}
        for register, offset in enumerate(self.layout.register_offsets(self.shape)):
            by_repetition.setdefault(offset[self.axis] // self.layout.base[self.axis], []).append(register)
        order = sorted(by_repetition, reverse=self.is_reverse)
        carry = self._totals_of([k for k in self.keys if k in set(by_repetition[order[0]])])
        for number, repetition in enumerate(order[1:], start=2):
            registers = by_repetition[repetition]
            keys = [k for k in self.keys if k in set(registers)]
            position = {key: i for i, key in enumerate(keys)}
            spread = [position[self._owner(r)] for r in registers]
            own = [emit.pick(p, registers) for p in self.prefixes]
            moved = self.combiner([emit.pick(c, spread) for c in carry], own)
            self.prefixes = [emit.overlay(p, registers, m) for p, m in zip(self.prefixes, moved, strict=True)]
            if number < len(order):
                carry = self.combiner(carry, self._totals_of(keys))

    def _owner(self, register: int) -> int:
        """The register that stands for all that were joined with this one."""
        return register & ~self.joined

    def _positions(self, keys: Sequence[int]) -> list[int]:
        position = {key: i for i, key in enumerate(self.keys)}
        return [position[k] for k in keys]

    def _totals_of(self, keys: Sequence[int]) -> Values:
        places = self._positions(keys)
        return [emit.pick(t, places) for t in self.totals]
